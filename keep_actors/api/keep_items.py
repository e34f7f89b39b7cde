"""Actions on the items of jobs, one or many at a time. Part of `Keep`.

Many are one transaction: all of them or none.
"""

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from keep_actors.api.commands import WorkflowChange
from keep_actors.api.item_views import ITEMS_AT_ONCE_MAX, REPROCESSABLE, SKIPPABLE
from keep_actors.api.keep_reads import KeepReads
from keep_actors.host.host import Host
from keep_actors.kernel import Directory
from keep_actors.kernel.signal import Signal
from keep_actors.workflow.messages import Do, Message
from keep_storage import item_reads
from keep_storage.model import Item, ItemState
from keep_storage.operations import ReprocessItem, SkipItem, Together
from keep_storage.transaction import Queries

T = TypeVar("T")

_Change = type[SkipItem] | type[ReprocessItem]

_MAY_BE: Final[Mapping[_Change, frozenset[ItemState]]] = {SkipItem: SKIPPABLE, ReprocessItem: REPROCESSABLE}
_WORDS: Final[Mapping[_Change, str]] = {SkipItem: "skip", ReprocessItem: "reprocess"}


class KeepItems(KeepReads):
    """Actions on items."""

    def __init__(self, host: Host, directory: Directory[Message], committed: Signal) -> None:
        super().__init__(host, committed)
        self._directory = directory

    async def skip_item(self, workflow: str, item_id: str, *, by: str = "", why: str = "") -> Item:
        """Skip a logical item of a job: like one that is done, it makes no further calls.

        ```python
        await keep.skip_item("digest", "customer-7", by="alice")
        ```
        """
        [item] = await self._change_items(SkipItem, workflow, [item_id], None, by, why)
        return item

    async def reprocess_item(self, workflow: str, item_id: str, *, by: str = "", why: str = "") -> Item:
        """Have a logical item processed again: the next attempt shares nothing with those before.

        ```python
        await keep.reprocess_item("digest", "customer-7", by="alice", why="the address was wrong")
        ```
        """
        [item] = await self._change_items(ReprocessItem, workflow, [item_id], None, by, why)
        return item

    async def skip_items(
        self,
        workflow: str,
        item_ids: Collection[str] | None = None,
        *,
        state: ItemState | str | None = None,
        by: str,
        why: str = "",
    ) -> list[Item]:
        """Skip many items at once: these, or all that are `failed`, `needs_attention` or `processing`.

        All of them or none: the first that cannot be skipped is named by `Rejected`, and nothing changed. With both,
        the items are refused unless each of them is still in that state. More than 1,000 are a `ValueError`.

        ```python
        await keep.skip_items("digest", ["customer-7", "customer-9"], by="alice", why="have left")
        await keep.skip_items("digest", state="failed", by="alice")
        ```
        """
        return await self._change_items(SkipItem, workflow, item_ids, state, by, why)

    async def reprocess_items(
        self,
        workflow: str,
        item_ids: Collection[str] | None = None,
        *,
        state: ItemState | str | None = None,
        by: str,
        why: str = "",
    ) -> list[Item]:
        """Have many items processed again: these, or all that are `done`, `failed`, `skipped` or `needs_attention`.

        Everything in them is done again, also what was done before. All of them or none: the first that cannot be
        reprocessed is named by `Rejected`, and nothing changed. With both, the items are refused unless each of them
        is still in that state. More than 1,000 are a `ValueError`.

        ```python
        await keep.reprocess_items("digest", state="failed", by="alice", why="the template was wrong")
        await keep.run_now("digest")
        ```
        """
        return await self._change_items(ReprocessItem, workflow, item_ids, state, by, why)

    async def _change_items(
        self,
        change: _Change,
        workflow: str,
        item_ids: Collection[str] | None,
        state: ItemState | str | None,
        by: str,
        why: str,
    ) -> list[Item]:
        if isinstance(item_ids, str):
            raise TypeError(f"item_ids is a list of ids, not the text {item_ids!r}")
        seen = _wanted_state(change, state)
        if item_ids is None and seen is None:
            raise ValueError(f"which items? Name them, or the state of those to {_WORDS[change]}")
        found = await self._find(workflow)
        if item_ids is None:
            assert seen is not None, "one of both is there"
            item_ids = await self._host.reading.read(lambda q: _ids_in_state(q, found.id, seen))
        if len(item_ids) > ITEMS_AT_ONCE_MAX:
            raise ValueError(f"more than {ITEMS_AT_ONCE_MAX:,} items at once; name a part of them at a time")
        # Who names one twice means it once.
        changes = tuple(change(found.id, each, by, why, seen) for each in dict.fromkeys(item_ids))
        return list(await self._directory.ask(found.id, Do(Together(changes)))) if changes else []

    async def _change(self, command: WorkflowChange[T]) -> T:
        """Write a change of one workflow."""
        found = await self._find(command.workflow)
        operation = replace(command, workflow=found.id).operation(self._host.time.now())
        return await self._directory.ask(found.id, Do(operation))


def _wanted_state(change: _Change, state: ItemState | str | None) -> ItemState | None:
    """The state that items are to be in, if one is named. Raises `ValueError` if the change is not for it."""
    if state is None or state in _MAY_BE[change]:
        return None if state is None else ItemState(state)
    may_be = ", ".join(each for each in ItemState if each in _MAY_BE[change])
    raise ValueError(f"{_WORDS[change]} items that are {may_be}; not {state!r}")


def _ids_in_state(q: Queries, workflow_id: str, state: ItemState) -> list[str]:
    """The items in a state, by id: one more than can be changed at once, if there are more."""
    found = item_reads.items(q, workflow_id, state=state, limit=ITEMS_AT_ONCE_MAX + 1)
    return [each.item_id for each in found]
