"""The figures: each takes the rows that it needs, and says which are missing if there are none."""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bench.plot.chart import chart
from bench.plot.reading import ABOUT, Fields, Results, number, short, word
from bench.plot.svg import Drawing
from bench.plot.table import ranges, table

Rate = tuple[str, float | None, float | None]
"""The series, the size and the rate of a row; no series if the row is not for the figure."""
RateOf = Callable[[Fields], Rate]
RowsOf = Callable[[Fields], Iterable[tuple[str, ...]]]


class Figure(NamedTuple):
    """An SVG, or why there is none."""

    name: str
    svg: str
    missing: str = ""


def figures(results: Results) -> list[Figure]:
    """All figures, made from what is there."""
    return [draw(results) for draw in FIGURES]


def throughput(results: Results) -> Figure:
    return _rates(
        results,
        "throughput",
        _throughput_of,
        "keep-actors: throughput against the number of workflows",
        "Whole runs per second with jailed workers and with threads, of `bench runtime` and `bench scale`.",
        ("workflows with something to do", "runs per second"),
        "no row has workflows with runs_per_s (runtime, scale)",
    )


def peers(results: Results) -> Figure:
    return _rates(
        results,
        "peers",
        _peer_of,
        "The same unit of work on all systems: throughput against concurrency",
        "Units (three durable steps, one external call) per second, medians; keep-actors runs untrusted scripts in "
        "jailed processes, the others run trusted Python.",
        ("units in flight", "units per second"),
        "no row has in_flight with units_per_s (medians of peers)",
    )


def _rates(
    results: Results, name: str, of: RateOf, title: str, words: str, axes: tuple[str, str], missing: str
) -> Figure:
    """Rates against a size, a series for each system."""
    used = _Used()
    series: dict[str, dict[float, list[float]]] = {}
    for row in results.rows:
        system, size, rate = of(row)
        if system and rate is not None and size is not None and size > 0:
            series.setdefault(system, {}).setdefault(size, []).append(rate)
            used.take(row)
    if not series:
        return Figure(name, "", missing)
    drawing = Drawing(title, words)
    end = chart(drawing, _medians(series), *axes)
    return Figure(name, drawing.done(end, used.caption()))


def _throughput_of(row: Fields) -> Rate:
    size, rate = number(row, "workflows"), number(row, "runs_per_s")
    match row["benchmark"], row["measure"]:
        case "runtime", _:
            return word(row, "mode"), size, rate
        case "scale", "crowds":
            return "jailed (scale)", size, rate
        case _:
            return "", None, None


def _peer_of(row: Fields) -> Rate:
    if (row["benchmark"], row["measure"]) != ("peers", "medians"):
        return "", None, None
    return str(row.get("system", "")), number(row, "in_flight"), number(row, "units_per_s")


def _medians(series: Mapping[str, Mapping[float, Sequence[float]]]) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(x, statistics.median(values)) for x, values in sorted(points.items())]
        for name, points in sorted(series.items())
    }


def latency(results: Results) -> Figure:
    name, used = "latency", _Used()
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
    workflows = number(row, "workflows")
    size = f", {short(workflows)} workflows" if workflows is not None else ""
    match row["benchmark"], row["measure"]:
        case "runtime", _:
            return f"keep-actors {word(row, 'mode')}{size}"
        case "scale", "fairness":
            return f"wait{size} due {word(row, 'due')}"
        case _:
            in_flight = number(row, "in_flight")
            return word(row, "system") + (f", {short(in_flight)} in flight" if in_flight is not None else size)


_EFFECT_COLUMNS: Final = ("killed", "system", "kills", "effects", "twice", "lost", "asks")


def crashes(results: Results) -> Figure:
    return _table_of(
        results,
        "crashes",
        _effects_of,
        "keep-actors beside DBOS: a process killed around an external call",
        "How often the effect happened after a restart, by the moment of the kill, of `bench effects`.",
        _EFFECT_COLUMNS,
        "no row has killed (effects)",
    )


_KILL_COLUMNS: Final = ("killed at effect", "system", "effects", "accepted", "twice", "lost", "asked", "done after s")


def peers_crash(results: Results) -> Figure:
    return _table_of(
        results,
        "peers-crash",
        _kills_of,
        "All systems: killed at an effect and started again",
        "Every process of the system is killed at once; effects that then happened twice, units without one, questions "
        "to a person, seconds until all units were done, of `bench peers --crash`.",
        _KILL_COLUMNS,
        "no row has kill_after (peers --crash)",
    )


def _table_of(
    results: Results, name: str, of: RowsOf, title: str, words: str, columns: Sequence[str], missing: str
) -> Figure:
    """Rows of text, without the columns that no row has."""
    used = _Used()
    rows: list[tuple[str, ...]] = []
    for row in results.rows:
        found = list(of(row))
        if found:
            used.take(row)
        rows += found
    if not rows:
        return Figure(name, "", missing)
    kept = [index for index in range(len(columns)) if any(row[index] != "-" for row in rows)]
    drawing = Drawing(title, words)
    end = table(drawing, [columns[index] for index in kept], [[row[index] for index in kept] for row in rows])
    return Figure(name, drawing.done(end, used.caption()))


def _effects_of(row: Fields) -> Iterable[tuple[str, ...]]:
    if row["benchmark"] != "effects" or "killed" not in row:
        return
    killed, runs = word(row, "killed"), word(row, "runs")
    for system, key in (("keep-actors, can check", "checks"), ("keep-actors, cannot", "cannot"), ("DBOS", "dbos")):
        effects = word(row, f"{key}_effects")
        if effects != "-":
            twice, lost, asks = (word(row, f"{key}_{what}") for what in ("twice", "lost", "asks"))
            yield killed, system, runs, effects, twice, lost, asks


def _kills_of(row: Fields) -> Iterable[tuple[str, ...]]:
    if row["benchmark"] == "peers" and "kill_after" in row:
        killed = f"{word(row, 'kill_after')} of {word(row, 'units')}"
        keys = ("effects_at_kill", "accepted_at_kill", "twice", "lost", "asked", "seconds")
        yield killed, word(row, "system"), *(word(row, key) for key in keys)


def history(results: Results) -> Figure:
    name, used = "history", _Used()
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
    """The files that a figure is made from, for its caption."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def take(self, row: Fields) -> None:
        told = _circumstances(row[ABOUT]) if row[ABOUT] else "machine, versions and date not stated (no line `about`)"
        self._lines[f"bench {row['benchmark']}: {told}"] = None

    def caption(self) -> list[str]:
        """The machine, the versions, the date and the load of each; what is not stated is said."""
        return list(self._lines)


def _circumstances(about: Fields) -> str:
    told = [str(about[key]) for key in ("machine", "versions", "dbos", "date") if about.get(key)]
    missing = [key for key in ("machine", "versions", "date") if not about.get(key)]
    load = [
        f"load before {short(value)}" for key in ("load", "foreign_load") if (value := number(about, key)) is not None
    ]
    return "; ".join([*told, *load, *([f"not stated: {', '.join(missing)}"] if missing else [])])


FIGURES: Final[tuple[Callable[[Results], Figure], ...]] = (throughput, peers, latency, crashes, peers_crash, history)
