"""Calls inside the items of a job, decided: which recorded call a call is, and whether it may be repeated. Pure."""

import hashlib
from typing import Final

import msgspec

from keep_actors.connectors import Method
from keep_actors.run.failures import Failure, logic
from keep_actors.run.results import is_message_id
from keep_actors.run.state import CheckedCall, ItemInHand, RunFacts
from keep_storage.limits import MESSAGE_ID_CHARS_MAX
from keep_storage.model import FailureClass, Item, ItemState, Json, Mutation
from keep_storage.operations import CloseItem, ItemScope

ITEM_LEFT_OPEN: Final = "the handler returned while an item was not finished: `await` every `ctx.withItem`"


class _Subkey(msgspec.Struct):
    subkey: str | None = None


class NeedsPerson(msgspec.Struct, frozen=True):
    """A person has to decide how the item continues."""

    failure: Failure
    write: CloseItem


def without_subkey(facts: RunFacts, method: Method, text: Json) -> tuple[str, Json] | Failure:
    """Take the subkey out of the parameters: it tells two equal calls apart, for the host and not for the connector."""
    try:
        subkey = msgspec.json.decode(text, type=_Subkey).subkey
    except msgspec.DecodeError:
        # Not what a subkey looks like: the check of the parameters says it better.
        return "", text
    if subkey is None:
        return "", text
    if subkey and not is_message_id(subkey):
        words = f"a `subkey` has 1 to {MESSAGE_ID_CHARS_MAX} characters that can be seen"
        return logic(facts.handler, f"`ctx.{method.full_name}`: {words}")
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    del fields["subkey"]
    return subkey, msgspec.json.encode(fields).decode()


def scope_of(facts: RunFacts, hand: ItemInHand, call: CheckedCall, subkey: str) -> ItemScope | NeedsPerson:
    """The place of a call in its item: of an earlier call that it repeats, if it was recorded under another key."""
    method, item = call.method, hand.item
    key = _identity(item, method, method.identity_of(call.params), subkey)
    if (same := hand.earlier.same(method, call.params, call.text, key, subkey)) is not None:
        key = same.identity_key
    elif other := hand.earlier.with_other_subkey(method, call.text, key, subkey, facts.script.version_id):
        was = f"with the `subkey` {other.subkey!r}" if other.subkey else "without a `subkey`"
        words = (
            f"{method.full_name} has already been done with this content by another version of the script, {was}, and "
            "is not done again. Call it as that version did, and give a `subkey` only to calls that are new; or skip "
            "or reprocess the item."
        )
        return _needs_person(facts, item, words)
    return ItemScope(item.item_id, key, subkey, is_method_alone=not method.identity)


def replayed(facts: RunFacts, item: Item, call: CheckedCall, known: Mutation) -> Json | NeedsPerson:
    """The stored result of a call that happened in an earlier run, unless the script now wants something else."""
    assert known.result is not None, "an applied mutation has a result"
    method = call.method
    if method.compare_payload(known.params, call.text) != "significant":
        return known.result
    declares = "" if method.identity else ", or have the connector declare `identity`"
    words = (
        f"{method.full_name} has already been done with other content, and is not done again. Look at both, then "
        "skip or reprocess the item. If it is a second call, and not the first in other words, give it a "
        f"`subkey`{declares}."
    )
    return _needs_person(facts, item, words)


def _needs_person(facts: RunFacts, item: Item, words: str) -> NeedsPerson:
    message = f"{facts.handler}: item {item.item_id!r}: {words}"
    write = CloseItem(facts.run_id, item.item_id, ItemState.NEEDS_ATTENTION, error=message)
    return NeedsPerson(Failure(FailureClass.PRECONDITION, message), write)


def _identity(item: Item, method: Method, params: Json, subkey: str) -> str:
    """Chapter 14's hash: two calls with the same one are the same call."""
    parts = [item.workflow_id, item.item_id, str(item.attempt), method.full_name, params, subkey]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
