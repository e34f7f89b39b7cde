"""A CSV file in memory. A cell that is not changed stays as it is, with its quotes, and so does every line end."""

import re
from typing import Final, NamedTuple

from keep_actors.connectors import InvalidCall, PreconditionFailed
from keep_actors.services.sheet.cells import CELL_KINDS, CellValue, shielded, unshielded
from keep_actors.services.sheet.settings import SheetColumnType, SheetSettings, delimiter_of, known_columns

_BOM: Final = "\ufeff"
_LINE_ENDS: Final = frozenset({"\r\n", "\n", "\r", ""})


class CsvRecord(NamedTuple):
    """One row of the file."""

    fields: list[str]
    """As they stand in the file, with their quotes."""
    end: str

    @property
    def is_blank(self) -> bool:
        """True for an empty line, which is no row."""
        return self.fields == [""]


class CsvGrid:
    """The rows of one CSV file. Raises `PreconditionFailed` for a file that is not as the settings say."""

    def __init__(self, settings: SheetSettings, content: bytes | None) -> None:
        self._settings = settings
        self._delimiter = delimiter_of(settings)
        text = _header_line(settings, self._delimiter) if content is None else _decoded(content, settings.encoding)
        self._bom = _BOM if text.startswith(_BOM) else ""
        self._records = _records(text.removeprefix(_BOM), self._delimiter)
        if len(self._records) < settings.header_row or self._records[settings.header_row - 1].is_blank:
            raise PreconditionFailed(f"the file has no header in row {settings.header_row}")
        self._header = self._records[settings.header_row - 1]
        if len(self._records) - settings.header_row > settings.rows_max:
            raise PreconditionFailed(f"the file has more than {settings.rows_max:,} rows; `rows_max` decides")
        headers = [_unquoted(field) for field in self._header.fields]
        self._call_place = self.column(settings.call_column) if settings.call_column in headers else None

    @property
    def rows(self) -> list[int]:
        start = self._settings.header_row
        return [number for number, record in enumerate(self._records[start:], start + 1) if not record.is_blank]

    def column(self, header: str) -> int:
        return _only([_unquoted(field) for field in self._header.fields], header)

    def call_column(self) -> int:
        if self._call_place is None:
            self._widen(self._settings.call_column)
            self._call_place = self.column(self._settings.call_column)
        return self._call_place

    def calls(self, row: int) -> str:
        return "" if self._call_place is None else self._text(row, self._call_place)

    def value(self, row: int, column: int, kind: SheetColumnType) -> CellValue:
        text = self._text(row, column)
        if not text:
            return None
        return CELL_KINDS[kind].from_text(unshielded(text, self._settings.formula_text) if kind == "text" else text)

    def put(self, row: int, column: int, kind: SheetColumnType, value: CellValue) -> None:
        text = "" if value is None else CELL_KINDS[kind].to_text(value)
        if "\0" in text:
            raise InvalidCall("a cell cannot have a NUL character")
        if kind == "text":
            text = shielded(text, self._settings.formula_text)
        fields = self._records[row - 1].fields
        fields.extend([""] * (column + 1 - len(fields)))
        fields[column] = _quoted(text, self._delimiter)

    def add_row(self) -> int:
        end = self._header.end or "\n"
        last = self._records[-1]
        if not last.end:
            self._records[-1] = last._replace(end=end)
            if last is self._header:
                self._header = self._records[-1]
        # As many cells as the header has, so that no reader takes the file for a damaged one.
        self._records.append(CsvRecord([""] * len(self._header.fields), end))
        return len(self._records)

    def content(self) -> bytes:
        lines = (self._delimiter.join(record.fields) + record.end for record in self._records)
        try:
            return (self._bom + "".join(lines)).encode(self._settings.encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise InvalidCall(f"{character!r} cannot be written in {self._settings.encoding}; leave it out") from None

    def _text(self, row: int, column: int) -> str:
        fields = self._records[row - 1].fields
        return _unquoted(fields[column]) if column < len(fields) else ""

    def _widen(self, name: str) -> None:
        """Add a column to all rows, once: a file whose rows have different lengths is refused by some programs."""
        width = len(self._header.fields)
        for row in self.rows:
            fields = self._records[row - 1].fields
            if len(fields) > width:
                raise PreconditionFailed(f"row {row} has more cells than the header; give all of them a heading")
            fields.extend([""] * (width + 1 - len(fields)))
        self._header.fields.append(_quoted(name, self._delimiter))


def _header_line(settings: SheetSettings, delimiter: str) -> str:
    headers = [column.header for column in known_columns(settings)]
    above = "\n" * (settings.header_row - 1)
    return above + delimiter.join(_quoted(each, delimiter) for each in [*headers, settings.call_column]) + "\n"


def _decoded(content: bytes, encoding: str) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise PreconditionFailed(f"the file is not {encoding} text; `encoding` of the settings decides") from None
    if text.encode(encoding) != content:
        raise PreconditionFailed(f"the file would not be the same if it was written again in {encoding}")
    return text


def _records(text: str, delimiter: str) -> list[CsvRecord]:
    mark = re.escape(delimiter)
    field = re.compile(rf'("[^"]*(?:""[^"]*)*"|[^"{mark}\r\n][^{mark}\r\n]*|)({mark}|\r\n|\n|\r|\Z)')
    found: list[CsvRecord] = []
    fields: list[str] = []
    place = 0
    while place < len(text) or fields:
        matched = field.match(text, place)
        if matched is None:
            raise PreconditionFailed(f"row {len(found) + 1} is not CSV: its quotes do not fit; mend it")
        fields.append(matched[1])
        place = matched.end()
        if matched[2] in _LINE_ENDS:
            found.append(CsvRecord(fields, matched[2]))
            fields = []
    return found


def _only(headers: list[str], header: str) -> int:
    found = [place for place, each in enumerate(headers) if each == header]
    match found:
        case [place]:
            return place
        case []:
            raise PreconditionFailed(f"the header has no {header!r}; it has: {', '.join(headers)[:200]}")
    raise PreconditionFailed(f"the header has {header!r} more than once; rename one")


def _unquoted(field: str) -> str:
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


def _quoted(text: str, delimiter: str) -> str:
    needs_quotes = any(each in text for each in (delimiter, '"', "\r", "\n")) or text != text.strip()
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text
