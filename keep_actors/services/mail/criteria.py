"""Criteria of a search as arguments of the IMAP command SEARCH. No value can become a command, a key or a literal."""

import re
from datetime import date
from typing import Annotated, Final

import msgspec

from keep_actors.connectors import InvalidCall
from keep_actors.services.mail.words import problem_with_line

_CHARS_MAX: Final = 200
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SPECIAL: Final = re.compile(rb'([\\"])')

Day = Annotated[str, msgspec.Meta(examples=["2026-11-30"])]


class Criteria(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from", "message_id": "messageId"}):
    """All that are given must fit. A text is found anywhere in its field, in upper or lower case."""

    from_: str = ""
    to: str = ""
    cc: str = ""
    subject: str = ""
    body: str = ""
    text: str = ""
    message_id: str = ""
    since: Day = ""
    before: Day = ""
    unseen: bool = False
    flagged: bool = False


_TEXTS: Final = {"from_": b"FROM", "to": b"TO", "cc": b"CC", "subject": b"SUBJECT", "body": b"BODY", "text": b"TEXT"}
_DAYS: Final = {"since": b"SINCE", "before": b"BEFORE"}
_FLAGS: Final = {"unseen": b"UNSEEN", "flagged": b"FLAGGED"}


class Search(msgspec.Struct, frozen=True):
    """A search as it is sent."""

    arguments: tuple[bytes, ...]
    literal: bytes = b""
    """The last argument, if it is beyond ASCII: such a text is sent by its length."""


def search_of(criteria: Criteria) -> Search:
    """The arguments of SEARCH. Raises `InvalidCall`."""
    arguments = [key for name, key in _FLAGS.items() if getattr(criteria, name)]
    for name, key in _DAYS.items():
        if day := getattr(criteria, name):
            arguments += [key, _day(name, day)]
    if criteria.message_id:
        arguments += header("Message-ID", _text("messageId", criteria.message_id))
    beyond: list[tuple[bytes, bytes]] = []
    for name, key in _TEXTS.items():
        if value := getattr(criteria, name):
            encoded = _text(name.rstrip("_"), value)
            if encoded.isascii():
                arguments += [key, quoted(encoded)]
            else:
                beyond.append((key, encoded))
    if len(beyond) > 1:
        raise InvalidCall("only one of the texts to search for may have characters beyond ASCII; search twice")
    if not beyond:
        return Search(tuple(arguments) or (b"ALL",))
    [(key, literal)] = beyond
    return Search((b"CHARSET", b"UTF-8", *arguments, key), literal)


def header(name: str, value: bytes) -> list[bytes]:
    """Search for a value anywhere in a header. It finds more than equal ones: compare what is found."""
    return [b"HEADER", name.encode(), quoted(value)]


def quoted(value: bytes) -> bytes:
    """Always in quotes: a bare `{5}` would be a literal, and `(` a list."""
    return b'"' + _SPECIAL.sub(rb"\\\1", value) + b'"'


def _text(param: str, value: str) -> bytes:
    if problem := problem_with_line(value, _CHARS_MAX):
        raise InvalidCall(f"{param} {problem}")
    return value.encode()


def _day(param: str, text: str) -> bytes:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidCall(f"{param} is {text!r}; write a day such as 2026-11-30") from None
    return f"{day.day:02d}-{_MONTHS[day.month - 1]}-{day.year:04d}".encode()
