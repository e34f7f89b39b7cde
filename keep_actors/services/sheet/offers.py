"""The methods of one sheet, as data: the columns of the settings are their parameters."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Protocol

import msgspec

from keep_actors.connectors import Connector, MutationCall, ReadCall, Verdict
from keep_actors.connectors.declaration import Options
from keep_actors.connectors.offered import Offered, Param
from keep_actors.services.sheet.cells import CELL_KINDS, CellValue
from keep_actors.services.sheet.settings import KnownColumn, SheetSettings

_HINT: Final = "Look for the row in the sheet."


class SheetTypes:
    """The types of rows, made from the columns."""

    def __init__(self, columns: Sequence[KnownColumn]) -> None:
        self.columns = columns
        names = {column.python_name: column.name for column in columns}
        self.row = _struct("Row", [(each.python_name, _kind(each) | None) for each in columns], names)
        optional = [(each.python_name, _kind(each) | None | msgspec.UnsetType, msgspec.UNSET) for each in columns]
        self.where = _struct("Where", optional, names)
        rows: Any = list[self.row]  # type: ignore[name-defined]  # it is known only now
        self.page = _struct("SheetPage", [("rows", rows), ("next", int | None)], {})

    def row_of(self, values: Mapping[str, CellValue]) -> msgspec.Struct:
        """A row as scripts get it."""
        made: msgspec.Struct = self.row(**values)
        return made

    def page_of(self, rows: Sequence[Mapping[str, CellValue]], rest: int | None) -> msgspec.Struct:
        """Rows, and where to go on."""
        made: msgspec.Struct = self.page(rows=[self.row_of(each) for each in rows], next=rest)
        return made

    def key(self) -> list[Param]:
        """The parameters that identify a row."""
        return [_param(each, _kind(each)) for each in self.columns if each.is_key]

    def append(self) -> list[Param]:
        """The parameters of a new row."""
        return [
            _param(each, _kind(each)) if each.required else _param(each, _kind(each) | None, None)
            for each in self.columns
        ]

    def update(self) -> list[Param]:
        """The parameters of a changed row: its key, and what may be left out."""
        changed = [
            _param(each, (_kind(each) if each.required else _kind(each) | None) | msgspec.UnsetType, msgspec.UNSET)
            for each in self.columns
            if not each.is_key
        ]
        return [*self.key(), *changed]


class SheetMethods(Protocol):
    """The functions behind the methods."""

    async def list_rows(self, _: Connector, where: Any, offset: int, limit: int, **__: ReadCall) -> msgspec.Struct: ...
    async def get_row(self, _: Connector, call: ReadCall, **key: Any) -> msgspec.Struct | None: ...
    async def append_row(self, _: Connector, call: MutationCall, **values: Any) -> msgspec.Struct: ...
    async def update_row(self, _: Connector, call: MutationCall, **values: Any) -> msgspec.Struct: ...
    async def find_row(self, _: Connector, call: MutationCall) -> Verdict: ...


def sheet_offers(settings: SheetSettings, types: SheetTypes, methods: SheetMethods) -> list[Offered]:
    """The methods that the settings allow."""
    key = [each.python_name for each in types.columns if each.is_key]
    offers = [_list_offer(types, methods)]
    if key:
        offers.append(
            Offered(
                function=methods.get_row,
                options=Options(kind="read", risk="low", name="getRow", by_id=True),
                params=types.key(),
                result=types.row | None,
                description="One row by its key. Null: there is none.",
            )
        )
    if "append" in settings.allow:
        offers.append(
            Offered(
                function=methods.append_row,
                options=_options("appendRow", key),
                params=types.append(),
                result=types.row,
                description="Add a row at the end." + (" No other row may have its key." if key else ""),
                reconciler=methods.find_row,
            )
        )
    if "update" in settings.allow:
        offers.append(
            Offered(
                function=methods.update_row,
                options=_options("updateRow", key),
                params=types.update(),
                result=types.row,
                description="Change the row of a key in the columns that are given. Null empties a cell.",
                reconciler=methods.find_row,
            )
        )
    return offers


def _list_offer(types: SheetTypes, methods: SheetMethods) -> Offered:
    return Offered(
        function=methods.list_rows,
        options=Options(kind="read", risk="low", name="rows"),
        params=[
            Param(name="where", type=types.where | msgspec.UnsetType, default=msgspec.UNSET),
            Param(name="offset", type=Annotated[int, msgspec.Meta(ge=0, le=10_000_000)], default=0),
            Param(name="limit", type=Annotated[int, msgspec.Meta(ge=1, le=1000)], default=100),
        ],
        result=types.page,
        description="Rows in the order of the sheet. `where`: only those whose cells have these values.",
    )


def _options(name: str, key: list[str]) -> Options:
    return Options(kind="mutation", risk="medium", name=name, marks_sent=True, identity=key or None, check_hint=_HINT)


def _kind(column: KnownColumn) -> Any:
    return CELL_KINDS[column.type].annotation


def _param(column: KnownColumn, annotation: Any, default: Any = msgspec.NODEFAULT) -> Param:
    return Param(name=column.python_name, spelled=column.name, type=annotation, default=default)


def _struct(title: str, fields: Sequence[Any], names: dict[str, str]) -> Any:
    return msgspec.defstruct(title, fields, rename=names, kw_only=True, frozen=True, forbid_unknown_fields=True)
