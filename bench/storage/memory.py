"""Check that memory stays flat over many cycles.

SQLite's own memory is shown separately: its page cache grows with the file up to a limit that we set.
"""

import gc
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import apsw

from bench.machine import resident_bytes
from bench.report import Column, Report
from bench.storage.ours import Crowd
from keep_storage import Store

SLICES: Final = 8
GROWTH_MAX: Final = 0.10
MIB: Final = 1024 * 1024

COLUMNS: Final = (
    Column("cycles", "cycles"),
    Column("resident_mib", "resident", 1),
    Column("sqlite_mib", "SQLite", 1),
    Column("rest_mib", "the rest", 1),
    Column("python_objects", "objects"),
)


class Size(NamedTuple):
    """The numbers of callers, and of cycles of all callers together."""

    callers: int
    cycles: int


class Sample(NamedTuple):
    """The memory of this process after a number of cycles."""

    cycles: int
    resident_mib: float
    sqlite_mib: float
    objects: Counter[str]

    @property
    def rest_mib(self) -> float:
        return self.resident_mib - self.sqlite_mib


def run(report: Report, size: Size) -> None:
    report.progress(f"memory over {size.cycles:,} cycles")
    title = f"Memory at {size.callers} callers (MiB; the page cache of SQLite has a limit of its own)"
    table = report.table("memory", title, COLUMNS)
    cycles_each = math.ceil(size.cycles / size.callers / SLICES)
    samples: list[Sample] = []

    async def watch(crowd: Crowd) -> None:
        async with crowd.at_work():
            for _ in range(SLICES):
                await crowd.run(cycles_each)
                sample = _sample(crowd.cycles)
                samples.append(sample)
                table.row(
                    cycles=sample.cycles,
                    resident_mib=sample.resident_mib,
                    sqlite_mib=sample.sqlite_mib,
                    rest_mib=sample.rest_mib,
                    python_objects=sample.objects.total(),
                )

    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "memory.db") as store:
        anyio.run(watch, Crowd(store, size.callers))
    # The first quarter warms up: caches fill, pools reach their size.
    _judge(report, samples[SLICES // 4 - 1], samples[-1])


def _sample(cycles: int) -> Sample:
    gc.collect()
    objects = Counter(type(each).__name__ for each in gc.get_objects())
    return Sample(cycles, resident_bytes() / MIB, apsw.memory_used() / MIB, objects)


def _judge(report: Report, start: Sample, end: Sample) -> None:
    growth = end.rest_mib / start.rest_mib - 1
    kib = (end.rest_mib - start.rest_mib) * 1024 / ((end.cycles - start.cycles) / 1000)
    report.note(f"From {start.cycles:,} to {end.cycles:,} cycles: {kib:+.2f} KiB per 1,000 cycles outside SQLite.")
    if end.sqlite_mib > start.sqlite_mib * (1 + GROWTH_MAX):
        report.note("The page cache was still filling; the allocator's overhead for it counts as growth here.")
    if growth > GROWTH_MAX:
        grown = (end.objects - start.objects).most_common(5)
        report.note("More objects than before: " + ", ".join(f"{name} +{count:,}" for name, count in grown))
    words = (
        f"memory flat over {end.cycles:,} cycles: outside SQLite, less than {GROWTH_MAX:.0%} growth in the last "
        "three quarters"
    )
    met = growth <= GROWTH_MAX
    report.goal("memory", words, growth * 100, met, unit=" %", kib_per_1000_cycles=kib)
