"""What a script asks the host for, answered: the gate first, then the topics, the connectors, the items.

One request at a time, in the order they were made. A request that fails ends the run: the script never learns of it.
"""

from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from keep_actors.connectors import Failed, Method, ReadCall
from keep_actors.run import gate
from keep_actors.run.context import CannotGoOn, RunContext
from keep_actors.run.external_calls import checked_params, counted, permitted, watched
from keep_actors.run.failures import Failure, logic, not_here
from keep_actors.run.gate import Ask, ScriptPhase
from keep_actors.run.items import ItemParams, Items
from keep_actors.run.results import is_message_id, is_title
from keep_sandbox import Request
from keep_sandbox.limits import DEFAULT_LIMITS
from keep_sandbox.names import shown
from keep_sandbox.outcomes import Kind
from keep_storage.ids import Millis
from keep_storage.model import (
    MESSAGE_ID_CHARS_MAX,
    PEEK_DEFAULT,
    PEEK_MAX,
    TITLE_CHARS_MAX,
    Event,
    Json,
)
from keep_storage.operations import Publish

P = TypeVar("P", bound=msgspec.Struct)

_ANSWER_BYTES_MAX: Final = DEFAULT_LIMITS.value_bytes
_CURSOR_MAX: Final = 2**63 - 1


class _PeekOptions(msgspec.Struct, forbid_unknown_fields=True):
    limit: int = PEEK_DEFAULT
    after: int = 0


class _Peek(msgspec.Struct):
    topic: str
    options: _PeekOptions | None = None


class _GetByIds(msgspec.Struct):
    topic: str
    ids: list[str]


class _Event(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    title: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    message_id: str | None = None


class _PublishParams(msgspec.Struct):
    topic: str
    event: _Event


class Requests:
    """Answers the requests of one run. Who gives no `items` gives it no way to change anything outside."""

    def __init__(self, context: RunContext, items: Items | None = None) -> None:
        self._context = context
        self._items = items

    async def answer(self, stage: ScriptPhase, request: Request) -> Json:
        """The answer, as JSON text. Raises `CannotGoOn`."""
        items = self._items
        stage = ScriptPhase.ITEM if items is not None and items.is_open else stage
        self._context.keep_request(request.name, request.params)
        match request.kind:
            case Kind.PEEK:
                self._admit(stage, Ask.PEEK, request.name)
                return await self._peek(self._params(request, _Peek))
            case Kind.GET_BY_IDS:
                self._admit(stage, Ask.GET_BY_IDS, request.name)
                return await self._get_by_ids(self._params(request, _GetByIds))
            case Kind.PUBLISH:
                self._admit(stage, Ask.PUBLISH, request.name)
                return self._publish(self._params(request, _PublishParams), self._published(items))
            case Kind.READ:
                method = self.method(request.name)
                self._admit(stage, Ask.READ_BY_ID if method.by_id else Ask.READ, request.name)
                return await self._read(method, request.params)
            case Kind.MUTATION:
                self._admit(stage, Ask.MUTATION, request.name)
                return await self._there(items, request).mutate(self.method(request.name), request.params)
            case Kind.ITEM_OPEN:
                self._admit(stage, Ask.ITEM, request.name)
                return await self._there(items, request).open(self._params(request, ItemParams))
            case Kind.ITEM_CLOSE:
                return self._there(items, request).close(self._params(request, ItemParams))

    def method(self, full_name: str) -> Method:
        """A connector's method by its name in `ctx`."""
        method = self._context.host.catalog.get(full_name)
        if method is None:
            # Deployed with it: the connector is away, and will be back.
            was_there = full_name in self._context.script.methods
            raise CannotGoOn(not_here([full_name])) if was_there else self._wrong(f"there is no `ctx.{full_name}`")
        return method

    def _there(self, items: Items | None, request: Request) -> Items:
        if items is None:
            raise self._wrong(f"`ctx.{request.name}`: there are no items here")
        return items

    def _admit(self, stage: ScriptPhase, ask: Ask, name: str) -> None:
        if why := gate.refusal(stage, ask, name, self._context.policy):
            raise self._wrong(why)

    def _params(self, request: Request, struct: type[P]) -> P:
        try:
            return msgspec.json.decode(request.params, type=struct)
        except msgspec.DecodeError as error:
            raise self._wrong(f"`ctx.{request.name}`: {error}") from None

    def _wrong(self, message: str) -> CannotGoOn:
        return CannotGoOn(logic(self._context.handler, message))

    # Topics.

    async def _peek(self, params: _Peek) -> Json:
        self._check_subscribed("peek", params.topic)
        options = params.options or _PeekOptions()
        if not (1 <= options.limit <= PEEK_MAX and 0 <= options.after <= _CURSOR_MAX):
            raise self._wrong(f"`ctx.peek`: a limit is 1 to {PEEK_MAX}, and `after` is the cursor of an event")
        events = await self._context.topics.peek(params.topic, limit=options.limit, after=options.after)
        self._context.seen.update((params.topic, event.message_id) for event in events)
        return _as_list(events)

    async def _get_by_ids(self, params: _GetByIds) -> Json:
        self._check_subscribed("getByIds", params.topic)
        if len(params.ids) > PEEK_MAX:
            raise self._wrong(f"`ctx.getByIds`: {len(params.ids)} ids; {PEEK_MAX} are the most at once")
        return _as_list(await self._context.topics.by_ids(params.topic, params.ids))

    def _check_subscribed(self, name: str, topic: str) -> None:
        subscribed = self._context.script.declaration.consumers[self._context.handler].subscribe
        if topic not in subscribed:
            raise self._wrong(f"`ctx.{name}`: not subscribed to {topic!r}; it subscribes to {_shown(subscribed)}")

    def _published(self, items: Items | None) -> list[Publish]:
        """Where an event waits: for the end of the item that is open, or of the run."""
        return items.publishes if items is not None and items.is_open else self._context.publishes

    def _publish(self, params: _PublishParams, published: list[Publish]) -> Json:
        context, event = self._context, params.event
        self._check_publishes(params.topic)
        context.published += 1
        if context.published > context.policy.publishes_max:
            raise self._wrong(f"`ctx.publish`: more than {context.policy.publishes_max} events in one run")
        if not is_title(event.title):
            raise self._wrong(
                f"`ctx.publish`: the event needs a title of 1 to {TITLE_CHARS_MAX} characters that a person can read"
            )
        if event.message_id is not None and not is_message_id(event.message_id):
            raise self._wrong(f"`ctx.publish`: a messageId has 1 to {MESSAGE_ID_CHARS_MAX} characters that can be seen")
        payload = bytes(event.payload)
        if len(payload) > context.policy.payload_bytes_max:
            raise self._wrong(
                f"`ctx.publish`: the payload of {event.title!r} has {len(payload)} bytes; "
                f"{context.policy.payload_bytes_max} are the most. Publish an id, and read the rest later."
            )
        event_id = context.host.ids.new("evt")
        message_id = event.message_id or event_id
        published.append(Publish(event_id, params.topic, message_id, shown(event.title), payload.decode()))
        return msgspec.json.encode(message_id).decode()

    def _check_publishes(self, topic: str) -> None:
        declaration, handler = self._context.script.declaration, self._context.handler
        declared = declaration.consumers.get(handler) or declaration.producers.get(handler) or declaration.jobs[handler]
        allowed = declaration.topics if declared.publishes is None else declared.publishes
        if topic not in allowed:
            raise self._wrong(f"`ctx.publish`: may not publish to {topic!r}; it may to {_shown(allowed)}")

    # Connectors.

    async def _read(self, method: Method, text: Json) -> Json:
        context = self._context
        permitted(context, method)
        params = checked_params(context, method, text)
        counted(context, method)
        # Nothing outside is asked on behalf of a run that is not in the file.
        await context.record.save()
        call = ReadCall(workflow_id=context.workflow.id, run_id=context.run_id)
        timeout_ms = context.policy.timeout_ms(method.full_name, method.timeout_ms, is_mutation=False)
        with context.host.turnstile.outside():
            outcome = await watched(context.host, method, context.workflow.id, method.read(params, call, timeout_ms))
        context.cost_micros += call.cost_micros
        if isinstance(outcome, Failed):
            message = f"{context.handler}: {method.full_name}: {outcome.message}"
            raise CannotGoOn(Failure(outcome.cls, message, retry_after_ms=outcome.retry_after_ms))
        return outcome.json_text


def _as_list(events: list[Event]) -> Json:
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


def _iso(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(topics: list[str]) -> str:
    return ", ".join(repr(topic) for topic in topics[:10]) or "none"
