"""Compare peek, publish and claim in a small and a large topic.

The older half of the events is consumed, as in a topic with a history; message ids are random, so that neighbours in
the topic are not neighbours in its index. The commit is timed separately: it depends on the disk, and takes longer if
the changed pages are far apart.
"""

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import apsw

from bench.history import PAYLOAD
from bench.report import Column, Report
from bench.storage.cycle import HANDLER, TOPIC, deploy, new_callers
from keep_storage import Ids, Millis, Operation, journal, manager, reads, wall_clock
from keep_storage import operations as ops
from keep_storage.journal import Entries
from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import Phase
from keep_storage.sqlite import SqliteDatabase, open_reader
from keep_storage.transaction import Transaction

BATCH: Final = 64
BATCHES: Final = 4
GOAL_RATIO: Final = 2.0

FILL: Final = """
INSERT INTO events (
    id, topic_id, message_id, title, payload, status, attempt, created_by_run_id, caused, created_at, updated_at)
VALUES (?, 1, ?, ?, ?, ?, 1, NULL, 0, ?, ?)
"""
"""The columns of `publish_event`."""

COLUMNS: Final = (
    Column("operation", "operation"),
    Column("small_events", "events"),
    Column("small_us", "us", 1),
    Column("small_commit_us", "commit us", 1),
    Column("large_events", "events"),
    Column("large_us", "us", 1),
    Column("large_commit_us", "commit us", 1),
    Column("ratio", "ratio", 2),
    Column("ratio_with_commit", "with commit", 2),
)


class Size(NamedTuple):
    """The numbers of events in the topics, and of comparisons."""

    small: int
    large: int
    rounds: int


class Timed(NamedTuple):
    """Medians in microseconds: the operation itself, and its share of the commit."""

    work_us: float
    commit_us: float = 0.0

    @property
    def total_us(self) -> float:
        return self.work_us + self.commit_us


class Pair(NamedTuple):
    """Two measurements made one after the other."""

    small: Timed
    large: Timed


def run(report: Report, size: Size) -> None:
    report.progress(f"a topic of {size.large:,} events")
    with tempfile.TemporaryDirectory() as folder:
        pairs = _compare(Path(folder), size)
    title = f"Time per operation, by the size of the topic ({BATCH} operations per commit; medians)"
    table = report.table("scale", title, COLUMNS)
    ratios: dict[str, float] = {}
    for operation, of_operation in pairs.items():
        ratios[operation] = statistics.median(pair.large.total_us / pair.small.total_us for pair in of_operation)
        table.row(
            operation=operation,
            small_events=size.small,
            small_us=statistics.median(pair.small.work_us for pair in of_operation),
            small_commit_us=statistics.median(pair.small.commit_us for pair in of_operation),
            large_events=size.large,
            large_us=statistics.median(pair.large.work_us for pair in of_operation),
            large_commit_us=statistics.median(pair.large.commit_us for pair in of_operation),
            ratio=statistics.median(pair.large.work_us / pair.small.work_us for pair in of_operation),
            ratio_with_commit=ratios[operation],
        )
    for operation, ratio in ratios.items():
        sizes = f"from {size.small:,} to {size.large:,} events in a topic"
        words = f"{operation} within {GOAL_RATIO:.0f} times {sizes}, its share of the commit included"
        report.goal("scale", words, ratio, ratio <= GOAL_RATIO)


def _compare(folder: Path, size: Size) -> dict[str, list[Pair]]:
    rng = random.Random(20240229)
    pairs: dict[str, list[Pair]] = {operation: [] for operation in OPERATIONS}
    with Topic(folder / "large.db", size.large, rng) as large:
        for number in range(size.rounds):
            # Timed operations append events, so the small topic is made again to stay small.
            with Topic(folder / f"small-{number}.db", size.small, rng) as small:
                for operation, timed in OPERATIONS.items():
                    pairs[operation].append(_pair(timed, small, large, large_first=number % 2 == 1))
    return pairs


def _pair(timed: Callable[["Topic"], Timed], small: "Topic", large: "Topic", *, large_first: bool) -> Pair:
    if large_first:
        of_large = timed(large)
        return Pair(timed(small), of_large)
    return Pair(timed(small), timed(large))


class Step(NamedTuple):
    """The timed operation, and the operations that have to come before and after."""

    before: tuple[Operation[Any], ...]
    timed: Operation[Any]
    after: tuple[Operation[Any], ...]


class Topic:
    """A file with one workflow, whose topic has `events` events."""

    def __init__(self, path: Path, events: int, rng: random.Random) -> None:
        self._events = events
        self._rng = rng
        self._ids = Ids(wall_clock)
        [self._caller] = new_callers(1, self._ids)
        self._database = SqliteDatabase.open(str(path), now=wall_clock())
        _apply_all(self._database.begin(), tuple(deploy(self._caller, self._ids)), wall_clock())
        self._database.commit()
        self._pending = self._fill(path)
        self._reader = open_reader(str(path))

    def _fill(self, path: Path) -> list[str]:
        """Append the events in one transaction; return the message ids of the pending ones in random order."""
        pending: list[str] = []

        def events() -> Iterator[tuple[Any, ...]]:
            now = wall_clock()
            for number in range(self._events):
                message_id = self._message_id()
                is_pending = number >= self._events // 2
                if is_pending:
                    pending.append(message_id)
                status = "pending" if is_pending else "consumed"
                yield self._ids.new("evt"), message_id, f"Order {number}", PAYLOAD, status, now, now

        connection = apsw.Connection(str(path))
        connection.pragma("cache_size", -1_000_000)
        with connection:
            connection.executemany(FILL, events())
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.close()
        self._rng.shuffle(pending)
        return pending

    def _message_id(self) -> str:
        return f"order-{self._rng.getrandbits(64):016x}"

    def peek(self) -> Timed:
        """Read a page of pending events from a random place in the topic."""
        taken: list[float] = []
        for _ in range(BATCH * BATCHES):
            after = self._rng.randrange(self._events - PEEK_DEFAULT)
            start = time.perf_counter()
            page = reads.peek(self._reader, self._caller.workflow_id, TOPIC, after=after)
            taken.append(time.perf_counter() - start)
            assert len(page) == PEEK_DEFAULT, "every page is full"
        return Timed(statistics.median(taken) * 1e6)

    def publish(self) -> Timed:
        """Publish one event per operation."""
        steps = (self._publish() for _ in range(BATCH * BATCHES))
        return self._timed(steps)

    def claim(self) -> Timed:
        """Reserve one event by a run: the operation `prepared`. The run's start and commit are not timed."""
        steps = (self._claim() for _ in range(BATCH * BATCHES))
        return self._timed(steps)

    def _publish(self) -> Step:
        event = ops.Publish(self._ids.new("evt"), TOPIC, self._message_id(), "Order", PAYLOAD)
        return Step((), ops.PublishEvents(self._caller.workflow_id, (event,)), ())

    def _claim(self) -> Step:
        run_id = self._ids.new("run")
        reservation = ops.Reserve(TOPIC, (self._pending.pop(),))
        return Step(
            (ops.CreateRun(run_id, self._caller.session_id, HANDLER, Phase.PREPARING),),
            ops.UpdateConsumerPhase(run_id, Phase.PREPARED, (reservation,), "{}", "File the order"),
            (ops.UpdateConsumerPhase(run_id, Phase.EMITTING), ops.CommitConsumer(run_id)),
        )

    def _timed(self, steps: Iterator[Step]) -> Timed:
        work: list[float] = []
        commits: list[float] = []
        while batch := list(itertools.islice(steps, BATCH)):
            now = wall_clock()
            tx = self._database.begin()
            for step in batch:
                _apply_all(tx, step.before, now)
                start = time.perf_counter()
                _apply_all(tx, (step.timed,), now)
                work.append(time.perf_counter() - start)
                _apply_all(tx, step.after, now)
            start = time.perf_counter()
            self._database.commit()
            commits.append((time.perf_counter() - start) / len(batch))
        return Timed(statistics.median(work) * 1e6, statistics.median(commits) * 1e6)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._database.close()


def _apply_all(tx: Transaction, operations: tuple[Operation[Any], ...], now: Millis) -> None:
    entries: Entries = []
    for operation in operations:
        manager.apply(tx, operation, now, entries)
    journal.write(tx, entries, now)


OPERATIONS: Final[Mapping[str, Callable[[Topic], Timed]]] = {
    "peek": Topic.peek,
    "claim": Topic.claim,
    "publish": Topic.publish,
}
