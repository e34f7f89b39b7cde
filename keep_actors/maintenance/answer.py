"""Parse a model's answer strictly: it is untrusted, and anything but the requested form is not a proposal.

The impact is read from the text around the script only, never from a line inside it.
"""

import re
from typing import Final

from keep_actors.maintenance.evidence import legible
from keep_actors.maintenance.task import Impact, Proposal, RepairFailed
from keep_sandbox.limits import DEFAULT_LIMITS

_LANGUAGES: Final = ("js", "javascript")
# None of these backtracks: otherwise a long line of blanks would take minutes.
_OPENING: Final = re.compile(r"(`{3,})([^`]*)")
_CLOSING: Final = re.compile(r"(`{3,})\s*")
_IMPACT: Final = re.compile("impact", re.IGNORECASE)
_NOTE_CHARS_MAX: Final = 2_000


def proposal_of(answer: str) -> Proposal:
    """The proposal in an answer. Raises `RepairFailed` with the reason if there is none."""
    prose, blocks = _parts(answer)
    if not blocks:
        raise RepairFailed("The answer has no ```js block with the script.")
    if len(blocks) > 1:
        raise RepairFailed(f"The answer has {len(blocks)} fenced blocks; exactly one was asked for.")
    [(language, source)] = blocks
    if language not in _LANGUAGES:
        raise RepairFailed(f"The block of the answer is marked {legible(language, 20)!r}, not js.")
    if not source.strip():
        raise RepairFailed("The ```js block of the answer is empty.")
    size, lines = len(source.encode("utf-8", "surrogatepass")), source.count("\n") + 1
    if size > DEFAULT_LIMITS.script_bytes or lines > DEFAULT_LIMITS.script_lines:
        raise RepairFailed(
            f"The script of the answer has {size} bytes in {lines} lines; at most "
            f"{DEFAULT_LIMITS.script_bytes} and {DEFAULT_LIMITS.script_lines} are allowed."
        )
    note = "\n".join(line for line in prose if _said(line) is None).strip()
    return Proposal(source, _impact(prose), legible(note, _NOTE_CHARS_MAX))


def _parts(answer: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The lines outside fences, and the blocks: language and content."""
    prose: list[str] = []
    blocks: list[tuple[str, str]] = []
    block: list[str] = []
    fence, language = "", ""
    # Not `splitlines`, which also splits at characters that do not end a line of JavaScript.
    for line in answer.split("\n"):
        if not fence:
            if (opening := _OPENING.fullmatch(line)) is None:
                prose.append(line)
                continue
            fence, language, block = opening[1], opening[2].strip().lower(), []
        elif (closing := _CLOSING.fullmatch(line)) is not None and len(closing[1]) >= len(fence):
            blocks.append((language, "".join(f"{each}\n" for each in block)))
            fence = ""
        else:
            block.append(line)
    if fence:
        raise RepairFailed("The answer is incomplete: its last fenced block has no end.")
    return prose, blocks


def _impact(prose: list[str]) -> Impact:
    """Return "safe" only if the answer says so exactly once; otherwise a person has to look at the proposal."""
    said = [found for line in prose if (found := _said(line)) is not None]
    return "safe" if said == ["safe"] else "potentially_impactful"


def _said(line: str) -> str | None:
    """The impact that a line states; None if it is about something else."""
    word, colon, rest = line.partition(":")
    return rest.strip() if colon and _IMPACT.fullmatch(word.strip()) is not None else None
