"""The items of a job: opened and closed one after the other, each mutation inside one made once.

The only way by which a script that is still running can change something outside.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from keep_actors.connectors import Method, Params
from keep_actors.run.context import CannotGoOn, RunContext
from keep_actors.run.earlier_calls import Earlier, EarlierCalls
from keep_actors.run.external_calls import call_in_run, checked_params, permitted, recorded
from keep_actors.run.failures import Failure, logic
from keep_actors.run.results import is_message_id, is_title
from keep_sandbox.names import shown
from keep_storage.errors import Reason, Rejected
from keep_storage.model import (
    MESSAGE_ID_CHARS_MAX,
    TITLE_CHARS_MAX,
    FailureClass,
    Item,
    ItemState,
    Json,
    MutationStatus,
)
from keep_storage.operations import CloseItem, ItemScope, OpenItem, Publish
from keep_storage.transitions import ITEM_FINISHED

ReadEarlier = Callable[[Item], Awaitable[list[Earlier]]]

_NOTHING: Final = "null"
ITEM_LEFT_OPEN: Final = "the handler returned while an item was not finished: `await` every `ctx.withItem`"


class ItemParams(msgspec.Struct):
    """What `ctx.withItem` says."""

    id: str
    title: str = ""


class _Subkey(msgspec.Struct):
    subkey: str | None = None


class Items:
    """The items of one run."""

    def __init__(self, context: RunContext, earlier_calls: ReadEarlier) -> None:
        self._context = context
        self._read_earlier = earlier_calls
        self._earlier = EarlierCalls()
        self._item: Item | None = None
        self.publishes: list[Publish] = []
        """What was published inside the item that is open: there when it is closed."""

    @property
    def is_open(self) -> bool:
        """Whether the script is inside one."""
        return self._item is not None

    async def open(self, params: ItemParams) -> Json:
        """Whether it was done before."""
        context = self._context
        if not (is_message_id(params.id) and is_title(params.title)):
            raise _wrong(
                self._context,
                f"`ctx.withItem`: an item needs an id of 1 to {MESSAGE_ID_CHARS_MAX} characters that can be seen and a "
                f"title of 1 to {TITLE_CHARS_MAX} characters that a person can read",
            )
        [item] = await context.record.save(OpenItem(context.run_id, params.id, shown(params.title)))
        self._item = item
        if item.state in ITEM_FINISHED:
            return '{"isDone":true}'
        self._earlier = EarlierCalls(await self._read_earlier(item))
        return '{"isDone":false}'

    def close(self, params: ItemParams) -> Json:
        """The function of the item has returned: it is done."""
        if self._item is None or self._item.item_id != params.id:
            # No script can say this: the prelude closes the scope it opened. A worker that was taken over can.
            words = f"{self._context.handler}: its worker closed an item that was not open"
            raise CannotGoOn(Failure(FailureClass.INTERNAL, words))
        self._item = None
        published, self.publishes = tuple(self.publishes), []
        # One that was done or skipped before stays what it was.
        self._context.record.note(CloseItem(self._context.run_id, params.id, ItemState.DONE, publishes=published))
        return _NOTHING

    async def mutate(self, method: Method, text: Json) -> Json:
        """The result: of the call that is made, or of the one that was."""
        context, item = self._context, self._item
        assert item is not None, "the gate lets a job mutate only inside an item"
        subkey, text = _without_subkey(text)
        if subkey and not is_message_id(subkey):
            words = f"a `subkey` has 1 to {MESSAGE_ID_CHARS_MAX} characters that can be seen"
            raise _wrong(context, f"`ctx.{method.full_name}`: {words}")
        permitted(context, method)
        params = checked_params(context, method, text)
        identity = self._identity(item, method, params, text, subkey)
        scope = ItemScope(item.item_id, identity, subkey, is_method_alone=not method.identity)
        try:
            known = await recorded(context, method, text, identity, scope)
        except Rejected as error:
            if error.reason is Reason.ITEM_IS_DONE:
                raise _wrong(self._context, str(error)) from None
            raise
        self._earlier.came_to(known.id)
        if known.status is MutationStatus.APPLIED:
            return self._replayed(method, item, known.params, text, known.result)
        applied = await call_in_run(context, method, params, known)
        await context.record.save(applied)
        return applied.result

    def _identity(self, item: Item, method: Method, params: Params, text: Json, subkey: str) -> str:
        """The key of the line that is about this call: of an earlier one, if it was recorded under another key."""
        key = _identity(item, method, method.identity_of(params), subkey)
        if (same := self._earlier.same(method, params, text, key, subkey)) is not None:
            return same.identity_key
        other = self._earlier.with_other_subkey(method, text, key, subkey, self._context.script.version_id)
        if other is None:
            return key
        was = f"with the `subkey` {other.subkey!r}" if other.subkey else "without a `subkey`"
        raise self._in_need(
            item,
            f"{method.full_name} has already been done with this content by another version of the script, {was}, and "
            "is not done again. Call it as that version did, and give a `subkey` only to calls that are new; or skip "
            "or reprocess the item.",
        )

    def _replayed(self, method: Method, item: Item, old: Json, new: Json, result: Json | None) -> Json:
        """It happened in an earlier run: the stored result, unless the script now wants something else."""
        assert result is not None, "an applied mutation has a result"
        if method.compare_payload(old, new) != "significant":
            return result
        declares = "" if method.identity else ", or have the connector declare `identity`"
        raise self._in_need(
            item,
            f"{method.full_name} has already been done with other content, and is not done again. Look at both, then "
            "skip or reprocess the item. If it is a second call, and not the first in other words, give it a "
            f"`subkey`{declares}.",
        )

    def _in_need(self, item: Item, words: str) -> CannotGoOn:
        """Only a person can say how the item goes on."""
        message = f"{self._context.handler}: item {item.item_id!r}: {words}"
        attention = CloseItem(self._context.run_id, item.item_id, ItemState.NEEDS_ATTENTION, error=message)
        return CannotGoOn(Failure(FailureClass.PRECONDITION, message), attention)


def _wrong(context: RunContext, message: str) -> CannotGoOn:
    return CannotGoOn(logic(context.handler, message))


def _identity(item: Item, method: Method, params: Json, subkey: str) -> str:
    """What makes two calls the same one: chapter 14's hash."""
    parts = [item.workflow_id, item.item_id, str(item.attempt), method.full_name, params, subkey]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _without_subkey(text: Json) -> tuple[str, Json]:
    """A mutation inside an item may say which of two equal calls it is; that is for the host, not the connector."""
    try:
        subkey = msgspec.json.decode(text, type=_Subkey).subkey
    except msgspec.DecodeError:
        # Not what a subkey looks like: the check of the parameters says it better.
        return "", text
    if subkey is None:
        return "", text
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    del fields["subkey"]
    return subkey, msgspec.json.encode(fields).decode()
