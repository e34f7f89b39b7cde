"""Rule 2d: a recorded call waits for a person, its events stay reserved, and it is made exactly as recorded."""

import pytest

from keep_storage import Reason, Rejected
from keep_storage.model import ApprovalStatus, Mutation, MutationStatus, Phase, RunStatus
from keep_storage.rows import approval as approval_row
from tests.storage.world import WORKFLOW, World


@pytest.fixture
def held(world: World) -> Mutation:
    """A call held for approval, its run paused."""
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    return mutation


def question(world: World) -> str:
    return next(name for entry in world.journal() if (name := _approval(entry.changed)))


def _approval(changed: str) -> str:
    return changed.partition('"approval":"')[2].partition('"')[0]


def test_a_held_call_keeps_its_events_and_stops_the_workflow(world: World, held: Mutation) -> None:
    assert (world.states(), world.holder("m1")) == ({"m1": "reserved"}, held.run_id)
    workflow = world.workflow()
    assert (workflow.pending_retry_run_id, workflow.error) == (held.run_id, "Approval required")
    assert (world.mutation(held.id).status, world.mutation(held.id).attempts) == (MutationStatus.PENDING, 0)


def test_approving_sends_exactly_the_recorded_call(world: World, held: Mutation) -> None:
    sent = world.model.approve_mutation(question(world), by="ada", why="looks right")

    assert (sent.status, sent.attempts, sent.params) == (MutationStatus.IN_FLIGHT, 1, held.params)
    assert (sent.idempotency_key, sent.sent_at) == (held.idempotency_key, sent.updated_at)
    assert world.workflow().error != "", "the workflow waits for the outcome"
    assert world.states() == {"m1": "reserved"}
    world.model.apply_mutation(sent.id, '{"rowId":1}')
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", held.run_id)
    retry = world.model.create_retry_run("run_r", held.run_id, world.session())
    world.model.commit_consumer(retry.id)
    assert world.states() == {"m1": "consumed"}


def test_an_approved_call_that_fails_releases_the_events(world: World, held: Mutation) -> None:
    world.model.approve_mutation(question(world), by="ada")
    world.model.fail_mutation(held.id, "400")
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", None)
    assert world.run(held.run_id).status is RunStatus.PAUSED_APPROVAL


def test_an_approved_call_whose_outcome_is_unknown_becomes_a_question_of_another_kind(
    world: World, held: Mutation
) -> None:
    world.model.approve_mutation(question(world), by="ada")
    world.model.update_mutation_status(held.id, MutationStatus.NEEDS_RECONCILE, "timed out", next_reconcile_at=5)
    run = world.model.update_handler_run_status(held.run_id, RunStatus.PAUSED_RECONCILIATION)
    assert (run.status, run.phase) == (RunStatus.PAUSED_RECONCILIATION, Phase.MUTATING)
    assert world.states() == {"m1": "reserved"}


def test_a_run_that_stops_twice_keeps_its_logs_and_its_end(world: World) -> None:
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)
    first = world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL, logs='["asked"]')
    world.model.approve_mutation(question(world), by="ada")
    [second] = world.model.recover_crashed_runs()
    assert (second.logs, second.ended_at) == ('["asked"]', first.ended_at)


@pytest.mark.parametrize("reconcilable", [True, False])
def test_a_crash_while_an_approved_call_is_made_is_a_doubt_although_its_run_is_not_active(
    world: World, reconcilable: bool
) -> None:
    world.publish("m1")
    mutation = world.recorded("m1", ask=True, reconcilable=reconcilable)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    world.model.approve_mutation(question(world), by="ada")

    [recovered] = world.model.recover_crashed_runs()

    assert recovered.status is RunStatus.PAUSED_RECONCILIATION
    expected = MutationStatus.NEEDS_RECONCILE if reconcilable else MutationStatus.INDETERMINATE
    assert world.mutation(mutation.id).status is expected
    assert (world.states(), world.workflow().error != "") == ({"m1": "reserved"}, True)


def test_a_crash_while_the_person_is_asked_changes_nothing(world: World, held: Mutation) -> None:
    before = (world.workflow(), world.mutation(held.id), world.states())
    assert world.model.recover_crashed_runs() == ()
    assert (world.workflow(), world.mutation(held.id), world.states()) == before


def test_a_crash_between_the_question_and_the_pause_still_asks(world: World) -> None:
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)

    [recovered] = world.model.recover_crashed_runs()

    assert recovered.status is RunStatus.PAUSED_APPROVAL
    assert world.mutation(mutation.id).status is MutationStatus.PENDING
    assert world.states() == {"m1": "reserved"}
    world.model.approve_mutation(question(world), by="ada")
    assert world.mutation(mutation.id).status is MutationStatus.IN_FLIGHT


def test_rejecting_as_failed_releases_the_events(world: World, held: Mutation) -> None:
    settled = world.model.reject_mutation(question(world), by="ada", why="wrong sheet")
    assert (settled.status, settled.resolved_by, settled.resolved_who) == ("failed", "approval_rejected", "ada")
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", None)


def test_rejecting_as_skipped_skips_the_events_and_next_still_runs(world: World, held: Mutation) -> None:
    settled = world.model.reject_mutation(question(world), by="ada", why="not needed", skip=True)
    assert (settled.status, settled.resolved_by) == ("failed", "user_skip")
    assert world.states() == {"m1": "skipped"}
    retry = world.model.create_retry_run("run_r", held.run_id, world.session())
    assert retry.mutation_outcome == "skipped"
    world.model.commit_consumer(retry.id)


def test_an_expired_question_releases_the_events_and_says_so(world: World, held: Mutation) -> None:
    name = question(world)
    settled = world.model.reject_mutation(name, by="policy", why="nobody answered in 24 h", expired=True)
    assert settled.resolved_by == "approval_expired"
    answered = approval_row(world.store.queries(), name)
    assert answered
    assert (answered.status, answered.decided_by) == (ApprovalStatus.EXPIRED, "policy")
    assert world.states() == {"m1": "pending"}


def test_the_first_answer_wins_and_the_second_is_told_who_was_first(world: World, held: Mutation) -> None:
    name = question(world)
    world.model.approve_mutation(name, by="ada")
    with pytest.raises(Rejected, match="ada") as refusal:
        world.model.reject_mutation(name, by="bob")
    assert refusal.value.reason is Reason.APPROVAL_ALREADY_DECIDED


def test_the_second_verdict_is_told_who_was_first(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    world.model.skip_mutation(mutation.id, by="ada", expected_version=mutation.version)
    with pytest.raises(Rejected, match="ada") as refusal:
        world.model.skip_mutation(mutation.id, by="bob", expected_version=mutation.version)
    assert refusal.value.reason is Reason.MUTATION_ALREADY_SETTLED


def test_a_held_call_is_not_an_error_that_a_person_can_wave_away(world: World, held: Mutation) -> None:
    with pytest.raises(Rejected) as refusal:
        world.model.clear_workflow_error(WORKFLOW, by="ada")
    assert refusal.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN
