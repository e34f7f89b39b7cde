"""Rule 2d: a recorded call waits for a person beside the work of its workflow, and is made exactly as recorded.

Its events stay reserved meanwhile. A refusal is a no: they are skipped, and `next` is told why.
"""

import pytest

from keep_storage import Reason, Rejected, attention_reads, reads
from keep_storage.model import (
    Approval,
    ApprovalStatus,
    ItemState,
    Mutation,
    MutationStatus,
    Phase,
    Resolver,
    RunStatus,
    WorkflowStatus,
)
from keep_storage.operations import AskAgain, AskFirst, GrantUse, ItemScope, RejectMutation
from keep_storage.outcomes import mutation_result_for_next
from tests.storage.world import WORKFLOW, World


@pytest.fixture
def held(world: World) -> Mutation:
    """A call held for approval, its run paused."""
    world.publish("m1")
    return hold(world, "m1")


def hold(world: World, message_id: str) -> Mutation:
    mutation = world.recorded(message_id, ask=True)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    return mutation


def question(world: World) -> str:
    [approval] = reads.open_approvals(world.store.queries(), WORKFLOW)
    return approval.id


def answered(world: World, approval_id: str) -> Approval:
    approval = reads.approval(world.store.queries(), approval_id)
    assert approval
    return approval


def retried(world: World, run_id: str) -> str:
    """What `next` is told in the retry of a run, which commits."""
    retry = world.model.create_retry_run(world.name("run"), run_id, world.session())
    world.model.commit_consumer(retry.id)
    return mutation_result_for_next(retry)


def stopped_by(world: World) -> tuple[str, str | None, str | None]:
    workflow = world.workflow()
    return workflow.error, workflow.error_run_id, workflow.pending_retry_run_id


NOTHING = ("", None, None)


def test_a_held_call_keeps_its_own_events_and_stops_nothing_else(world: World, held: Mutation) -> None:
    assert (world.states(), world.holder("m1")) == ({"m1": "reserved"}, held.run_id)
    run = world.run(held.run_id)
    assert (stopped_by(world), run.parked, run.status) == (NOTHING, True, RunStatus.PAUSED_APPROVAL)
    assert (world.mutation(held.id).status, world.mutation(held.id).attempts) == (MutationStatus.PENDING, 0)
    assert world.handler("file").failures == 0, "to ask is no failure"
    world.publish("m2")
    assert world.has_news("file")
    world.model.commit_consumer(world.emitting("m2").id)
    assert world.states() == {"m1": "reserved", "m2": "consumed"}


def test_every_event_that_needs_a_person_asks_and_the_answered_ones_go_on(world: World) -> None:
    world.publish("m1", "m2", "m3")
    first, second, third = (hold(world, each) for each in ("m1", "m2", "m3"))
    assert len(reads.open_approvals(world.store.queries(), WORKFLOW)) == 3
    world.model.reject_mutation(world.open_approval(third.id), by="ada", why="no")
    world.model.approve_mutation(world.open_approval(second.id), by="ada")
    world.model.apply_mutation(second.id, '{"rowId":2}')
    assert retried(world, second.run_id) == '{"status":"applied","result":{"rowId":2}}'
    assert retried(world, third.run_id) == '{"status":"skipped","reason":"no"}'
    assert world.states() == {"m1": "reserved", "m2": "consumed", "m3": "skipped"}
    assert (world.holder("m1"), world.mutation(first.id).status) == (first.run_id, MutationStatus.PENDING)


def test_a_run_that_is_not_to_park_stops_its_workflow_over_its_question(world: World) -> None:
    """`parked_max` others are beside it already."""
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL, parks=False)
    assert stopped_by(world) == ("Approval required", mutation.run_id, mutation.run_id)
    with pytest.raises(Rejected) as refusal:
        world.model.clear_workflow_error(WORKFLOW, by="ada")
    assert refusal.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN, "a question cannot be waved away"
    world.model.approve_mutation(question(world), by="ada")
    world.model.apply_mutation(mutation.id, '{"rowId":1}')
    assert stopped_by(world) == ("", None, mutation.run_id)
    retried(world, mutation.run_id)
    assert world.states() == {"m1": "consumed"}


def test_approving_sends_exactly_the_recorded_call(world: World, held: Mutation) -> None:
    sent = world.model.approve_mutation(question(world), by="ada", why="looks right")

    assert (sent.status, sent.attempts, sent.params) == (MutationStatus.IN_FLIGHT, 1, held.params)
    assert (sent.idempotency_key, sent.sent_at) == (held.idempotency_key, sent.updated_at)
    assert (world.states(), stopped_by(world)) == ({"m1": "reserved"}, NOTHING)
    world.model.apply_mutation(sent.id, '{"rowId":1}')
    snapshot = reads.snapshot(world.store.queries(), WORKFLOW)
    assert snapshot
    assert (stopped_by(world), snapshot.retry_run_id) == (NOTHING, held.run_id)
    assert retried(world, held.run_id) == '{"status":"applied","result":{"rowId":1}}'
    assert (world.states(), world.run(held.run_id).parked) == ({"m1": "consumed"}, False)


def test_an_approved_call_counts_against_its_grant_and_one_that_is_too_many_is_not_made(world: World) -> None:
    world.publish("m1", "m2")
    first, second = hold(world, "m1"), hold(world, "m2")
    use = GrantUse("sheets.append", day=1, per_day=1)
    world.model.approve_mutation(world.open_approval(first.id), by="ada", use=use)
    assert reads.calls_on_day(world.store.queries(), WORKFLOW, "sheets.append", 1) == 1
    with pytest.raises(Rejected) as refusal:
        world.model.approve_mutation(world.open_approval(second.id), by="ada", use=use)
    assert refusal.value.reason is Reason.GRANT_USED_UP
    assert world.mutation(second.id).status is MutationStatus.PENDING


def test_what_an_approved_call_has_cost_is_counted_for_its_run_and_its_session(world: World, held: Mutation) -> None:
    world.model.approve_mutation(question(world), by="ada")
    world.model.apply_mutation(held.id, "1")
    run = world.model.count_cost(held.run_id, 40)
    assert (run.cost_micros, world.session_row(run.session_id).cost_micros) == (40, 40)


def test_an_approved_call_that_fails_releases_the_events(world: World, held: Mutation) -> None:
    world.model.approve_mutation(question(world), by="ada")
    world.model.fail_mutation(held.id, "400")
    assert (world.states(), stopped_by(world)) == ({"m1": "pending"}, NOTHING)
    run = world.run(held.run_id)
    assert (run.status, run.parked, world.has_news("file")) == (RunStatus.PAUSED_APPROVAL, False, True)


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


def test_a_refusal_is_a_no_and_next_is_told_why(world: World, held: Mutation) -> None:
    name = question(world)
    settled = world.model.reject_mutation(name, by="ada", why="not needed")
    assert (settled.status, settled.resolved_by, settled.resolved_who) == ("failed", "approval_rejected", "ada")
    assert (answered(world, name).status, answered(world, name).reason) == (ApprovalStatus.REJECTED, "not needed")
    assert (world.states(), world.has_news("file"), stopped_by(world)) == ({"m1": "skipped"}, False, NOTHING)
    assert retried(world, held.run_id) == '{"status":"skipped","reason":"not needed"}'
    assert (world.states(), world.run(held.run_id).parked) == ({"m1": "skipped"}, False)


def test_a_refusal_that_wants_another_try_releases_the_events(world: World, held: Mutation) -> None:
    settled = world.model.reject_mutation(question(world), by="ada", why="wrong sheet", retry=True)
    assert (settled.status, settled.resolved_by, settled.resolved_who) == ("failed", "approval_rejected", "ada")
    assert (world.states(), world.has_news("file"), stopped_by(world)) == ({"m1": "pending"}, True, NOTHING)
    run = world.run(held.run_id)
    assert (run.mutation_outcome, run.skip_reason, run.parked) == ("failure", "", False)


def test_a_question_that_nobody_answers_is_a_no_by_policy(world: World, held: Mutation) -> None:
    name = question(world)
    settled = world.model.reject_mutation(name, by="policy", why="nobody answered in 24 h", expired=True)
    assert settled.resolved_by == "approval_expired"
    assert (answered(world, name).status, answered(world, name).decided_by) == (ApprovalStatus.EXPIRED, "policy")
    assert world.states() == {"m1": "skipped"}
    assert retried(world, held.run_id) == '{"status":"skipped","reason":"nobody answered in 24 h"}'


def test_a_question_that_nobody_answered_is_asked_again_about_the_same_call(world: World, held: Mutation) -> None:
    name, before = question(world), world.mutation(held.id)
    again = world.model.ask_again(name, "apr_again", expires_at=10**15)
    assert (again.id, again.mutation_id, again.status) == ("apr_again", held.id, ApprovalStatus.OPEN)
    assert (again.expires_at, again.requested_at) == (10**15, world.clock_of_last_commit())
    assert (answered(world, name).status, answered(world, name).decided_by) == (ApprovalStatus.EXPIRED, "policy")
    assert (question(world), world.mutation(held.id), world.states()) == ("apr_again", before, {"m1": "reserved"})
    with pytest.raises(Rejected) as refusal:
        world.model.approve_mutation(name, by="ada")
    assert refusal.value.reason is Reason.APPROVAL_ALREADY_DECIDED
    world.model.approve_mutation("apr_again", by="ada")
    assert world.mutation(held.id).status is MutationStatus.IN_FLIGHT
    asked = reads.approvals_of_mutation(world.store.queries(), held.id)
    assert [each.id for each in asked] == [name, "apr_again"]


def test_a_call_whose_questions_expired_in_one_moment_is_listed_once(world: World, held: Mutation) -> None:
    asked, refused = AskAgain(question(world), "apr_again"), RejectMutation("apr_again", by="policy", expired=True)
    for outcome in world.store.commit([asked, refused]):
        outcome.unwrap()
    matters = attention_reads.attention(world.store.queries(), stale_before=0, expired_after=0)
    assert [each.about for each in matters if each.kind == "expired"] == [held.id]


def test_the_first_answer_wins_and_the_second_is_told_who_was_first(world: World, held: Mutation) -> None:
    name = question(world)
    world.model.approve_mutation(name, by="ada")
    assert reads.open_approvals(world.store.queries(), WORKFLOW) == []
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


def test_archiving_refuses_the_open_questions_and_releases_what_they_held(world: World, held: Mutation) -> None:
    name = question(world)
    archived = world.model.archive_workflow(WORKFLOW, by="ada")
    assert (archived, archived.status) == (world.workflow(), WorkflowStatus.ARCHIVED)
    settled = world.mutation(held.id)
    assert (settled.status, settled.resolved_by, settled.resolved_who) == ("failed", "approval_rejected", "ada")
    assert (answered(world, name).status, world.states()) == (ApprovalStatus.REJECTED, {"m1": "pending"})
    assert (world.run(held.run_id).parked, reads.workflows_needing_attention(world.store.queries())) == (False, [])
    world.model.unarchive_workflow(WORKFLOW, by="ada")
    world.model.resume_workflow(WORKFLOW)
    assert hold(world, "m1").status is MutationStatus.PENDING, "who brings it back is asked anew"


def test_archiving_while_a_run_asks_lets_that_run_stop(world: World) -> None:
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)
    world.model.archive_workflow(WORKFLOW, by="ada")
    assert (world.mutation(mutation.id).status, world.states()) == (MutationStatus.FAILED, {"m1": "pending"})
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_TRANSIENT, is_fault=False)
    assert (world.states(), stopped_by(world)) == ({"m1": "pending"}, NOTHING)


def test_an_approved_call_of_an_archived_workflow_can_still_be_settled(world: World, held: Mutation) -> None:
    world.model.approve_mutation(question(world), by="ada")
    world.model.update_mutation_status(held.id, MutationStatus.INDETERMINATE, "timed out")
    world.model.update_handler_run_status(held.run_id, RunStatus.PAUSED_RECONCILIATION)
    world.model.archive_workflow(WORKFLOW, by="ada")
    assert (world.states(), world.mutation(held.id).status) == ({"m1": "reserved"}, MutationStatus.INDETERMINATE)
    assert [each.id for each in reads.workflows_needing_attention(world.store.queries())] == [WORKFLOW]
    world.model.apply_mutation(held.id, "1", Resolver.USER_ASSERT_APPLIED, by="ada")
    assert reads.workflows_needing_attention(world.store.queries()) == []


def held_in_item(world: World) -> Mutation:
    """A call of a job that waits for a person."""
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "Item i1")
    mutation = world.model.create_mutation(
        world.name("mut"),
        run.id,
        "mail",
        "send",
        "{}",
        "key",
        reconcilable=False,
        item=ItemScope("i1", "hash"),
        ask_first=AskFirst(world.name("apr")),
    )
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL)
    return mutation


def item_state(world: World) -> ItemState:
    item = reads.item(world.store.queries(), WORKFLOW, "i1")
    assert item
    return item.state


def is_held(world: World) -> bool:
    snapshot = reads.snapshot(world.store.queries(), WORKFLOW)
    assert snapshot
    return next(each.is_held for each in snapshot.handlers if each.name == "digest")


def test_a_job_waits_for_its_question_and_nothing_else_does(world: World) -> None:
    held_in_item(world)
    assert (is_held(world), stopped_by(world), item_state(world)) == (True, NOTHING, ItemState.PROCESSING)
    with pytest.raises(Rejected) as refusal:
        world.start("digest")
    assert refusal.value.reason is Reason.JOB_AWAITS_APPROVAL
    world.model.commit_producer(world.start("poll").id, next_run_at=5)


def test_a_refusal_skips_the_item_and_its_job_goes_on(world: World) -> None:
    mutation = held_in_item(world)
    world.model.reject_mutation(question(world), by="ada", why="no")
    assert (item_state(world), is_held(world)) == (ItemState.SKIPPED, False)
    assert not world.run(mutation.run_id).parked
    world.start("digest")


def test_a_refusal_that_wants_another_try_leaves_the_item_to_the_next_run(world: World) -> None:
    held_in_item(world)
    world.model.reject_mutation(question(world), by="ada", why="no", retry=True)
    assert (item_state(world), is_held(world)) == (ItemState.PROCESSING, False)
    world.start("digest")


def test_an_approved_call_in_an_item_is_replayed_by_the_next_run(world: World) -> None:
    mutation = held_in_item(world)
    world.model.approve_mutation(question(world), by="ada")
    assert is_held(world), "its call is on its way"
    world.model.apply_mutation(mutation.id, '"sent"')
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "Item i1")
    again = world.model.create_mutation(
        "mut_again", run.id, "mail", "send", "{}", "key", reconcilable=False, send=True, item=ItemScope("i1", "hash")
    )
    assert (again.id, again.status, again.result) == (mutation.id, MutationStatus.APPLIED, '"sent"')
