"""Contained damage: a run that is parked over an unknown outcome holds its events, and its workflow goes on."""

import pytest

from keep_storage import Reason, Rejected, reads
from keep_storage.model import FailureClass, Mutation, MutationStatus, OnUnknown, Phase, Resolver, Run, RunStatus
from keep_storage.operations import RunError
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World, ordered


@pytest.fixture
def parking(world: World) -> World:
    """A workflow whose consumers park, with a topic whose events are in order by `to`."""
    world.on_unknown = OnUnknown.PARK
    activate(world, "to")
    world.model.publish_events(
        WORKFLOW,
        tuple(world.mail(each, payload=f'{{"to":{number}}}') for each, number in (("a1", 1), ("a2", 1), ("b1", 2))),
    )
    return world


def activate(world: World, ordering: str | None) -> None:
    number = len(reads.versions(world.store.queries(), WORKFLOW))
    version = world.model.add_script_version(world.name("ver"), WORKFLOW, 1, number, f"ordered by {ordering}")
    world.model.activate_script(version.id, TOPICS, ordered(ordering))


def peek(world: World) -> list[str]:
    return [each.message_id for each in reads.peek(world.store.queries(), WORKFLOW, "mail")]


def retry(world: World, run_id: str) -> Run:
    return world.model.create_retry_run(world.name("run"), run_id, world.session())


def file_one(world: World, message_id: str) -> None:
    world.model.commit_consumer(world.emitting(message_id).id)


def test_a_doubt_that_is_parked_does_not_stop_its_workflow(parking: World) -> None:
    doubt = parking.uncertain("a1")
    workflow, run = parking.workflow(), parking.run(doubt.run_id)
    assert (workflow.error, workflow.error_run_id, workflow.pending_retry_run_id) == ("", None, None)
    assert (run.parked, run.status, run.phase) == (True, RunStatus.PAUSED_RECONCILIATION, Phase.MUTATING)
    assert parking.holder("a1") == run.id
    file_one(parking, "b1")
    assert parking.states() == {"a1": "reserved", "a2": "pending", "b1": "consumed"}
    assert parking.handler("file").failures == 0
    parking.check()


def test_events_with_the_ordering_key_of_a_parked_run_wait_for_it_and_the_others_do_not(parking: World) -> None:
    doubt = parking.uncertain("a1", reconcilable=True)
    assert peek(parking) == ["b1"]
    parking.model.fail_mutation(doubt.id, "not found", Resolver.RECONCILIATION)
    assert peek(parking) == ["a1", "a2", "b1"]
    assert parking.has_news("file")
    parking.check()


def test_what_is_held_back_is_held_back_from_those_who_know_its_id(parking: World) -> None:
    parking.uncertain("a1")
    q = parking.store.queries()
    assert reads.peek_one(q, WORKFLOW, "mail", "a2") is None
    assert reads.peek_one(q, WORKFLOW, "mail", "a1") is None
    found = reads.peek_one(q, WORKFLOW, "mail", "b1")
    assert found is not None
    assert found.message_id == "b1"


def test_an_event_that_is_published_later_waits_too(parking: World) -> None:
    parking.uncertain("a1")
    parking.model.publish_events(WORKFLOW, (parking.mail("a3", payload='{"to":1}'), parking.mail("c1", payload="7")))
    assert peek(parking) == ["b1", "c1"]


def test_without_an_ordering_key_only_the_events_of_the_run_wait(parking: World) -> None:
    activate(parking, None)
    parking.uncertain("a1")
    assert peek(parking) == ["a2", "b1"]


def test_the_key_is_found_anew_when_a_script_finds_it_elsewhere(parking: World) -> None:
    parking.uncertain("a1")
    activate(parking, None)
    assert peek(parking) == ["a2", "b1"]
    activate(parking, "to")
    assert peek(parking) == ["b1"]


def test_a_parked_run_whose_call_happened_goes_on_at_next_with_the_stored_result(parking: World) -> None:
    doubt = parking.uncertain("a1", reconcilable=True)
    file_one(parking, "b1")
    parking.model.apply_mutation(doubt.id, '{"rowId":9}', Resolver.RECONCILIATION)
    snapshot = reads.snapshot(parking.store.queries(), WORKFLOW)
    assert snapshot is not None
    assert (snapshot.retry_run_id, snapshot.retry_handler, snapshot.parked) == (doubt.run_id, "file", 1)
    assert peek(parking) == [], "a2 waits until `next` has run"
    again = retry(parking, doubt.run_id)
    assert (again.mutation_result, again.parked, again.phase) == ('{"rowId":9}', False, Phase.EMITTING)
    assert not parking.run(doubt.run_id).parked
    parking.model.commit_consumer(again.id)
    assert parking.states() == {"a1": "consumed", "a2": "pending", "b1": "consumed"}
    assert peek(parking) == ["a2"]
    assert parking.has_news("file")
    parking.check()


def test_an_outcome_that_comes_during_another_run_does_not_disturb_it(parking: World) -> None:
    doubt = parking.uncertain("a1")
    other = parking.emitting("b1")
    parking.model.apply_mutation(doubt.id, "1", Resolver.USER_ASSERT_APPLIED, by="ann")
    parking.check()
    parking.model.commit_consumer(other.id)
    parking.model.commit_consumer(retry(parking, doubt.run_id).id)
    assert parking.states()["a1"] == "consumed"


def test_what_a_parked_run_releases_is_news_to_a_run_that_has_looked_before(parking: World) -> None:
    doubt = parking.uncertain("a1", reconcilable=True)
    file_one(parking, "b1")
    looked = parking.prepared()
    parking.model.fail_mutation(doubt.id, "not found", Resolver.RECONCILIATION)
    parking.model.update_consumer_phase(looked.id, Phase.EMITTING)
    parking.model.commit_consumer(looked.id)
    assert parking.states() == {"a1": "pending", "a2": "pending", "b1": "consumed"}
    assert parking.has_news("file")
    parking.check()


def test_a_parked_run_that_a_person_skips_is_told_so_in_next(parking: World) -> None:
    doubt = parking.uncertain("a1")
    parking.model.skip_mutation(doubt.id, by="ann")
    assert parking.states()["a1"] == "skipped"
    again = retry(parking, doubt.run_id)
    parking.model.commit_consumer(again.id)
    assert parking.states() == {"a1": "skipped", "a2": "pending", "b1": "pending"}
    parking.check()


def test_several_runs_are_parked_and_go_on_oldest_first(parking: World) -> None:
    first, second = parking.uncertain("a1"), parking.uncertain("b1")
    for doubt in (second, first):
        parking.model.apply_mutation(doubt.id, "1", Resolver.USER_ASSERT_APPLIED, by="ann")
    for doubt in (first, second):
        snapshot = reads.snapshot(parking.store.queries(), WORKFLOW)
        assert snapshot is not None
        assert snapshot.retry_run_id == doubt.run_id
        parking.model.commit_consumer(retry(parking, doubt.run_id).id)
    assert parking.states() == {"a1": "consumed", "a2": "pending", "b1": "consumed"}
    parking.check()


def test_a_retry_of_a_parked_run_that_fails_is_the_pending_retry(parking: World) -> None:
    doubt = parking.uncertain("a1")
    parking.model.apply_mutation(doubt.id, "1", Resolver.USER_ASSERT_APPLIED, by="ann")
    again = retry(parking, doubt.run_id)
    parking.model.update_handler_run_status(again.id, RunStatus.PAUSED_TRANSIENT)
    assert parking.workflow().pending_retry_run_id == again.id
    parking.check()


def test_a_process_that_dies_in_a_call_leaves_its_run_parked(parking: World) -> None:
    call = parking.sent("a1")
    [recovered] = parking.model.recover_crashed_runs()
    assert (recovered.id, recovered.parked) == (call.run_id, True)
    assert parking.mutation(call.id).status is MutationStatus.NEEDS_RECONCILE
    assert parking.workflow().error == ""
    assert parking.states()["a1"] == "reserved"
    parking.check()


def test_an_approved_call_whose_outcome_is_unknown_lets_the_workflow_go_on(parking: World) -> None:
    call = parking.recorded("a1", ask=True)
    parking.model.update_handler_run_status(call.run_id, RunStatus.PAUSED_APPROVAL)
    parking.model.approve_mutation(parking.open_approval(call.id), by="ann")
    parking.model.update_mutation_status(call.id, MutationStatus.NEEDS_RECONCILE, "timed out")
    parking.model.update_handler_run_status(call.run_id, RunStatus.PAUSED_RECONCILIATION)
    workflow = parking.workflow()
    assert (workflow.error, workflow.pending_retry_run_id, parking.run(call.run_id).parked) == ("", None, True)
    parking.check()


def test_an_approval_parks_its_run_and_what_is_in_order_behind_it_waits(parking: World) -> None:
    call = parking.recorded("a1", ask=True)
    parking.model.update_handler_run_status(call.run_id, RunStatus.PAUSED_APPROVAL)
    assert (parking.workflow().error_run_id, parking.run(call.run_id).parked) == (None, True)
    assert peek(parking) == ["b1"]
    parking.model.reject_mutation(parking.open_approval(call.id), by="ann")
    assert peek(parking) == ["a2", "b1"], "a1 is skipped, and nothing waits for it"


def asked(world: World, message_id: str) -> Mutation:
    """A call that waits for a person, and its run parked."""
    call = world.recorded(message_id, ask=True, reconcilable=False)
    world.model.update_handler_run_status(call.run_id, RunStatus.PAUSED_APPROVAL)
    return call


def approved_and_unknown(world: World, call: Mutation) -> Mutation:
    world.model.approve_mutation(world.open_approval(call.id), by="ann")
    world.model.update_mutation_status(call.id, MutationStatus.INDETERMINATE, "timed out")
    world.model.update_handler_run_status(call.run_id, RunStatus.PAUSED_RECONCILIATION)
    return call


def test_the_doubt_of_an_approved_call_stops_the_workflow_if_doubts_do_until_it_is_settled(parking: World) -> None:
    parking.on_unknown = OnUnknown.PAUSE
    call = approved_and_unknown(parking, asked(parking, "a1"))
    workflow, run = parking.workflow(), parking.run(call.run_id)
    assert (run.parked, workflow.error_run_id, workflow.pending_retry_run_id) == (True, run.id, None)
    assert workflow.error_class is FailureClass.INDETERMINATE
    parking.check()
    parking.model.apply_mutation(call.id, "1", Resolver.USER_ASSERT_APPLIED, by="ann")
    assert (parking.workflow().error, parking.workflow().error_run_id) == ("", None)
    parking.model.commit_consumer(retry(parking, run.id).id)
    assert parking.states()["a1"] == "consumed"


def test_when_one_doubt_is_settled_the_next_one_stops_the_workflow(parking: World) -> None:
    parking.on_unknown = OnUnknown.PAUSE
    calls = [asked(parking, each) for each in ("a1", "b1")]
    for call in calls:
        approved_and_unknown(parking, call)
    assert parking.workflow().error_run_id == calls[0].run_id
    parking.model.skip_mutation(calls[0].id, by="ann")
    assert parking.workflow().error_run_id == calls[1].run_id
    parking.model.skip_mutation(calls[1].id, by="ann")
    assert parking.workflow().error == ""
    parking.check()


def test_a_handler_that_asks_is_not_failing_any_more(parking: World) -> None:
    parking.model.update_handler_run_status(parking.start().id, RunStatus.PAUSED_TRANSIENT, retry_at=5)
    asked(parking, "a1")
    handler = parking.handler("file")
    assert (handler.failures, handler.failing_since, handler.retry_at) == (0, None, None)


def test_the_doubt_of_an_approved_call_does_not_forgive_what_has_failed_since(parking: World) -> None:
    call = asked(parking, "a1")
    parking.model.update_handler_run_status(parking.start().id, RunStatus.PAUSED_TRANSIENT, retry_at=10**15)
    before = parking.handler("file")
    approved_and_unknown(parking, call)
    after = parking.handler("file")
    assert (after.failures, after.failing_since, after.retry_at) == (1, before.failing_since, 10**15)


def failing_since(world: World) -> int | None:
    return world.handler("file").failing_since


def test_the_answer_to_a_question_beside_the_work_takes_nothing_from_the_time_of_failing(parking: World) -> None:
    """The handler was tried all the while, and failed: it does not begin to fail with the answer."""
    call = asked(parking, "a1")
    parking.model.update_handler_run_status(parking.start().id, RunStatus.PAUSED_TRANSIENT)
    since = failing_since(parking)
    parking.clock.now += 1_000
    parking.model.reject_mutation(parking.open_approval(call.id), by="ann")
    assert failing_since(parking) == since


def test_while_a_doubt_stops_the_workflow_no_time_of_failing_passes(parking: World) -> None:
    parking.on_unknown = OnUnknown.PAUSE
    doubt = parking.uncertain("a1")
    since = failing_since(parking)
    assert since is not None
    parking.clock.now += 1_000
    parking.model.fail_mutation(doubt.id, resolved_by=Resolver.USER_ASSERT_FAILED, by="ann")
    now = parking.clock_of_last_commit()
    assert failing_since(parking) == now, "it has failed when it stopped, and since then nothing was tried"


def test_a_parked_doubt_is_never_repaired(parking: World) -> None:
    doubt = parking.uncertain("a1")
    parking.model.update_handler_run_status(
        parking.start().id, RunStatus.FAILED_LOGIC, RunError(FailureClass.LOGIC, "x")
    )
    assert parking.mutation(doubt.id).status is MutationStatus.INDETERMINATE
    assert parking.holder("a1") == doubt.run_id
    parking.check()


def test_workflows_with_a_parked_doubt_need_attention_until_it_is_settled(parking: World) -> None:
    doubt = parking.uncertain("a1")
    q = parking.store.queries()
    assert [each.id for each in reads.workflows_needing_attention(q)] == [WORKFLOW]
    parking.model.apply_mutation(doubt.id, "1", Resolver.USER_ASSERT_APPLIED, by="ann")
    assert reads.workflows_needing_attention(q) == []


def test_a_script_keeps_the_consumer_of_a_parked_run(parking: World) -> None:
    parking.uncertain("a1")
    version = parking.model.add_script_version(parking.name("ver"), WORKFLOW, 2, 0, "without")
    without = tuple(each for each in HANDLERS if each.name != "file")
    with pytest.raises(Rejected) as refused:
        parking.model.activate_script(version.id, TOPICS, without)
    assert refused.value.reason is Reason.HANDLER_NOT_DECLARED


@pytest.mark.parametrize("status", sorted(set(RunStatus) - {"active", "committed", "failed:logic"}))
def test_however_a_run_stops_in_the_middle_of_a_call_it_is_parked(parking: World, status: RunStatus) -> None:
    call = parking.sent("a1")
    stopped = parking.model.update_handler_run_status(call.run_id, status)
    assert (stopped.parked, parking.workflow().error, parking.states()["a1"]) == (True, "", "reserved")
    parking.check()


def test_the_journal_says_that_a_run_was_parked(parking: World) -> None:
    doubt: Mutation = parking.uncertain("a1")
    last = [each for each in parking.journal() if each.run_id == doubt.run_id][-1]
    assert '"parked":true' in last.changed
