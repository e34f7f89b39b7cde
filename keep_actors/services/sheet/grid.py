"""A sheet in memory, whatever its format: columns by heading, rows by number, and the keys of calls in a column."""

import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

from keep_actors.services.sheet.cells import CellValue
from keep_actors.services.sheet.settings import SheetColumnType

UPDATES_MAX: Final = 8
"""Updates of a row whose keys are kept."""
_MARK_CHARS: Final = 24
_NO_CALL: Final = "."
"""For a row that a person has added. Nothing that could begin a formula."""


class SheetGrid(Protocol):
    """The rows of one sheet."""

    @property
    def rows(self) -> Sequence[int]:
        """The numbers of the rows below the header that are not empty, as a person counts them."""
        ...

    def column(self, header: str) -> int:
        """The place of a column. Raises `PreconditionFailed` if it is not there, or is there twice."""
        ...

    def call_column(self) -> int:
        """The place of the column for the keys of calls, which is made if it is not there."""
        ...

    def calls(self, row: int) -> str:
        """The keys of calls in a row."""
        ...

    def value(self, row: int, column: int, kind: SheetColumnType) -> CellValue:
        """The value of a cell. Raises `Misfit`."""
        ...

    def put(self, row: int, column: int, kind: SheetColumnType, value: CellValue) -> None:
        """Change a cell. Raises `InvalidCall` for a value that the format cannot hold."""
        ...

    def add_row(self) -> int:
        """Add an empty row at the end."""
        ...

    def content(self) -> bytes:
        """The file. Raises `PreconditionFailed` if something would be lost."""
        ...


def call_mark(key: str) -> str:
    """The word that stands for a call in its row."""
    return hashlib.sha256(key.encode()).hexdigest()[:_MARK_CHARS]


def with_mark(cell: str, mark: str) -> str:
    """The words of a row with one more: the first is of the call that added the row, the last ones of updates."""
    first, *updates = cell.split() or [_NO_CALL]
    return " ".join([first, *[*updates, mark][-UPDATES_MAX:]])


def has_mark(cell: str, mark: str) -> bool:
    """True if a call is one of those that changed the row."""
    return mark in cell.split()
