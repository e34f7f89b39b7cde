"""The cycle through this project: every caller a task, every operation an `await storage.apply(operation)`."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import anyio

from bench.machine import own_garbage_only
from bench.storage.cycle import OPERATIONS_PER_CYCLE, Caller, cycle, deploy, new_callers
from keep_actors.host.storage_actor import CommitStore as Commits
from keep_actors.host.storage_actor import StorageActor, StorageRef
from keep_storage import Ids, Millis, Operation, Store, wall_clock
from keep_storage.operations import OperationOutcome

Batch = Sequence[Operation[Any]]


class Measured(NamedTuple):
    """The time and the commits of a number of cycles."""

    cycles: int
    seconds: float
    commits: int

    @property
    def per_s(self) -> float:
        return self.cycles / self.seconds

    @property
    def ops_per_commit(self) -> float:
        return self.cycles * OPERATIONS_PER_CYCLE / self.commits


class History(NamedTuple):
    """The batches of a store and their times: enough to repeat them. The first batch deploys the workflows."""

    batches: list[Batch]
    times: list[Millis]


class RecordingStore:
    """A store that records its batches, at the cost of one append each."""

    def __init__(self, path: Path) -> None:
        self.history = History([], [])
        self._store = Store.open(path, self._clock)
        self.history.times.clear()  # opening reads the clock, too

    def _clock(self) -> Millis:
        now = wall_clock()
        self.history.times.append(now)
        return now

    def commit(self, batch: Batch) -> list[OperationOutcome]:
        self.history.batches.append(batch)
        return self._store.commit(batch)

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Crowd:
    """A number of callers of one storage actor. Each `run` continues their cycles."""

    def __init__(self, store: Commits, callers: int) -> None:
        self._actor = StorageActor(store)
        self._ids = Ids(wall_clock)
        self._callers = new_callers(callers, self._ids)
        self._cycles_done = 0
        for outcome in store.commit([each for caller in self._callers for each in deploy(caller, self._ids)]):
            outcome.unwrap()

    @property
    def cycles(self) -> int:
        """The number of cycles of all callers together."""
        return self._cycles_done * len(self._callers)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run the storage actor during the block."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._actor.run)
            yield
            self._actor.stop()

    async def run(self, cycles_each: int) -> Measured:
        """Let each caller run `cycles_each` cycles."""
        commits = self._actor.commits
        start = time.perf_counter()
        async with anyio.create_task_group() as group:
            for caller in self._callers:
                group.start_soon(self._repeat, self._actor.ref, caller, cycles_each)
        seconds = time.perf_counter() - start
        self._cycles_done += cycles_each
        return Measured(len(self._callers) * cycles_each, seconds, self._actor.commits - commits)

    async def _repeat(self, storage: StorageRef, caller: Caller, cycles: int) -> None:
        for number in range(self._cycles_done, self._cycles_done + cycles):
            for operation in cycle(caller, number, self._ids):
                await storage.apply(operation)


def measure(path: Path, callers: int, cycles_each: int) -> tuple[Measured, History]:
    """One timed run on a new file."""

    async def timed(crowd: Crowd) -> Measured:
        async with crowd.at_work():
            return await crowd.run(cycles_each)

    with RecordingStore(path) as store:
        crowd = Crowd(store, callers)
        with own_garbage_only():
            return anyio.run(timed, crowd), store.history
