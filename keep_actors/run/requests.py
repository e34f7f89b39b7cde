"""Requests of a script, decoded and checked: what it asks for, or the failure that the request is. Pure.

The gate comes first, whatever the script was offered. A request that fails ends the run: the script never learns of it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypeVar

import msgspec

from keep_actors.connectors import Method
from keep_actors.run import gate
from keep_actors.run.effects import GetEvents, PeekEvents
from keep_actors.run.failures import Failure, logic, not_here
from keep_actors.run.gate import Ask, ScriptPhase
from keep_actors.run.results import is_message_id, is_title
from keep_actors.run.state import RunFacts
from keep_sandbox import Request
from keep_sandbox.limits import DEFAULT_LIMITS
from keep_sandbox.names import shown
from keep_sandbox.outcomes import Kind
from keep_storage.ids import Millis
from keep_storage.limits import MESSAGE_ID_CHARS_MAX, PEEK_DEFAULT, PEEK_MAX, TITLE_CHARS_MAX
from keep_storage.model import Event, Json

P = TypeVar("P", bound=msgspec.Struct)

_ANSWER_BYTES_MAX: Final = DEFAULT_LIMITS.value_bytes
_CURSOR_MAX: Final = 2**63 - 1


class _PeekOptions(msgspec.Struct, forbid_unknown_fields=True):
    limit: int = PEEK_DEFAULT
    after: int = 0


class _PeekParams(msgspec.Struct):
    topic: str
    options: _PeekOptions | None = None


class _GetParams(msgspec.Struct):
    topic: str
    ids: list[str]


class _EventParams(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    title: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    message_id: str | None = None


class _PublishParams(msgspec.Struct):
    topic: str
    event: _EventParams


class _ItemParams(msgspec.Struct):
    id: str
    title: str = ""


class PublishEvent(msgspec.Struct, frozen=True):
    """Publish this, without a message id under the event's own."""

    topic: str
    message_id: str | None
    title: str
    payload: Json


class ReadOutside(msgspec.Struct, frozen=True):
    """Call a method that only reads."""

    method: Method
    text: Json


class MutateInItem(msgspec.Struct, frozen=True):
    """Call a method that changes something, inside the open item."""

    method: Method
    text: Json


class EnterItem(msgspec.Struct, frozen=True):
    """Open an item."""

    item_id: str
    title: str


class LeaveItem(msgspec.Struct, frozen=True):
    """Close the open item: its function has returned."""

    item_id: str


Asking: TypeAlias = PeekEvents | GetEvents | PublishEvent | ReadOutside | MutateInItem | EnterItem | LeaveItem


def asking(facts: RunFacts, phase: ScriptPhase, request: Request) -> Asking | Failure:
    """Decode a request, if it is allowed here."""
    match request.kind:
        case Kind.PEEK:
            return _refused(facts, phase, Ask.PEEK, request) or _peek(facts, request)
        case Kind.GET_BY_IDS:
            return _refused(facts, phase, Ask.GET_BY_IDS, request) or _get(facts, request)
        case Kind.PUBLISH:
            return _refused(facts, phase, Ask.PUBLISH, request) or _publish(facts, request)
        case Kind.READ:
            method = method_of(facts, request.name)
            if isinstance(method, Failure):
                return method
            ask = Ask.READ_BY_ID if method.by_id else Ask.READ
            return _refused(facts, phase, ask, request) or ReadOutside(method, request.params)
        case Kind.MUTATION:
            method = method_of(facts, request.name)
            if (refused := _refused(facts, phase, Ask.MUTATION, request)) is not None:
                return refused
            return method if isinstance(method, Failure) else MutateInItem(method, request.params)
        case Kind.ITEM_OPEN:
            return _refused(facts, phase, Ask.ITEM, request) or _enter(facts, request)
        case Kind.ITEM_CLOSE:
            params = _decoded(facts, request, _ItemParams)
            return params if isinstance(params, Failure) else LeaveItem(params.id)


def method_of(facts: RunFacts, full_name: str) -> Method | Failure:
    """Find a connector's method by its name in `ctx`."""
    if (method := facts.catalog.get(full_name)) is not None:
        return method
    # Deployed with it: the connector is away, and will be back.
    if full_name in facts.script.methods:
        return not_here([full_name])
    return logic(facts.handler, f"there is no `ctx.{full_name}`")


def events_text(events: Iterable[Event]) -> Json:
    """Events as a script sees them; as many as fit into one answer, since `after` can fetch the rest."""
    texts: list[str] = []
    size = 2
    for event in events:
        seen = {
            "messageId": event.message_id,
            "title": event.title,
            "status": event.status,
            "createdAt": _iso(event.created_at),
        }
        head = msgspec.json.encode(seen).decode()
        text = f'{head[:-1]},"cursor":{event.seq},"payload":{event.payload}}}'
        size += len(text.encode()) + 1
        if size > _ANSWER_BYTES_MAX and texts:
            break
        texts.append(text)
    return f"[{','.join(texts)}]"


def _refused(facts: RunFacts, phase: ScriptPhase, ask: Ask, request: Request) -> Failure | None:
    why = gate.refusal(phase, ask, request.name, facts.policy)
    return logic(facts.handler, why) if why else None


def _decoded(facts: RunFacts, request: Request, struct: type[P]) -> P | Failure:
    try:
        return msgspec.json.decode(request.params, type=struct)
    except msgspec.DecodeError as error:
        return logic(facts.handler, f"`ctx.{request.name}`: {error}")


def _peek(facts: RunFacts, request: Request) -> PeekEvents | Failure:
    params = _decoded(facts, request, _PeekParams)
    if isinstance(params, Failure):
        return params
    if (refused := _not_subscribed(facts, "peek", params.topic)) is not None:
        return refused
    options = params.options or _PeekOptions()
    if not (1 <= options.limit <= PEEK_MAX and 0 <= options.after <= _CURSOR_MAX):
        words = f"`ctx.peek`: a limit is 1 to {PEEK_MAX}, and `after` is the cursor of an event"
        return logic(facts.handler, words)
    return PeekEvents(params.topic, options.limit, options.after)


def _get(facts: RunFacts, request: Request) -> GetEvents | Failure:
    params = _decoded(facts, request, _GetParams)
    if isinstance(params, Failure):
        return params
    if (refused := _not_subscribed(facts, "getByIds", params.topic)) is not None:
        return refused
    if len(params.ids) > PEEK_MAX:
        return logic(facts.handler, f"`ctx.getByIds`: {len(params.ids)} ids; {PEEK_MAX} are the most at once")
    return GetEvents(params.topic, tuple(dict.fromkeys(params.ids)))


def _publish(facts: RunFacts, request: Request) -> PublishEvent | Failure:
    params = _decoded(facts, request, _PublishParams)
    if isinstance(params, Failure):
        return params
    declaration, event = facts.script.declaration, params.event
    groups = (declaration.consumers, declaration.producers, declaration.jobs)
    declared = next(group[facts.handler] for group in groups if facts.handler in group)
    allowed = declaration.topics if declared.publishes is None else declared.publishes
    payload = bytes(event.payload)
    problem = ""
    if params.topic not in allowed:
        problem = f"may not publish to {params.topic!r}; it may to {_listed(allowed)}"
    elif not is_title(event.title):
        problem = f"the event needs a title of 1 to {TITLE_CHARS_MAX} characters that a person can read"
    elif event.message_id is not None and not is_message_id(event.message_id):
        problem = f"a messageId has 1 to {MESSAGE_ID_CHARS_MAX} characters that can be seen"
    elif len(payload) > facts.policy.payload_bytes_max:
        problem = (
            f"the payload of {event.title!r} has {len(payload)} bytes; {facts.policy.payload_bytes_max} are the most. "
            "Publish an id, and read the rest later."
        )
    if problem:
        return logic(facts.handler, f"`ctx.publish`: {problem}")
    return PublishEvent(params.topic, event.message_id, shown(event.title), payload.decode())


def _enter(facts: RunFacts, request: Request) -> EnterItem | Failure:
    params = _decoded(facts, request, _ItemParams)
    if isinstance(params, Failure):
        return params
    if not (is_message_id(params.id) and is_title(params.title)):
        words = (
            f"`ctx.withItem`: an item needs an id of 1 to {MESSAGE_ID_CHARS_MAX} characters that can be seen and a "
            f"title of 1 to {TITLE_CHARS_MAX} characters that a person can read"
        )
        return logic(facts.handler, words)
    return EnterItem(params.id, shown(params.title))


def _not_subscribed(facts: RunFacts, name: str, topic: str) -> Failure | None:
    subscribed = facts.consumer.subscribe
    if topic in subscribed:
        return None
    words = f"`ctx.{name}`: not subscribed to {topic!r}; it subscribes to {_listed(subscribed)}"
    return logic(facts.handler, words)


def _iso(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _listed(topics: list[str]) -> str:
    return ", ".join(repr(topic) for topic in topics[:10]) or "none"
