"""Print the results of a benchmark, for people or as JSON: its subject, tables, goals and promises.

A missed goal does not change the exit code: this is a measurement, not a test. A broken promise does.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO

Value = str | int | float | None


class Column(NamedTuple):
    """A key of the JSON objects, and the heading for people."""

    key: str
    heading: str
    decimals: int = 0
    width: int = 9


class Goal(NamedTuple):
    measure: str
    words: str
    got: str
    met: bool


class Promise(NamedTuple):
    words: str
    got: str
    kept: bool


class Report:
    """Prints results as soon as they are known; collects only goals and promises, for the end."""

    def __init__(self, benchmark: str, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._benchmark = benchmark
        self._as_json = as_json
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._goals: list[Goal] = []
        self._promises: list[Promise] = []

    def about(self, measures: Sequence[str], leaves_out: Sequence[str], facts: Mapping[str, Value]) -> None:
        """Print what is measured, what is not, and facts about the machine."""
        if self._as_json:
            self._object("about", {"measures": list(measures), "leaves_out": list(leaves_out), **facts})
            return
        self._line(f"Benchmark {self._benchmark}")
        for title, lines in (("Measures", measures), ("Leaves out", leaves_out)):
            self._line(f"\n{title}:")
            for line in lines:
                self._line(f"  - {line}")
        self._line("\n" + "; ".join(f"{key.replace('_', ' ')}: {_shown(value, 0)}" for key, value in facts.items()))

    def progress(self, stage: str) -> None:
        """Print one line per stage on stderr."""
        print(f"{self._benchmark}: {stage}", file=self._err, flush=True)

    def table(self, measure: str, title: str, columns: Sequence[Column]) -> "Table":
        """Start a table. Its rows are printed one by one."""
        if not self._as_json:
            self._line(f"\n{title}")
            self._line("  ".join(column.heading.rjust(_width(column)) for column in columns))
        return Table(self, measure, columns)

    def row(self, measure: str, columns: Sequence[Column], values: Mapping[str, Value]) -> None:
        assert list(values) == [column.key for column in columns], "a row has the columns of its table, in order"
        if self._as_json:
            self._object(measure, values)
            return
        cells = (_shown(values[column.key], column.decimals).rjust(_width(column)) for column in columns)
        self._line("  ".join(cells))

    def note(self, words: str) -> None:
        """A remark under a table, for people only."""
        if not self._as_json:
            self._line(words)

    def goal(self, measure: str, words: str, value: float, met: bool, unit: str = "", **more: Value) -> None:
        """Note a goal and the measured value."""
        self._goals.append(Goal(measure, words, f"{_shown(value, 2)}{unit}", met))
        if self._as_json:
            self._object(measure, {"goal": words, "value": value, "met": met, **more})

    def promise(self, measure: str, words: str, value: float, *, kept: bool) -> None:
        """Note a promise, which must hold on any machine, and the measured value."""
        self._promises.append(Promise(words, _shown(value, 0), kept))
        if self._as_json:
            self._object(measure, {"promise": words, "value": value, "kept": kept})

    @property
    def kept(self) -> bool:
        """True if no promise was broken."""
        return all(promise.kept for promise in self._promises)

    def end(self) -> None:
        """Print the goals and the promises."""
        if self._as_json:
            return
        if self._goals:
            self._line("\nGoals")
        for goal in self._goals:
            self._line(f"  {'met   ' if goal.met else 'MISSED'}  {goal.words}: {goal.got}")
        if self._promises:
            self._line("\nPromises")
        for promise in self._promises:
            self._line(f"  {'kept  ' if promise.kept else 'BROKEN'}  {promise.words}: {promise.got}")

    def _object(self, measure: str, values: Mapping[str, object]) -> None:
        self._line(json.dumps({"benchmark": self._benchmark, "measure": measure, **values}, ensure_ascii=False))

    def _line(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class Table:
    """Rows under one heading."""

    def __init__(self, report: Report, measure: str, columns: Sequence[Column]) -> None:
        self._report = report
        self._measure = measure
        self._columns = columns

    def row(self, **values: Value) -> None:
        self._report.row(self._measure, self._columns, values)


def _width(column: Column) -> int:
    return max(len(column.heading), column.width)


def _shown(value: Value, decimals: int) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.{decimals}f}"
