"""The figures: each takes the rows that it needs, and says which are missing if there are none."""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bench.plot.chart import chart
from bench.plot.reading import Fields, Results, number, short, word
from bench.plot.svg import Drawing
from bench.plot.table import ranges, table


class Figure(NamedTuple):
    """An SVG, or why there is none."""

    name: str
    svg: str
    missing: str = ""


def figures(results: Results) -> list[Figure]:
    """All figures, made from what is there."""
    return [draw(results) for draw in FIGURES]


def throughput(results: Results) -> Figure:
    name, used = "throughput", _Used(results)
    series: dict[str, dict[float, list[float]]] = {}
    for row in results.rows:
        system, done = _throughput_of(row)
        size = _size(row)
        if system and done is not None and size is not None and size > 0:
            series.setdefault(system, {}).setdefault(size, []).append(done)
            used.take(row)
    if not series:
        return Figure(
            name, "", "no row has workflows with runs_per_s (runtime, scale) or in_flight with units_per_s (peers)"
        )
    drawing = Drawing("Throughput against concurrency", "Units of work per second, by the number of workflows.")
    end = chart(drawing, _medians(series), "workflows with something to do", "runs (units of work) per second")
    return Figure(name, drawing.done(end, used.caption()))


def _throughput_of(row: Fields) -> tuple[str, float | None]:
    match row["benchmark"], row["measure"]:
        case "runtime", _:
            return f"keep-actors, {word(row, 'mode')}", number(row, "runs_per_s")
        case "scale", "crowds":
            return "keep-actors, jailed (scale)", number(row, "runs_per_s")
        case "peers", "medians":
            return str(row.get("system", "")), number(row, "units_per_s")
        case _:
            return "", None


def _size(row: Fields) -> float | None:
    """The workflows with something to do: of a peer, the units in flight."""
    return number(row, "in_flight" if row["benchmark"] == "peers" else "workflows")


def _medians(series: Mapping[str, Mapping[float, Sequence[float]]]) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(x, statistics.median(values)) for x, values in sorted(points.items())]
        for name, points in sorted(series.items())
    }


def latency(results: Results) -> Figure:
    name, used = "latency", _Used(results)
    lines: list[tuple[str, dict[str, float]]] = []
    for row in results.rows:
        if (row["benchmark"], row["measure"]) == ("peers", "units"):
            continue  # its medians are in rows of their own
        quantiles = {
            key.removesuffix("_ms"): value
            for key in row
            if re.fullmatch(r"(p\d+|max)_ms", key) and (value := number(row, key)) is not None and value > 0
        }
        if "p50" in quantiles:
            lines.append((_who(row), quantiles))
            used.take(row)
    if not lines:
        return Figure(name, "", "no row has p50_ms (runtime, peers, fairness of scale)")
    drawing = Drawing(
        "Latency: the median and the tail", "Milliseconds of each system and size, on a logarithmic axis."
    )
    end = ranges(
        drawing, lines, "milliseconds, logarithmic; the first mark is the least that is known, the last the most"
    )
    return Figure(name, drawing.done(end, used.caption()))


def _who(row: Fields) -> str:
    size = f", {short(workflows)} workflows" if (workflows := _size(row)) is not None else ""
    match row["benchmark"], row["measure"]:
        case "runtime", _:
            return f"keep-actors {word(row, 'mode')}{size}"
        case "scale", "fairness":
            return f"wait{size} due {word(row, 'due')}"
        case _:
            return f"{word(row, 'system')}{size}"


_CRASH_COLUMNS: Final = ("killed", "system", "kills", "effects", "twice", "lost", "asks", "seconds")


def crashes(results: Results) -> Figure:
    name, used = "crashes", _Used(results)
    rows: list[tuple[str, ...]] = []
    for row in results.rows:
        found = list(_crashes_of(row))
        if found:
            used.take(row)
        rows += found
    if not rows:
        return Figure(name, "", "no row has killed (effects) or kill_after (peers)")
    kept = [index for index in range(len(_CRASH_COLUMNS)) if any(row[index] != "-" for row in rows)]
    drawing = Drawing(
        "After a crash", "How often an external effect happened, after the process was killed and restarted."
    )
    headings = [_CRASH_COLUMNS[index] for index in kept]
    end = table(drawing, headings, [[row[index] for index in kept] for row in rows])
    return Figure(name, drawing.done(end, used.caption()))


def _crashes_of(row: Fields) -> Iterable[tuple[str, ...]]:
    if row["benchmark"] == "effects" and "killed" in row:
        killed, runs = word(row, "killed"), word(row, "runs")
        for system, key in (("keep-actors, can check", "checks"), ("keep-actors, cannot", "cannot"), ("DBOS", "dbos")):
            effects = word(row, f"{key}_effects")
            if effects != "-":
                twice, lost, asks = (word(row, f"{key}_{what}") for what in ("twice", "lost", "asks"))
                yield killed, system, runs, effects, twice, lost, asks, "-"
    elif row["benchmark"] == "peers" and "kill_after" in row:
        killed = f"after {word(row, 'kill_after')} of {word(row, 'units')}"
        told = (word(row, key) for key in ("effects_at_kill", "twice", "lost", "asked", "seconds"))
        yield killed, word(row, "system"), "-", *told


def history(results: Results) -> Figure:
    name, used = "history", _Used(results)
    series: dict[str, dict[float, list[float]]] = {}
    for row in results.rows:
        rows = number(row, "history")
        if (row["benchmark"], row["measure"]) != ("scale", "history") or rows is None:
            continue
        for what, key in (("CPU", "cpu_ms"), ("host", "host_cpu_ms"), ("sandbox", "sandbox_cpu_ms")):
            if (value := number(row, key)) is not None:
                series.setdefault(f"{what}, {word(row, 'due')} due", {}).setdefault(rows, []).append(value)
                used.take(row)
    if not series:
        return Figure(name, "", "no row of `bench scale` has history with cpu_ms")
    drawing = Drawing("Cost of a run against the history in the file", "CPU per run, by finished events and runs.")
    end = chart(drawing, _medians(series), "finished events and runs in the file", "CPU per run, in milliseconds")
    return Figure(name, drawing.done(end, used.caption()))


class _Used:
    """The benchmarks that a figure is made from, for its caption."""

    def __init__(self, results: Results) -> None:
        self._abouts = results.abouts
        self._benchmarks: dict[str, None] = {}

    def take(self, row: Fields) -> None:
        self._benchmarks[row["benchmark"]] = None

    def caption(self) -> list[str]:
        """The machine, the versions, the date and the load of each; what is not stated is said."""
        lines: list[str] = []
        for benchmark in self._benchmarks:
            abouts = [each for each in self._abouts if each["benchmark"] == benchmark]
            lines += [f"bench {benchmark}: {_circumstances(each)}" for each in abouts]
            if not abouts:
                lines.append(f"bench {benchmark}: machine, versions and date not stated (the line `about` is missing)")
        return list(dict.fromkeys(lines))


def _circumstances(about: Fields) -> str:
    told = [str(about[key]) for key in ("machine", "versions", "dbos", "date") if about.get(key)]
    missing = [key for key in ("machine", "versions", "date") if not about.get(key)]
    load = [
        f"load before {short(value)}" for key in ("load", "foreign_load") if (value := number(about, key)) is not None
    ]
    return "; ".join([*told, *load, *([f"not stated: {', '.join(missing)}"] if missing else [])])


FIGURES: Final[tuple[Callable[[Results], Figure], ...]] = (throughput, latency, crashes, history)
