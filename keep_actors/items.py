"""The items of a job: opened and closed one after the other, each mutation inside one made once.

The only way by which a script that is still running can change something outside.
"""

import hashlib
from typing import Final

import msgspec

from keep_actors.connectors import Method
from keep_actors.context import CannotGoOn, RunContext
from keep_actors.failures import Failure, logic
from keep_actors.outside import call_in_run, checked_params, permitted, recorded
from keep_actors.results import is_message_id, is_title
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
from keep_storage.operations import CloseItem, ItemScope, OpenItem
from keep_storage.transitions import ITEM_FINISHED

_NOTHING: Final = "null"


class ItemParams(msgspec.Struct):
    """What `ctx.withItem` says."""

    id: str
    title: str = ""


class _Subkey(msgspec.Struct):
    subkey: str | None = None


class Items:
    """The items of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._item: Item | None = None

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
                f"`ctx.withItem`: an item needs an id of 1 to {MESSAGE_ID_CHARS_MAX} characters, without NUL, and a "
                f"title of 1 to {TITLE_CHARS_MAX} characters that a person can read",
            )
        [item] = await context.record.save(OpenItem(context.run_id, params.id, params.title))
        self._item = item
        return '{"isDone":true}' if item.state in ITEM_FINISHED else '{"isDone":false}'

    def close(self, params: ItemParams) -> Json:
        """The function of the item has returned: it is done."""
        if self._item is None or self._item.item_id != params.id:
            # No script can say this: the prelude closes the scope it opened. A worker that was taken over can.
            words = f"{self._context.handler}: its worker closed an item that was not open"
            raise CannotGoOn(Failure(FailureClass.INTERNAL, words))
        self._item = None
        # One that was done or skipped before stays what it was.
        self._context.record.note(CloseItem(self._context.run_id, params.id, ItemState.DONE))
        return _NOTHING

    async def mutate(self, method: Method, text: Json) -> Json:
        """The result: of the call that is made, or of the one that was."""
        context, item = self._context, self._item
        assert item is not None, "the gate lets a job mutate only inside an item"
        subkey, text = _without_subkey(text)
        permitted(context, method)
        params = checked_params(context, method, text)
        identity = _identity(item, method, method.identity_of(params), subkey)
        try:
            known = await recorded(context, method, text, identity, ItemScope(item.item_id, identity))
        except Rejected as error:
            if error.reason is Reason.ITEM_IS_DONE:
                raise _wrong(self._context, str(error)) from None
            raise
        if known.status is MutationStatus.APPLIED:
            return self._replayed(method, item, known.params, text, known.result)
        applied = await call_in_run(context, method, params, known)
        await context.record.save(applied)
        return applied.result

    def _replayed(self, method: Method, item: Item, old: Json, new: Json, result: Json | None) -> Json:
        """It happened in an earlier run: the stored result, unless the script now wants something else."""
        assert result is not None, "an applied mutation has a result"
        if method.compare_payload(old, new) != "significant":
            return result
        message = (
            f"{self._context.handler}: item {item.item_id!r}: {method.full_name} has already been done with other "
            "content, and is not done again. Look at both, then skip or reprocess the item."
        )
        attention = CloseItem(self._context.run_id, item.item_id, ItemState.NEEDS_ATTENTION, error=message)
        raise CannotGoOn(Failure(FailureClass.PRECONDITION, message), attention)


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
    except msgspec.ValidationError:
        # Not what a subkey looks like: the check of the parameters says it better.
        return "", text
    if subkey is None:
        return "", text
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    del fields["subkey"]
    return subkey, msgspec.json.encode(fields).decode()
