"""Check JSON text of a script or a connector without decoding it: any decoder can read what passes. Pure.

Refused are text that is not JSON, unpaired surrogates, nesting beyond the limit, and numbers that some decoder cannot
represent: `1e400` is valid JSON, but not a number in Python or JavaScript.
"""

import itertools
import re
from typing import Final

import msgspec

from keep_sandbox.limits import Limits

DIGITS_MAX: Final = 200
"""Digits in a row. JavaScript writes at most 21; Python refuses to read integers of more than 4,300."""

CONTAINERS_MAX: Final = 200_000
"""Lists and objects in a value to decode. A megabyte can have half a million, which take a third of a second."""

SLOW_NUMBERS_MAX: Final = 2_000
"""Numbers with an exponent of three digits in a value to decode. msgspec takes ten microseconds to read `5e-324`, a
hundred times as long as `0.5`: a megabyte of them would block an event loop for more than a second."""


class UnfitText(ValueError):
    """The text is not JSON that any decoder can read. The message says why."""


class DecoderUnsuitable(Exception):
    """The installed msgspec does not check JSON as this module relies on."""


def check_json(text: str, limits: Limits) -> None:
    """Raise `UnfitText` unless the text is JSON within the limits."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise UnfitText("an unpaired surrogate") from None
    if len(data) > limits.value_bytes:
        raise UnfitText("a value that is too large")
    try:
        # Checks all of it without building values: a megabyte of empty lists would take a tenth of a second.
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnfitText(f"a value that is not JSON: {type(error).__name__}") from None
    # Few brackets cannot nest too deeply; only texts with more are measured.
    if _containers(data) > limits.value_depth and _depth(data) > limits.value_depth:
        raise UnfitText("a value that is nested too deeply")
    _check_numbers(data)


def slow_to_decode(data: bytes) -> str:
    """The reason why this JSON would take long to decode; empty if it would not. Ask it on an event loop."""
    if _containers(data) > CONTAINERS_MAX and _containers(_outside_strings(data)) > CONTAINERS_MAX:
        return f"more than {CONTAINERS_MAX:,} lists and objects"
    return f"more than {SLOW_NUMBERS_MAX:,} numbers with an exponent of three digits" if has_slow_numbers(data) else ""


def has_slow_numbers(data: bytes) -> bool:
    """Return True if this JSON would take long to decode because of its numbers."""
    return _slow_numbers(data) > SLOW_NUMBERS_MAX and _slow_numbers(_outside_strings(data)) > SLOW_NUMBERS_MAX


def _containers(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _slow_numbers(data: bytes) -> int:
    return data.translate(_ANY_DIGIT, b"+-").count(_LARGE_EXPONENT)


_NO_BRACKET: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _outside_strings(data: bytes) -> bytes:
    """Valid JSON without its strings; one quote stays in the place of each."""
    if b"\\" in data:
        # Pairs of backslashes first, from the left: what is left before a quote escapes it.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Without escapes, every second piece between quotes is outside a string. A regex would take five times as long.
    return b'"'.join(data.split(b'"')[::2])


def _depth(data: bytes) -> int:
    """The depth of valid JSON: its brackets as steps up and down, added up without a Python loop."""
    steps = _outside_strings(data).translate(_STEPS, _NO_BRACKET)
    return max(itertools.accumulate(memoryview(steps).cast("b")), default=0)


_ANY_DIGIT: Final = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS: Final = b"0" * (DIGITS_MAX + 1)
_LARGE_EXPONENT: Final = b"0e000"
_LARGE_NUMBER: Final = re.compile(rb"(?<![0-9.])[0-9.]++[eE]\+?[0-9]{3,}")


def _check_numbers(data: bytes) -> None:
    """Refuse numbers that are not finite, or have too many digits. `data` is valid JSON.

    With few digits in a row, only a number with an exponent of three digits can overflow a double, so that two searches
    accept almost every value.
    """
    if not _has_large_numbers(data):
        return
    # It may be inside a string: `"3e200"` is part of many checksums.
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


# Texts that a hostile worker might send.
_BAD_TEXTS: Final = ("", "{", "[1,]", '{"a":1,}', "01", "NaN", "nul", '"\x01"', '"\\ud800"', '"\\x"', "1 2", "\ufeff1")
_GOOD_TEXTS: Final = ("null", ' {"a" : [1.5e-7, "\\ud83d\\ude00", true]} ', "-0", '""')


def check_decoder() -> None:
    """Raise `DecoderUnsuitable` unless msgspec checks all of a text that it decodes as `Raw`.

    Its documentation does not promise that, and all later code relies on it: so it is tried at startup.
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
