"""Settings of one sheet."""

import keyword
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from keep_actors.connectors.names import problem_with_parameter
from keep_actors.services.files.settings import can_hold_folders
from keep_actors.services.service import ServiceSettings, SettingsError

SheetColumnType: TypeAlias = Literal["text", "integer", "number", "boolean", "date"]
SheetRight: TypeAlias = Literal["read", "append", "update"]
FormulaText: TypeAlias = Literal["escape", "keep", "refuse"]

SHEET_BYTES_MAX: Final = 64 * 1024 * 1024
_TAKEN: Final = frozenset({"call", "subkey"})


class SheetColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column that scripts know."""

    type: SheetColumnType
    header: str = ""
    """As it stands in the sheet. Empty: the name of the column."""
    required: bool = False
    """No cell of a row that a script writes is empty. Columns of the key always are."""


class SheetSettings(ServiceSettings, frozen=True):
    """The section of `keep.toml`."""

    file: Path
    """`.csv`, `.tsv` or `.xlsx`."""
    columns: Mapping[str, SheetColumnType | SheetColumn]
    """By the name that scripts use."""
    key: tuple[str, ...] = ()
    """Columns that identify a row. Without them no row can be asked for or updated."""
    allow: tuple[SheetRight, ...] = ("read",)
    worksheet: str = ""
    """Its title in a workbook. Empty: the first."""
    header_row: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    call_column: str = "keep_call"
    """The column for the keys of calls. It is made if it is not there, and hidden in a workbook."""
    create: bool = False
    """Make the file with its header when the first row is added, if it is not there."""
    while_open: Literal["wait", "write"] = "wait"
    """If an office program has the file open: try again later, or write nevertheless."""
    delimiter: str = ""
    """Of a CSV file. Empty: a comma, and a tab for `.tsv`."""
    encoding: str = "utf-8"
    """Of a CSV file."""
    formula_text: FormulaText = "escape"
    """Texts that begin like a formula, in a CSV file: with an apostrophe before them, as they are, or refused."""
    formulas: Literal["refuse", "recalculate"] = "refuse"
    """A workbook with formulas: it is not changed, or its formulas have no values until a program calculates them."""
    rows_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=SHEET_BYTES_MAX)] = 8 * 1024 * 1024


class KnownColumn(msgspec.Struct, frozen=True):
    """A column, with everything about it said."""

    name: str
    """As scripts spell it."""
    python_name: str
    header: str
    type: SheetColumnType
    is_key: bool
    required: bool


def known_columns(settings: SheetSettings) -> list[KnownColumn]:
    """The columns in the order of the settings."""
    found = []
    for name, given in settings.columns.items():
        column = given if isinstance(given, SheetColumn) else SheetColumn(type=given)
        is_key = name in settings.key
        found.append(
            KnownColumn(
                name=name,
                python_name=f"{name}_" if keyword.iskeyword(name) else name,
                header=column.header or name,
                type=column.type,
                is_key=is_key,
                required=is_key or column.required,
            )
        )
    return found


def is_workbook(settings: SheetSettings) -> bool:
    """True for XLSX, False for CSV."""
    return settings.file.suffix.lower() == ".xlsx"


def check_sheet_settings(settings: SheetSettings) -> None:
    """Refuse what cannot work. Raises `SettingsError`."""
    if not can_hold_folders():
        raise SettingsError("file", "this system cannot open a file relative to an open folder; use Linux or macOS")
    _check_file(settings)
    _check_columns(settings)
    _check_rights(settings)
    if len(delimiter_of(settings)) != 1 or delimiter_of(settings) in '"\r\n\0':
        raise SettingsError("delimiter", "is not one character, such as a comma or a semicolon")
    try:
        # Some encodings are none of texts, such as `hex`; and some have no comma.
        is_known = "a,;\t\n".encode(settings.encoding).decode(settings.encoding) == "a,;\t\n"
    except (LookupError, ValueError):
        is_known = False
    if not is_known:
        raise SettingsError("encoding", f"{settings.encoding!r} is not known; write one like utf-8")


def delimiter_of(settings: SheetSettings) -> str:
    """The character between two cells of a CSV file."""
    return settings.delimiter or ("\t" if settings.file.suffix.lower() == ".tsv" else ",")


def _check_file(settings: SheetSettings) -> None:
    suffix = settings.file.suffix.lower()
    if suffix == ".xlsm":
        raise SettingsError("file", "has macros, which would be lost; save it as .xlsx")
    if suffix not in (".csv", ".tsv", ".xlsx"):
        raise SettingsError("file", f"{settings.file.name} is neither .csv nor .tsv nor .xlsx")
    if is_workbook(settings) and find_spec("openpyxl") is None:
        raise SettingsError("file", "a workbook needs a package more: pip install 'keep-actors[sheet]'")


def _check_columns(settings: SheetSettings) -> None:
    columns = known_columns(settings)
    if not columns:
        raise SettingsError("columns", 'is empty; name at least one, as in { id = "text" }')
    for column in columns:
        if problem := problem_with_parameter(column.name, column.name):
            raise SettingsError(f"columns.{column.name}", f"{problem}; write `header` for a heading of any form")
        if column.name in _TAKEN:
            raise SettingsError(
                f"columns.{column.name}", "is a name of the runtime; choose another, and write `header`"
            )
    headers = [*(column.header for column in columns), settings.call_column]
    if twice := {header for header in headers if headers.count(header) > 1}:
        raise SettingsError("columns", f"two columns have the heading {min(twice)!r}; rename one")
    if not settings.call_column.strip():
        raise SettingsError("call_column", "is empty; write a heading that the sheet does not have")
    if unknown := set(settings.key) - set(settings.columns):
        raise SettingsError("key", f"{min(unknown)!r} is not one of the columns")


def _check_rights(settings: SheetSettings) -> None:
    if "read" not in settings.allow:
        raise SettingsError("allow", 'has no "read"; a script must see a row to change it: add "read"')
    if "update" in settings.allow and not settings.key:
        raise SettingsError("key", 'is empty; name the columns that identify a row, or leave "update" out of `allow`')
    if "update" in settings.allow and set(settings.key) == set(settings.columns):
        raise SettingsError("allow", 'all columns are in the key, so there is nothing to update; leave "update" out')
