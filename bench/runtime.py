"""The cost of a whole consumer run, from the plan to its commit: one workflow and many, in workers and in threads."""
# ruff: noqa: N802 - the method names of a VFS are SQLite's

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from unittest.mock import patch

import anyio
import apsw

import keep_actors
from bench import machine
from bench.report import Column, Report, Value
from bench.shop import Shop, fill
from keep_actors import Keep
from keep_actors.runtime import opening
from keep_storage import Operation, Store
from keep_storage.model import Run, RunStatus
from keep_storage.operations import CommitConsumer, Done, OperationOutcome, Together
from keep_storage.transaction import Reader, Row, SqlParams

MEASURES: Final = (
    "whole consumer runs through an open runtime: the plan; `prepare` with one peek and one reservation; `mutate` with "
    "one call of a connector in memory; `next`, which returns a state; every commit durable",
    "workflows that all have something to do when the runtime opens, each working through its own events one by one",
    "the time of a run: from the end of the one before it in its workflow, or from the opening, to its own end. In a "
    "crowd most of it is waiting for a turn",
    "CPU per run by room: the event loop's thread; inside the storage's commits; inside the reader's snapshots; the "
    "rest of this process (handing over between threads, and in thread mode the scripts); the zygote and its workers",
    "syncs per run: every xSync that SQLite asks of its file system while events are worked through, counted by a VFS "
    "around its own. Commits and checkpoints are in it, opening and closing are not",
)
LEAVES_OUT: Final = (
    "connectors that take time: the call here returns at once",
    "producers, jobs, failures, recovery; deploying; large scripts and payloads",
    "readers beside the runtime; other disks: every commit waits for the sync of this machine's",
    "the price of counting: a VFS in Python around SQLite's, and a clock around each commit and read; too small to see",
)

Mode = Literal["jailed", "thread"]
MODES: Final[tuple[Mode, ...]] = ("jailed", "thread")

GOAL_SYNCS_ALONE: Final = 3.0
GOAL_SYNCS_IN_A_CROWD: Final = 0.2
GOAL_HOST_CPU_MS: Final = 2.5
GOAL_SANDBOX_CPU_MS: Final = 1.2

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

COLUMNS: Final = (
    Column("mode", "mode"),
    Column("workflows", "workflows"),
    Column("runs", "runs"),
    Column("runs_per_s", "runs/s"),
    Column("p50_ms", "p50 ms", 1),
    Column("p99_ms", "p99 ms", 1),
    Column("host_cpu_ms", "host CPU ms", 2),
    Column("loop_cpu_ms", "loop", 2),
    Column("storage_cpu_ms", "storage", 2),
    Column("reading_cpu_ms", "reading", 2),
    Column("rest_cpu_ms", "the rest", 2),
    Column("sandbox_cpu_ms", "sandbox", 2),
    Column("commits_per_run", "commits/run", 2),
    Column("syncs_per_run", "syncs/run", 2),
)


class Crowd(NamedTuple):
    """The numbers of workflows, and of events of each."""

    workflows: int
    events_each: int


FULL: Final = (Crowd(1, 300), Crowd(100, 10), Crowd(1_000, 2))
QUICK: Final = (Crowd(1, 30), Crowd(100, 1), Crowd(300, 1))
"""The first is alone; the last is the crowd of the goals."""


def run(report: Report, *, quick: bool) -> None:
    crowds = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        facts: dict[str, Value] = {
            **machine.facts(),
            "files_in": str(Path(folder).parent),
            "fsync_us": machine.fsync_us(Path(folder)),
        }
        report.about(MEASURES, LEAVES_OUT, facts)
        table = report.table("runs", "Consumer runs (CPU in ms per run, by room)", COLUMNS)
        results: dict[tuple[Mode, Crowd], Result] = {}
        for crowd in crowds:
            report.progress(f"{_workflows(crowd)}, {crowd.events_each} runs each")
            prepared = Path(folder) / f"{crowd.workflows}.db"
            fill(prepared, crowd.workflows, crowd.events_each)
            for mode in MODES:
                result = results[mode, crowd] = measure(prepared, mode, crowd)
                table.row(mode=mode, workflows=crowd.workflows, **result)
    _goals(report, crowds, results)


Result = dict[str, float]


def _goals(report: Report, crowds: Sequence[Crowd], results: dict[tuple[Mode, Crowd], Result]) -> None:
    for crowd, limit in ((crowds[0], GOAL_SYNCS_ALONE), (crowds[-1], GOAL_SYNCS_IN_A_CROWD)):
        for mode in MODES:
            words = f"syncs per run at {_workflows(crowd)}, {mode}, at most {limit:g}"
            syncs = results[mode, crowd]["syncs_per_run"]
            report.goal("runs", words, syncs, syncs <= limit)
    for crowd in crowds:
        for whose, key, limit in (
            ("the host process", "host_cpu_ms", GOAL_HOST_CPU_MS),
            ("the sandbox", "sandbox_cpu_ms", GOAL_SANDBOX_CPU_MS),
        ):
            words = f"CPU of {whose} per run at {_workflows(crowd)}, jailed, at most {limit} ms"
            cpu_ms = results["jailed", crowd][key]
            report.goal("runs", words, cpu_ms, cpu_ms <= limit, unit=" ms")


def _workflows(crowd: Crowd) -> str:
    return "1 workflow" if crowd.workflows == 1 else f"{crowd.workflows:,} workflows"


# Measuring.


def measure(prepared: Path, mode: Mode, crowd: Crowd) -> Result:
    """Let a runtime process all events in a copy of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keep.db"
        shutil.copyfile(prepared, path)
        return process(path, mode, crowd)


def process(path: Path, mode: Mode, crowd: Crowd) -> Result:
    """Let a runtime process all pending events of a file, which are those of the crowd."""
    with machine.own_garbage_only(), counted_syncs() as syncs, metered() as meter:
        return anyio.run(_measure, path, mode, crowd, syncs, meter)


async def _measure(path: Path, mode: Mode, crowd: Crowd, syncs: "CountingVfs", meter: "Meter") -> Result:
    shop = Shop()
    async with keep_actors.open(path, connectors=[shop], sandbox=mode) as keep:
        keep_actors.tune_process()  # as `keep run` does
        before, syncs_before = Usage.now(keep, meter), syncs.count
        started = time.perf_counter()
        await keep.wait_idle()
        seconds = time.perf_counter() - started
        used, syncs_used = Usage.now(keep, meter) - before, syncs.count - syncs_before
    runs = crowd.workflows * crowd.events_each
    assert shop.filed == runs == len(meter.ends), "every event was worked through once"
    times = sorted(_times(meter.ends, started))
    each = 1000 / runs
    return {
        "runs": runs,
        "runs_per_s": runs / seconds,
        "p50_ms": 1000 * times[runs // 2],
        "p99_ms": 1000 * times[min(runs - 1, runs * 99 // 100)],
        "host_cpu_ms": each * used.host_s,
        "loop_cpu_ms": each * used.loop_s,
        "storage_cpu_ms": each * used.storage_s,
        "reading_cpu_ms": each * used.reading_s,
        "rest_cpu_ms": each * (used.host_s - used.loop_s - used.storage_s - used.reading_s),
        "sandbox_cpu_ms": each * used.sandbox_s,
        "commits_per_run": used.commits / runs,
        "syncs_per_run": syncs_used / runs,
    }


def _times(ends: Sequence["End"], started: float) -> Iterator[float]:
    """The time of each run, from the end of the one before it in its workflow."""
    last: dict[str, float] = {}
    for end in ends:
        yield end.at - last.get(end.workflow_id, started)
        last[end.workflow_id] = end.at


class Usage(NamedTuple):
    """Resources used so far; CPU in seconds."""

    host_s: float
    loop_s: float
    storage_s: float
    reading_s: float
    sandbox_s: float
    commits: float

    @classmethod
    def now(cls, keep: Keep, meter: "Meter") -> "Usage":
        """Called in the thread of the event loop."""
        assert threading.current_thread() is threading.main_thread(), "the event loop runs where `anyio.run` was called"
        storage_s, reading_s = meter.storage_s, meter.reading_s
        return cls(time.process_time(), time.thread_time(), storage_s, reading_s, _sandbox_s(keep), meter.commits)

    def __sub__(self, earlier: "Usage") -> "Usage":
        return Usage(*(now - before for now, before in zip(self, earlier, strict=True)))


def _sandbox_s(keep: Keep) -> float:
    """CPU time of the zygote, of its ended workers, and of the living ones."""
    # The pool is private to the runtime; only this benchmark needs its process ids.
    stats = keep._host.pool.stats
    if stats.zygote_pid is None:
        return 0.0
    # utime, stime and, for the workers that have ended, cutime and cstime
    fields = Path(f"/proc/{stats.zygote_pid}/stat").read_text().rpartition(")")[2].split()
    used = sum(int(field) for field in fields[11:15]) / _TICKS_PER_S
    for pid in stats.worker_pids:
        try:
            used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return used


class End(NamedTuple):
    workflow_id: str
    at: float


class Meter:
    """The work of the storage and the reader, and the end times of runs."""

    def __init__(self) -> None:
        self.storage_s = 0.0
        self.reading_s = 0.0
        self.commits = 0
        self.ends: list[End] = []

    def committed(self, batch: Sequence[Operation[Any]], outcomes: Sequence[OperationOutcome], cpu_s: float) -> None:
        """Called only in the storage's thread."""
        self.storage_s += cpu_s
        self.commits += 1
        at = time.perf_counter()
        for operation, outcome in zip(batch, outcomes, strict=True):
            steps = operation.operations if isinstance(operation, Together) else ()
            if any(isinstance(each, CommitConsumer) for each in steps):
                assert isinstance(outcome, Done), f"a commit was refused: {outcome}"
                [run] = (run for run in outcome.answer if isinstance(run, Run) and run.status is RunStatus.COMMITTED)
                self.ends.append(End(run.workflow_id, at))


@contextmanager
def metered() -> Iterator[Meter]:
    """Give runtimes opened inside the block a store that counts its work."""
    meter = Meter()

    class MeteredStore(Store):
        def commit(self, batch: Sequence[Operation[Any]]) -> list[OperationOutcome]:
            started = time.thread_time()
            outcomes = super().commit(batch)
            meter.committed(batch, outcomes, time.thread_time() - started)
            return outcomes

        def reader(self) -> Reader:
            return MeteredReader(super().reader(), meter)

    with patch.object(opening, "Store", MeteredStore):
        yield meter


class MeteredReader:
    """A reader whose snapshots are timed."""

    def __init__(self, reader: Reader, meter: Meter) -> None:
        self.kept = reader.kept
        self._reader = reader
        self._meter = meter

    def one(self, query: str, params: SqlParams) -> Row | None:
        return self._reader.one(query, params)

    def all(self, query: str, params: SqlParams) -> list[Row]:
        return self._reader.all(query, params)

    def snapshot(self) -> AbstractContextManager[None]:
        return self._timed()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.thread_time()
        with self._reader.snapshot():
            yield
        self._meter.reading_s += time.thread_time() - started

    def close(self) -> None:
        self._reader.close()


class CountingVfs(apsw.VFS):
    """SQLite's own file system, with a count of its syncs."""

    NAME: Final = "bench-counting"

    def __init__(self, base: str) -> None:
        self.count = 0
        self._base = base
        super().__init__(self.NAME, base=base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "CountingFile":
        return CountingFile(self, self._base, name, flags)


class CountingFile(apsw.VFSFile):
    def __init__(self, vfs: CountingVfs, base: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(base, name, flags)
        self._vfs = vfs

    def xSync(self, flags: int) -> None:
        self._vfs.count += 1
        super().xSync(flags)


@contextmanager
def counted_syncs() -> Iterator[CountingVfs]:
    """Count the syncs of files opened inside the block, by making this the default VFS."""
    vfs = CountingVfs(apsw.vfs_names()[0])
    try:
        yield vfs
    finally:
        vfs.unregister()
