"""The outcome of an HTTP request: one table of statuses, one of requests without an answer. Pure.

A request that was not sent did not happen. One that was sent and has no answer is unknown, whatever broke. So is a
status that is not in the table. For a mutation, "did not happen" is a promise: a row says so only if the status does.
"""

from collections.abc import Collection, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple

from keep_actors.connectors import (
    AuthRequired,
    ConnectorBug,
    ConnectorError,
    InvalidCall,
    PermissionDenied,
    PreconditionFailed,
    Transient,
    Uncertain,
)
from keep_actors.outbound.checked import WebError, WebProblem
from keep_actors.outbound.web import WebReply
from keep_actors.text.visible import quoted
from keep_storage.ids import Millis

RETRY_AFTER_MS_MAX: Final = 24 * 3_600_000
_EXCERPT_CHARS_MAX: Final = 300
_SILENT: Final = frozenset({401, 403, 407})
"""The body of these is not shown: it may quote a part of a password."""


class Meaning(StrEnum):
    """The outcomes of a request. All but the first three: it did not happen."""

    HAPPENED = "happened"
    ACCEPTED = "accepted"
    """The service will do it later, or not."""
    UNKNOWN = "unknown"
    TRANSIENT = "transient"
    AUTH = "auth"
    PERMISSION = "permission"
    PRECONDITION = "precondition"
    INVALID = "invalid"
    BUG = "bug"


class SentRequest(NamedTuple):
    """The facts about a mutation that change the meaning of a status."""

    method: str
    attempt: int = 1
    has_key: bool = False
    has_if_match: bool = False
    happened: Collection[int] = ()
    did_not_happen: Collection[int] = ()


_M = Meaning
_STATUSES: Final[Mapping[int, tuple[Meaning, Meaning]]] = {
    202: (_M.ACCEPTED, _M.HAPPENED),
    301: (_M.UNKNOWN, _M.PRECONDITION),  # the answer to a POST after its effect
    302: (_M.UNKNOWN, _M.PRECONDITION),
    303: (_M.UNKNOWN, _M.PRECONDITION),
    304: (_M.UNKNOWN, _M.PRECONDITION),
    307: (_M.PRECONDITION, _M.PRECONDITION),  # "send the same again elsewhere"
    308: (_M.PRECONDITION, _M.PRECONDITION),
    400: (_M.INVALID, _M.INVALID),
    401: (_M.AUTH, _M.AUTH),
    402: (_M.PRECONDITION, _M.PRECONDITION),
    403: (_M.PERMISSION, _M.PERMISSION),
    404: (_M.PRECONDITION, _M.PRECONDITION),
    405: (_M.INVALID, _M.INVALID),
    406: (_M.INVALID, _M.INVALID),
    407: (_M.BUG, _M.BUG),  # there is no proxy
    408: (_M.UNKNOWN, _M.TRANSIENT),
    409: (_M.UNKNOWN, _M.PRECONDITION),  # "it exists already", or "your first request still runs"
    410: (_M.PRECONDITION, _M.PRECONDITION),
    411: (_M.INVALID, _M.INVALID),
    412: (_M.PRECONDITION, _M.PRECONDITION),
    413: (_M.INVALID, _M.INVALID),
    414: (_M.INVALID, _M.INVALID),
    415: (_M.INVALID, _M.INVALID),
    421: (_M.TRANSIENT, _M.TRANSIENT),
    422: (_M.INVALID, _M.INVALID),
    423: (_M.PRECONDITION, _M.PRECONDITION),
    424: (_M.PRECONDITION, _M.PRECONDITION),
    425: (_M.TRANSIENT, _M.TRANSIENT),
    428: (_M.PRECONDITION, _M.PRECONDITION),
    429: (_M.TRANSIENT, _M.TRANSIENT),
    431: (_M.INVALID, _M.INVALID),
    451: (_M.PERMISSION, _M.PERMISSION),
    499: (_M.UNKNOWN, _M.TRANSIENT),
    501: (_M.INVALID, _M.INVALID),
    505: (_M.INVALID, _M.INVALID),
}
"""By status: the meaning for a mutation, and for a read."""

_OTHERS: Final[Mapping[int, tuple[Meaning, Meaning]]] = {
    2: (_M.HAPPENED, _M.HAPPENED),
    3: (_M.UNKNOWN, _M.PRECONDITION),
    4: (_M.UNKNOWN, _M.PRECONDITION),
    5: (_M.UNKNOWN, _M.TRANSIENT),
}
"""By the first digit of a status that is not in the table above."""

_DECLARED: Final[Mapping[int, Meaning]] = {2: _M.PRECONDITION, 3: _M.PRECONDITION, 4: _M.PRECONDITION, 5: _M.TRANSIENT}
"""By the first digit: the meaning of a status that the table calls unknown, and the operator "did not happen"."""

_PROBLEMS: Final[Mapping[WebProblem, tuple[Meaning, Meaning]]] = {
    WebProblem.ADDRESS_REFUSED: (_M.PRECONDITION, _M.PRECONDITION),
    WebProblem.INVALID_REQUEST: (_M.INVALID, _M.INVALID),
    WebProblem.UNREACHABLE: (_M.TRANSIENT, _M.TRANSIENT),
    WebProblem.CERTIFICATE: (_M.BUG, _M.BUG),
    WebProblem.TIMEOUT: (_M.TRANSIENT, _M.TRANSIENT),
    WebProblem.BROKEN: (_M.TRANSIENT, _M.TRANSIENT),
    WebProblem.TOO_LARGE: (_M.UNKNOWN, _M.PRECONDITION),
    WebProblem.ENCODED: (_M.UNKNOWN, _M.PRECONDITION),
    WebProblem.REDIRECTED: (_M.UNKNOWN, _M.PRECONDITION),
}
"""By the reason why there is no answer: the meaning for a mutation that was not sent, and for a read."""
assert set(_PROBLEMS) == set(WebProblem), "every reason has a meaning"

_ERRORS: Final[Mapping[Meaning, type[ConnectorError]]] = {
    _M.AUTH: AuthRequired,
    _M.PERMISSION: PermissionDenied,
    _M.PRECONDITION: PreconditionFailed,
    _M.INVALID: InvalidCall,
    _M.BUG: ConnectorBug,
}


def meaning_of_status(status: int, request: SentRequest) -> Meaning:
    """The meaning of an answer to a mutation."""
    by_table = _STATUSES.get(status, _OTHERS.get(status // 100, (_M.UNKNOWN, _M.UNKNOWN)))[0]
    if status in request.happened:
        return _M.HAPPENED
    if status in request.did_not_happen:
        is_refusal = by_table not in (_M.HAPPENED, _M.ACCEPTED, _M.UNKNOWN)
        return by_table if is_refusal else _DECLARED.get(status // 100, _M.PRECONDITION)
    return _of_a_repetition(status, request, by_table) if request.attempt > 1 else by_table


def _of_a_repetition(status: int, request: SentRequest, by_table: Meaning) -> Meaning:
    """An earlier attempt of our own may be the reason for the status."""
    match status:
        case 404 | 410 if request.method == "DELETE":
            return _M.UNKNOWN
        case 412 if request.has_if_match:
            return _M.UNKNOWN
        case 422 if request.has_key:
            return _M.BUG  # the key was used before, for other parameters
        case _:
            return by_table


def meaning_of_problem(problem: WebProblem, *, is_sent: bool) -> Meaning:
    """The meaning of a mutation without an answer."""
    return _M.UNKNOWN if is_sent else _PROBLEMS[problem][0]


def meaning_of_read_status(status: int) -> Meaning:
    """The meaning of an answer to a read."""
    return _STATUSES.get(status, _OTHERS.get(status // 100, (_M.UNKNOWN, _M.PRECONDITION)))[1]


def meaning_of_read_problem(problem: WebProblem) -> Meaning:
    """The meaning of a read without an answer."""
    return _PROBLEMS[problem][1]


def error_of(meaning: Meaning, words: str, retry_after_ms: int | None = None) -> ConnectorError | Uncertain:
    """The error to raise, for anything but `HAPPENED`."""
    assert meaning is not Meaning.HAPPENED, "that is no error"
    if meaning is Meaning.TRANSIENT:
        return Transient(words, retry_after_ms)
    return _ERRORS[meaning](words) if meaning in _ERRORS else Uncertain(words)


def read_error(error: WebError) -> ConnectorError:
    """The error of a read without an answer."""
    found = error_of(meaning_of_read_problem(error.problem), str(error))
    assert isinstance(found, ConnectorError), "a read is never uncertain"
    return found


def read_refusal(reply: WebReply, now: Millis) -> ConnectorError | None:
    """The error of a read by its answer; None if that is what was asked for."""
    meaning = meaning_of_read_status(reply.status)
    if meaning is Meaning.HAPPENED:
        return None
    found = error_of(meaning, said(reply), retry_after_ms(reply.headers, now))
    assert isinstance(found, ConnectorError), "a read is never uncertain"
    return found


def said(reply: WebReply) -> str:
    """Status and beginning of an answer, for people. It is foreign text: quoted, and bounded."""
    known = {each.value: each.phrase for each in HTTPStatus}
    words = f"{reply.status} {known.get(reply.status, '')}".rstrip()
    if not reply.body or reply.status in _SILENT:
        return words
    # The encoding is unknown, and only a piece is shown.
    text = " ".join(reply.body[: 4 * _EXCERPT_CHARS_MAX].decode(errors="replace").split())
    return f"{words}: {quoted(text, _EXCERPT_CHARS_MAX)[0]}"


def retry_after_ms(headers: Mapping[str, str], now: Millis) -> int | None:
    """The wait that the service asks for, in seconds or as a date; bounded. None: it says nothing that can be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        wait_ms = int(text[:9]) * 1_000
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        wait_ms = int(at.timestamp() * 1_000) - now
    return min(max(wait_ms, 0), RETRY_AFTER_MS_MAX)
