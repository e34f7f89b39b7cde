"""Tables, and ranges on one axis."""

import math
from collections.abc import Sequence
from typing import Final

from bench.plot.reading import short
from bench.plot.svg import WIDTH, Drawing

_ROW: Final = 22.0
_TOP: Final = 62.0
_CHAR: Final = 6.6
"""The width of a letter of size 12, about."""
_NAMES: Final = 330.0
_AXIS: Final = (350.0, 640.0)


def table(drawing: Drawing, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> float:
    """Draw a table, each column as wide as its longest cell; return where it ends."""
    longest = [max(len(row[index]) for row in (headings, *rows)) for index in range(len(headings))]
    stretch = min(1.6, (WIDTH - 40) / (sum(longest) * _CHAR + len(longest) * 12))
    lefts = [20 + stretch * sum(each * _CHAR + 12 for each in longest[:index]) for index in range(len(longest))]
    for left, heading in zip(lefts, headings, strict=True):
        drawing.text(left, _TOP, heading, size=12, bold=True)
    before = None
    for number, row in enumerate(rows, 1):
        y = _TOP + number * _ROW
        if row[0] != before:
            drawing.rule(20, y - 15, WIDTH - 20, y - 15)
        for index, (left, cell) in enumerate(zip(lefts, row, strict=True)):
            if index or row[0] != before:
                drawing.text(left, y, cell, size=12)
        before = row[0]
    return _TOP + len(rows) * _ROW + 12


def ranges(drawing: Drawing, lines: Sequence[tuple[str, dict[str, float]]], words: str) -> float:
    """Draw a line per name from its least to its greatest value; return where they end."""
    values = [value for _, quantiles in lines for value in quantiles.values()]
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    width = (most - least) or 1
    bottom = _TOP + len(lines) * _ROW

    def across(value: float) -> float:
        return _AXIS[0] + (_AXIS[1] - _AXIS[0]) * (math.log10(value) - least) / width

    for exponent in range(least, most + 1):
        x = across(10.0**exponent)
        drawing.rule(x, _TOP - 12, x, bottom)
        drawing.text(x, bottom + 16, short(10.0**exponent), size=11, anchor="middle", soft=True)
    drawing.text((_AXIS[0] + _AXIS[1]) / 2, bottom + 34, words, size=11, anchor="middle", soft=True)
    for number, (name, quantiles) in enumerate(lines):
        y, ordered = _TOP + number * _ROW, sorted(quantiles.items(), key=lambda each: each[1])
        drawing.text(_NAMES, y + 4, name, size=12, anchor="end")
        drawing.line([(across(ordered[0][1]), y), (across(ordered[-1][1]), y)], 0)
        for key, value in ordered:
            drawing.mark(across(value), y, 1 if key == "p50" else 0, f"{name}: {key} {short(value)} ms")
        told = [f"{key} {short(quantiles[key])}" for key in ("p50", "p99", "max") if key in quantiles]
        drawing.text(_AXIS[1] + 14, y + 4, ", ".join(told), size=11, soft=True)
    return bottom + 44
