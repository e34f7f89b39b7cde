"""The connector: methods for the rows of one sheet, with the types of its columns."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from keep_actors.connectors import (
    Applied,
    Connector,
    InvalidCall,
    MutationCall,
    NotApplied,
    PreconditionFailed,
    ReadCall,
    Retry,
    Transient,
)
from keep_actors.kernel.blocking import Blocking
from keep_actors.services.files.folder import content_of, file_in, folder_at
from keep_actors.services.files.meanings import in_words
from keep_actors.services.files.notes import noted_by, write_note
from keep_actors.services.files.paths import FilePath
from keep_actors.services.files.replacement import FileEvidence, FilePlace, lay, look, replace
from keep_actors.services.service import Service, SettingsError
from keep_actors.services.sheet.cells import CellValue
from keep_actors.services.sheet.csv_grid import CsvGrid
from keep_actors.services.sheet.edits import ANSWER_BYTES_MAX, RowValues, SheetRows, size_of
from keep_actors.services.sheet.grid import SheetGrid, call_mark
from keep_actors.services.sheet.offers import SheetTypes, sheet_offers
from keep_actors.services.sheet.settings import SheetSettings, check_sheet_settings, is_workbook, known_columns

_AT_ONCE: Final = 2
_RETRY_MS: Final = 60_000
_BEHIND: Final = "this call wrote the sheet, but its row is not there any more; a person has to look"

RowEdit = Callable[[SheetRows, RowValues, str], int]


class _HasIt(Exception):
    """The row of a call is there already."""

    def __init__(self, values: RowValues) -> None:
        super().__init__()
        self.values = values


class Sheet(Service):
    """The rows of one CSV file, or of one worksheet of a workbook."""

    name = "sheet"
    settings_type: ClassVar = SheetSettings

    def __init__(self, settings: SheetSettings, *, name: str | None = None) -> None:
        check_sheet_settings(settings)
        super().__init__(settings, name=name)
        self._settings = settings
        self._columns = known_columns(settings)
        self._types = SheetTypes(self._columns)
        self._threads = Blocking(_AT_ONCE)
        # A link to the file is followed once: it stays a link, and the file behind it is replaced.
        file = Path(os.path.realpath(settings.file))
        self._place = FilePlace(file.parent, FilePath((file.name,)), settings.bytes_max)
        self.offer(sheet_offers(settings, self._types, self))

    async def open(self) -> None:
        """Look if the sheet is as the settings say. A file that may be created can be missing."""
        await self._threads.run(self._check)

    # The methods, which `offers.py` offers as the settings say.

    async def list_rows(self, _: Connector, where: Any, offset: int, limit: int, **__: ReadCall) -> msgspec.Struct:
        """Rows, in their order."""
        wanted = {} if where is msgspec.UNSET else _given(msgspec.structs.asdict(where))
        found, rest = await self._threads.run(self._list, wanted, offset, limit)
        return self._types.page_of(found, rest)

    async def get_row(self, _: Connector, call: ReadCall, **key: CellValue) -> msgspec.Struct | None:  # noqa: ARG002
        """One row."""
        found = await self._threads.run(self._get, key)
        return None if found is None else self._types.row_of(found)

    async def append_row(self, _: Connector, call: MutationCall, **values: Any) -> msgspec.Struct:
        """Add a row."""
        return await self._edit(call, values, SheetRows.add)

    async def update_row(self, _: Connector, call: MutationCall, **values: Any) -> msgspec.Struct:
        """Change a row."""
        given = _given(values)
        if set(given) <= {column.python_name for column in self._columns if column.is_key}:
            raise InvalidCall("no column is given but the key; name one to change")
        return await self._edit(call, given, SheetRows.change)

    async def find_row(self, _: Connector, call: MutationCall) -> Applied | NotApplied | Retry:
        """Tell if the row of a call is there, by the key in it."""
        note = noted_by(call)
        if note is None:
            return NotApplied()  # it is durable before anything is sent
        evidence, content = await self._threads.run(look, self._place, note)
        if evidence is FileEvidence.WAITS:
            return NotApplied()
        found = None if content is None else await self._threads.run(self._of_call, content, call)
        return Retry(_BEHIND) if found is None else Applied(self._types.row_of(found))

    # Each of these is done in a thread.

    def _check(self) -> None:
        if not self._place.root.is_dir():
            raise SettingsError("file", f"the folder {self._place.root} is not there; make it first")
        rows = self._rows(self._read())
        for column in self._columns:
            rows.grid.column(column.header)

    def _list(self, where: Mapping[str, CellValue], offset: int, limit: int) -> tuple[list[RowValues], int | None]:
        rows = self._rows(self._read())
        numbers = list(rows.found(where))[offset:]
        page: list[RowValues] = []
        size = 0
        for number in numbers[:limit]:
            values = rows.values(number)
            size += size_of(values)
            if size > ANSWER_BYTES_MAX and page:
                break
            page.append(values)
        return page, offset + len(page) if len(page) < len(numbers) else None

    def _get(self, key: Mapping[str, CellValue]) -> RowValues | None:
        rows = self._rows(self._read())
        row = rows.one(key)
        return None if row is None else rows.values(row)

    def _of_call(self, content: bytes, call: MutationCall) -> RowValues | None:
        rows = self._rows(content)
        row = rows.of_call(call_mark(call.idempotency_key))
        return None if row is None else rows.values(row)

    def _write(self, call: MutationCall, values: RowValues, change: RowEdit) -> RowValues:
        mark = call_mark(call.idempotency_key)
        written: list[RowValues] = []

        def edit(old: bytes | None) -> bytes:
            self._refuse_open()
            if old is None and not self._settings.create:
                raise PreconditionFailed("the file is not there; make it with a header, or set `create`")
            rows = self._rows(old)
            if (there := rows.of_call(mark)) is not None:
                raise _HasIt(rows.values(there))
            row = change(rows, values, mark)
            written.append(rows.values(row))
            return rows.grid.content()

        try:
            replace(self._place, call, edit)
        except _HasIt as found:
            return found.values
        return written[0]

    async def _edit(self, call: MutationCall, values: RowValues, change: RowEdit) -> msgspec.Struct:
        await write_note(call, await self._threads.run(lay, self._place, call))
        return self._types.row_of(await self._threads.run(self._write, call, values, change))

    def _rows(self, content: bytes | None) -> SheetRows:
        return SheetRows(_grid(self._settings, content), self._columns)

    def _read(self) -> bytes | None:
        """The file, or None if it is still to be made."""
        name = self._place.path.name
        if self._settings.create and not os.path.lexists(self._place.root / name):
            return None
        with (
            in_words(name),
            folder_at(self._place.root) as folder,
            file_in(folder, name, hard_links=True) as descriptor,
        ):
            return content_of(descriptor, name, self._settings.bytes_max)

    def _refuse_open(self) -> None:
        """Office programs leave a file beside the one that they have open."""
        name = self._place.path.name
        if self._settings.while_open == "write":
            return
        for sign in (f".~lock.{name}#", f"~${name}"):
            if os.path.lexists(self._place.root / sign):
                raise Transient(f"an office program has {name} open ({sign} is there)", _RETRY_MS)


def _grid(settings: SheetSettings, content: bytes | None) -> SheetGrid:
    if not is_workbook(settings):
        return CsvGrid(settings, content)
    # Only a workbook needs the package behind it.
    from keep_actors.services.sheet.workbook_grid import WorkbookGrid

    return WorkbookGrid(settings, content)


def _given(values: Mapping[str, Any]) -> RowValues:
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}
