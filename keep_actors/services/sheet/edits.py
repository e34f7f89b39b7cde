"""Find, add and change rows, by what scripts call their columns. Works on any `SheetGrid`, and never waits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from keep_actors.connectors import InvalidCall, PreconditionFailed
from keep_actors.services.sheet.cells import CellMisfit, CellValue
from keep_actors.services.sheet.grid import SheetGrid, has_mark, with_mark
from keep_actors.services.sheet.settings import KnownColumn

RowValues = dict[str, CellValue]
"""The cells of a row by the Python names of their columns."""

ANSWER_BYTES_MAX: Final = 512_000
"""Of a row, and of a page of rows: a script gets a megabyte at most. So no change has an answer that is too large."""


def size_of(values: RowValues) -> int:
    """The bytes of a row in an answer, but for the names of its columns."""
    return len(msgspec.json.encode(list(values.values()))) + 100 * len(values)


@dataclass(frozen=True, slots=True)
class SheetRows:
    """The rows of a grid, as scripts know them."""

    grid: SheetGrid
    columns: Sequence[KnownColumn]
    _places: dict[str, int] = field(default_factory=dict)

    def values(self, row: int) -> RowValues:
        """A row. Raises `PreconditionFailed` for a cell that does not fit its column."""
        found: RowValues = {}
        for column in self.columns:
            try:
                found[column.python_name] = self._value(row, column)
            except CellMisfit as error:
                raise PreconditionFailed(f"row {row}: {column.header!r} {error}") from None
        if (size := size_of(found)) > ANSWER_BYTES_MAX:
            raise PreconditionFailed(f"row {row} has {size:,} bytes; scripts get at most {ANSWER_BYTES_MAX:,}")
        return found

    def found(self, where: Mapping[str, CellValue]) -> Iterator[int]:
        """The rows whose cells have these values. A cell that does not fit its column has none of them."""
        wanted = [(column, where[column.python_name]) for column in self.columns if column.python_name in where]
        return (row for row in self.grid.rows if all(self._is(row, column, value) for column, value in wanted))

    def one(self, key: Mapping[str, CellValue]) -> int | None:
        """The row of a key. Raises `PreconditionFailed` if there are two."""
        match list(self.found(key)):
            case []:
                return None
            case [row]:
                return row
            case rows:
                raise PreconditionFailed(f"rows {rows[0]} and {rows[1]} have the same key; remove one")

    def of_call(self, mark: str) -> int | None:
        """The row that a call has added or changed."""
        return next((row for row in self.grid.rows if has_mark(self.grid.calls(row), mark)), None)

    def add(self, values: RowValues, mark: str) -> int:
        """Add a row. Raises `PreconditionFailed` if there is one with its key."""
        key = self._key(values)
        if key and (there := self.one(key)) is not None:
            raise PreconditionFailed(f"row {there} has this key already; update it instead")
        calls = self.grid.call_column()
        row = self.grid.add_row()
        self._put(row, values)
        self.grid.put(row, calls, "text", mark)
        return row

    def change(self, values: RowValues, mark: str) -> int:
        """Change the row of a key, in the columns that are given. Raises `PreconditionFailed` if there is none."""
        row = self.one(self._key(values))
        if row is None:
            raise PreconditionFailed("no row has this key; append it instead")
        calls = self.grid.call_column()
        self._put(row, {name: value for name, value in values.items() if name not in self._key(values)})
        self.grid.put(row, calls, "text", with_mark(self.grid.calls(row), mark))
        return row

    def _key(self, values: Mapping[str, CellValue]) -> RowValues:
        return {column.python_name: values[column.python_name] for column in self.columns if column.is_key}

    def _put(self, row: int, values: RowValues) -> None:
        for column in self.columns:
            if column.python_name not in values:
                continue
            value = values[column.python_name]
            if column.required and value in (None, ""):
                raise InvalidCall(f"{column.name} is empty; give it a value")
            try:
                self.grid.put(row, self._place(column), column.type, value)
            except InvalidCall as error:
                raise InvalidCall(f"{column.name}: {error}") from None

    def _value(self, row: int, column: KnownColumn) -> CellValue:
        return self.grid.value(row, self._place(column), column.type)

    def _place(self, column: KnownColumn) -> int:
        if column.header not in self._places:
            self._places[column.header] = self.grid.column(column.header)
        return self._places[column.header]

    def _is(self, row: int, column: KnownColumn, wanted: CellValue) -> bool:
        try:
            return self._value(row, column) == (None if wanted == "" else wanted)
        except CellMisfit:
            return False
