"""Parameters as a script passes them and as a connector gets them, and messages for those that do not fit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from keep_storage.model import Json

_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`\Z")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNEXPECTED: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_TYPES: Final = re.compile(r"(?<=Expected )`([^`]*)`(?:, got `([^`]*)`)?")
_EXPECTED: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_GOT: Final = _EXPECTED | {"int": "number"}
_NAME_CHARS_MAX: Final = 80
_MESSAGE_CHARS_MAX: Final = 400
UNKNOWN_FIELD: Final = "is not a known field"


@dataclass(frozen=True, slots=True)
class Params:
    """Validated parameters of a method."""

    json_text: Json
    """The text that the script passed."""
    values: Mapping[str, Any]
    """By their Python names, defaults filled in."""


def misfit(text: str) -> tuple[str, str]:
    """Translate an error of msgspec to a path and a message in JavaScript's terms: `values[2]`, `string`."""
    place = _PLACE.search(text)
    path = ""
    if place:
        text = text[: place.start()]
        path = place["path"].removeprefix(".")
    if missing := _MISSING.fullmatch(text):
        return _joined(path, missing[1]), "is required and missing"
    if unexpected := _UNEXPECTED.fullmatch(text):
        return _joined(path, unexpected[1][:_NAME_CHARS_MAX]), UNKNOWN_FIELD
    text = _TYPES.sub(_in_javascript, text)[:_MESSAGE_CHARS_MAX]
    text = text[:1].lower() + text[1:]
    return path, f"a key of it: {text}" if place and place["key"] else text


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _in_javascript(types: re.Match[str]) -> str:
    expected = " or ".join(_EXPECTED.get(each, each) for each in types[1].split(" | "))
    return f"{expected}, got {_GOT.get(types[2], types[2])}" if types[2] else expected
