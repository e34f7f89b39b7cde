"""Lives of a process, and what each leaves behind when it is killed.

A picture is a SIGKILL image: the database file and its log as they are at one moment, without the shared memory,
and the world outside at that moment. A new life starts from a picture as a new process would: it opens the
files, recovers, and carries on to the end.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from keep_storage import ExecutionModelManager, Store, reads
from keep_storage.model import MutationStatus, RunStatus
from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Database
from tests.crash.driver import NO_LIMIT, Driver
from tests.crash.scenarios import Scenario
from tests.crash.services import Services
from tests.crash.truth import Ending, ending
from tests.passing import PassingDatabase
from tests.storage.world import CountingClock

STEPS_MAX: Final = 2_000


def recover(store: Store) -> None:
    """What a process does first with a file that another one may have died over."""
    model, q = ExecutionModelManager(store), store.queries()
    model.recover_crashed_runs()
    model.recover_unfinished_sessions()
    model.recover_maintenance_mode()
    assert model.assert_no_orphaned_reserved_events() == []
    for workflow in reads.workflows(q):
        assert reads.open_session(q, workflow.id) is None
        assert not workflow.maintenance or reads.open_task(q, workflow.id)
        assert all(run.status is not RunStatus.ACTIVE for run in reads.runs(q, workflow.id, limit=NO_LIMIT))
        for mutation in reads.unsettled_mutations(q, workflow.id):
            assert mutation.status is not MutationStatus.IN_FLIGHT


def drive(store: Store, driver: Driver) -> None:
    """Step by step to the end. An operation that is rejected on the way is a failure of the test."""
    model = ExecutionModelManager(store)
    for _ in range(STEPS_MAX):
        operation = driver.next_operation(store.queries())
        if operation is None:
            return
        model.execute(operation)
    raise AssertionError(f"{driver.scenario.name}: no end after {STEPS_MAX} steps")


class Crash(BaseException):
    """The process is dead. Nobody catches this but the test."""


class Moment(Enum):
    BEFORE = "before"
    """Everything was said, nothing is durable. Calls made since the commit before have happened."""
    AFTER = "after"
    """It is durable, and whoever asked for it has not heard of it."""


Watch = Callable[[Moment, int], None]


class Mortal(PassingDatabase):
    """A database whose process may die at any commit: before it is durable, or after, with the answer lost."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._is_dead = False
        self.commits = 0
        self.watch: Watch = lambda _moment, _commit: None

    def commit(self) -> None:
        self.commits += 1
        try:
            self.watch(Moment.BEFORE, self.commits)
            self._database.commit()
            self.watch(Moment.AFTER, self.commits)
        except Crash:
            self._is_dead = True
            raise

    def rollback(self) -> None:
        if not self._is_dead:  # the dead undo nothing
            self._database.rollback()


@dataclass(frozen=True)
class Picture:
    """What is left of a life at one moment, and which crashes led there."""

    files: Mapping[str, bytes]
    outside: Services
    now: int
    crashes: tuple[str, ...]

    def __str__(self) -> str:
        return ", then ".join(f"crash {each}" for each in self.crashes) or "no crash"


class Life:
    """One process: it opens what it finds in a folder, recovers, and drives one scenario to its end."""

    def __init__(self, scenario: Scenario, folder: Path, start: Picture | None = None) -> None:
        self.start = start or Picture({}, scenario.outside(), CountingClock().now, ())
        self._path = folder / "keep.db"
        for suffix in ("", "-wal", "-shm"):
            folder.joinpath(f"keep.db{suffix}").unlink(missing_ok=True)
        for name, content in self.start.files.items():
            folder.joinpath(name).write_bytes(content)
        # A copy: many lives start from the same picture, and the outside of one is not that of another.
        self.driver = Driver(scenario, copy.deepcopy(self.start.outside))
        self._clock = CountingClock(self.start.now)
        self.database = Mortal(SqliteDatabase.open(str(self._path), now=self._clock()))
        self.store = Store(self.database, self._clock)

    def run(self) -> Ending:
        if self.start.files:
            recover(self.store)
        drive(self.store, self.driver)
        return ending(self.store.queries(), self.driver)

    def picture(self, moment: Moment, commit: int) -> Picture:
        """What SIGKILL would leave behind now. The connection is open, and has not checkpointed anything away."""
        names = (self._path.name, f"{self._path.name}-wal")
        files = {name: self._path.with_name(name).read_bytes() for name in names}
        crashes = (*self.start.crashes, f"{moment.value} commit {commit}")
        return Picture(files, copy.deepcopy(self.driver.outside), self._clock.now, crashes)

    def close(self) -> None:
        self.store.close()
