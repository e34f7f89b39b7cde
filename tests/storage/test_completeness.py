"""One test for each row of the tables *Completeness* and *Method safety* of the execution state document."""

import re
from pathlib import Path

import pytest

from keep_storage import Reason, Rejected
from keep_storage.model import FailureClass, MutationStatus, Phase, Resolver, RunStatus, SessionResult
from keep_storage.operations import CommitProducer, RunError
from tests.storage.world import WORKFLOW, World

ROOMS = Path(__file__).parents[2]

STOPPED = [
    RunStatus.PAUSED_TRANSIENT,
    RunStatus.PAUSED_APPROVAL,
    RunStatus.FAILED_LOGIC,
    RunStatus.FAILED_INTERNAL,
    RunStatus.CRASHED,
]
"""Every way to stop without a doubt about the outside."""


def error_of(status: RunStatus) -> RunError:
    return RunError(FailureClass.INTERNAL, f"stopped as {status}")


# Completeness: a failure on either side of the mutation, for every kind of failure.


@pytest.mark.parametrize("status", STOPPED)
@pytest.mark.parametrize("phase", ["preparing", "prepared", "mutating", "mutated"])
def test_a_consumer_that_fails_before_its_mutation_releases_its_events(
    world: World, phase: str, status: RunStatus
) -> None:
    world.publish("m1")
    run = world.start() if phase == "preparing" else world.prepared("m1")
    for step in {"mutating": [Phase.MUTATING], "mutated": [Phase.MUTATING, Phase.MUTATED]}.get(phase, []):
        world.model.update_consumer_phase(run.id, step)

    stopped = world.model.update_handler_run_status(run.id, status, error_of(status))

    assert (stopped.phase, stopped.status) == (phase, status)
    assert world.states() == {"m1": "pending"}
    assert world.workflow().pending_retry_run_id is None


@pytest.mark.parametrize("status", STOPPED)
@pytest.mark.parametrize("phase", ["mutated", "emitting"])
def test_a_consumer_that_fails_after_its_mutation_waits_for_its_retry(
    world: World, phase: str, status: RunStatus
) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.apply_mutation(mutation.id)
    if phase == "emitting":
        world.model.update_consumer_phase(mutation.run_id, Phase.EMITTING)

    stopped = world.model.update_handler_run_status(mutation.run_id, status, error_of(status))

    assert (stopped.phase, stopped.status) == (phase, status)
    assert (world.states(), world.holder("m1")) == ({"m1": "reserved"}, mutation.run_id)
    assert world.workflow().pending_retry_run_id == mutation.run_id


@pytest.mark.parametrize("status", STOPPED)
def test_only_what_needs_a_person_sets_the_error_of_the_workflow(world: World, status: RunStatus) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, status, error_of(status))
    needs_a_person = status in (RunStatus.PAUSED_APPROVAL, RunStatus.FAILED_INTERNAL)
    assert world.workflow().error == (f"stopped as {status}" if needs_a_person else "")


@pytest.mark.parametrize("status", STOPPED)
def test_only_a_logic_error_sets_the_maintenance_flag(world: World, status: RunStatus) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, status, error_of(status))
    assert world.workflow().maintenance is (status is RunStatus.FAILED_LOGIC)


@pytest.mark.parametrize("status", STOPPED)
def test_a_run_that_stops_ends_its_session_and_never_touches_the_status_of_the_workflow(
    world: World, status: RunStatus
) -> None:
    run = world.start()
    world.model.pause_workflow(WORKFLOW)
    world.model.update_handler_run_status(run.id, status, error_of(status), cost_micros=5)
    session = world.session_row(run.session_id)
    assert (session.result, session.cost_micros) == (SessionResult.FAILED, 5)
    assert world.workflow().status == "paused"


@pytest.mark.parametrize("outcome", ["", "failure"])
def test_a_run_without_an_effect_is_released_however_far_it_came(world: World, outcome: str) -> None:
    world.publish("m1")
    if outcome:
        mutation = world.sent("m1")
        run_id = mutation.run_id
        world.model.fail_mutation(mutation.id)
    else:
        run_id = world.mutating("m1").id
        world.model.update_consumer_phase(run_id, Phase.MUTATED)
        world.model.update_consumer_phase(run_id, Phase.EMITTING)
    world.model.update_handler_run_status(run_id, RunStatus.CRASHED)
    assert world.states() == {"m1": "pending"}
    assert world.workflow().pending_retry_run_id is None


# Completeness: the mutation.


def test_an_applied_mutation_sets_the_outcome(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.apply_mutation(mutation.id)
    assert world.run(mutation.run_id).mutation_outcome == "success"


def test_a_definite_failure_in_an_active_run_releases_the_events_and_leaves_the_status_to_the_caller(
    world: World,
) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.fail_mutation(mutation.id)
    assert world.run(mutation.run_id).status is RunStatus.ACTIVE
    assert world.states() == {"m1": "pending"}


def test_a_failure_found_by_reconciliation_releases_the_events_and_clears_the_error(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=True)
    world.model.fail_mutation(mutation.id, resolved_by=Resolver.RECONCILIATION)
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", None)


def test_a_person_who_says_it_did_not_happen_releases_the_events_and_clears_the_error(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    world.model.fail_mutation(mutation.id, resolved_by=Resolver.USER_ASSERT_FAILED, by="ada")
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", None)


def test_a_person_who_skips_leaves_a_retry_and_clears_the_error(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    world.model.skip_mutation(mutation.id, by="ada")
    assert world.states() == {"m1": "skipped"}
    assert world.run(mutation.run_id).phase is Phase.MUTATED
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", mutation.run_id)


def test_a_person_who_says_it_happened_lets_next_run_with_the_result_they_gave(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    world.model.apply_mutation(mutation.id, '{"rowId":3}', Resolver.USER_ASSERT_APPLIED, by="ada", why="saw the row")
    retry = world.model.create_retry_run("run_r", mutation.run_id, world.session())
    assert (retry.mutation_outcome, retry.mutation_result) == ("success", '{"rowId":3}')
    assert world.workflow().error == ""


def test_reconciliation_that_finds_the_effect_goes_forward_without_ever_releasing(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=True)
    world.model.update_mutation_status(mutation.id, MutationStatus.NEEDS_RECONCILE, "not yet", next_reconcile_at=9)
    assert world.states() == {"m1": "reserved"}
    world.model.apply_mutation(mutation.id, "1", Resolver.RECONCILIATION)
    assert world.states() == {"m1": "reserved"}
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", mutation.run_id)


# Completeness: commits, phases, sessions.


def test_a_consumer_commit_consumes_its_events_and_saves_its_state(world: World) -> None:
    world.publish("m1")
    world.model.commit_consumer(world.emitting("m1").id, state="{}")
    assert (world.states(), world.handler("file").state) == ({"m1": "consumed"}, "{}")


def test_a_producer_commit_saves_its_state_and_its_schedule(world: World) -> None:
    world.model.commit_producer(world.start("poll").id, next_run_at=77, state="{}")
    assert (world.handler("poll").state, world.handler("poll").next_run_at) == ("{}", 77)


def test_reaching_prepared_reserves_the_events(world: World) -> None:
    world.publish("m1")
    run = world.prepared("m1")
    assert world.holder("m1") == run.id


def test_finishing_a_session_sums_its_cost(world: World) -> None:
    for _ in range(2):
        run = world.start("poll")
        world.model.commit_producer(run.id, next_run_at=1, cost_micros=30)
    session = world.model.finish_session(world.session())
    assert (session.result, session.cost_micros) == (SessionResult.COMPLETED, 60)


def test_a_retry_copies_the_results_and_takes_over_the_reservations(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1", result='{"rowId":9}')
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    retry = world.model.create_retry_run("run_r", run.id, world.session())
    assert (retry.prepare_result, retry.mutation_result) == (run.prepare_result, '{"rowId":9}')
    assert world.holder("m1") == "run_r"


def test_a_retry_of_a_retry_still_has_the_stored_result(world: World) -> None:
    world.publish("m1")
    last = world.emitting("m1", result='{"rowId":9}').id
    for number in range(3):
        world.model.update_handler_run_status(last, RunStatus.PAUSED_TRANSIENT)
        retry = world.model.create_retry_run(f"run_r{number}", last, world.session())
        assert (retry.mutation_outcome, retry.mutation_result) == ("success", '{"rowId":9}')
        last = retry.id
    world.model.commit_consumer(last)
    assert world.states() == {"m1": "consumed"}


# Completeness: recovery and maintenance.


def test_recovery_treats_a_crash_after_a_settled_mutation_by_its_outcome(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.fail_mutation(mutation.id)
    [recovered] = world.model.recover_crashed_runs(WORKFLOW)
    assert (recovered.status, world.states()) == (RunStatus.CRASHED, {"m1": "pending"})


@pytest.mark.parametrize("reconcilable", [True, False])
def test_recovery_asks_the_connector_if_it_can_check_and_a_person_if_not(world: World, reconcilable: bool) -> None:
    world.publish("m1")
    mutation = world.sent("m1", reconcilable=reconcilable)
    world.model.recover_crashed_runs()
    found = world.mutation(mutation.id)
    assert found.status is (MutationStatus.NEEDS_RECONCILE if reconcilable else MutationStatus.INDETERMINATE)
    assert (found.next_reconcile_at is not None) is reconcilable
    assert world.workflow().error != ""


def test_recovery_holds_a_run_whose_mutation_was_already_indeterminate(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1", reconcilable=False)
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE, "timed out")
    [recovered] = world.model.recover_crashed_runs()
    assert recovered.status is RunStatus.PAUSED_RECONCILIATION
    assert world.states() == {"m1": "reserved"}


def test_recovery_knows_that_what_was_never_sent_did_not_happen(world: World) -> None:
    world.publish("m1")
    mutation = world.recorded("m1")
    [recovered] = world.model.recover_crashed_runs()
    assert recovered.status is RunStatus.CRASHED
    found = world.mutation(mutation.id)
    assert (found.status, found.resolved_by) == (MutationStatus.FAILED, Resolver.RECOVERY)
    assert world.states() == {"m1": "pending"}


def test_recovery_of_one_workflow_leaves_the_others_alone(world: World) -> None:
    world.deploy("wf_other")
    mine, other = world.start(), world.start(workflow="wf_other")
    assert [run.id for run in world.model.recover_crashed_runs(WORKFLOW)] == [mine.id]
    assert world.run(other.id).status is RunStatus.ACTIVE


def test_the_maintenance_task_lost_in_a_crash_is_created_again(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC)
    [task] = world.model.recover_maintenance_mode()
    assert (task.workflow_id, task.run_id) == (WORKFLOW, run.id)
    assert world.model.recover_maintenance_mode() == ()


def test_leaving_maintenance_keeps_the_pending_retry(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC)
    workflow = world.model.exit_maintenance_mode(WORKFLOW)
    assert (workflow.maintenance, workflow.pending_retry_run_id) == (False, run.id)


def test_pausing_and_resuming_touch_the_status_and_nothing_else(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    before = world.workflow()
    world.model.pause_workflow(WORKFLOW)
    resumed = world.model.resume_workflow(WORKFLOW)
    assert (resumed.error, resumed.pending_retry_run_id) == (before.error, mutation.run_id)
    assert world.states() == {"m1": "reserved"}


# Method safety.


def test_the_phase_cannot_be_set_to_committed(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    with pytest.raises(Rejected) as refusal:
        world.model.update_consumer_phase(run.id, Phase.COMMITTED)
    assert refusal.value.reason is Reason.COMMIT_HAS_ITS_OWN_OPERATION
    with pytest.raises(Rejected) as refusal:
        world.model.update_handler_run_status(run.id, RunStatus.COMMITTED)
    assert refusal.value.reason is Reason.COMMIT_HAS_ITS_OWN_OPERATION


def test_nobody_can_forget_to_release_events_when_a_mutation_fails(world: World) -> None:
    world.publish("m1", "m2")
    world.model.fail_mutation(world.sent("m1", "m2").id)
    assert world.states() == {"m1": "pending", "m2": "pending"}


def test_nobody_can_forget_the_pending_retry(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_INTERNAL)
    assert world.workflow().pending_retry_run_id == run.id


def test_nobody_can_forget_to_transfer_the_reservations(world: World) -> None:
    world.publish("m1", "m2")
    run = world.emitting("m1", "m2")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.create_retry_run("run_r", run.id, world.session())
    assert (world.holder("m1"), world.holder("m2")) == ("run_r", "run_r")


@pytest.mark.parametrize("how", ["prepared", "failed", "no mutation called", "uncertain"])
def test_a_run_without_a_settled_mutation_cannot_be_retried(world: World, how: str) -> None:
    world.publish("m1")
    match how:
        case "prepared":
            run_id = world.prepared("m1").id
            world.model.update_handler_run_status(run_id, RunStatus.PAUSED_TRANSIENT)
        case "failed":
            mutation = world.sent("m1")
            run_id = mutation.run_id
            world.model.fail_mutation(mutation.id)
            world.model.update_handler_run_status(run_id, RunStatus.PAUSED_TRANSIENT)
        case "no mutation called":
            run_id = world.mutating("m1").id
            world.model.update_consumer_phase(run_id, Phase.MUTATED)
            world.model.update_handler_run_status(run_id, RunStatus.PAUSED_TRANSIENT)
        case _:
            run_id = world.uncertain("m1").run_id
    with pytest.raises(Rejected) as refusal:
        world.model.create_retry_run("run_r", run_id, world.session())
    assert refusal.value.reason is Reason.RUN_NOT_POST_MUTATION


def test_nobody_can_forget_to_end_the_session_of_a_run_that_stopped(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.CRASHED)
    assert world.session_row(run.session_id).ended_at is not None


def test_nobody_can_forget_the_schedule_of_a_producer() -> None:
    """`next_run_at` has no default: a commit that does not say it cannot be written."""
    with pytest.raises(TypeError, match="next_run_at"):
        CommitProducer("run_1")  # type: ignore[call-arg]


def test_the_commit_of_one_kind_is_refused_for_the_other(world: World) -> None:
    producer = world.start("poll")
    with pytest.raises(Rejected) as refusal:
        world.model.commit_consumer(producer.id)
    assert refusal.value.reason is Reason.RUN_NOT_A_CONSUMER
    world.model.commit_producer(producer.id, next_run_at=1)
    consumer = world.start("file")
    with pytest.raises(Rejected) as refusal:
        world.model.commit_producer(consumer.id, next_run_at=1)
    assert refusal.value.reason is Reason.RUN_NOT_A_PRODUCER
    with pytest.raises(Rejected) as refusal:
        world.model.commit_job(consumer.id, next_run_at=1)
    assert refusal.value.reason is Reason.RUN_NOT_A_JOB


def test_no_other_code_writes_the_controlled_variables() -> None:
    """Only the operations call what writes; nothing outside the storage names a query that does."""
    writes = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM)\s+(runs|events|mutations|sessions|workflows)\b")
    offenders = [
        str(path.relative_to(ROOMS))
        for folder in ("keep_actors", "sandbox", "storage")
        for path in (ROOMS / folder).rglob("*.py")
        if writes.search(path.read_text("utf-8"))
    ]
    assert offenders == []


def test_the_rows_are_written_only_by_the_modules_of_the_operations() -> None:
    nouns = {
        "workflows",
        "sessions",
        "runs",
        "stopped_runs",
        "events",
        "mutations",
        "settlement",
        "amendments",
        "approvals",
        "stops",
        "items",
        "grants",
        "maintenance",
        "notices",
        "proposals",
        "recovery",
        "retired_topics",
        "journal",
        "rows",
        "event_rows",
        "mutation_rows",
        "notice_rows",
        "proposal_rows",
    }
    writing = re.compile(r"\btx\.run\(|rows\.(save|insert|set|release|consume|skip|reserve|transfer|end)_\w+\(")
    package = ROOMS / "storage" / "keep_storage"
    writers = {path.stem for path in package.glob("*.py") if writing.search(path.read_text("utf-8"))}
    assert writers <= nouns
