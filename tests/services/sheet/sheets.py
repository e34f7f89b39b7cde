"""Sheets for tests, made and read without the connector: with `csv` and with `openpyxl`."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import openpyxl  # type: ignore[import-untyped]  # it has no types

from keep_actors.services.sheet import Sheet, SheetSettings
from tests.services.files.calls import Caller

KINDS: Final = ("csv", "xlsx")
COLUMNS: Final = {"id": "text", "name": "text", "amount": "integer"}
HEADER: Final = tuple(COLUMNS)
ROWS: Final = (("1", "Ann", 10), ("2", "Bob", 20))
ALL: Final = ("read", "append", "update")


def made(file: Path, rows: Sequence[Sequence[Any]] = ROWS, header: Sequence[str] = HEADER) -> Path:
    """Write a sheet as a person has it: without the column for calls."""
    if file.suffix == ".csv":
        with file.open("w", newline="", encoding="utf-8") as opened:
            csv.writer(opened).writerows([header, *rows])
    else:
        book = openpyxl.Workbook()
        for row in (header, *rows):
            book.active.append(row)
        book.save(file)
    return file


def settings(file: Path, **more: Any) -> SheetSettings:
    """Everything is allowed, and `id` is the key."""
    return SheetSettings(**{"file": file, "columns": COLUMNS, "key": ("id",), "allow": ALL, **more})


def caller(file: Path, **more: Any) -> Caller:
    """Calls of a connector for this file."""
    return Caller(Sheet(settings(file, **more)))


def cells(file: Path) -> list[list[Any]]:
    """All cells, header and column for calls included, as another program reads them."""
    if file.suffix == ".csv":
        return list(csv.reader(io.StringIO(file.read_bytes().decode(), newline="")))
    return [list(row) for row in openpyxl.load_workbook(file).worksheets[0].iter_rows(values_only=True)]


def people_see(file: Path) -> list[list[str]]:
    """The rows without the column for calls, as text."""
    header, *rows = cells(file)
    shown = [place for place, name in enumerate(header) if name != "keep_call"]
    return [["" if row[place] is None else str(row[place]) for place in shown] for row in rows]


def texts(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Rows as `people_see` returns them."""
    return [["" if cell is None else str(cell) for cell in row] for row in rows]


def row(**differences: Any) -> Mapping[str, Any]:
    """The parameters of a new row."""
    return {"id": "3", "name": "Cleo", "amount": 30, **differences}


def content(file: Path) -> bytes | None:
    """The bytes of the file. None: it is not there."""
    return file.read_bytes() if file.exists() else None


def put(file: Path, data: bytes | str | None) -> Path:
    """Write the bytes of a file, or remove it."""
    if data is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def rights(file: Path) -> int:
    """Who may do what with the file."""
    return file.stat().st_mode & 0o777


def ours(folder: Path) -> list[str]:
    """Files that a call left behind."""
    return [path.name for path in folder.glob(".keep-*") if path.name != ".keep-lock"]


def hidden_columns(file: Path) -> list[str]:
    """The columns of a workbook that are not shown."""
    sheet = openpyxl.load_workbook(file).worksheets[0]
    return [letter for letter, column in sheet.column_dimensions.items() if column.hidden]


def formulas_of(file: Path) -> list[str]:
    """The cells of a workbook that are calculated."""
    sheets = openpyxl.load_workbook(file).worksheets
    return [cell.coordinate for sheet in sheets for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
