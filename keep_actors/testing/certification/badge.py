"""A badge for the docs: the outcome of a certification as a small SVG, made here and without a network."""

from html import escape
from typing import Final

from keep_actors.testing.certification.table import CertificationTable

_HEIGHT: Final = 20
_MARGIN: Final = 8
_CHARACTER: Final = 7
_GREEN: Final = "#2d7d46"
_RED: Final = "#b3261e"
_GREY: Final = "#444"

_SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{title}">
  <title>{title}</title>
  <rect width="{width}" height="{height}" rx="3" fill="{colour}"/>
  <path d="M3 0H{left}V{height}H3A3 3 0 0 1 0 {bottom}V3A3 3 0 0 1 3 0Z" fill="{grey}"/>
  <g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
    <text x="{left_middle}" y="14" textLength="{left_text}">{name}</text>
    <text x="{right_middle}" y="14" textLength="{right_text}">{words}</text>
  </g>
</svg>
"""


def badge(table: CertificationTable, name: str = "") -> str:
    """The badge of a table: a name, by default its connector's, and how many rows held or failed."""
    failed, held = len(table.failed), len(table.held)
    words = f"{failed} failed" if failed else f"certified: {held} of {held}" if held else "nothing was tried"
    name = name or f"keep {table.connector}"
    left, right = (2 * _MARGIN + _CHARACTER * len(text) for text in (name, words))
    title = f"{name}: {table.counts}"
    return _SVG.format(
        width=left + right,
        height=_HEIGHT,
        bottom=_HEIGHT - 3,
        title=escape(title),
        colour=_RED if failed else _GREEN if held else _GREY,
        grey=_GREY,
        left=left,
        left_middle=left // 2,
        left_text=left - 2 * _MARGIN,
        right_middle=left + right // 2,
        right_text=right - 2 * _MARGIN,
        name=escape(name),
        words=escape(words),
    )
