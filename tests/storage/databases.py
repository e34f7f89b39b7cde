"""Every database that the execution model runs on. A new driver is one line here, and then passes the whole suite."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import apsw

from keep_storage import statements
from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Database

Rows: TypeAlias = list[tuple[Any, ...]]
Contents: TypeAlias = dict[str, Rows]


class Opened(NamedTuple):
    """A new, empty database, and a look at what is committed in it past everything that is tested."""

    database: Database
    select: Callable[[str], Rows]
    """Any SELECT of the suite; the values are as the driver gives them."""

    def contents(self) -> Contents:
        """Every row of every table, by table."""
        return {table: self.select(f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}


MakeDatabase: TypeAlias = Callable[[Path], Opened]
"""Is given an empty folder, for what it wants to leave there."""

TABLES: Final = tuple(re.findall(r"^CREATE TABLE (\w+)", statements.text("schema.sql"), re.MULTILINE))


def in_memory(_: Path) -> Opened:
    """Seen by its own connection only, which is caught as it is made.

    It is the first: opening a file for the first time in a process may make others, to see what a schema should be.
    """
    connections: list[apsw.Connection] = []
    remember = connections.append
    apsw.connection_hooks.append(remember)
    try:
        database = SqliteDatabase.open(":memory:", now=0)
    finally:
        apsw.connection_hooks.remove(remember)
    writer = connections[0]
    return Opened(database, lambda sql: writer.execute(sql).fetchall())


def in_a_file(folder: Path) -> Opened:
    """Looked at by a connection of its own, which sees what is committed."""
    path = str(folder / "keep.db")
    database = SqliteDatabase.open(path, now=0)
    reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    return Opened(database, lambda sql: reader.execute(sql).fetchall())


DATABASES: Final[dict[str, MakeDatabase]] = {"memory": in_memory, "file": in_a_file}
