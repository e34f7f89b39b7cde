"""JSON text of a script or a connector, checked without making anything of it: what passes can be decoded by everybody.

Pure. What is refused: text that is no JSON, half a surrogate pair, nesting beyond the limit, and numbers that some
decoder cannot hold: `1e400` is valid JSON and no number that Python, JavaScript or a ledger has.
"""

import itertools
import re
from typing import Final

import msgspec

from keep_sandbox.limits import Limits

DIGITS_MAX: Final = 200
"""Digits in a row. JavaScript writes 21 at most; Python refuses to read an integer of more than 4,300."""

CONTAINERS_MAX: Final = 200_000
"""Lists and objects in a value that is decoded. A megabyte can have half a million, which take a third of a second."""

SLOW_NUMBERS_MAX: Final = 2_000
"""Numbers with an exponent of three digits in a value that is decoded. msgspec takes ten microseconds to read `5e-324`,
a hundred times as long as `0.5`: a megabyte of them would hold up an event loop for more than a second."""


class UnfitText(ValueError):
    """The text is no JSON that everybody can decode. Its words say why."""


class DecoderUnsuitable(Exception):
    """The msgspec that is installed does not check what is relied on."""


def check_json(text: str, limits: Limits) -> None:
    """Raise `UnfitText` unless the text is JSON within the limits, so that nobody after us meets worse."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise UnfitText("half a surrogate pair is not text") from None
    if len(data) > limits.value_bytes:
        raise UnfitText("a value that is too large")
    try:
        # Checks all of it and makes nothing of it: a megabyte of empty lists would take a tenth of a second to make.
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnfitText(f"a value that is not JSON: {type(error).__name__}") from None
    # So few brackets cannot nest too deeply; only what has more is measured.
    if _containers(data) > limits.value_depth and _depth(data) > limits.value_depth:
        raise UnfitText("a value that is nested too deeply")
    _check_numbers(data)


def slow_to_decode(data: bytes) -> str:
    """Say why this JSON would take long to decode; empty if it would not. Ask before decoding where others wait."""
    if _containers(data) > CONTAINERS_MAX and _containers(_outside_strings(data)) > CONTAINERS_MAX:
        return f"more than {CONTAINERS_MAX:,} lists and objects"
    return f"more than {SLOW_NUMBERS_MAX:,} numbers with an exponent of three digits" if has_slow_numbers(data) else ""


def has_slow_numbers(data: bytes) -> bool:
    """Tell whether this JSON would take long to decode because of its numbers."""
    return _slow_numbers(data) > SLOW_NUMBERS_MAX and _slow_numbers(_outside_strings(data)) > SLOW_NUMBERS_MAX


def _containers(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _slow_numbers(data: bytes) -> int:
    return data.translate(_ANY_DIGIT, b"+-").count(_LARGE_EXPONENT)


_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _outside_strings(data: bytes) -> bytes:
    """Valid JSON without what is in its strings; a quote stays where one was."""
    if b"\\" in data:
        # From the left, so that of several backslashes in a row each pair is one.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Without escapes every second piece between quotes is outside a string. A pattern would take five times as long.
    return b'"'.join(data.split(b'"')[::2])


def _depth(data: bytes) -> int:
    """How deeply valid JSON is nested: its brackets alone, as steps up and down, added up without a loop of ours."""
    steps = _outside_strings(data).translate(_STEPS, _NO_BRACKET)
    return max(itertools.accumulate(memoryview(steps).cast("b")), default=0)


_ANY_DIGIT: Final = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS: Final = b"0" * (DIGITS_MAX + 1)
_LARGE_EXPONENT: Final = b"0e000"
_LARGE_NUMBER: Final = re.compile(rb"(?<![0-9.])[0-9.]++[eE]\+?[0-9]{3,}")


def _check_numbers(data: bytes) -> None:
    """Refuse numbers that are not finite, or have more digits than anybody writes. `data` is valid JSON.

    With so few digits in a row only an exponent of three digits leads out of what a double holds, so that almost every
    value is let through by two searches.
    """
    if not _has_large_numbers(data):
        return
    # It may have been text: `"3e200"` is part of many a checksum.
    outside = _outside_strings(data)
    if not _has_large_numbers(outside):
        return
    if _MANY_DIGITS in outside.translate(_ANY_DIGIT):
        raise UnfitText(f"a number of more than {DIGITS_MAX} digits")
    if any(float(number) == float("inf") for number in _LARGE_NUMBER.findall(outside)):
        raise UnfitText("a number that is too large")


def _has_large_numbers(data: bytes) -> bool:
    digits = data.translate(_ANY_DIGIT, b"+")
    return _LARGE_EXPONENT in digits or _MANY_DIGITS in digits


# What a worker that was taken over would send, if nobody looked.
_BAD_TEXTS: Final = ("", "{", "[1,]", '{"a":1,}', "01", "NaN", "nul", '"\x01"', '"\\ud800"', '"\\x"', "1 2", "\ufeff1")
_GOOD_TEXTS: Final = ("null", ' {"a" : [1.5e-7, "\\ud83d\\ude00", true]} ', "-0", '""')


def check_decoder() -> None:
    """Raise `DecoderUnsuitable` unless msgspec checks all of a text that it makes nothing of (`Raw`).

    It says so nowhere. What scripts send is taken for valid from here on, so it is tried before anything is served.
    """
    for text in _BAD_TEXTS:
        try:
            msgspec.json.decode(text.encode(), type=msgspec.Raw)
        except msgspec.MsgspecError:
            continue
        raise DecoderUnsuitable(f"{_installed()} takes {text!r} for JSON; install a version that pyproject.toml allows")
    for text in _GOOD_TEXTS:
        try:
            msgspec.json.decode(text.encode(), type=msgspec.Raw)
        except msgspec.MsgspecError as error:
            raise DecoderUnsuitable(f"{_installed()} refuses {text!r}: {error}") from None


def _installed() -> str:
    return f"msgspec {msgspec.__version__}"
