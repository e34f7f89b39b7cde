"""The floor: only the statements of one of our runs, in the same batches, by plain APSW in one thread.

The statements are recorded by doing the same operations again, at the same times. The replay begins, executes, fetches
and commits: the minimum work for these rows.
"""

import re
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from bench.machine import own_garbage_only
from bench.storage.ours import History, Measured
from keep_storage import Store, statements, wall_clock
from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Queries, Reader, Row, SqlParams, Transaction

_PARAMETER: Final = re.compile(r"(?<!\w):(\w+)")


class Step(NamedTuple):
    """One statement with its parameters; `fetch` if its rows are used."""

    sql: str
    params: dict[str, Any]
    fetch: bool


Script = list[list[Step]]
"""Statements by batch, one transaction each."""


class Recording(NamedTuple):
    """The statements of one of our runs, and the number of rows of each table at the end."""

    setup: Script
    cycles: Script
    row_counts: Mapping[str, int]


def record(history: History, row_counts: Mapping[str, int]) -> Recording:
    """The statements behind a history."""
    script = statements_of(history)
    return Recording(script[:1], script[1:], row_counts)


def statements_of(history: History) -> Script:
    times = iter(history.times)
    database = RecordingDatabase()
    store = Store(database, times.__next__)
    for batch in history.batches:
        for outcome in store.commit(batch):
            outcome.unwrap()
    store.close()
    return database.script


class RecordingDatabase:
    """A database in memory that records all statements by transaction."""

    def __init__(self) -> None:
        self.script: Script = []
        self._database = SqliteDatabase.open(":memory:", now=0)

    def begin(self) -> Transaction:
        self.script.append([])
        return RecordingTransaction(self._database.begin(), self.script[-1])

    def commit(self) -> None:
        self._database.commit()

    def rollback(self) -> None:
        self._database.rollback()

    def queries(self) -> Queries:
        return self._database.queries()

    def reader(self) -> Reader:
        return self._database.reader()

    def close(self) -> None:
        self._database.close()


class RecordingTransaction:
    """A transaction that records its statements."""

    def __init__(self, transaction: Transaction, steps: list[Step]) -> None:
        self.kept = transaction.kept
        self._transaction = transaction
        self._steps = steps

    def one(self, query: str, params: SqlParams) -> Row | None:
        self._write_down(query, params, fetch=True)
        return self._transaction.one(query, params)

    def all(self, query: str, params: SqlParams) -> list[Row]:
        self._write_down(query, params, fetch=True)
        return self._transaction.all(query, params)

    def run(self, query: str, params: SqlParams) -> None:
        self._write_down(query, params, fetch=False)
        self._transaction.run(query, params)

    def run_each(self, query: str, params: Iterable[SqlParams]) -> None:
        for each in params:
            self.run(query, each)

    def rows_changed(self) -> int:
        return self._transaction.rows_changed()

    def savepoint(self) -> None:
        raise AssertionError("no operation is refused in a recorded run")

    release = undo = savepoint

    def _write_down(self, query: str, params: SqlParams, *, fetch: bool) -> None:
        bound = {name: _plain(params[name]) for name in _parameters(query)}
        self._steps.append(Step(statements.queries()[query].sql, bound, fetch))


@cache
def _parameters(query: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_PARAMETER.findall(statements.queries()[query].sql)))


def _plain(value: Any) -> Any:
    """An enum as text and a bool as int: drivers bind those fastest."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, bool) else value


def replay(path: Path, recording: Recording) -> Measured:
    """Execute a recording on a new file with our schema and settings; only the cycles are timed."""
    database = SqliteDatabase.open(str(path), now=wall_clock())
    # The connection that the store would use, with the same settings.
    connection = database._connection
    execute(connection, recording.setup)
    with own_garbage_only():
        start = time.perf_counter()
        execute(connection, recording.cycles)
        seconds = time.perf_counter() - start
    database.close()
    assert row_counts(path) == recording.row_counts, "a replay leaves the same rows"
    return Measured(recording.row_counts["runs"], seconds, len(recording.cycles))


def execute(connection: apsw.Connection, script: Script) -> None:
    """Execute each batch in one transaction, as fast as Python can."""
    step = connection.cursor().execute
    for batch in script:
        step("BEGIN IMMEDIATE")
        for sql, params, fetch in batch:
            if fetch:
                step(sql, params).fetchall()
            else:
                step(sql, params)
        step("COMMIT")


def row_counts(path: Path) -> dict[str, int]:
    """The number of rows of each table of a file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {str(name): len(connection.execute(f"SELECT 1 FROM {name}").fetchall()) for (name,) in tables}
    finally:
        connection.close()
