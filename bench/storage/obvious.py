"""The same cycle in the obvious way: aiosqlite, one statement per await, one commit per operation.

All callers share one connection, and a lock keeps their transactions apart. The statements and parameters are ours; the
SQLite library is the interpreter's.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiosqlite
import anyio

from bench.machine import own_garbage_only
from bench.storage.cycle import OPERATIONS_PER_CYCLE, cycle, deploy, new_callers
from bench.storage.floor import Script, Step, execute, row_counts, statements_of
from bench.storage.ours import History, Measured
from keep_storage import Ids, Operation, wall_clock
from keep_storage.sqlite import SqliteDatabase

PRAGMAS: Final = ("synchronous", "foreign_keys", "cache_size", "temp_store", "journal_size_limit")
"""Settings of a connection that are not kept in the file."""


class Work(NamedTuple):
    """The statements of the setup, and of each caller's operations in order."""

    setup: Script
    callers: list[Script]


def prepare(callers: int, cycles_each: int) -> Work:
    """The statements of these cycles, operation by operation."""
    ids = Ids(wall_clock)
    first, *members = new_callers(1 + callers, ids)
    setup: list[Operation[Any]] = [each for caller in (first, *members) for each in deploy(caller, ids)]
    # Before the others, for the names that the journal gives a number: they do their operations in another order.
    setup += cycle(first, 0, ids)
    alone = [[each] for caller in members for number in range(cycles_each) for each in cycle(caller, number, ids)]
    times = [wall_clock()] * (1 + len(alone))
    script = statements_of(History([setup, *alone], times))
    size = cycles_each * OPERATIONS_PER_CYCLE
    return Work(script[:1], [script[first : first + size] for first in range(1, len(script), size)])


def measure(path: Path, work: Work) -> Measured:
    """One timed run on a new file."""
    database = SqliteDatabase.open(str(path), now=wall_clock())
    execute(database._connection, work.setup)
    settings = {name: database._connection.pragma(name) for name in PRAGMAS}
    database.close()
    with own_garbage_only():
        measured = anyio.run(_timed, path, settings, work.callers)
    assert row_counts(path)["runs"] == 1 + measured.cycles, "every cycle leaves a run"
    return measured


async def _timed(path: Path, settings: dict[str, Any], callers: list[Script]) -> Measured:
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        for name, value in settings.items():
            await connection.execute(f"PRAGMA {name} = {value}")
        lock = asyncio.Lock()
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for operations in callers:
                group.create_task(_repeat(connection, lock, operations))
        seconds = time.perf_counter() - start
    commits = sum(len(operations) for operations in callers)
    return Measured(commits // OPERATIONS_PER_CYCLE, seconds, commits)


async def _repeat(connection: aiosqlite.Connection, lock: asyncio.Lock, operations: Script) -> None:
    for steps in operations:
        async with lock:
            await _operation(connection, steps)


async def _operation(connection: aiosqlite.Connection, steps: list[Step]) -> None:
    await connection.execute("BEGIN IMMEDIATE")
    for sql, params, fetch in steps:
        if fetch:
            await connection.execute_fetchall(sql, params)
        else:
            await connection.execute(sql, params)
    await connection.commit()
