"""The floor: the statements of a run of ours, in the same batches, by plain APSW in one thread. Nothing else.

The statements come from doing the same operations once more, at the same times, on a database that writes down
what it is asked. The replay begins, executes, fetches and commits: whoever wants these rows cannot do less.
"""

import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from bench.machine import own_garbage_only
from bench.storage.ours import History, Measured
from keep_storage import Store, statements, wall_clock
from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Queries, Reader, Row, SqlParams, Transaction

SAVEPOINT: Final = "SAVEPOINT operation"
RELEASE: Final = "RELEASE operation"

_PARAMETER: Final = re.compile(r"(?<!\w):(\w+)")


class Step(NamedTuple):
    """One statement and what is bound to it; whether its rows are wanted."""

    sql: str
    params: dict[str, Any]
    fetch: bool


Script = list[list[Step]]
"""Statements by batch: what stands between one BEGIN and its COMMIT."""


class Recording(NamedTuple):
    """What a run of ours asked of its database, and how many rows each table had in the end."""

    setup: Script
    cycles: Script
    row_counts: Mapping[str, int]

    def without_savepoints(self) -> "Recording":
        return self._replace(cycles=without_savepoints(self.cycles))


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
    """A database in memory that writes down every statement of every transaction."""

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
    """A transaction that writes down its statements."""

    def __init__(self, transaction: Transaction, steps: list[Step]) -> None:
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

    def savepoint(self) -> None:
        self._steps.append(Step(SAVEPOINT, {}, fetch=False))
        self._transaction.savepoint()

    def release(self) -> None:
        self._steps.append(Step(RELEASE, {}, fetch=False))
        self._transaction.release()

    def undo(self) -> None:
        raise AssertionError("nothing is refused in a run that is recorded")

    def _write_down(self, query: str, params: SqlParams, *, fetch: bool) -> None:
        bound = {name: _plain(params[name]) for name in _parameters(query)}
        self._steps.append(Step(statements.queries()[query].sql, bound, fetch))


@cache
def _parameters(query: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_PARAMETER.findall(statements.queries()[query].sql)))


def _plain(value: Any) -> Any:
    """An enum as the text it is stored as, a truth value as its number: drivers bind those fastest."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, bool) else value


def without_savepoints(script: Script) -> Script:
    return [[step for step in batch if step.sql not in (SAVEPOINT, RELEASE)] for batch in script]


def replay(path: Path, recording: Recording) -> Measured:
    """Execute a recording on a new file with the schema and the settings of ours; only the cycles are timed."""
    database = SqliteDatabase.open(str(path), now=wall_clock())
    # The very connection that the store would use, so that no setting of it can differ.
    connection = database._connection
    execute(connection, recording.setup)
    with own_garbage_only():
        start = time.perf_counter()
        execute(connection, recording.cycles)
        seconds = time.perf_counter() - start
    database.close()
    assert row_counts(path) == recording.row_counts, "a replay that leaves other rows did other work"
    return Measured(recording.row_counts["runs"], seconds, len(recording.cycles))


def execute(connection: apsw.Connection, script: Script) -> None:
    """Each batch in one transaction, as fast as Python can."""
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
    """How many rows each table of a file has."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {str(name): len(connection.execute(f"SELECT 1 FROM {name}").fetchall()) for (name,) in tables}
    finally:
        connection.close()
