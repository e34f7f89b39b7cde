"""Logical items: the unit of work of a job. Done items may not change the outside again."""

from msgspec.structs import replace

from keep_storage import events, mutation_rows, runs
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import HandlerKind, Item, ItemState, RunStatus
from keep_storage.operations import CloseItem, OpenItem, ReprocessItem, SkipItem
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import ITEM_FINISHED


def open_item(tx: Transaction, op: OpenItem, now: Millis) -> Change[Item]:
    run = runs.existing(tx, op.run_id)
    if run.kind is not HandlerKind.JOB:
        reject(Reason.RUN_NOT_A_JOB, f"Run {run.id!r} is of a {run.kind}; only jobs open items.")
    if run.status is not RunStatus.ACTIVE:
        reject(Reason.RUN_NOT_ACTIVE, f"Run {run.id!r} is {run.status}; it opens nothing any more.")
    if inside := mutation_rows.open_item(tx, run.id):
        reject(
            Reason.ITEM_ALREADY_OPEN,
            f"Run {run.id!r} is inside item {inside.item_id!r}; scopes do not nest. Leave it first.",
        )
    if not op.item_id or not op.title.strip():
        reject(Reason.TITLE_INVALID, f"Item {op.item_id!r} needs an id and a title that a person can read.")
    known = mutation_rows.item(tx, run.workflow_id, op.item_id)
    if known:
        item = replace(known, title=op.title, run_id=run.id, is_open=True, updated_at=now)
    else:
        item = Item(
            workflow_id=run.workflow_id,
            item_id=op.item_id,
            attempt=1,
            title=op.title,
            state=ItemState.PROCESSING,
            run_id=run.id,
            is_open=True,
            error="",
            created_at=now,
            updated_at=now,
        )
    mutation_rows.save_item(tx, item)
    if item.state not in ITEM_FINISHED:
        mutation_rows.record_item_run(tx, item)
    return changed(item, run.workflow_id, run.id, item=item.item_id, attempt=item.attempt, state=item.state)


def close_item(tx: Transaction, op: CloseItem, now: Millis) -> Change[Item]:
    run = runs.existing(tx, op.run_id)
    item = mutation_rows.open_item(tx, run.id)
    if item is None or item.item_id != op.item_id:
        reject(Reason.ITEM_NOT_OPEN, f"Run {run.id!r} is not inside item {op.item_id!r}.")
    if op.state in (ItemState.PROCESSING, ItemState.SKIPPED):
        reject(Reason.ITEM_NOT_FINISHED, f"Item {op.item_id!r} is left as done, failed or in need of attention.")
    if op.state is ItemState.DONE and (open_question := mutation_rows.unsettled_mutation_of_item(tx, item)):
        reject(
            Reason.MUTATION_OUTCOME_UNKNOWN,
            f"Item {op.item_id!r} cannot be done: its mutation {open_question.id!r} is {open_question.status}.",
        )
    topics = events.check_publishes(tx, run.workflow_id, op.publishes)
    # A finished item stays finished: its handler runs again and again, and proves nothing new.
    was_finished = item.state in ITEM_FINISHED
    state, error = (item.state, item.error) if was_finished else (op.state, op.error)
    closed = replace(item, state=state, is_open=False, error=error, updated_at=now)
    mutation_rows.save_item(tx, closed)
    published = events.append(tx, op.publishes, topics, run, now)
    return changed(
        closed, run.workflow_id, run.id, op.error, item=op.item_id, state=[item.state, state], published=published
    )


def skip_item(tx: Transaction, op: SkipItem, now: Millis) -> Change[Item]:
    item = _at_rest(tx, op)
    if item.state is ItemState.DONE:
        reject(Reason.ITEM_IS_DONE, f"Item {op.item_id!r} is done; there is nothing left to skip.")
    skipped = replace(item, state=ItemState.SKIPPED, error=op.why, updated_at=now)
    mutation_rows.save_item(tx, skipped)
    state = [item.state, skipped.state]
    return changed(skipped, op.workflow_id, None, op.why, item=op.item_id, state=state, by=op.by)


def reprocess_item(tx: Transaction, op: ReprocessItem, now: Millis) -> Change[Item]:
    item = _at_rest(tx, op)
    if item.state is ItemState.PROCESSING:
        reject(Reason.ITEM_NOT_FINISHED, f"Attempt {item.attempt} at item {op.item_id!r} has not ended.")
    again = replace(
        item, attempt=item.attempt + 1, state=ItemState.PROCESSING, error="", created_at=now, updated_at=now
    )
    mutation_rows.save_item(tx, again)
    return changed(again, op.workflow_id, None, op.why, item=op.item_id, attempt=again.attempt, by=op.by)


def _at_rest(q: Queries, op: SkipItem | ReprocessItem) -> Item:
    """The current attempt at an item that no run is inside of and that no open question concerns."""
    workflow_id, item_id = op.workflow_id, op.item_id
    item = mutation_rows.item(q, workflow_id, item_id) or reject(
        Reason.ITEM_NOT_FOUND, f"Workflow {workflow_id!r} has no item {item_id!r}."
    )
    if item.is_open:
        reject(Reason.ITEM_ALREADY_OPEN, f"Run {item.run_id!r} is inside item {item_id!r}; wait for it.")
    if mutation := mutation_rows.unsettled_mutation_of_item(q, item):
        reject(
            Reason.MUTATION_OUTCOME_UNKNOWN,
            f"Mutation {mutation.id!r} of item {item_id!r} is {mutation.status}; settle it first.",
        )
    if op.state is not None and item.state is not op.state:
        reject(Reason.ITEM_STATE_CHANGED, f"Item {item_id!r} is {item.state}, and no longer {op.state}; look again.")
    return item
