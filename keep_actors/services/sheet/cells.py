"""Values of cells: the table of the types of columns, as text of a CSV file and as values of a workbook. Pure."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from keep_actors.connectors import InvalidCall
from keep_actors.services.sheet.settings import FormulaText, SheetColumnType

CellValue: TypeAlias = str | int | float | bool | date | None

_INTEGER_MAX: Final = 2**53 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,16}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Also behind white space, and in the wide forms of East Asia: some programs take those for the same.
_FORMULA_BEGIN: Final = r"(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])"
_LIKE_FORMULA: Final = re.compile(rf"'*{_FORMULA_BEGIN}")
_ESCAPED: Final = re.compile(rf"'+{_FORMULA_BEGIN}")


class CellMisfit(ValueError):
    """A cell has something else than its column should have."""


class CellKind(NamedTuple):
    """One type of column."""

    annotation: Any
    """The type that scripts pass."""
    to_text: Callable[[Any], str]
    from_text: Callable[[str], CellValue]
    from_cell: Callable[[object], CellValue]


def number_text(value: float) -> str:
    """The shortest text that is read as the same number."""
    return str(int(value)) if value.is_integer() and abs(value) <= _INTEGER_MAX else repr(value)


def _integer_from_text(text: str) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _INTEGER_MAX:
        raise CellMisfit("is not an integer")
    return int(text)


def _number_from_text(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise CellMisfit("is not a number with a decimal point")
    return float(text)


def _boolean_from_text(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise CellMisfit("is neither true nor false")


def _date_from_text(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise CellMisfit("is not a date like 2026-11-19")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CellMisfit("is not a day of the calendar") from None


def _text_from_cell(value: object) -> str:
    match value:
        case bool() | date() | time():
            raise CellMisfit("is not text")
        case int():
            return str(value)
        case float():
            return number_text(value)
    return str(value)


def _integer_from_cell(value: object) -> int:
    match value:
        case bool():
            pass
        case int() if abs(value) <= _INTEGER_MAX:
            return value
        case float() if value.is_integer() and abs(value) <= _INTEGER_MAX:
            return int(value)
    raise CellMisfit("is not an integer")


def _number_from_cell(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise CellMisfit("is not a number")
    return float(value)


def _boolean_from_cell(value: object) -> bool:
    if not isinstance(value, bool):
        raise CellMisfit("is neither true nor false")
    return value


def _date_from_cell(value: object) -> date:
    match value:
        case datetime() if value.time() == time():
            return value.date()
        case datetime():
            raise CellMisfit("has a time of day; it is not only a date")
        case date():
            return value
    raise CellMisfit("is not a date")


_WHOLE: Final = Annotated[int, msgspec.Meta(ge=-_INTEGER_MAX, le=_INTEGER_MAX)]
CELL_KINDS: Final[Mapping[SheetColumnType, CellKind]] = {
    "text": CellKind(str, str, str, _text_from_cell),
    "integer": CellKind(_WHOLE, str, _integer_from_text, _integer_from_cell),
    "number": CellKind(float, number_text, _number_from_text, _number_from_cell),
    "boolean": CellKind(bool, lambda value: "true" if value else "false", _boolean_from_text, _boolean_from_cell),
    "date": CellKind(date, date.isoformat, _date_from_text, _date_from_cell),
}
"""By the word in the settings."""


def shielded(text: str, how: FormulaText) -> str:
    """A text for a CSV file that no office program takes for a formula. `unshielded` gives it back."""
    if how == "keep" or not _LIKE_FORMULA.match(text):
        return text
    if how == "refuse":
        raise InvalidCall(f"the text {text[:40]!r} begins like a formula; write it in another way")
    return f"'{text}"


def unshielded(text: str, how: FormulaText) -> str:
    """The text that `shielded` was given."""
    return text[1:] if how == "escape" and _ESCAPED.match(text) else text
