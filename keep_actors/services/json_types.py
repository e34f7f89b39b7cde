"""Types of numbers, literals and unions, of words of a JSON Schema. Pure: what msgspec cannot express becomes wider."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from keep_actors.text.visible import is_plain

LITERAL_CHARS_MAX: Final = 100
LITERALS_MAX: Final = 200
_SHOWN_BYTES_MAX: Final = 4_000
_INT64: Final = 2**63 - 1


def whole(schema: Mapping[str, Any]) -> Any:
    """An integer, within the bounds of a schema."""
    low, high = _bounds(schema, "minimum", "exclusiveMinimum", max), _bounds(schema, "maximum", "exclusiveMaximum", min)
    least = None if low is None else math.floor(low[0]) + 1 if low[1] else math.ceil(low[0])
    most = None if high is None else math.ceil(high[0]) - 1 if high[1] else math.floor(high[0])
    least = None if least is None or abs(least) > _INT64 else least
    most = None if most is None or abs(most) > _INT64 else most
    return int if least is None and most is None else Annotated[int, msgspec.Meta(ge=least, le=most)]


def fraction(schema: Mapping[str, Any]) -> Any:
    """A number, within the bounds of a schema."""
    bounds: dict[str, Any] = {}
    for words, names, stricter in (
        (("minimum", "exclusiveMinimum"), ("ge", "gt"), max),
        (("maximum", "exclusiveMaximum"), ("le", "lt"), min),
    ):
        found = _bounds(schema, *words, stricter)
        if found is not None:
            bounds[names[found[1]]] = float(found[0])
    return Annotated[float, msgspec.Meta(**bounds)] if bounds else float


def _bounds(schema: Mapping[str, Any], word: str, exclusive_word: str, stricter: Any) -> tuple[float, bool] | None:
    """The bound, and True if it is excluded itself. OpenAPI 3.0 has true for the second word."""
    plain, exclusive = _number(schema.get(word)), schema.get(exclusive_word)
    if exclusive is True:
        return None if plain is None else (plain, True)
    strict = _number(exclusive)
    if strict is None or plain is None:
        return (plain, False) if plain is not None else None if strict is None else (strict, True)
    return (strict, True) if stricter(strict, plain) == strict else (plain, False)


def _number(value: object) -> float | None:
    match value:
        case bool():
            return None
        case int():
            return value if abs(value) <= _INT64 else None
        case float():
            return value if math.isfinite(value) else None
    return None


def length(value: object) -> int | None:
    """A length, if it is one."""
    number = _number(value)
    return int(number) if number is not None and 0 <= number <= _INT64 and number == int(number) else None


def literal(values: Sequence[object]) -> Any:
    """One of these values, or only their types where that cannot be written."""
    kinds = dict.fromkeys(type(value) for value in values)
    plain = [value for value in values if _is_short(value)]
    if set(kinds) <= {str, int, type(None)} and len(plain) == len(values) and 0 < len(values) <= LITERALS_MAX:
        return None if list(kinds) == [type(None)] else Literal.__getitem__(tuple(values))
    known: dict[type, Any] = {str: str, int: int | float, float: int | float, bool: bool, type(None): None}
    return union([known[kind] for kind in kinds]) if kinds and set(kinds) <= set(known) else Any


def shown_literal(values: Sequence[object]) -> Any:
    """A value of the types of these: they are shown, but a service may add another one to its answers."""
    exact = literal(values)
    if get_origin(exact) is not Literal:
        return exact
    known: dict[type, Any] = {str: str, int: int | float, type(None): None}
    plain = union([known[kind] for kind in dict.fromkeys(type(value) for value in values)])
    return Annotated[plain, msgspec.Meta(extra_json_schema={"enum": list(values)})]


def _is_short(value: object) -> bool:
    match value:
        case str():
            return len(value) <= LITERAL_CHARS_MAX and is_plain(value)
        case int():
            return abs(value) <= _INT64
    return True


def union(parts: Sequence[Any]) -> Any:
    """Any of these, or anything where msgspec could not tell them apart. The declared types are shown all the same."""
    if not parts:
        return Any
    if Any in parts:
        return Any
    made: Any = Union.__getitem__(tuple(_widened(parts)))
    try:
        msgspec.json.Decoder(made)
    except TypeError:
        shown = {"anyOf": [_inlined(msgspec.json.schema(each)) for each in parts]}
        is_short = len(msgspec.json.encode(shown)) <= _SHOWN_BYTES_MAX
        return Annotated[Any, msgspec.Meta(extra_json_schema=shown)] if is_short else Any
    return made


def _widened(parts: Sequence[Any]) -> list[Any]:
    """The parts of a union that msgspec tells apart. Of two of one scalar type it would apply the bounds to both."""
    members: list[Any] = []
    for each in _members(parts):
        if each not in members:
            members.append(each)
    mixed = [kind for kind in (int, float, str) if _is_mixed([each for each in members if _scalar(each) is kind])]
    if int in mixed and any(_scalar(each) is float for each in members):
        mixed = [*(kind for kind in mixed if kind is not float), float]  # 7.0 is an integer, and is read as a fraction
    return [*(each for each in members if _scalar(each) not in mixed), *mixed] if mixed else list(parts)


def _members(parts: Sequence[Any]) -> Iterator[Any]:
    """The types in a union, and in the unions inside it. A literal gives one for each value."""
    for part in parts:
        inner = get_args(part)[0] if get_origin(part) is Annotated else part
        match get_origin(inner):
            case origin if origin is Union or origin is UnionType:
                yield from _members(get_args(inner))
            case origin if origin is Literal:
                yield from (Literal.__getitem__(value) for value in get_args(inner))
            case _:
                yield part


def _is_mixed(alike: Sequence[Any]) -> bool:
    return len(alike) > 1 and any(get_origin(each) is not Literal for each in alike)


def _scalar(member: Any) -> Any:
    """The scalar type of a member, without its bounds."""
    match get_origin(member):
        case origin if origin is Literal:
            return type(get_args(member)[0])
        case origin if origin is Annotated:
            return get_args(member)[0]
    return member


def _inlined(schema: Mapping[str, Any]) -> Any:
    """The schema of a type, without references. Our structs never have themselves inside."""
    structs = schema.get("$defs", {})

    def inline(part: Any) -> Any:
        match part:
            case {"$ref": str(reference)}:
                return inline(structs[reference.rpartition("/")[2]])
            case Mapping():
                return {word: inline(value) for word, value in part.items() if word != "$defs"}
            case list():
                return [inline(each) for each in part]
        return part

    return inline(schema)
