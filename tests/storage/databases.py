"""Every database that the execution model runs on. A new driver is one line here, and then passes the whole suite."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from keep_storage.sqlite import SqliteDatabase
from keep_storage.transaction import Database

DATABASES: Final[dict[str, Callable[[Path], Database]]] = {
    "memory": lambda _: SqliteDatabase.open(":memory:", now=0),
    "file": lambda folder: SqliteDatabase.open(str(folder / "keep.db"), now=0),
}
