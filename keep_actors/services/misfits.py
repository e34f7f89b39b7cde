"""The places in a file of settings that do not fit, each with its whole path, and what to write there. Pure.

msgspec stops at the first problem and leaves out the names of sections. This walks through the same types and values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from keep_actors.connectors.params import UNKNOWN_FIELD, misfit

Decode = Callable[[type, Any], Any]


def misfits(wanted: Any, value: Any, decode: Decode, where: str = "") -> Iterator[tuple[str, str]]:
    """Find places and messages, in the order of the file. No message has a value of a secret."""
    inner = _inner(wanted, value)
    match value:
        case Mapping() if _is_struct(inner):
            yield from _in_struct(inner, value, decode, where)
        case Mapping() if get_origin(inner) in (Mapping, dict):
            _, of_values = get_args(inner)
            for name, each in value.items():
                yield from misfits(of_values, each, decode, _below(where, name))
        case list() if get_origin(inner) in (Sequence, list, tuple):
            for place, each in enumerate(value):
                yield from misfits(get_args(inner)[0], each, decode, f"{where}[{place}]")
        case str() if get_origin(inner) is Literal and value not in get_args(inner):
            yield where, f"there is no {value!r}{there_are(value, get_args(inner))}"
        case _:
            yield from _of_one(wanted, value, decode, where)


def there_are(name: str, names: Iterable[object]) -> str:
    """The words about names that can be written instead of this one."""
    known = [str(each) for each in names]
    near = get_close_matches(name, known, n=1)
    return f"; there are: {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")


def _inner(wanted: Any, value: Any) -> Any:
    """The type that a value is meant for: the one alternative that a table, a list or a text can be."""
    if get_origin(wanted) is Annotated:
        return _inner(get_args(wanted)[0], value)
    if get_origin(wanted) not in (Union, UnionType):
        return wanted
    able = [
        each for each in get_args(wanted) if each is not NoneType and (not isinstance(value, dict) or each is not str)
    ]
    return _inner(able[0], value) if len(able) == 1 else wanted


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _in_struct(
    wanted: type[msgspec.Struct], value: Mapping[str, Any], decode: Decode, where: str
) -> Iterator[tuple[str, str]]:
    known = {each.encode_name: each for each in fields(wanted)}
    for name, each in value.items():
        if name in known:
            yield from misfits(known[name].type, each, decode, _below(where, name))
        else:
            yield _below(where, name), UNKNOWN_FIELD + there_are(name, known)
    for name, field in known.items():
        if field.required and name not in value:
            yield _below(where, name), "is required and missing"


def _of_one(wanted: Any, value: Any, decode: Decode, where: str) -> Iterator[tuple[str, str]]:
    try:
        msgspec.convert(value, wanted, dec_hook=decode)
    except msgspec.ValidationError as error:
        inside, message = misfit(str(error))
        yield (f"{where}{'' if inside[:1] in ('', '[') else '.'}{inside}", message)


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
