"""Results of handlers, checked. A result that does not fit is a logic error of the script, with its place."""

from datetime import datetime

import msgspec

from keep_actors.policy import Policy
from keep_sandbox.names import hidden_in, shown
from keep_storage.ids import Millis
from keep_storage.limits import MESSAGE_ID_CHARS_MAX, TITLE_CHARS_MAX
from keep_storage.model import Json
from keep_storage.operations import Reserve


class ResultError(ValueError):
    """Why a result cannot be taken. Its text says where and what to do."""


class _Reservation(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    ids: list[str]


class _Ui(msgspec.Struct):
    title: str | None = None


class _PrepareResult(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    reservations: list[_Reservation]
    data: msgspec.Raw = msgspec.Raw(b"null")
    ui: _Ui | None = None
    wake_at: str | None = None


class Prepared(msgspec.Struct, frozen=True):
    """A PrepareResult."""

    text: Json
    """As the script returned it: `mutate` and `next` are given exactly this."""
    reservations: tuple[Reserve, ...]
    title: str
    wake_at: Millis | None


_decode = msgspec.json.Decoder(_PrepareResult).decode


def prepared(text: Json, policy: Policy, now: Millis) -> Prepared:
    """Check the result of `prepare`. Raises `ResultError`."""
    if text == "null":
        raise ResultError("`prepare` returned nothing; return {reservations: [{topic, ids}], data}")
    try:
        result = _decode(text)
    except msgspec.DecodeError as error:
        raise ResultError(f"the result of `prepare` does not fit: {error}") from None
    count = sum(len(each.ids) for each in result.reservations)
    if count > policy.reservations_max:
        raise ResultError(f"`prepare` reserves {count} events; {policy.reservations_max} are the most in one run")
    reservations = tuple(Reserve(each.topic, tuple(each.ids)) for each in result.reservations if each.ids)
    title = (result.ui.title if result.ui else None) or ""
    wake_at = policy.wake_at(_instant(result.wake_at), now) if result.wake_at is not None else None
    return Prepared(text, reservations, shown(title[:TITLE_CHARS_MAX].replace("\0", "")), wake_at)


def state(text: Json, policy: Policy, handler: str) -> Json:
    """The state that a handler returned: any JSON, `null` too. Raises `ResultError`."""
    size = len(text.encode())
    if size > policy.state_bytes_max:
        raise ResultError(
            f"the state that {handler} returned has {size} bytes; {policy.state_bytes_max} are the most. "
            "Keep a cursor in it, not the data."
        )
    return text


def is_message_id(text: str) -> bool:
    """Return True for a text that can name an event or an item."""
    return 1 <= len(text) <= MESSAGE_ID_CHARS_MAX and not hidden_in(text)


def is_title(text: str) -> bool:
    """Return True for a text that a person can read."""
    return bool(text.strip()) and len(text) <= TITLE_CHARS_MAX and "\0" not in text


def _instant(text: str) -> Millis:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ResultError(f"`wakeAt` is {text[:80]!r}; write an ISO 8601 instant, as `Date.toISOString` does") from None
    if found.tzinfo is None:
        raise ResultError(f"`wakeAt` is {text[:80]!r}, without a time zone; end it with Z")
    return int(found.timestamp() * 1000)
