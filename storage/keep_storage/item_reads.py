"""Items as people look at them: the current attempt of each, what every attempt did, how many are in which state.

Reads only. A page of items, the calls and the runs of one item, and the counts cost the same however many there are.
"""

from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import Item, ItemState, Mutation
from keep_storage.records import find, find_all
from keep_storage.transaction import Queries


def items(
    q: Queries, workflow_id: str, *, state: ItemState | None = None, limit: int = PEEK_DEFAULT, after: str = ""
) -> list[Item]:
    """The current attempt at each item of a workflow, or at those in one state, by item id.

    `after` is the `item_id` of the last one seen.
    """
    key = {"workflow_id": workflow_id, "limit": limit, "after": after}
    if state is None:
        return find_all(q, Item, "items_of_workflow", key)
    return find_all(q, Item, "items_in_state", key | {"state": state})


def counts(q: Queries, *, most: int) -> dict[str, dict[ItemState, int]]:
    """How many items are in each state, by workflow, not counted any further than `most`; what is not there is left
    out."""
    found: dict[str, dict[ItemState, int]] = {}
    for (workflow_id,) in q.all("workflows_with_items", {}):
        counted = {state: _count(q, workflow_id, state, most) for state in ItemState}
        found[workflow_id] = {state: count for state, count in counted.items() if count}
    return found


def _count(q: Queries, workflow_id: str, state: ItemState, most: int) -> int:
    row = q.one("item_counts", {"workflow_id": workflow_id, "state": state, "limit": most})
    assert row, "an aggregate has one row"
    return int(row[0])


def calls_of_item(q: Queries, workflow_id: str, item_id: str) -> list[Mutation]:
    """Calls of every attempt at an item, by attempt, oldest first."""
    return find_all(q, Mutation, "mutations_of_item", {"workflow_id": workflow_id, "item_id": item_id})


def runs_of_attempt(q: Queries, attempt: Item) -> list[str]:
    """The runs that entered an attempt before it was finished, oldest first."""
    key = {"workflow_id": attempt.workflow_id, "item_id": attempt.item_id, "attempt": attempt.attempt}
    return [str(row[0]) for row in q.all("runs_of_attempt", key)]


def item_in_need(q: Queries, run_id: str) -> Item | None:
    """The item that a run left in need of a person, while it is."""
    return find(q, Item, "item_in_need", {"run_id": run_id})
