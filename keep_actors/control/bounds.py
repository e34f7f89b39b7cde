"""Bounds on the cost of a request to the event loop. Counted before anything is decoded: a decoder does not stop.

Another thread would not help, because the decoder keeps the interpreter to itself until it is done.
"""

from typing import Any, Final

import msgspec

from keep_actors.api.command import Command
from keep_actors.control import protocol
from keep_actors.control.protocol import RequestRefused
from keep_sandbox.json_text import SLOW_NUMBERS_MAX, has_slow_numbers

CONTAINERS_MAX: Final = 50_000
"""Lists and objects. A line of 4 MB could have 1,400,000 of them, and those take a second."""
VALUES_MAX: Final = 200_000
"""All that is in them: more than fits into a payload."""
DEPTH_MAX: Final = 100
"""More than a script is ever given (`Limits.value_depth`)."""

DIGITS_MAX: Final = 1_000
"""Of one number. To read one takes a time that grows with their square."""
TEXT_MAX: Final = 100_000
ENTRIES_MAX: Final = 10_000
"""Of a field that is a text, a list or an object, and neither a payload, a result nor a script."""

_INTEGERS: Final = range(-(2**63), 2**63)
"""The integers that a database keeps."""
_CARRIED: Final = frozenset({"payload", "result", "source"})
"""Fields whose content is bounded by who uses it: any JSON, a script."""
_DIGITS: Final = bytes(ord("0") if chr(each).isdigit() and each < 128 else ord(" ") for each in range(256))
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def decode(line: bytes) -> Command[Any]:
    """The request in a line. Raises `RequestRefused`, also for what is right in form and too much."""
    _refuse_what_is_much(line)
    request = protocol.decode(line)
    _refuse_what_means_nothing(request)
    return request


def _refuse_what_is_much(line: bytes) -> None:
    # Passes over the bytes that cost milliseconds, whatever is in them. In text that is no JSON the count may be
    # wrong behind the first mistake, where the decoder stops.
    unescaped = line.replace(rb"\\", b"").replace(rb"\"", b"")
    if unescaped.count(b'"') > 2 * VALUES_MAX:
        raise _too_much("texts", VALUES_MAX)
    outside = b"".join(unescaped.split(b'"')[::2])
    containers = outside.count(b"[") + outside.count(b"{")
    if containers > CONTAINERS_MAX or outside.count(b"]") + outside.count(b"}") > CONTAINERS_MAX:
        raise _too_much("lists and objects", CONTAINERS_MAX)
    if containers + outside.count(b",") > VALUES_MAX:
        raise _too_much("values", VALUES_MAX)
    if b"0" * (DIGITS_MAX + 1) in outside.translate(_DIGITS):
        raise RequestRefused(f"A number in a request has at most {DIGITS_MAX:,} digits: write it as a text.")
    if has_slow_numbers(outside):
        raise _too_much("numbers with an exponent of three digits", SLOW_NUMBERS_MAX)
    if containers > DEPTH_MAX and _depth(outside) > DEPTH_MAX:
        raise RequestRefused(f"Lists and objects in a request are nested at most {DEPTH_MAX} deep.")


def _too_much(what: str, most: int) -> RequestRefused:
    return RequestRefused(f"A request has at most {most:,} {what}. Send less at a time, or publish an id instead.")


def _depth(outside: bytes) -> int:
    depth = deepest = 0
    for each in outside.translate(None, _NOT_BRACKETS):
        depth += 1 if each in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _refuse_what_means_nothing(struct: msgspec.Struct) -> None:
    """Refuse numbers that no database keeps, and texts and lists that are too long to have been typed."""
    for name in set(struct.__struct_fields__) - _CARRIED:
        match getattr(struct, name):
            case int(number) if number not in _INTEGERS:
                raise RequestRefused(f"Invalid request: `{name}` is out of range.")
            case str(text) if len(text) > TEXT_MAX:
                raise RequestRefused(f"Invalid request: `{name}` has more than {TEXT_MAX:,} characters.")
            case list() | dict() as several if len(several) > ENTRIES_MAX:
                raise RequestRefused(f"Invalid request: `{name}` has more than {ENTRIES_MAX:,} entries.")
            case msgspec.Struct() as inner:
                _refuse_what_means_nothing(inner)
            case list(several):
                for each in several:
                    if isinstance(each, msgspec.Struct):
                        _refuse_what_means_nothing(each)
