"""Show the parameters of a call to a person who approves it, so that no parameter can hide another. Pure.

The script chose the values, the names inside them and their order. So parameters are in the order of the connector's
signature, members are indented below their parameter, each text is cut separately with the number of characters left
out, and `is_whole` says if anything was cut.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from keep_actors.text.visible import cut, left_out, quoted
from keep_storage.model import Json

VALUE_CHARS_MAX: Final = 400
NAME_CHARS_MAX: Final = 60
LINES_MAX: Final = 20
"""Lines of one parameter with members."""
PARAMETERS_MAX: Final = 60
PREVIEW_CHARS_MAX: Final = 500
_PREVIEW_CHARS_EACH: Final = 100
_BRIEF_CHARS_MAX: Final = 2_000
_INLINE_CHARS_MAX: Final = 60
"""A longer list of simple values takes several lines."""

_BARE: Final = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


class _Literal(str):
    """A number, as it is written."""

    __slots__ = ()


class _Object(NamedTuple):
    pairs: list[tuple[str, "_Value"]]
    """In the order of the text. A name may occur twice: both are shown."""


_Value: TypeAlias = "_Object | list[Any] | str | bool | None"


class CallLine(NamedTuple):
    """One line of a call."""

    depth: int
    """0 for a parameter, more for its members."""
    name: str
    value: str
    """Empty if the members are on lines below."""
    left: str = ""
    """The number of characters left out, in words."""


class CallText(NamedTuple):
    """The parameters of a call, ready to be shown."""

    lines: list[CallLine]
    is_whole: bool
    """True if nothing is left out."""


def call_text(params: Json, names: Sequence[str] | None = None, *, full: bool = False) -> CallText:
    """The parameters in the order of `names`, or sorted if that is None. `full`: nothing is cut."""
    limits = _NONE if full else _LIMITS
    try:
        found = _decoded(params)
        if not isinstance(found, _Object):
            return _counted(_lines(0, "", True, found, limits), limits)
        pairs = _ordered(found.pairs, names)
        shown = pairs[: limits.parameters]
        texts = [_counted(_lines(0, *_name(name, limits), value, limits), limits) for name, value in shown]
    except (ValueError, RecursionError):
        # Not JSON, which happens only in a crafted file: show the text as it is.
        return _counted(_lines(0, "", True, params, limits), limits)
    lines = [line for each in texts for line in each.lines]
    if len(shown) < len(pairs):
        lines.append(CallLine(0, "…", f"{len(pairs) - len(shown):,} more parameters left out"))
    return CallText(lines, len(shown) == len(pairs) and all(each.is_whole for each in texts))


def preview(params: Json, names: Sequence[str] | None = None) -> str:
    """The parameters on one line, for messages: `to: "ann", body: "Dear" … 1,612 characters left out`."""
    parts = iter([("", params)])
    count = 1
    try:
        members = msgspec.json.decode(params, type=dict[str, msgspec.Raw])
        ordered = _ordered([(name, bytes(raw).decode()) for name, raw in members.items()], names)
        count, parts = len(ordered), iter([(name, str(raw)) for name, raw in ordered])
    except (ValueError, RecursionError):
        pass
    shown = ""
    for at, (name, text) in enumerate(parts):
        part = _brief_of(name, text)
        if shown and len(shown) + len(part) > PREVIEW_CHARS_MAX:
            return f"{shown}, … {count - at:,} more parameters left out"
        shown += f", {part}" if shown else part
    return shown or "no parameters"


def _brief_of(name: str, text: Json) -> str:
    """A member, from its JSON text. A large one is not decoded, because a runtime calls this on its event loop."""
    try:
        if len(text) <= _BRIEF_CHARS_MAX or text.startswith('"'):
            return _brief(name, _decoded(text))
    except (ValueError, RecursionError):
        return _brief(name, text)
    return _brief(name, _Literal(text))


class _Limits(NamedTuple):
    value: int | None
    name: int | None
    lines: int | None
    parameters: int | None


_LIMITS: Final = _Limits(VALUE_CHARS_MAX, NAME_CHARS_MAX, LINES_MAX, PARAMETERS_MAX)
_PREVIEW: Final = _LIMITS._replace(value=_PREVIEW_CHARS_EACH)
_NONE: Final = _Limits(None, None, None, None)


def _decoded(params: Json) -> _Value:
    decoded: _Value = json.loads(
        params, object_pairs_hook=_Object, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal
    )
    return decoded


def _ordered(pairs: list[tuple[str, _Value]], names: Sequence[str] | None) -> list[tuple[str, _Value]]:
    places = {name: place for place, name in enumerate(names or ())}
    return sorted(pairs, key=lambda pair: (places.get(pair[0], len(places)), pair[0]))


class _Part(NamedTuple):
    line: CallLine
    is_whole: bool


def _counted(parts: Iterator[_Part], limits: _Limits) -> CallText:
    """The lines to show, and the number of those left out."""
    shown = list(islice(parts, limits.lines))
    more = sum(1 for _ in parts)
    lines = [each.line for each in shown]
    if more:
        lines.append(CallLine(1, "…", f"{more:,} more lines left out"))
    return CallText(lines, not more and all(each.is_whole for each in shown))


def _lines(depth: int, name: str, name_is_whole: bool, value: _Value, limits: _Limits) -> Iterator[_Part]:
    inline = _inline(value, limits)
    if inline is not None:
        text, left = inline
        yield _Part(CallLine(depth, name, text, left), name_is_whole and not left)
        return
    yield _Part(CallLine(depth, name, ""), name_is_whole)
    if isinstance(value, _Object):
        for key, each in value.pairs:
            yield from _lines(depth + 1, *_name(key, limits), each, limits)
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _lines(depth + 1, f"[{at}]", True, each, limits)


def _inline(value: _Value, limits: _Limits) -> tuple[str, str] | None:
    """The value on one line, and the words about what is left out; None if it takes several lines."""
    match value:
        case _Object():
            return None if value.pairs else ("{}", "")
        case list():
            if any(isinstance(each, _Object | list) for each in value):
                return None
            text = _compact(value)
            return None if len(text) > _INLINE_CHARS_MAX else (text, "")
        case _:
            return _simple(value, limits.value)


def _simple(value: _Value, most: int | None) -> tuple[str, str]:
    if isinstance(value, str) and not isinstance(value, _Literal):
        shown, left = quoted(value, most)
    else:
        shown, left = cut(str(value) if isinstance(value, str) else json.dumps(value), most)
    return shown, left_out(left) if left else ""


def _name(name: str, limits: _Limits) -> tuple[str, bool]:
    """A name, quoted unless it is a plain identifier; and True if it is whole."""
    if _BARE.fullmatch(name) and (limits.name is None or len(name) <= limits.name):
        return name, True
    shown, left = _simple(name, limits.name)
    return f"{shown} {left}".rstrip(), not left


def _brief(name: str, value: _Value) -> str:
    inline = _inline(value, _PREVIEW)
    if inline is None:
        shown, left = cut(_compact(value), _PREVIEW.value)
        inline = shown, left_out(left) if left else ""
    said = " ".join(filter(None, inline))
    return f"{_name(name, _PREVIEW)[0]}: {said}" if name else said


def _compact(value: _Value) -> str:
    """The whole value on one line."""
    match value:
        case _Object():
            return f"{{{', '.join(f'{_name(key, _NONE)[0]}: {_compact(each)}' for key, each in value.pairs)}}}"
        case list():
            return f"[{', '.join(map(_compact, value))}]"
        case _:
            return _simple(value, None)[0]
