"""What people ask about the items of jobs: where each stands, what every attempt did, how many there are."""

from typing import Any

import pytest

from keep_storage import item_reads, reads
from keep_storage.model import ItemState, Mutation, RunStatus
from keep_storage.operations import ItemScope
from tests.storage.world import WORKFLOW, World


def work_on(world: World, *item_ids: str, state: ItemState = ItemState.DONE, workflow: str = WORKFLOW) -> str:
    """A job runs and enters these items."""
    run = world.start("digest", workflow)
    for item_id in item_ids:
        world.model.open_item(run.id, item_id, f"Item {item_id}")
        world.model.close_item(run.id, item_id, state)
    world.model.commit_job(run.id, next_run_at=0)
    return run.id


def call(world: World, run_id: str, item_id: str, identity: str) -> Mutation:
    name = world.name("mut")
    scope = ItemScope(item_id, identity)
    made = world.model.create_mutation(
        name, run_id, "gmail", "send", "{}", f"key-{name}", reconcilable=False, send=True, item=scope
    )
    return world.mutation(world.model.apply_mutation(made.id, "1").id)


def items(world: World, **page: Any) -> list[tuple[str, int, str]]:
    found = item_reads.items(world.store.queries(), WORKFLOW, **page)
    return [(item.item_id, item.attempt, str(item.state)) for item in found]


def test_items_are_the_current_attempts_by_id_after_a_cursor(world: World) -> None:
    world.deploy("wf_other")
    work_on(world, "a", "elsewhere", workflow="wf_other")
    assert items(world) == []
    work_on(world, "c", "a", "b")
    world.model.reprocess_item(WORKFLOW, "b", by="ada")
    assert items(world) == [("a", 1, "done"), ("b", 2, "processing"), ("c", 1, "done")]
    assert items(world, limit=1) == [("a", 1, "done")]
    assert items(world, limit=2, after="a") == [("b", 2, "processing"), ("c", 1, "done")]
    assert items(world, after="c") == []


def test_items_of_one_state_are_found_by_what_they_are_now(world: World) -> None:
    work_on(world, "a", "d")
    work_on(world, "b", "c", state=ItemState.FAILED)
    world.model.reprocess_item(WORKFLOW, "b", by="ada")
    assert items(world, state=ItemState.FAILED) == [("c", 1, "failed")], "what `b` was is history"
    assert items(world, state=ItemState.DONE) == [("a", 1, "done"), ("d", 1, "done")]
    assert items(world, state=ItemState.DONE, limit=1) == [("a", 1, "done")]
    assert items(world, state=ItemState.DONE, after="a") == [("d", 1, "done")]
    assert items(world, state=ItemState.NEEDS_ATTENTION) == []


def test_the_items_in_each_state_are_counted_up_to_a_limit(world: World) -> None:
    world.deploy("wf_other")
    world.deploy("wf_none")
    work_on(world, "a", "b", "c")
    work_on(world, "d", state=ItemState.NEEDS_ATTENTION)
    world.model.reprocess_item(WORKFLOW, "b", by="ada")
    work_on(world, "a", state=ItemState.FAILED, workflow="wf_other")
    q = world.store.queries()
    mine = {ItemState.DONE: 2, ItemState.PROCESSING: 1, ItemState.NEEDS_ATTENTION: 1}
    assert item_reads.counts(q, most=100) == {WORKFLOW: mine, "wf_other": {ItemState.FAILED: 1}}
    assert item_reads.counts(q, most=1)[WORKFLOW] == {
        ItemState.DONE: 1,
        ItemState.PROCESSING: 1,
        ItemState.NEEDS_ATTENTION: 1,
    }


def test_an_item_knows_the_calls_of_every_attempt_and_the_runs_that_entered_it(world: World) -> None:
    first = world.start("digest").id
    world.model.open_item(first, "a", "Item a")
    one = call(world, first, "a", "hash-1")
    world.model.update_handler_run_status(first, RunStatus.PAUSED_TRANSIENT)
    work_on(world, "b")
    second = world.start("digest").id
    world.model.open_item(second, "a", "Item a")
    two = call(world, second, "a", "hash-2")
    world.model.close_item(second, "a", ItemState.DONE)
    world.model.commit_job(second, next_run_at=0)
    work_on(world, "a")
    world.model.reprocess_item(WORKFLOW, "a", by="ada")
    q = world.store.queries()
    [earlier, later] = reads.item_attempts(q, WORKFLOW, "a")
    assert item_reads.runs_of_attempt(q, earlier) == [first, second], "the third found it done"
    assert item_reads.runs_of_attempt(q, later) == []
    third = world.start("digest").id
    world.model.open_item(third, "a", "Item a")
    three = call(world, third, "a", "hash-3")
    [earlier, later] = reads.item_attempts(q, WORKFLOW, "a")
    assert (item_reads.runs_of_attempt(q, earlier), item_reads.runs_of_attempt(q, later)) == ([first, second], [third])
    made = item_reads.calls_of_item(q, WORKFLOW, "a")
    assert [(each.id, each.item_attempt) for each in made] == [(one.id, 1), (two.id, 1), (three.id, 2)]
    assert item_reads.calls_of_item(q, WORKFLOW, "b") == []


@pytest.mark.parametrize("answer", ["skip_item", "reprocess_item"])
def test_the_item_that_a_run_left_in_need_of_a_person_is_found_until_it_is_answered(world: World, answer: str) -> None:
    q = world.store.queries()
    left = work_on(world, "a", "b", state=ItemState.NEEDS_ATTENTION)
    world.model.skip_item(WORKFLOW, "a", by="ada")
    found = item_reads.item_in_need(q, left)
    assert found is not None
    assert found.item_id == "b"
    getattr(world.model, answer)(WORKFLOW, "b", by="ada")
    assert item_reads.item_in_need(q, left) is None
    assert item_reads.item_in_need(q, work_on(world, "c")) is None
