"""Several scenarios side by side on one simulated disk: in each batch, one operation of each of them."""

import copy
import itertools
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final, Self

import apsw

from keep_storage import ExecutionModelManager, Operation, Reason, Rejected, Store, reads
from keep_storage import operations as ops
from keep_storage.model import JournalEntry
from keep_storage.operations import OperationRefused
from keep_storage.sqlite import SqliteDatabase
from tests.crash.disks import TroubledDisk
from tests.crash.driver import NO_LIMIT, Driver
from tests.crash.life import STEPS_MAX
from tests.crash.scenarios import ALL
from tests.crash.services import Services
from tests.crash.truth import Ending, check, ending, state
from tests.storage.world import CountingClock

Batch = list[Operation[Any]]

CAST: Final = [
    next(scenario for scenario in ALL if scenario.name == name)
    for name in (
        "02 next fails by its logic",
        "07 outcome unknown and it happened",
        "2d rejected",
        "job that fails inside an item",
    )
]

RECOVERY: Final[Batch] = [ops.RecoverCrashedRuns(), ops.RecoverUnfinishedSessions(), ops.RecoverMaintenanceMode()]

_REFUSED: Final = ops.PauseWorkflow("wf_nobody")
"""Part of every batch: an operation that is refused takes nobody with it."""

_numbers = itertools.count(1)


class Show:
    """A process on a machine with a simulated disk."""

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        outsides: list[Services] | None = None,
        now: int | None = None,
        *,
        powersafe: bool = True,
    ) -> None:
        outsides = outsides or [scenario.outside() for scenario in CAST]
        self.drivers = [
            Driver(scenario, copy.deepcopy(outside), f"wf_{number}")
            for number, (scenario, outside) in enumerate(zip(CAST, outsides, strict=True))
        ]
        self.clock = CountingClock() if now is None else CountingClock(now)
        self.disk = TroubledDisk(f"show-{next(_numbers)}", dict(files or {}), powersafe=powersafe)
        self.batches = 0

    def open(self) -> None:
        database = SqliteDatabase.open("db", now=self.clock(), vfs=self.disk.vfs_name, exclusive=True)
        self.store = Store(database, self.clock)

    def next_batch(self) -> Batch:
        """The next operation of every scenario that has one; nothing when all are over."""
        q = self.store.queries()
        found = [driver.next_operation(q) for driver in self.drivers]
        batch: Batch = [operation for operation in found if operation]
        return [*batch, _REFUSED] if batch else []

    def commit(self, batch: Batch) -> None:
        outcomes = self.store.commit(batch)
        self.batches += 1
        for operation, outcome in zip(batch, outcomes, strict=True):
            if operation is _REFUSED:
                assert isinstance(outcome, OperationRefused)
                assert isinstance(outcome.error, Rejected)
                assert outcome.error.reason is Reason.WORKFLOW_NOT_FOUND
            else:
                outcome.unwrap()

    def play(self) -> None:
        """Batch by batch to the end, with a look at everything after each."""
        while batch := self.next_batch():
            self.commit(batch)
            self.check()
            assert self.batches < STEPS_MAX, "no end"

    def recover(self) -> None:
        self.commit(RECOVERY)
        assert ExecutionModelManager(self.store).assert_no_orphaned_reserved_events() == []
        self.check()

    def endings(self) -> list[Ending]:
        return [ending(self.store.queries(), driver) for driver in self.drivers]

    def journal(self) -> list[JournalEntry]:
        return reads.journal(self.store.queries(), limit=NO_LIMIT)

    def rows(self) -> list[object]:
        """All that the database holds, but for times."""
        return [state(self.store.queries(), driver) for driver in self.drivers]

    def reopened(self, files: Mapping[str, bytes]) -> "Show":
        """The same show on another machine, with these files on its disk."""
        return Show(files, self.outsides(), self.clock.now, powersafe=self.disk.powersafe)

    def check(self) -> None:
        check(self.store.queries(), *self.drivers)

    def outsides(self) -> list[Services]:
        return [copy.deepcopy(driver.outside) for driver in self.drivers]

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        """The machine is switched off; what is on its disk is nobody's business any more."""
        self.disk.close()


def problems(files: Mapping[str, bytes]) -> list[str]:
    """What SQLite finds wrong with these files."""
    disk = TroubledDisk(f"look-{next(_numbers)}", dict(files))
    with closing(disk), closing(apsw.Connection("db", vfs=disk.vfs_name)) as connection:
        said = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        return [line for line in said if line != "ok"] + list(map(str, connection.execute("PRAGMA foreign_key_check")))
