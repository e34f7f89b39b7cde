"""A chart of lines: series of points, axes that suit them, and a legend."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.plot.reading import short
from bench.plot.svg import Drawing

Points = Sequence[tuple[float, float]]

_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, 600.0, 60.0, 360.0
_LEGEND_X: Final = 620.0
_STEPS: Final = 5
_LOG_FROM: Final = 20.0
"""Values that differ by more are drawn on a logarithmic axis."""


def chart(drawing: Drawing, series: Mapping[str, Points], x_words: str, y_words: str) -> float:
    """Draw the series; return where the chart ends. The horizontal axis is logarithmic, with a place for 0."""
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    across, up = _across(xs), _up(ys)
    for y in _ticks(ys):
        drawing.rule(_LEFT, up(y), _RIGHT, up(y))
        drawing.text(_LEFT - 8, up(y) + 4, short(y), size=11, anchor="end", soft=True)
    for x in xs:
        drawing.rule(across(x), _BOTTOM, across(x), _BOTTOM + 5, "axis")
        drawing.text(across(x), _BOTTOM + 19, short(x), size=11, anchor="middle", soft=True)
    drawing.rule(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")
    drawing.text((_LEFT + _RIGHT) / 2, _BOTTOM + 38, x_words, size=12, anchor="middle", soft=True)
    drawing.text(20, _TOP - 12, y_words, size=12, soft=True)
    for number, (name, points) in enumerate(series.items()):
        placed = [(across(x), up(y)) for x, y in sorted(points)]
        if len(placed) > 1:
            drawing.line(placed, number)
        for (x, y), (at_x, at_y) in zip(sorted(points), placed, strict=True):
            drawing.mark(at_x, at_y, number, f"{name}: {short(y)} at {short(x)}")
        y = _TOP + 10 + number * 38
        drawing.mark(_LEGEND_X, y - 4, number, name)
        drawing.text(_LEGEND_X + 14, y, name, size=12)
        values = ", ".join(short(value) for _, value in sorted(points))
        drawing.text(_LEGEND_X + 14, y + 15, values, size=11, soft=True)
    return max(_BOTTOM + 50, _TOP + 10 + len(series) * 38)


def _across(xs: Sequence[float]) -> Callable[[float], float]:
    positive = [x for x in xs if x > 0]
    # 0 has a place of its own, one step of ten before the first.
    least = math.log10(min(positive, default=1.0)) - (1.0 if 0.0 in xs else 0.0)
    most = math.log10(max(positive, default=1.0))
    width = (most - least) or 1.0

    def at(x: float) -> float:
        share = ((math.log10(x) if x > 0 else least) - least) / width
        return _LEFT + 20 + share * (_RIGHT - _LEFT - 40)

    return at


def _up(ys: Sequence[float]) -> Callable[[float], float]:
    height = _BOTTOM - _TOP
    if _is_log(ys):
        least, most = math.floor(math.log10(min(ys))), math.log10(max(ys))
        return lambda y: _BOTTOM - height * (math.log10(y) - least) / (most - least)
    most = _ticks(ys)[-1]
    return lambda y: _BOTTOM - height * y / most


def _is_log(ys: Sequence[float]) -> bool:
    return min(ys) > 0 and max(ys) / min(ys) > _LOG_FROM


def _ticks(ys: Sequence[float]) -> list[float]:
    if _is_log(ys):
        exponents = range(math.floor(math.log10(min(ys))), math.floor(math.log10(max(ys))) + 1)
        return [10.0**exponent for exponent in exponents]
    wanted = (max(ys) or 1.0) / _STEPS
    size = 10.0 ** math.floor(math.log10(wanted))
    step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= wanted * 0.999)
    return [step * number for number in range(math.ceil(max(ys) / step * 0.999) + 1)]
