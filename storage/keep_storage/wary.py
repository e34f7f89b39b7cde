"""Bounds for queries of a file that others may have made: steps, rows and bytes, by the size of the file.

A damaged or crafted tree of pages can hold the same page a million times: without a bound, a reader would wait
for ever or run out of memory. A file that keep-actors wrote needs a small part of what is allowed.
"""

import os
import stat
from pathlib import Path
from typing import Final

import apsw

from keep_storage.errors import StorageCorrupt
from keep_storage.transaction import Row

_STEPS: Final = 10_000
"""Of SQLite's machine between two looks."""
_STEPS_MAX: Final = 20_000_000
_STEPS_PER_BYTE: Final = 10
_ROWS_MAX: Final = 10_000
_BYTES_PER_ROW: Final = 4
_BYTES_MAX: Final = 64 * 1024 * 1024
_TIMES_READ: Final = 8
_VALUE_BYTES: Final = 16 * 1024 * 1024
"""A value may be as large as this, and as the file."""
_LENGTH_MAX: Final = 2**31 - 1
"""More than SQLite knows."""
_SPARE_BYTES: Final = 1024 * 1024
_COMPRESSED: Final = 8
"""A file may be so much larger than what it takes on the disk: some file systems compress, and count late."""

TOO_MUCH: Final = (
    "there is more to read in it than a file of its size can hold; it is damaged, or was made to hold up its "
    "readers: restore a backup"
)

BESIDE: Final = ("-wal", "-shm", "-journal")


class Allowance:
    """How much one query may still take. `renew` before each."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._path = path
        size = size_of(path)
        self._steps_max = _STEPS_MAX + size * _STEPS_PER_BYTE
        self._rows_max = _ROWS_MAX + size // _BYTES_PER_ROW
        self._bytes_max = _BYTES_MAX + size * _TIMES_READ
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, min(max(_VALUE_BYTES, size), _LENGTH_MAX))
        connection.pragma("cell_size_check", True)
        # With an id: it replaces no other handler.
        connection.set_progress_handler(self._is_used_up, _STEPS, id=self)
        self.renew()

    def renew(self) -> None:
        self._steps, self._rows, self._bytes = self._steps_max, self._rows_max, self._bytes_max

    def take(self, row: Row) -> None:
        """One row more. Raises `StorageCorrupt` when it is one too many."""
        self._rows -= 1
        self._bytes -= sum(len(each) for each in row if isinstance(each, str | bytes))
        if self._rows < 0 or self._bytes < 0:
            raise StorageCorrupt(f"{self._path}: {TOO_MUCH}.")

    def _is_used_up(self) -> bool:
        self._steps -= _STEPS
        return self._steps < 0


def size_of(path: str) -> int:
    """The bytes of a database and its log, without holes, which cost nothing to make."""
    size = 0
    for name in (path, f"{path}-wal"):
        try:
            found = Path(name).stat()
        except OSError:
            continue
        # Not by looking for holes in it: to close a file ends the locks that SQLite has on it in this process.
        # Windows does not say what a file takes on the disk.
        blocks = getattr(found, "st_blocks", found.st_size)
        size += min(found.st_size, _SPARE_BYTES + blocks * 512 * _COMPRESSED)
    return size


def refuse_what_is_no_file(path: str) -> None:
    """A pipe or a device beside a database would be opened as its log, and waited for. Raises `StorageCorrupt`."""
    for end in BESIDE:
        beside = f"{os.path.realpath(path)}{end}"
        try:
            mode = os.stat(beside).st_mode  # noqa: PTH116  # a path that is text, as SQLite has it
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            raise StorageCorrupt(f"{beside} is no plain file; remove it.")
