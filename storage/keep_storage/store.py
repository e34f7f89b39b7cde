"""A database of the execution model, opened by one runtime. `commit` is the only way to change it.

Many operations go into one database transaction (group commit). One that is refused or raises is undone alone: most
have written nothing by then, and for the others the batch is applied again, with a savepoint for each operation.
What `commit` returns is durable.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from keep_storage import invariants, manager
from keep_storage.errors import Reason, Rejected, StorageError
from keep_storage.ids import Millis, Now, wall_clock
from keep_storage.journal import Entries, write
from keep_storage.operations import Done, Operation, OperationOutcome, OperationRefused
from keep_storage.own_files import PRIVATE, checked_mode, make
from keep_storage.ownership import Ownership
from keep_storage.sqlite import SqliteDatabase, open_reader
from keep_storage.transaction import Database, Queries, Reader, Transaction

log = logging.getLogger("keep_storage")


class Store:
    """The execution model in a database. Not thread-safe: one thread at a time commits."""

    def __init__(self, database: Database, clock: Now = wall_clock, ownership: Ownership | None = None) -> None:
        self._database = database
        self._clock = clock
        self._ownership = ownership

    @classmethod
    def open(cls, path: str | os.PathLike[str], clock: Now = wall_clock, *, file_mode: int = PRIVATE) -> Self:
        """Open or create the file, take ownership of it, bring its schema up to date and check its invariants.

        A file that is made, and those beside it, get `file_mode`: this user's alone unless it says otherwise. The mode
        of one that is there stays as it is.

        Raises `StorageOwned`, `StorageTooNew`, `StorageForeign`, `StorageCorrupt` or `StorageUnavailable`.
        A broken invariant is logged loudly; it does not keep the file closed.
        """
        ownership = Ownership.take(Path(path), checked_mode(file_mode))
        try:
            make(Path(path), file_mode)
            store = cls(SqliteDatabase.open(str(path), now=clock()), clock, ownership)
        except BaseException:
            ownership.give_up()
            raise
        try:
            _tell_what_is_broken(str(path))
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def in_memory(cls, clock: Now = wall_clock) -> Self:
        """A store that is gone when it is closed, for tests."""
        return cls(SqliteDatabase.open(":memory:", now=clock()), clock)

    def commit(self, batch: Sequence[Operation[Any]]) -> list[OperationOutcome]:
        """Apply all operations in one transaction; one outcome each, in order, durable.

        Raises `StorageUnavailable` if the transaction failed: then none of them happened. With `StorageLost` that
        is not certain yet; the next commit begins by making it certain.
        """
        now = self._clock()
        try:
            outcomes = _apply_plainly(self._database.begin(), batch, now)
            if outcomes is None:
                # Operations are values and `now` is the same: the second time each ends as it did the first time.
                self._database.rollback()
                tx = self._database.begin()
                outcomes = [_apply_undoably(tx, operation, now) for operation in batch]
            self._database.commit()
        except BaseException:
            self._database.rollback()
            raise
        return outcomes

    def queries(self) -> Queries:
        """Reads on the writer's own connection, for the thread that commits."""
        return self._database.queries()

    def reader(self) -> Reader:
        """A connection that cannot write and never waits for the writer."""
        return self._database.reader()

    def close(self) -> None:
        try:
            self._database.close()
        finally:
            if self._ownership:
                self._ownership.give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _tell_what_is_broken(path: str) -> None:
    """Check the invariants about unfinished work, without trust in the file: it may be damaged."""
    with closing(open_reader(path)) as reader, reader.snapshot():
        for broken in invariants.check(reader, deep=False):
            log.error("%s: %s Run `keep doctor %s`.", path, broken, path)


def _apply_plainly(tx: Transaction, batch: Sequence[Operation[Any]], now: Millis) -> list[OperationOutcome] | None:
    """Apply a batch without savepoints, and write its journal at once. None if something of it must be undone."""
    outcomes: list[OperationOutcome] = []
    journal: Entries = []
    for operation in batch:
        written, entries = tx.rows_changed(), len(journal)
        try:
            outcomes.append(Done(manager.apply(tx, operation, now, journal)))
        except StorageError:
            raise
        except Exception as error:
            if tx.rows_changed() != written:
                return None
            del journal[entries:]
            outcomes.append(_refused(error))
    try:
        write(tx, journal, now)
    except UnicodeEncodeError:
        return None
    return outcomes


def _apply_undoably(tx: Transaction, operation: Operation[Any], now: Millis) -> OperationOutcome:
    """Apply an operation and write its journal in a savepoint of its own."""
    journal: Entries = []
    tx.savepoint()
    try:
        answer = manager.apply(tx, operation, now, journal)
        write(tx, journal, now)
    except StorageError:
        raise
    except Exception as error:
        tx.undo()
        return _refused(error)
    tx.release()
    return Done(answer)


def _refused(error: Exception) -> OperationRefused:
    if isinstance(error, UnicodeEncodeError):
        half = f"A text holds half a character, at {error.start} of {error.object!r}; no database keeps that."
        return OperationRefused(Rejected(Reason.TEXT_INVALID, half))
    return OperationRefused(error)
