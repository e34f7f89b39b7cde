"""A stop is a stop: whatever people have said counts for the next call of a run, and the one on its way finishes."""

from collections.abc import Callable

import pytest

from keep_storage import Reason, Rejected, reads
from keep_storage.model import GrantPolicy, ItemState, Mutation, MutationStatus, RunStatus, WorkflowStatus
from keep_storage.operations import ItemScope
from tests.storage.world import WORKFLOW, World

UNTIL = 10**15


def call(world: World, run_id: str, item: str, permission: str = "") -> Mutation:
    scope = ItemScope(item, f"hash of {item}")
    name = world.name("mut")
    return world.model.create_mutation(
        name, run_id, "mail", "send", "{}", name, reconcilable=False, send=True, item=scope, permission=permission
    )


SAYS: dict[str, Callable[[World, str], object]] = {
    "pause": lambda world, _: world.model.pause_workflow(WORKFLOW, by="ada"),
    "archive": lambda world, _: world.model.archive_workflow(WORKFLOW, by="ada"),
    "revoke": lambda world, _: world.model.revoke_permission(WORKFLOW, 1, "mail.send", by="ada"),
    "ask": lambda world, _: world.model.grant_permission(WORKFLOW, 1, "mail.send", GrantPolicy.ASK, by="ada"),
    "stop": lambda world, run_id: world.model.stop_run(run_id, UNTIL, by="ada"),
}


@pytest.mark.parametrize("says", SAYS)
def test_the_call_that_is_on_its_way_finishes_and_no_further_one_is_made(world: World, says: str) -> None:
    world.model.grant_permission(WORKFLOW, 1, "mail.send", GrantPolicy.ALLOW)
    run_id = world.start("digest").id
    world.model.open_item(run_id, "i1", "Item i1")
    first = call(world, run_id, "i1", "mail.send")

    SAYS[says](world, run_id)

    assert world.model.apply_mutation(first.id, "1").status is MutationStatus.APPLIED
    world.model.close_item(run_id, "i1", ItemState.DONE)
    world.model.open_item(run_id, "i2", "Item i2")
    with pytest.raises(Rejected):
        call(world, run_id, "i2", "mail.send")
    assert [each.id for each in reads.mutations_of_run(world.store.queries(), run_id)] == [first.id]


def test_a_run_that_makes_no_further_call_may_finish_what_it_did(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.stop_run(run.id, UNTIL, by="ada")
    assert world.model.commit_consumer(run.id).status is RunStatus.COMMITTED
    assert (world.states(), world.handler("file").wake_at) == ({"m1": "consumed"}, None)


def test_a_consumer_that_was_stopped_waits_until_then_or_for_something_new(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    world.model.stop_run(run.id, UNTIL, by="ada", why="wrong list")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, is_fault=False)
    handler = world.handler("file")
    assert (world.states(), world.has_news("file")) == ({"m1": "pending"}, False)
    assert (handler.wake_at, handler.failures, world.workflow().error) == (UNTIL, 0, "")
    world.publish("m2")
    assert world.has_news("file")


def test_a_job_that_was_stopped_runs_at_the_time_given(world: World) -> None:
    run = world.start("digest")
    world.model.stop_run(run.id, UNTIL, by="ada")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, is_fault=False)
    assert (world.handler("digest").next_run_at, world.handler("digest").failures) == (UNTIL, 0)


def test_a_job_without_a_next_run_gets_none_by_being_stopped(world: World) -> None:
    world.model.commit_job(world.start("digest").id, next_run_at=None)
    run = world.start("digest")
    world.model.stop_run(run.id, UNTIL, by="ada")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, is_fault=False)
    assert world.handler("digest").next_run_at is None


def test_a_crash_does_not_undo_a_stop(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    world.model.stop_run(run.id, UNTIL, by="ada")
    world.model.recover_crashed_runs()
    assert (world.states(), world.handler("file").wake_at) == ({"m1": "pending"}, UNTIL)
    assert not world.has_news("file")


def test_a_handler_is_put_off_once(world: World) -> None:
    """Not a second time, when the approved call of the run that was stopped turns out unknown."""
    world.publish("m1")
    mutation = world.recorded("m1", ask=True, reconcilable=False)
    world.model.stop_run(mutation.run_id, UNTIL, by="ada")
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    world.publish("m2")
    world.model.commit_consumer(world.emitting("m2").id)
    world.publish("m3")
    world.model.approve_mutation(world.open_approval(mutation.id), by="ada")
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE, "timed out")
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_RECONCILIATION)
    assert (world.handler("file").wake_at, world.has_news("file")) == (None, True)


def test_when_somebody_wants_it_looked_into_again_the_checks_are_counted_from_nothing(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=True)
    for _ in range(3):
        world.model.update_mutation_status(mutation.id, MutationStatus.NEEDS_RECONCILE)
    checked = world.mutation(mutation.id)
    assert (checked.reconcile_attempts, checked.doubted_at) == (3, mutation.doubted_at)
    given_up = world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE)
    assert given_up.reconcile_attempts == 3

    again = world.model.update_mutation_status(mutation.id, MutationStatus.NEEDS_RECONCILE, by="ada")

    assert (again.reconcile_attempts, again.doubted_at) == (0, world.clock_of_last_commit())


# Archived, and brought back.


def test_an_archived_workflow_comes_back_paused_with_all_that_it_had(world: World) -> None:
    world.publish("m1")
    world.model.archive_workflow(WORKFLOW, by="ada")
    back = world.model.unarchive_workflow(WORKFLOW, by="ada")
    assert (back.status, world.states()) == (WorkflowStatus.PAUSED, {"m1": "pending"})
    world.model.resume_workflow(WORKFLOW)
    world.model.commit_consumer(world.emitting("m1").id)
    assert world.states() == {"m1": "consumed"}


def test_one_without_a_script_comes_back_as_the_draft_that_it_was(world: World) -> None:
    world.model.create_workflow("wf_draft", "draft")
    world.model.archive_workflow("wf_draft")
    assert world.model.unarchive_workflow("wf_draft").status is WorkflowStatus.DRAFT


def test_a_name_that_was_given_away_is_free_again_once_its_owner_is_archived(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.deploy("wf_next")
    with pytest.raises(Rejected) as refusal:
        world.model.unarchive_workflow(WORKFLOW)
    assert refusal.value.reason is Reason.WORKFLOW_NAME_TAKEN
    world.model.archive_workflow("wf_next")
    assert world.model.unarchive_workflow(WORKFLOW).status is WorkflowStatus.PAUSED
