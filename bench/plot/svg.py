"""Write SVG by hand: text stays text, colours follow the reader's light or dark setting, nothing is loaded."""

import textwrap
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

WIDTH: Final = 860
COLOURS: Final = (
    ("#1d6fb8", "#6cb6ff"),
    ("#c2410c", "#f0883e"),
    ("#15803d", "#56d364"),
    ("#7c3aed", "#d2a8ff"),
    ("#a16207", "#e3b341"),
    ("#be185d", "#ff7bb0"),
)
"""Each for a light and for a dark ground. Series differ by their marks too, for those who see no colours."""

_CAPTION_CHARS: Final = 125
_CAPTION_LINE: Final = 15
_MARKS: Final = ("circle", "square", "diamond", "ring")


def _style() -> str:
    """Colours for a light ground, and for a dark one where the reader prefers it."""
    light, dark = (
        "".join(
            f".s{number}.fill{{fill:{pair[ground]}}}.s{number}.line{{stroke:{pair[ground]}}}"
            for number, pair in enumerate(COLOURS)
        )
        for ground in (0, 1)
    )
    return (
        f"{light}.bg{{fill:#ffffff}}text{{fill:#1f2933}}.soft{{fill:#52606d}}.axis{{stroke:#9aa5b1}}"
        ".grid{stroke:#e4e7eb}.line{fill:none;stroke-width:2}"
        f"@media (prefers-color-scheme: dark){{{dark}"
        ".bg{fill:#0d1117}text{fill:#e6edf3}.soft{fill:#9da7b3}.axis{stroke:#6e7681}.grid{stroke:#21262d}}"
    )


class Drawing:
    """The parts of one figure, from top to bottom."""

    def __init__(self, title: str, description: str) -> None:
        self._title = title
        self._description = description
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        anchor: str = "start",
        soft: bool = False,
        bold: bool = False,
    ) -> None:
        kind = ' class="soft"' if soft else ""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight}{kind}>'
            f"{escape(words)}</text>"
        )

    def rule(self, x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> None:
        self._parts.append(f'<path class="{kind}" fill="none" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')

    def line(self, points: Sequence[tuple[float, float]], series: int) -> None:
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._parts.append(f'<path class="s{series % len(COLOURS)} line" d="M{way}"/>')

    def mark(self, x: float, y: float, series: int, words: str) -> None:
        """A point with words that show when it is pointed at."""
        colour = series % len(COLOURS)
        shape = {
            "circle": f'<circle class="s{colour} fill" cx="{x:.1f}" cy="{y:.1f}" r="4.5">',
            "square": f'<rect class="s{colour} fill" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8">',
            "diamond": f'<path class="s{colour} fill" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z">',
            "ring": f'<circle class="s{colour} line" cx="{x:.1f}" cy="{y:.1f}" r="4">',
        }[_MARKS[series % len(_MARKS)]]
        tag = shape[1 : shape.index(" ")]
        self._parts.append(f"{shape}<title>{escape(words)}</title></{tag}>")

    def done(self, height: float, caption: Sequence[str]) -> str:
        """The file, with what it compares and a caption below."""
        lines = [line for each in (self._description, *caption) for line in textwrap.wrap(each, _CAPTION_CHARS)]
        for number, line in enumerate(lines):
            self.text(20, height + 12 + number * _CAPTION_LINE, line, size=11, soft=True)
        whole = height + 16 + len(lines) * _CAPTION_LINE
        body = "\n  ".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole:.0f}" width="{WIDTH}" '
            f'height="{whole:.0f}" role="img" aria-label={quoteattr(self._title)} '
            'font-family="system-ui, sans-serif">\n'
            f"  <title>{escape(self._title)}</title>\n  <desc>{escape(self._description)}</desc>\n"
            f"  <style>{_style()}</style>\n"
            f'  <rect class="bg" width="{WIDTH}" height="{whole:.0f}" rx="8"/>\n'
            f'  <text x="20" y="30" font-size="16" font-weight="600">{escape(self._title)}</text>\n  {body}\n</svg>\n'
        )
