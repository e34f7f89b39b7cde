"""SQLite, by the client of the standard library: each transaction has a connection of its own.

A change begins with BEGIN IMMEDIATE, so two are never active at once, also in two processes: what `reconcile` sees then
is final. A read has an authorizer that refuses everything but reading.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from keep_actors.kernel.time import Time, WallTime
from keep_actors.services.sql.column_types import COLUMN_TYPES
from keep_actors.services.sql.database import (
    ColumnFound,
    DatabaseRow,
    Page,
    SqlFault,
    SqlLimits,
    SqlTransaction,
    TableFound,
)
from keep_actors.services.sql.leaving import Leaving
from keep_actors.services.sql.meanings import NOT_SUPPORTED
from keep_actors.services.sql.tables import sql_of

_OLDEST: Final = (3, 37, 0)
_STEPS: Final = 1000
"""Instructions of SQLite between two looks at the clock."""
_READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_AFFINITIES: Final = (
    ("INT", "INTEGER"),
    ("CHAR", "TEXT"),
    ("CLOB", "TEXT"),
    ("TEXT", "TEXT"),
    ("BLOB", "BLOB"),
    ("REAL", "REAL"),
    ("FLOA", "REAL"),
    ("DOUB", "REAL"),
)
"""The rules of SQLite, in their order: the first that is in the declared type decides."""
_RECEIPTS: Final = """CREATE TABLE IF NOT EXISTS {table} (
  call TEXT NOT NULL PRIMARY KEY,
  method TEXT NOT NULL,
  digest TEXT NOT NULL,
  result TEXT NOT NULL,
  made_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)"""


class OnSqlite:
    """A file of SQLite, which must exist."""

    default_schema = "main"
    receipts_table = _RECEIPTS

    def __init__(self, file: Path, limits: SqlLimits, time: Time | None = None) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise SqlFault(NOT_SUPPORTED, f"SQLite {sqlite3.sqlite_version} is too old; 3.37 is the oldest")
        self._file = file
        self._limits = limits
        self._time = time or WallTime()

    def place(self, number: int, _: str) -> str:
        """The place of a bound value."""
        return f"?{number}"

    def stored(self, value: Any, type_name: str) -> Any:
        """A bound value, as SQLite keeps it."""
        return None if value is None else COLUMN_TYPES[type_name].store(value)

    @contextmanager
    def changing(self, leaving: Leaving) -> Iterator[SqlTransaction]:
        """A transaction that is the only one that may write."""
        with self._connected(leaving) as transaction:
            # Durable when it returns: WAL with a lower setting would lose a change that was reported.
            for statement in ("PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON", "BEGIN IMMEDIATE"):
                transaction.run(statement)
            yield transaction

    @contextmanager
    def reading(self, leaving: Leaving) -> Iterator[SqlTransaction]:
        """A transaction in which SQLite refuses to write."""
        with self._reading(leaving) as transaction:
            yield transaction

    def page(self, leaving: Leaving, sql: str, values: Sequence[Any], rows_max: int, bytes_max: int) -> Page:
        """The first rows of a SELECT. Raises `SqlFault` for one that is larger than the answer may be."""
        with self._reading(leaving) as transaction:
            transaction.bound_values(bytes_max)
            return transaction.page(sql, values, rows_max, bytes_max)

    def names_of(self, transaction: SqlTransaction, sql: str, values: Sequence[Any]) -> Sequence[str]:
        """The columns of a SELECT."""
        assert isinstance(transaction, _Transaction), "it is one of ours"
        return transaction.page(sql_of("SELECT * FROM (", sql, "\n) LIMIT 0"), values, 0, 0).names

    def find(self, transaction: SqlTransaction, table: str) -> TableFound | None:
        """Find an ordinary table."""
        kinds = transaction.run("SELECT type FROM pragma_table_list(?1) WHERE schema = 'main'", [table])
        if kinds != [("table",)]:
            return None
        columns = transaction.run("SELECT name, type, pk FROM pragma_table_xinfo(?1, 'main')", [table])
        keys = [frozenset(str(name) for name, _, place in columns if place)]
        indexes = "SELECT name FROM pragma_index_list(?1, 'main') WHERE \"unique\" AND NOT partial"
        for (index,) in transaction.run(indexes, [table]):
            parts = transaction.run("SELECT name FROM pragma_index_info(?1, 'main')", [index])
            if all(name is not None for (name,) in parts):  # not of an expression
                keys.append(frozenset(str(name) for (name,) in parts))
        found = {
            str(name): ColumnFound(str(declared) or "no type", _affinity(declared)) for name, declared, _ in columns
        }
        return TableFound(found, [key for key in keys if key])

    @contextmanager
    def _connected(self, leaving: Leaving) -> Iterator["_Transaction"]:
        with _translated():
            connection = sqlite3.connect(
                f"{self._file.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=self._limits.lock_timeout_ms / 1000,
                isolation_level=None,  # BEGIN and COMMIT are written out
                check_same_thread=False,  # another thread may interrupt
                cached_statements=8,
            )
        with closing(connection), leaving.interruptible(connection.interrupt):
            deadline = self._time.elapsed() + self._limits.timeout_ms
            connection.set_progress_handler(lambda: self._time.elapsed() > deadline, _STEPS)
            transaction = _Transaction(connection)
            try:
                yield transaction
            finally:
                transaction.roll_back()

    @contextmanager
    def _reading(self, leaving: Leaving) -> Iterator["_Transaction"]:
        with self._connected(leaving) as transaction:
            # The last statement reads the schema, before its text is bounded like a value.
            for statement in ("PRAGMA query_only = ON", "BEGIN", "SELECT 1 FROM sqlite_schema LIMIT 1"):
                transaction.run(statement)
            yield transaction


class _Transaction:
    """One transaction of SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def lock(self, key: str) -> None:
        """Do nothing: only one transaction writes."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[DatabaseRow]:
        """Run one statement."""
        with _translated(), closing(self._connection.execute(sql, values)) as cursor:
            return cursor.fetchall()

    def page(self, sql: str, values: Sequence[Any], rows_max: int, bytes_max: int) -> Page:
        """The first rows of a SELECT. SQLite refuses every action but reading, whatever the statement says."""
        self._connection.set_authorizer(_only_reading)
        rows: list[DatabaseRow] = []
        left = bytes_max
        with _translated(), closing(self._connection.execute(sql, values)) as cursor:
            names = [each[0] for each in cursor.description or ()]
            for row in cursor:
                left -= sum(len(each) if isinstance(each, (str, bytes)) else 8 for each in row)
                if len(rows) == rows_max or left < 0:
                    return Page(names, rows, has_more=True)
                rows.append(row)
        self._connection.set_authorizer(None)
        return Page(names, rows, has_more=False)

    def bound_values(self, bytes_max: int) -> None:
        """Have SQLite refuse larger values, before they are in memory."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bytes_max)

    def commit(self) -> None:
        """Commit. It is not interrupted by its own time limit, only by the locks of readers."""
        self._connection.set_progress_handler(None, 0)
        self.run("COMMIT")

    def roll_back(self) -> None:
        """End what was not committed: a COMMIT that was refused leaves its transaction open."""
        self._connection.set_authorizer(None)
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # closing rolls back too
                self._connection.execute("ROLLBACK")


def _only_reading(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        # An error of the client itself has no code: a connection that is closed, a number of values that is wrong.
        code = getattr(error, "sqlite_errorname", None) or NOT_SUPPORTED
        raise SqlFault(str(code), f"SQLite: {error}") from None


def _affinity(declared: object) -> str:
    text = str(declared or "").upper()
    if not text:
        return "BLOB"
    return next((affinity for part, affinity in _AFFINITIES if part in text), "NUMERIC")
