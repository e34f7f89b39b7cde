"""The fenced blocks of the documentation, with what is said about each in the comment before it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "connectors").glob("*.md")),
]

FENCE = re.compile(
    r"(?:^<!-- (?P<word>\w+): (?P<about>[^\n]*) -->\n\n)?"
    r"^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
DRAWN = set("│┌└├─▶◀═→")


@dataclass(frozen=True)
class Block:
    """One fenced block. `word` and `about` are those of the comment `<!-- word: about -->` before it."""

    page: str
    line: int
    language: str
    text: str
    word: str
    about: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_drawing(self) -> bool:
        return not self.language and bool(DRAWN & set(self.text))


def blocks_of(page: Path) -> list[Block]:
    """In the order of the page. Every fence of the page is in one of them."""
    text = page.read_text("utf-8")
    found = [
        Block(
            page.name,
            text.count("\n", 0, each.start("fence")) + 1,
            each["language"],
            each["text"],
            each["word"] or "",
            each["about"] or "",
        )
        for each in FENCE.finditer(text)
    ]
    fences = re.findall(r"^ *```", text, re.MULTILINE)
    assert 2 * len(found) == len(fences), f"{page.name}: a fence is not closed, or is indented: {len(fences)} fences"
    return found


def all_blocks() -> Iterator[Block]:
    for page in PAGES:
        yield from blocks_of(page)
