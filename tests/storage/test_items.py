"""Logical items: jobs mutate only inside one, and replay from the ledger instead of repeating an effect."""

import pytest

from keep_storage import Reason, Rejected, reads
from keep_storage.model import Item, ItemState, Mutation, MutationStatus, Resolver, RunStatus
from keep_storage.operations import ItemScope
from tests.storage.world import WORKFLOW, World


def enter(world: World, item_id: str = "invoice-7") -> str:
    run = world.start("digest")
    world.model.open_item(run.id, item_id, f"Invoice {item_id}")
    return run.id


def call(world: World, run_id: str, identity: str = "hash-1", params: str = "{}", send: bool = True) -> Mutation:
    scope = ItemScope("invoice-7", identity)
    name = world.name("mut")
    return world.model.create_mutation(
        name, run_id, "gmail", "send", params, f"key-{name}", reconcilable=False, send=send, item=scope
    )


def leave(world: World, run_id: str, state: ItemState = ItemState.DONE) -> Item:
    item = world.model.close_item(run_id, "invoice-7", state)
    world.model.commit_job(run_id, next_run_at=1)
    return item


def test_a_job_may_mutate_more_than_once_inside_an_item(world: World) -> None:
    run_id = enter(world)
    for identity in ("hash-1", "hash-2"):
        world.model.apply_mutation(call(world, run_id, identity).id, f'"{identity}"')
    assert leave(world, run_id).state is ItemState.DONE
    assert [m.status for m in reads.mutations_of_run(world.store.queries(), run_id)] == ["applied", "applied"]


def test_an_applied_mutation_is_replayed_from_the_ledger(world: World) -> None:
    first_run = enter(world)
    first = call(world, first_run)
    world.model.apply_mutation(first.id, '{"messageId":5}')
    world.model.update_handler_run_status(first_run, RunStatus.PAUSED_TRANSIENT)

    again = call(world, enter(world))

    assert (again.id, again.status, again.result) == (first.id, MutationStatus.APPLIED, '{"messageId":5}')
    assert again.attempts == 1


def test_a_failed_mutation_is_attempted_again_with_the_same_key(world: World) -> None:
    first_run = enter(world)
    first = call(world, first_run)
    world.model.fail_mutation(first.id, "503")
    world.model.update_handler_run_status(first_run, RunStatus.PAUSED_TRANSIENT)
    second_run = enter(world)

    again = call(world, second_run, params='{"body":"new words"}')

    assert (again.id, again.idempotency_key) == (first.id, first.idempotency_key)
    assert (again.status, again.attempts, again.run_id) == (MutationStatus.IN_FLIGHT, 2, second_run)
    assert (again.params, again.resolved_by) == ('{"body":"new words"}', None)
    world.model.apply_mutation(again.id)


def test_an_item_stays_failed_until_its_handler_completes(world: World) -> None:
    run_id = enter(world)
    world.model.update_handler_run_status(run_id, RunStatus.PAUSED_TRANSIENT)
    q = world.store.queries()
    item = reads.item(q, WORKFLOW, "invoice-7")
    assert item
    assert (item.state, item.is_open) == (ItemState.FAILED, False)
    second = enter(world)
    reopened = reads.item(q, WORKFLOW, "invoice-7")
    assert reopened
    assert (reopened.state, reopened.is_open, reopened.attempt) == (ItemState.FAILED, True, 1)
    assert leave(world, second).state is ItemState.DONE


def test_a_done_item_runs_its_handler_again_and_stays_done(world: World) -> None:
    leave(world, enter(world))
    run_id = enter(world)
    item = reads.item(world.store.queries(), WORKFLOW, "invoice-7")
    assert item
    assert item.state is ItemState.DONE
    assert leave(world, run_id, ItemState.FAILED).state is ItemState.DONE


def test_an_unknown_outcome_in_an_item_stops_the_workflow_until_it_is_settled(world: World) -> None:
    run_id = enter(world)
    mutation = call(world, run_id)
    [recovered] = world.model.recover_crashed_runs()
    assert (recovered.id, recovered.status) == (run_id, RunStatus.PAUSED_RECONCILIATION)
    assert world.mutation(mutation.id).status is MutationStatus.INDETERMINATE
    assert world.workflow().error != ""
    assert world.workflow().pending_retry_run_id is None, "a job replays from its ledger; it has no `next`"

    world.model.apply_mutation(mutation.id, "1", Resolver.USER_ASSERT_APPLIED, by="ada")

    assert world.workflow().error == ""
    assert call(world, enter(world)).status is MutationStatus.APPLIED


def test_a_call_in_an_item_that_was_never_sent_did_not_happen(world: World) -> None:
    mutation = call(world, enter(world), send=False)
    [recovered] = world.model.recover_crashed_runs()
    assert recovered.status is RunStatus.CRASHED
    assert world.mutation(mutation.id).status is MutationStatus.FAILED


def test_skipping_the_mutation_of_an_item_skips_the_item(world: World) -> None:
    mutation = call(world, enter(world))
    world.model.recover_crashed_runs()
    world.model.skip_mutation(mutation.id, by="ada")
    item = reads.item(world.store.queries(), WORKFLOW, "invoice-7")
    assert item
    assert item.state is ItemState.SKIPPED
    with pytest.raises(Rejected) as refusal:
        call(world, enter(world))
    assert refusal.value.reason is Reason.ITEM_IS_DONE


def test_reprocessing_starts_an_attempt_that_shares_nothing_and_keeps_the_earlier_one(world: World) -> None:
    run_id = enter(world)
    world.model.apply_mutation(call(world, run_id, "hash-of-attempt-1").id, "1")
    leave(world, run_id)

    world.model.reprocess_item(WORKFLOW, "invoice-7", by="ada", why="wrong amount")

    second = call(world, enter(world), "hash-of-attempt-2")
    assert (second.status, second.item_attempt) == (MutationStatus.IN_FLIGHT, 2)
    attempts = reads.item_attempts(world.store.queries(), WORKFLOW, "invoice-7")
    assert [(item.attempt, item.state) for item in attempts] == [(1, "done"), (2, "processing")]
    world.model.apply_mutation(second.id)


def test_a_person_skips_a_failed_item(world: World) -> None:
    leave(world, enter(world), ItemState.FAILED)
    assert world.model.skip_item(WORKFLOW, "invoice-7", by="ada").state is ItemState.SKIPPED


def test_an_open_question_keeps_an_item_from_being_processed_anew(world: World) -> None:
    call(world, enter(world))
    world.model.recover_crashed_runs()
    with pytest.raises(Rejected) as refusal:
        world.model.reprocess_item(WORKFLOW, "invoice-7", by="ada")
    assert refusal.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN
