"""A database of the execution model, opened by one runtime. `commit` is the only way to change it.

Many operations go into one database transaction (group commit), each in its own savepoint: one that is refused
or raises is undone alone. What `commit` returns is durable.
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
            tx = self._database.begin()
            outcomes = [_apply(tx, operation, now) for operation in batch]
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


def _apply(tx: Transaction, operation: Operation[Any], now: Millis) -> OperationOutcome:
    tx.savepoint()
    try:
        answer = manager.apply(tx, operation, now)
    except StorageError:
        raise
    except UnicodeEncodeError as error:
        tx.undo()
        half = f"A text holds half a character, at {error.start} of {error.object!r}; no database keeps that."
        return OperationRefused(Rejected(Reason.TEXT_INVALID, half))
    except Exception as error:
        tx.undo()
        return OperationRefused(error)
    tx.release()
    return Done(answer)
