"""Units per second with 1, 100 and 1,000 in flight: the systems take turns, so that all meet the same noise."""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.driving import Failed, driving
from bench.peers.processes import Load, pss_bytes
from bench.peers.systems import System
from bench.peers.unit import Plan, Task
from bench.report import Column, Report

_MB: Final = 1024 * 1024

COLUMNS: Final = (
    Column("system", "system", width=16),
    Column("version", "version", width=18),
    Column("in_flight", "in flight"),
    Column("repeat", "repeat"),
    Column("units", "units"),
    Column("units_per_s", "units/s", 1),
    Column("p50_ms", "p50 ms", 1),
    Column("cpu_ms", "CPU ms/unit", 2),
    Column("syncs", "syncs/unit", 2),
    Column("pss_mb", "PSS MB"),
    Column("foreign_cores", "foreign cores", 2),
)
MEDIANS: Final = (
    Column("system", "system", width=16),
    Column("in_flight", "in flight"),
    Column("repeats", "repeats"),
    Column("units_per_s", "units/s", 1),
    Column("least_per_s", "least", 1),
    Column("most_per_s", "most", 1),
    Column("p50_ms", "p50 ms", 1),
    Column("cpu_ms", "CPU ms/unit", 2),
    Column("syncs", "syncs/unit", 2),
    Column("pss_mb", "PSS MB"),
    Column("foreign_cores", "foreign cores", 2),
)


class Crowd(NamedTuple):
    """The units in flight at a time, and all units of a measurement."""

    in_flight: int
    units: int


class Result(NamedTuple):
    """One measurement."""

    version: str
    units: int
    units_per_s: float
    p50_ms: float
    cpu_ms: float
    syncs: float | None
    """Per unit; None where they cannot be counted."""
    pss_mb: float
    foreign_cores: float


Turn = tuple[int, Crowd, System]
Measure = Callable[[System, Crowd], Result]


def turns(systems: Sequence[System], crowds: Sequence[Crowd], repeats: int) -> Iterator[Turn]:
    """The order of all measurements: with each crowd the systems take turns, A B C A B C."""
    for crowd in crowds:
        for repeat in range(1, repeats + 1):
            for system in systems:
                yield repeat, crowd, system


def compare(report: Report, systems: Sequence[System], crowds: Sequence[Crowd], repeats: int, measure: Measure) -> None:
    """Report each measurement, then the medians."""
    table = report.table("units", "Units of work, one line per measurement", COLUMNS)
    results: dict[tuple[str, Crowd], list[Result]] = {}
    for repeat, crowd, system in turns(systems, crowds, repeats):
        report.progress(f"{system.name}, {crowd.in_flight:,} in flight, repeat {repeat} of {repeats}")
        result = measure(system, crowd)
        results.setdefault((system.name, crowd), []).append(result)
        values = result._asdict()
        table.row(system=system.name, version=values.pop("version"), in_flight=crowd.in_flight, repeat=repeat, **values)
    medians = report.table("medians", "Medians, with the least and the most units per second", MEDIANS)
    for (name, crowd), each in results.items():
        medians.row(system=name, in_flight=crowd.in_flight, repeats=len(each), **median(each))


def median(results: Sequence[Result]) -> dict[str, float | None]:
    """The median of each figure by itself."""
    rates = [each.units_per_s for each in results]
    syncs = [each.syncs for each in results if each.syncs is not None]
    return {
        "units_per_s": statistics.median(rates),
        "least_per_s": min(rates),
        "most_per_s": max(rates),
        "p50_ms": statistics.median(each.p50_ms for each in results),
        "cpu_ms": statistics.median(each.cpu_ms for each in results),
        "syncs": statistics.median(syncs) if syncs else None,
        "pss_mb": statistics.median(each.pss_mb for each in results),
        "foreign_cores": statistics.median(each.foreign_cores for each in results),
    }


class Bench:
    """Measures, each time on fresh files. What a system prepares is prepared once and copied."""

    def __init__(self, prepared: Path) -> None:
        self._prepared = prepared

    def measure(self, system: System, crowd: Crowd) -> Result:
        with self.files(system, crowd) as folder:
            plan = Plan(Task.MEASURE, str(folder), crowd.in_flight, crowd.units)
            with driving(system, plan) as driver:
                version = driver.said()["version"]
                before = Load.now(driver.pid)
                driver.tell("go")
                said = driver.said()
                after = Load.now(driver.pid)
                memory = pss_bytes(driver.pid)
                driver.tell("end")
                driver.end()
            effects = len(plan.outside.payments())
            if not effects == crowd.units == len(said["taken_ms"]):
                raise Failed(f"{system.name} did {effects} effects in {crowd.units} units")
        return Result(
            version=version,
            units=crowd.units,
            units_per_s=crowd.units / said["seconds"],
            p50_ms=statistics.median(said["taken_ms"]),
            cpu_ms=1000 * (after.tree_s - before.tree_s) / crowd.units,
            syncs=None if said["syncs"] is None else said["syncs"] / crowd.units,
            pss_mb=memory / _MB,
            foreign_cores=after.foreign_cores(before, said["seconds"]),
        )

    @contextmanager
    def files(self, system: System, crowd: Crowd) -> Iterator[Path]:
        """A folder for one measurement."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name) / "files"
            if system.prepares:
                shutil.copytree(self._once(system, crowd), folder)
            else:
                folder.mkdir()
            yield folder

    def _once(self, system: System, crowd: Crowd) -> Path:
        folder = self._prepared / str(crowd.in_flight)
        if not folder.exists():
            folder.mkdir()
            plan = Plan(Task.PREPARE, str(folder), crowd.in_flight, crowd.units)
            with driving(system, plan) as driver:
                driver.said()
                driver.end()
        return folder
