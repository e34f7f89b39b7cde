"""An XLSX workbook in memory. Texts are stored as texts, never as formulas; what would be lost is refused before."""

import io
import re
from collections.abc import Iterator
from copy import copy
from datetime import date
from typing import Any, Final

import openpyxl  # type: ignore[import-untyped]  # it has no types
from openpyxl.cell.cell import MergedCell  # type: ignore[import-untyped]
from openpyxl.utils import get_column_letter  # type: ignore[import-untyped]
from openpyxl.worksheet.dimensions import ColumnDimension  # type: ignore[import-untyped]

from keep_actors.connectors import InvalidCall, PreconditionFailed
from keep_actors.kernel.foreign_code import attempt, described
from keep_actors.services.sheet.cells import CELL_KINDS, CellMisfit, CellValue
from keep_actors.services.sheet.parts import WorkbookParts
from keep_actors.services.sheet.settings import SheetColumnType, SheetSettings, known_columns

_COLUMNS_MAX: Final = 500
_AREA_MAX: Final = 2_000_000
"""Cells between the first and the last of a worksheet: the library makes all of them."""
_TEXT_MAX: Final = 32_767
_FIRST_DAY: Final = date(1900, 3, 1)
"""Before it, programs do not agree on the number of a day."""
_UNWRITABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
_STYLE: Final = ("font", "fill", "border", "alignment", "number_format", "protection")
_CODE: Final = re.compile(r"_x[0-9A-Fa-f]{4}_")
"""Programs read this as one character."""


class WorkbookGrid:
    """The rows of one worksheet. Raises `PreconditionFailed` for a workbook that is not as the settings say."""

    def __init__(self, settings: SheetSettings, content: bytes | None) -> None:
        self._settings = settings
        self._source = content
        self._parts = None if content is None else WorkbookParts(content)
        self._cached: Any = None
        self._book = _new_book(settings) if content is None else _book(content)
        self._sheet = _worksheet(self._book, settings.worksheet)
        if self._sheet.max_row - settings.header_row > settings.rows_max or self._sheet.max_column > _COLUMNS_MAX:
            raise PreconditionFailed(
                f"the worksheet has {self._sheet.max_row:,} rows and {self._sheet.max_column:,} columns;"
                f" `rows_max` of the settings decides, and {_COLUMNS_MAX} columns are the most"
            )
        _refuse_area(self._sheet)
        below = settings.header_row + 1
        self._rows = [
            number
            for number, cells in enumerate(self._sheet.iter_rows(min_row=below), below)
            if any(cell.value is not None for cell in cells)
        ]
        headers = [each for _, each in self._headers()]
        self._call_place = self.column(settings.call_column) if settings.call_column in headers else None

    @property
    def rows(self) -> list[int]:
        return self._rows

    def column(self, header: str) -> int:
        found = [place for place, each in self._headers() if each == header]
        match found:
            case [place]:
                return place
            case []:
                there = ", ".join(each for _, each in self._headers())[:200]
                raise PreconditionFailed(f"the header has no {header!r}; it has: {there}")
        raise PreconditionFailed(f"the header has {header!r} more than once; rename one")

    def call_column(self) -> int:
        if self._call_place is None:
            self._call_place = int(self._sheet.max_column) + 1
            self.put(self._settings.header_row, self._call_place, "text", self._settings.call_column)
            _hide(self._sheet, self._call_place)
        return self._call_place

    def calls(self, row: int) -> str:
        return "" if self._call_place is None else str(self._sheet.cell(row, self._call_place).value or "")

    def value(self, row: int, column: int, kind: SheetColumnType) -> CellValue:
        cell = self._sheet.cell(row, column)
        if cell.value is None or cell.value == "":
            return None
        match cell.data_type:
            case "e":
                raise CellMisfit(f"has the error {cell.value}")
            case "f":
                return self._calculated(row, column, kind)
        return CELL_KINDS[kind].from_cell(cell.value)

    def put(self, row: int, column: int, kind: SheetColumnType, value: CellValue) -> None:
        cell = self._sheet.cell(row, column)
        if isinstance(cell, MergedCell):
            raise PreconditionFailed(f"the cell in row {row} is merged with others; divide them")
        if cell.quotePrefix:
            cell.quotePrefix = False
        match value:
            case None | "":
                cell.value = None
            case str():
                cell.value = _writable(value)
                # Otherwise a text with an equals sign becomes a formula, and `#N/A` an error.
                cell.data_type = "s"
                cell.quotePrefix = True
            case date() if value < _FIRST_DAY:
                raise InvalidCall(f"a workbook has no date before {_FIRST_DAY}")
            case date():
                cell.value = value
                cell.number_format = "yyyy-mm-dd"
            case _:
                assert kind in ("integer", "number", "boolean"), "texts and dates are above"
                cell.value = value

    def add_row(self) -> int:
        row = max([*self._rows, self._settings.header_row]) + 1
        self._rows.append(row)
        return row

    def content(self) -> bytes:
        if self._parts is not None and (lost := self._parts.lost()):
            raise PreconditionFailed(f"a change would lose parts of the workbook: {', '.join(lost)[:300]}")
        if self._parts is not None and self._parts.has_formulas():
            if self._settings.formulas == "refuse":
                raise PreconditionFailed(
                    "the workbook has formulas, whose values would be gone until a program calculates them;"
                    ' allow it by formulas = "recalculate"'
                )
            self._book.calculation.fullCalcOnLoad = True
        for sheet in self._book.worksheets:
            _refuse_area(sheet)
            sheet.page_setup.id = None  # the settings of a printer are not kept, so nothing may point to them
            _keep_numbers(sheet)
        with io.BytesIO() as file:
            self._book.save(file)
            return file.getvalue()

    def _headers(self) -> Iterator[tuple[int, str]]:
        for cell in self._sheet[self._settings.header_row]:
            if cell.value is not None:
                yield cell.column, str(cell.value)

    def _calculated(self, row: int, column: int, kind: SheetColumnType) -> CellValue:
        """The value that the last program has stored beside a formula."""
        if self._cached is None:
            assert self._source is not None, "a workbook of our own has no formulas"
            self._cached = _worksheet(_book(self._source, data_only=True), self._settings.worksheet)
        value = self._cached.cell(row, column).value
        if value is None:
            raise CellMisfit("is a formula without a value; open the workbook in an office program and save it")
        return CELL_KINDS[kind].from_cell(value)


def _book(content: bytes, *, data_only: bool = False) -> Any:
    book: Any = None
    with attempt() as tried:
        book = openpyxl.load_workbook(io.BytesIO(content), rich_text=True, keep_links=True, data_only=data_only)
    if tried.error is not None:
        raise PreconditionFailed(f"the file is not a workbook that can be read: {described(tried.error)}")
    return book


def _new_book(settings: SheetSettings) -> Any:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = settings.worksheet or "Sheet1"
    for place, column in enumerate(known_columns(settings), 1):
        cell = sheet.cell(settings.header_row, place)
        cell.value = _writable(column.header)
        cell.data_type = "s"
    return book


def _worksheet(book: Any, title: str) -> Any:
    titles = [sheet.title for sheet in book.worksheets]
    if not titles or (title and title not in titles):
        raise PreconditionFailed(f"the workbook has no worksheet {title!r}; it has: {', '.join(titles)[:200]}")
    return book[title] if title else book.worksheets[0]


def _refuse_area(sheet: Any) -> None:
    if sheet.max_row * sheet.max_column > _AREA_MAX:
        raise PreconditionFailed(
            f"the worksheet {sheet.title!r} reaches to row {sheet.max_row:,} and column {sheet.max_column:,};"
            " remove what is far outside of its rows"
        )


def _writable(text: str) -> str:
    if len(text) > _TEXT_MAX:
        raise InvalidCall(f"a cell of a workbook has at most {_TEXT_MAX:,} characters, and this has {len(text):,}")
    if found := _UNWRITABLE.search(text):
        raise InvalidCall(f"a cell of a workbook cannot have {found[0]!r}; leave it out (a line ends with \\n)")
    if found := _CODE.search(text):
        raise InvalidCall(f"a workbook takes {found[0]!r} for one character; write it in another way")
    return text


def _hide(sheet: Any, place: int) -> None:
    """Hide one column. Widths and styles are stored for spans of columns, which must not overlap."""
    for letter, span in list(sheet.column_dimensions.items()):
        span.reindex()
        if not span.min <= place <= span.max:
            continue
        del sheet.column_dimensions[letter]
        for first, last in ((span.min, place - 1), (place + 1, span.max)):
            if first <= last:
                _add_span(sheet, span, first, last)
    sheet.column_dimensions[get_column_letter(place)].hidden = True


def _add_span(sheet: Any, like: Any, first: int, last: int) -> None:
    letter = get_column_letter(first)
    made = ColumnDimension(
        sheet,
        index=letter,
        width=like.width,
        bestFit=like.bestFit,
        hidden=like.hidden,
        outlineLevel=like.outlineLevel,
        collapsed=like.collapsed,
        min=first,
        max=last,
    )
    for part in _STYLE:
        setattr(made, part, copy(getattr(like, part)))
    sheet.column_dimensions[letter] = made


def _keep_numbers(sheet: Any) -> None:
    """Have all digits of a number written: by itself the library writes sixteen."""
    for row in sheet.iter_rows():
        for cell in row:
            if isinstance(cell.value, float) and float(f"{cell.value:.16g}") != cell.value:
                cell.value = repr(cell.value)
                cell.data_type = "n"
