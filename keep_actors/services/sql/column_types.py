"""The types of columns and parameters: a closed table of JSON, SQLite and PostgreSQL.

A value is bound only if the database keeps it as it is. One that would be rounded, cut or made into another is refused
before anything is sent; one in the database that JSON cannot have is an error, and never a guess.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

T = TypeVar("T")

INTEGER_MAX: Final = 2**53 - 1
"""The largest that a number of JavaScript has exactly."""

_TIMESTAMP: Final = Annotated[datetime, Meta(tz=True)]
_DATETIME: Final = Annotated[datetime, Meta(tz=False)]
_DECIMAL: Final = Annotated[str, Meta(pattern=r"^-?[0-9]{1,60}(\.[0-9]{1,30})?$", examples=["12.50"])]


class ColumnType(NamedTuple):
    """One type: as scripts see it, and as the databases have it."""

    json: Any
    """The annotation that validates it."""
    postgres: frozenset[str]
    """Types of PostgreSQL that keep it exactly. The names are those of `format_type`."""
    cast: str
    """The one of them that a parameter of a query is."""
    affinities: frozenset[str]
    """Affinities of SQLite that keep it exactly."""
    bind: Callable[[Any], Any]
    """Make the value that is bound. Two equal values of a column are bound equal. Raises `ValueError`."""
    load: Callable[[Any], Any]
    """Make the value for JSON of what the database gave. Raises `ValueError`."""
    store: Callable[[Any], Any] = lambda bound: bound
    """Make the value that SQLite has no type for."""


def bound_text(value: str) -> str:
    """Refuse NUL, which PostgreSQL does not have, and SQLite cuts at."""
    if "\0" in value:
        raise ValueError("has a NUL character; remove it")
    value.encode()  # an unpaired surrogate is a UnicodeEncodeError, which is a ValueError
    return value


def _bound_number(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    return float(value)


def _bound_json(value: Any) -> str:
    _refuse_nul(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _refuse_nul(value: Any) -> None:
    match value:
        case str():
            bound_text(value)
        case list():
            for each in value:
                _refuse_nul(each)
        case dict():
            for name, each in value.items():
                bound_text(name)
                _refuse_nul(each)


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is no moment between the years 1 and 9999") from None


def _same(value: T) -> T:
    return value


def _only(wanted: type[T]) -> Callable[[Any], T]:
    def load(value: Any) -> T:
        if type(value) is not wanted:
            raise ValueError(f"is a {type(value).__name__}, not a {wanted.__name__}")
        return value

    return load


def _loaded_integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"is a {type(value).__name__}, not an integer")
    if abs(value) > INTEGER_MAX:
        raise ValueError("is larger than JavaScript has exactly; declare it as decimal, or leave it out")
    return value


def _loaded_number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"is a {type(value).__name__}, not a number")
    return _bound_number(value)


def _loaded_boolean(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError(f"is {value!r}, not a boolean")
    return bool(value)


def _loaded_decimal(value: Any) -> str:
    text = format(value, "f") if isinstance(value, Decimal) else value
    return str(_parsed(_DECIMAL, text))


def _loaded_text_of(annotation: Any, then: Callable[[Any], Any] = _same) -> Callable[[Any], Any]:
    """A value of a type that SQLite keeps as text."""

    def load(value: Any) -> Any:
        return then(_parsed(annotation, value))

    return load


def _parsed(annotation: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        raise ValueError(f"cannot be read: {error}") from None


def _loaded_json(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"is a {type(value).__name__}, not JSON")
    return msgspec.json.decode(value)


def _moment(value: datetime) -> str:
    """Text of one length, so that its order is that of the moments."""
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")


_TEXTUAL: Final = frozenset({"TEXT"})
_TEXTUAL_TIME: Final = frozenset({"TEXT", "NUMERIC"})
"""A time is no number, so a column declared as DATETIME, which has numeric affinity, keeps its text."""

COLUMN_TYPES: Final[Mapping[str, ColumnType]] = {
    "text": ColumnType(str, frozenset({"text", "character varying", "enum"}), "text", _TEXTUAL, bound_text, _only(str)),
    "integer": ColumnType(
        Annotated[int, Meta(ge=-INTEGER_MAX, le=INTEGER_MAX)],
        frozenset({"smallint", "integer", "bigint"}),
        "bigint",
        frozenset({"INTEGER"}),
        _same,
        _loaded_integer,
    ),
    "number": ColumnType(
        float, frozenset({"double precision"}), "double precision", frozenset({"REAL"}), _bound_number, _loaded_number
    ),
    "boolean": ColumnType(
        bool, frozenset({"boolean"}), "boolean", frozenset({"INTEGER", "NUMERIC"}), _same, _loaded_boolean, int
    ),
    "decimal": ColumnType(
        _DECIMAL,
        frozenset({"numeric"}),
        "numeric",
        _TEXTUAL,
        Decimal,
        _loaded_decimal,
        lambda bound: format(bound, "f"),
    ),
    "timestamp": ColumnType(
        _TIMESTAMP,
        frozenset({"timestamp with time zone"}),
        "timestamp with time zone",
        _TEXTUAL_TIME,
        _utc,
        _loaded_text_of(_TIMESTAMP, _utc),
        _moment,
    ),
    "datetime": ColumnType(
        _DATETIME,
        frozenset({"timestamp without time zone"}),
        "timestamp without time zone",
        _TEXTUAL_TIME,
        _same,
        _loaded_text_of(_DATETIME),
        _moment,
    ),
    "date": ColumnType(
        date, frozenset({"date"}), "date", _TEXTUAL_TIME, _same, _loaded_text_of(date), lambda bound: bound.isoformat()
    ),
    "uuid": ColumnType(UUID, frozenset({"uuid"}), "uuid", _TEXTUAL, _same, _loaded_text_of(UUID), str),
    "json": ColumnType(Any, frozenset({"json", "jsonb"}), "jsonb", _TEXTUAL, _bound_json, _loaded_json),
    "bytes": ColumnType(bytes, frozenset({"bytea"}), "bytea", frozenset({"BLOB"}), _same, _only(bytes)),
}
"""By the word in `columns` and `parameters`."""
