"""Tables as the settings declare them: columns with types, the key, and names for scripts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from keep_actors.connectors import InvalidCall
from keep_actors.connectors.names import camel_case
from keep_actors.services.service import SettingsError
from keep_actors.services.sql.column_types import COLUMN_TYPES, ColumnType
from keep_actors.services.sql.database import DatabaseRow
from keep_actors.services.sql.settings import ColumnSettings, TableAction, TableSettings

_IDENTIFIER_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names, so that two of them could be one."""
_SPELLED: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Column:
    """One column, or one parameter of a query."""

    name: str
    spelled: str
    """Its name in scripts."""
    type_name: str
    is_nullable: bool

    @property
    def type(self) -> ColumnType:
        """Its row of the table of types."""
        return COLUMN_TYPES[self.type_name]

    @property
    def parameter(self) -> str:
        """Its name in Python: no keyword, and no name that the host has."""
        return f"{self.spelled}_"

    @property
    def annotation(self) -> Any:
        """The type of its values."""
        return self.type.json | None if self.is_nullable else self.type.json

    def bound(self, value: Any) -> Any:
        """The value to bind. Raises `InvalidCall`."""
        try:
            return None if value is None and self.is_nullable else self.type.bind(value)
        except ValueError as error:
            raise InvalidCall(f"{self.spelled} {error}") from None

    def loaded(self, value: Any) -> Any:
        """The value for JSON of what the database gave. Raises `ValueError`."""
        if value is None:
            if self.is_nullable:
                return None
            raise ValueError(f'{self.name} is null; declare it as "{self.type_name}?"')
        try:
            return self.type.load(value)
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from None


@dataclass(frozen=True, slots=True)
class Rows:
    """The shape of rows: columns in the order in which they are selected, and their type for scripts."""

    columns: Sequence[Column]
    type: type[msgspec.Struct]

    @classmethod
    def of(cls, title: str, columns: Sequence[Column]) -> "Rows":
        """The shape with these columns."""
        fields: list[tuple[str, Any]] = [(each.parameter, each.annotation) for each in columns]
        rename = {each.parameter: each.spelled for each in columns}
        return cls(columns, msgspec.defstruct(title, fields, rename=rename, frozen=True, kw_only=True))

    def loaded(self, row: DatabaseRow) -> dict[str, Any]:
        """A row for scripts. Raises `ValueError` with the column and what is wrong, without its value."""
        return {each.spelled: each.loaded(value) for each, value in zip(self.columns, row, strict=True)}


@dataclass(frozen=True, slots=True)
class Table:
    """A table that scripts may use."""

    section: str
    name: str
    """In the database."""
    title: str
    """In the names of its methods: `insertCustomers` has `Customers`."""
    rows: Rows
    key: Sequence[Column]
    allow: Sequence[TableAction]
    call_column: str
    keeps_rows: bool

    @property
    def columns(self) -> Sequence[Column]:
        """All declared columns."""
        return self.rows.columns

    @property
    def payload(self) -> Sequence[Column]:
        """The columns that are not of the key."""
        return [each for each in self.columns if each not in self.key]


def table_of(section: str, settings: TableSettings, *, has_receipts: bool) -> Table:
    """The table of a section. Raises `SettingsError`."""
    where = f"tables.{section}"
    name = checked_identifier(where, settings.table or section)
    columns = columns_of(f"{where}.columns", settings.columns)
    by_name = {each.name: each for each in columns}
    if not settings.key or len(set(settings.key)) < len(settings.key) or not set(settings.key) <= set(by_name):
        raise SettingsError(f"{where}.key", "write the names of some of its columns, each once")
    if nullable := [each for each in settings.key if by_name[each].is_nullable]:
        raise SettingsError(f"{where}.key", f"{nullable[0]} may be null; a key may not: remove the `?`")
    if unfit := [each for each in settings.key if by_name[each].type_name == "json"]:
        raise SettingsError(f"{where}.key", f"{unfit[0]} is json, which cannot be a key")
    if not settings.allow:
        raise SettingsError(f"{where}.allow", 'is empty; write some of "insert", "update", "delete", "get"')
    _check_evidence(where, settings, by_name, has_receipts)
    title = spelled_section(where, section)
    key = [by_name[each] for each in settings.key]
    rows = Rows.of(f"{title}Row", columns)
    return Table(section, name, title, rows, key, settings.allow, settings.call_column, settings.keeps_rows)


def _check_evidence(where: str, settings: TableSettings, columns: Mapping[str, Column], has_receipts: bool) -> None:
    if has_receipts and (settings.call_column or settings.keeps_rows):
        what = 'is not used beside receipts; remove it, or write receipts = ""'
        raise SettingsError(f"{where}.{'call_column' if settings.call_column else 'keeps_rows'}", what)
    if settings.keeps_rows and "delete" in settings.allow:
        raise SettingsError(f"{where}.keeps_rows", "scripts may delete rows here; remove one of both")
    if settings.call_column:
        checked_identifier(f"{where}.call_column", settings.call_column)
        if settings.call_column in columns:
            raise SettingsError(
                f"{where}.call_column", "is among its columns; scripts must not write it, remove it there"
            )


def columns_of(where: str, given: Mapping[str, str | ColumnSettings]) -> list[Column]:
    """The declared columns. Raises `SettingsError`."""
    if not given:
        raise SettingsError(where, 'is empty; write some, such as { id = "text" }')
    columns = [_column(where, name, about) for name, about in given.items()]
    refuse_twins(where, columns)
    return columns


def _column(where: str, name: str, about: str | ColumnSettings) -> Column:
    checked_identifier(where, name)
    type_text, spelled = (about, camel_case(name)) if isinstance(about, str) else (about.type, about.name)
    if not _SPELLED.fullmatch(spelled):
        what = f'{spelled!r} cannot be a name in scripts; write {{ type = "{type_text}", name = "…" }}'
        raise SettingsError(f"{where}.{name}", what)
    return typed(f"{where}.{name}", name, spelled, type_text)


def typed(where: str, name: str, spelled: str, type_text: str) -> Column:
    """A column of the type that a text names. Raises `SettingsError`."""
    type_name = type_text.removesuffix("?")
    if type_name not in COLUMN_TYPES:
        there = ", ".join(COLUMN_TYPES)
        raise SettingsError(where, f"{type_text!r} is no type; there are: {there}, each with a `?` if it may be null")
    return Column(name, spelled, type_name, type_text.endswith("?"))


def refuse_twins(where: str, columns: Iterable[Column]) -> None:
    """Raise `SettingsError` if two have one name in scripts."""
    seen: dict[str, str] = {}
    for each in columns:
        if each.spelled in seen:
            what = f"{seen[each.spelled]} and {each.name} are both {each.spelled} in scripts; name one differently"
            raise SettingsError(where, what)
        seen[each.spelled] = each.name


def spelled_section(where: str, section: str) -> str:
    """The name of a section, as methods have it: `OrderItems`. Raises `SettingsError`."""
    spelled = camel_case(section)
    if not _SPELLED.fullmatch(spelled):
        what = f'{section!r} cannot be a part of a name in scripts; choose another, and write table = "{section}" in it'
        raise SettingsError(where, what)
    return spelled[0].upper() + spelled[1:]


def checked_identifier(where: str, name: str) -> str:
    """A name of the database. Raises `SettingsError`."""
    if not name or not name.isprintable() or len(name.encode(errors="replace")) > _IDENTIFIER_BYTES_MAX:
        what = f"{name!r} is not a name; write 1 to {_IDENTIFIER_BYTES_MAX} bytes that can be seen"
        raise SettingsError(where, what)
    return name


def quoted(*names: str) -> str:
    """A name as SQL: all that it has is the name. More than one: the parts of a name."""
    return ".".join('"{}"'.format(each.replace('"', '""')) for each in names)


def sql_of(*parts: str) -> str:
    """A statement of its parts: words of ours, quoted names, places of bound values. A value is never among them."""
    return " ".join(parts)
