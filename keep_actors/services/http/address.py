"""Paths and queries from a template and values. No value leaves its segment, or reaches another host. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from keep_actors.connectors import InvalidCall

_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/%]*")
_DOTS: Final = frozenset({".", ".."})


def places_in(template: str) -> list[str]:
    """The names in braces of a path. Raises `ValueError` for a path that could mean another place."""
    plain = _PLACE.sub("", template)
    if not template.startswith("/") or template.startswith("//") or not _LITERAL.fullmatch(plain):
        what = f"{template!r} is no path; write /orders/{{orderId}}, without a query, and with other characters as %XX"
        raise ValueError(what)
    if _DOTS & set(template.split("/")) or "%2e" in template.lower():
        raise ValueError(f"{template!r} has . or .. in it; write the path that is meant")
    places = _PLACE.findall(template)
    if len(set(places)) < len(places) or not all(places):
        raise ValueError(f"{template!r} has an empty or repeated name in braces; give each another")
    return places


def path_of(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template. Raises `InvalidCall` for a value that cannot be one segment."""
    path = _PLACE.sub(lambda place: _segment(place[1], values.get(place[1])), template)
    if _DOTS & set(path.split("/")):
        raise InvalidCall(f"the parameters make a path with . or .. in it: {path}")
    return path


def query_of(pairs: Iterable[tuple[str, str]]) -> str:
    """The query of a URL, with its question mark; empty without pairs."""
    text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return f"?{text}" if text else ""


def pairs_of(name: str, value: Any, *, is_exploded: bool = True) -> Sequence[tuple[str, str]]:
    """A value as pairs of a query or a form: a list is several, or one with commas. Null is left out."""
    if value is None:
        return ()
    if not isinstance(value, list):
        return ((name, text_of(name, value)),)
    texts = [text_of(name, each) for each in value]
    return [(name, each) for each in texts] if is_exploded else ((name, ",".join(texts)),)


def text_of(name: str, value: Any) -> str:
    """A text, a number, true or false as text. Raises `InvalidCall` for anything else."""
    match value:
        case str():
            text = value
        case bool() | int() | float():
            text = msgspec.json.encode(value).decode()
        case _:
            raise InvalidCall(f"{name} has to be a text, a number, true or false")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidCall(f"{name} has a character that cannot be sent")
    return text


def _segment(name: str, value: Any) -> str:
    text = text_of(name, value)
    # Many servers decode %2F before they look at the path.
    if not text or any(char in "/\\" or char < " " or char == "\x7f" for char in text):
        raise InvalidCall(f"{name} stands in the path: it cannot be empty, or have / or \\ or control characters in it")
    return quote(text, safe="")
