"""The calls that earlier runs recorded in an item, and which of them a call of this run repeats. Pure.

A call is found by its identity. When the connector or the script has changed what that is, the ledger still has the
call: it is found here, or a person is asked. It is never made a second time unseen.
"""

import msgspec

from keep_actors.connectors import Method, Params, ParamsError
from keep_storage import item_reads, reads
from keep_storage.model import Item, Json, Mutation
from keep_storage.transaction import Queries


class Earlier(msgspec.Struct, frozen=True):
    """A recorded call, and the version of the script whose run recorded it last."""

    mutation: Mutation
    version_id: str


def read(q: Queries, item: Item) -> list[Earlier]:
    """The calls of one attempt at an item, oldest first."""
    found = item_reads.calls_of_item(q, item.workflow_id, item.item_id)
    return [Earlier(each, _version(q, each)) for each in found if each.item_attempt == item.attempt]


def _version(q: Queries, mutation: Mutation) -> str:
    run = reads.run(q, mutation.run_id)
    assert run is not None, "a mutation has its run"
    return run.version_id


class EarlierCalls(msgspec.Struct, frozen=True):
    """The earlier calls of the item that a run is in. A call that this run has repeated stands for no other."""

    calls: tuple[Earlier, ...] = ()
    repeated: frozenset[str] = frozenset()
    """Mutations that this run has asked for."""

    def with_repeated(self, mutation_id: str) -> "EarlierCalls":
        """The same, with one more call accounted for."""
        return msgspec.structs.replace(self, repeated=self.repeated | {mutation_id})

    def same(self, method: Method, params: Params, text: Json, key: str, subkey: str) -> Mutation | None:
        """The recorded call that this one repeats although its identity was another one: the connector declares its
        target differently now, or an earlier version took the words for it. The same words come first."""
        of_method = [each.mutation for each in self._of(method)]
        if any(each.identity_key == key for each in of_method):
            return None
        wanted = method.identity_of(params)
        candidates = [each for each in of_method if each.subkey in (None, subkey)]
        # Without an identity the method alone says what a call is about.
        found = [each for each in candidates if not method.identity or _target(method, each) == wanted]
        return min(found, key=lambda each: each.params != text, default=None)

    def with_other_subkey(self, method: Method, text: Json, key: str, subkey: str, version_id: str) -> Mutation | None:
        """The recorded call that this one may repeat: another version of the script made it, in the same words, without
        the subkey that it has now, or with one that it no longer has. Naming a first call must not repeat it."""
        if any(each.mutation.identity_key == key for each in self._of(method)):
            return None
        for each in self._of(method):
            was = each.mutation.subkey
            is_renamed = was is not None and was != subkey and "" in (was, subkey)
            is_open = each.version_id != version_id and each.mutation.id not in self.repeated
            if is_renamed and is_open and method.compare_payload(each.mutation.params, text) != "significant":
                return each.mutation
        return None

    def _of(self, method: Method) -> list[Earlier]:
        called = (method.connector, method.name)
        return [each for each in self.calls if (each.mutation.connector, each.mutation.method) == called]


def _target(method: Method, mutation: Mutation) -> Json | None:
    """The target of a call, as its connector says now; None if it can no longer read it."""
    try:
        return method.identity_of(method.decode_params(mutation.params))
    except ParamsError:
        return None
