"""Items of jobs for people: the state of each, the calls of every attempt, and what can be done. Reads only."""

from collections.abc import Mapping
from typing import Final

import msgspec

from keep_actors.api.views import Output, calls
from keep_storage import item_reads, reads
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.model import Item, ItemState, Mutation
from keep_storage.transaction import Queries


class ItemView(msgspec.Struct, frozen=True):
    """An item of a job, as its current attempt has it."""

    item_id: str
    """The script's id for it: `after` of the next page."""
    title: str
    """The script's own words."""
    state: ItemState
    attempt: int
    """1, and one more each time that a person asked for it to be processed again."""
    is_open: bool
    """A run is inside of it now."""
    run_id: str
    """The last run that entered it."""
    error: str
    at: Millis
    """The time of its last change."""


class ItemAttempt(msgspec.Struct, frozen=True):
    """One attempt at an item, and what it did outside."""

    attempt: int
    title: str
    """The script's own words."""
    state: ItemState
    error: str
    began_at: Millis
    at: Millis
    """The time of its last change."""
    runs: list[str]
    """The runs that entered it before it was finished, oldest first. Of a very old one the first may be missing."""
    calls: list[Output]
    """Its calls that change something outside, oldest first."""


class ItemHistory(msgspec.Struct, frozen=True):
    """An item with every attempt at it, oldest first."""

    workflow_id: str
    item: ItemView
    attempts: list[ItemAttempt]
    can_do: str
    """The actions that a person has."""


ITEMS_AT_ONCE_MAX: Final = 1_000
"""The most that can be skipped or reprocessed at once: all workflows wait for the one transaction that does it."""

SKIPPABLE: Final = frozenset({ItemState.FAILED, ItemState.NEEDS_ATTENTION, ItemState.PROCESSING})
"""All items in one of these states can be asked to be skipped."""
REPROCESSABLE: Final = frozenset({ItemState.DONE, ItemState.FAILED, ItemState.SKIPPED, ItemState.NEEDS_ATTENTION})
"""The same, for reprocessing."""

CAN_DO: Final[Mapping[ItemState, str]] = {
    ItemState.PROCESSING: "Nothing: the next run of the job works on it. Or skip it.",
    ItemState.DONE: "Nothing: it is done. Reprocess it to have everything in it done a second time.",
    ItemState.FAILED: "Nothing: the next run of the job tries it again. Or skip it.",
    ItemState.SKIPPED: "Nothing: it was skipped. Reprocess it to have it done after all.",
    ItemState.NEEDS_ATTENTION: "Look at its calls; then skip or reprocess it, and clear the error of the workflow.",
}
"""The actions of a person on an item in this state."""

assert set(CAN_DO) == set(ItemState), "every state says what can be done"


def items(q: Queries, workflow_id: str, state: ItemState | None, limit: int, after: str | None) -> list[ItemView]:
    """The items of a workflow, by id."""
    return [_view(each) for each in item_reads.items(q, workflow_id, state=state, limit=limit, after=after or "")]


def history(q: Queries, workflow_id: str, item_id: str) -> ItemHistory:
    """All there is to know about an item. Raises `Rejected`."""
    found = reads.item_attempts(q, workflow_id, item_id)
    if not found:
        raise Rejected(Reason.ITEM_NOT_FOUND, f"Workflow {workflow_id!r} has no item {item_id!r}.")
    made = item_reads.calls_of_item(q, workflow_id, item_id)
    attempts = [_attempt(q, each, made) for each in found]
    return ItemHistory(workflow_id, _view(found[-1]), attempts, CAN_DO[found[-1].state])


def _view(item: Item) -> ItemView:
    return ItemView(
        item_id=item.item_id,
        title=item.title,
        state=item.state,
        attempt=item.attempt,
        is_open=item.is_open,
        run_id=item.run_id,
        error=item.error,
        at=item.updated_at,
    )


def _attempt(q: Queries, item: Item, made: list[Mutation]) -> ItemAttempt:
    return ItemAttempt(
        attempt=item.attempt,
        title=item.title,
        state=item.state,
        error=item.error,
        began_at=item.created_at,
        at=item.updated_at,
        runs=item_reads.runs_of_attempt(q, item),
        calls=calls(each for each in made if each.item_attempt == item.attempt),
    )
