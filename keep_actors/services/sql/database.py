"""The side of a database that the connector needs: transactions, their errors, and its findings. No SQL is here."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from keep_actors.services.sql.leaving import Leaving

DatabaseRow: TypeAlias = tuple[Any, ...]


class SqlFault(Exception):
    """A database refused, or is not there any more. The words have no row of it, only names and the reason."""

    def __init__(self, code: str, words: str, *, is_answer: bool = True) -> None:
        super().__init__(words)
        self.code = code
        """The SQLSTATE of PostgreSQL, the name of SQLite's result, or one of `meanings.OURS`."""
        self.is_answer = is_answer
        """The database refused this statement and goes on. False: it, or the connection, came to an end."""


class SqlLimits(NamedTuple):
    """Limits of one transaction."""

    timeout_ms: int
    connect_timeout_ms: int
    lock_timeout_ms: int


class ColumnFound(NamedTuple):
    """A column of the database."""

    type: str
    """For a message: `character varying(20)`."""
    family: str
    """The type without its size in PostgreSQL, the affinity in SQLite."""
    cast: str = ""
    """The type that a bound value is cast to."""
    scale: int | None = None
    """The number of decimals that it keeps. None: all."""
    is_exact: bool = True
    """False: it rounds what it is given."""


@dataclass(frozen=True, slots=True)
class TableFound:
    """A table of the database."""

    columns: Mapping[str, ColumnFound]
    unique: Sequence[frozenset[str]]
    """Sets of columns by which a row is the only one."""


class Page(NamedTuple):
    """The rows that fit into an answer."""

    names: Sequence[str]
    rows: Sequence[DatabaseRow]
    has_more: bool


class SqlTransaction(Protocol):
    """One transaction. Left without `commit`, it is rolled back. All of it raises `SqlFault`."""

    def lock(self, key: str) -> None:
        """Wait until no other transaction of this call is active, and keep others away."""
        ...

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[DatabaseRow]:
        """Run one statement, and return its few rows."""
        ...

    def commit(self) -> None:
        """Commit. If it raises with `is_answer`, the database refused; else the outcome is open."""
        ...


class Dialect(Protocol):
    """How a database spells a statement."""

    default_schema: str
    receipts_table: str
    """The statement that creates the table of receipts, with `{table}` in it."""

    def place(self, number: int, cast: str) -> str:
        """The place of a bound value: the first is 1."""
        ...

    def stored(self, value: Any, type_name: str) -> Any:
        """A bound value as the client of the database takes it."""
        ...


class SqlDatabase(Dialect, Protocol):
    """A database. Every method blocks, and ends by its limits or when another thread makes it leave."""

    def changing(self, leaving: Leaving) -> AbstractContextManager[SqlTransaction]:
        """A transaction that changes, or looks for a change that may be active now."""
        ...

    def reading(self, leaving: Leaving) -> AbstractContextManager[SqlTransaction]:
        """A transaction that cannot change anything."""
        ...

    def page(self, leaving: Leaving, sql: str, values: Sequence[Any], rows_max: int, bytes_max: int) -> Page:
        """The first rows of a SELECT, in a transaction that cannot change anything."""
        ...

    def names_of(self, transaction: SqlTransaction, sql: str, values: Sequence[Any]) -> Sequence[str]:
        """The columns of a SELECT, without its rows."""
        ...

    def find(self, transaction: SqlTransaction, table: str) -> TableFound | None:
        """Find a table in the schema of the connector."""
        ...
