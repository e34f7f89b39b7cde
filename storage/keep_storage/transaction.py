"""A database as the execution model asks for it, and nothing more. SQLite implements it; PostgreSQL can.

A query is named, not written: the drivers know the text (`sql/queries.sql`) and translate `:name` parameters.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from keep_storage.kept import Kept

Row = tuple[Any, ...]
SqlParams = Mapping[str, Any]


class Queries(Protocol):
    """Named queries against one consistent view."""

    kept: Kept
    """Rows that need not be read: of the one writer. Others keep nothing."""

    def one(self, query: str, params: SqlParams) -> Row | None:
        """The first row, or nothing."""

    def all(self, query: str, params: SqlParams) -> list[Row]:
        """Every row."""


class Transaction(Queries, Protocol):
    """The one writer's open transaction."""

    def run(self, query: str, params: SqlParams) -> None:
        """A statement whose rows, if any, do not matter."""

    def run_each(self, query: str, params: Iterable[SqlParams]) -> None:
        """The same statement once for each of the parameters, in order."""

    def rows_changed(self) -> int:
        """A count that grows with every row that is written. The same as before: nothing was written."""

    def savepoint(self) -> None:
        """From here on, `undo` brings everything back."""

    def release(self) -> None:
        """Keep what happened since the savepoint."""

    def undo(self) -> None:
        """Forget what happened since the savepoint, and the savepoint."""


class Reader(Queries, Protocol):
    """A connection that cannot write and never waits for the writer."""

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see the same moment."""

    def close(self) -> None: ...


class Database(Protocol):
    """A database with one writer and any number of readers."""

    def begin(self) -> Transaction: ...

    def commit(self) -> None:
        """Make the transaction durable. Raises `StorageUnavailable` if it is certain that it did not happen,
        now or after a restart, and `StorageLost` if that could not be made certain yet."""

    def rollback(self) -> None:
        """Forget the open transaction, if there is one."""

    def queries(self) -> Queries:
        """Reads on the writer's own connection, for the thread that writes."""

    def reader(self) -> Reader: ...

    def close(self) -> None: ...
