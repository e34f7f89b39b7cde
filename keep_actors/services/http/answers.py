"""The JSON of an answer: decoded within bounds, the value at a path of it, and comparisons. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from keep_actors.connectors import PreconditionFailed
from keep_actors.outbound.web import WebReply
from keep_actors.services.http.operation import HttpOperation
from keep_actors.services.http.outcomes import said
from keep_actors.services.http.settings import Plain
from keep_sandbox.json_text import slow_to_decode


class AnswerUnusable(ValueError):
    """An answer is not JSON, or has not what was declared. The message says what is wrong."""


class _Absent:
    """The absence of a value at a path."""


ABSENT: Final = _Absent()


def decoded(reply: WebReply) -> Any:
    """The JSON of an answer; None if it is empty. Raises `AnswerUnusable`."""
    if not reply.body.strip():
        return None
    # Decoding blocks the event loop, and the service chose the text.
    if slow := slow_to_decode(reply.body):
        raise AnswerUnusable(f"the answer has {slow}")
    try:
        return msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerUnusable(f"the answer is not JSON: {error}") from None


def at(document: Any, path: str) -> Any:
    """The value at a path such as `data.order`, or `ABSENT`. An empty path is the whole."""
    for name in path.split(".") if path else ():
        if not isinstance(document, dict) or name not in document:
            return ABSENT
        document = document[name]
    return document


def matches(item: Any, expected: Mapping[str, Any]) -> bool:
    """Return True if an item has these values at these paths."""
    return all(_is_equal(at(item, path), value) for path, value in expected.items())


def has_all(item: Any, expected: Iterable[str]) -> bool:
    """Return True if an item has anything at each of these paths."""
    return all(at(item, path) is not ABSENT for path in expected)


def is_name(value: Plain) -> bool:
    """Return True if a setting names a value of the call: `$key`, `$orderId`."""
    return isinstance(value, str) and value.startswith("$") and not value.startswith("$$")


def resolved(value: Plain, values: Mapping[str, Any]) -> Any:
    """The value that a setting names: `$key` is the value of that name, `$$x` the text `$x`."""
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    return value[1:] if value.startswith("$$") else values.get(value[1:])


def result_of(operation: HttpOperation, reply: WebReply) -> Any:
    """The result in an answer that says that it happened. Raises `AnswerUnusable`, and `PreconditionFailed`."""
    if operation.answer == "none":
        return None
    if operation.answer == "text":
        try:
            return reply.body.decode()
        except UnicodeDecodeError:
            raise AnswerUnusable("the answer is not UTF-8 text") from None
    document = decoded(reply)
    if operation.rules.refused and matches(document, operation.rules.refused):
        raise PreconditionFailed(f"{operation.method} {operation.path} was refused: {said(reply)}")
    result = at(document, operation.rules.result_path)
    if result is ABSENT:
        raise AnswerUnusable(f"the answer has nothing at {operation.rules.result_path!r}")
    return result


def _is_equal(found: Any, wanted: Any) -> bool:
    # Services write numbers as texts. A false "no" would be the worse answer: the call would be made again.
    scalar = (str, int, float)
    if isinstance(found, scalar) and isinstance(wanted, scalar):
        return _text(found) == _text(wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def _text(value: str | int | float) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
