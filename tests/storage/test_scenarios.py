"""The fifteen scenarios of the execution state document, each told as it is told there."""

import msgspec

from keep_storage.model import (
    FailureClass,
    HandlerKind,
    MaintenanceTask,
    MutationOutcome,
    MutationStatus,
    Phase,
    Resolver,
    RunStatus,
    SessionResult,
)
from keep_storage.operations import HandlerSpec, Reserve, RunError
from keep_storage.outcomes import mutation_result_for_next
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World

LOGIC = RunError(FailureClass.LOGIC, "x is not a function", "script.js:12:7")
TRANSIENT = RunError(FailureClass.TRANSIENT, "503 from the mail server")
AUTH = RunError(FailureClass.AUTH, "Authentication required")


def repair(world: World, minor: int = 1) -> None:
    """The maintainer uploads the next minor version and leaves maintenance."""
    version = world.model.add_script_version(world.name("ver"), WORKFLOW, 1, minor, "fixed")
    world.model.activate_script(version.id, TOPICS, HANDLERS)
    world.model.exit_maintenance_mode(WORKFLOW)


def finish_retry(world: World, failed_run_id: str) -> str:
    """The scheduler takes the pending retry first, and `next` succeeds."""
    assert world.workflow().pending_retry_run_id == failed_run_id
    retry = world.model.create_retry_run(world.name("run"), failed_run_id, world.session())
    assert (retry.phase, retry.retry_of) == (Phase.EMITTING, failed_run_id)
    assert world.workflow().pending_retry_run_id is None
    world.model.commit_consumer(retry.id)
    return retry.id


def process_afresh(world: World, *message_ids: str) -> None:
    """A fresh run takes the released events all the way."""
    run = world.emitting(*message_ids)
    world.model.commit_consumer(run.id)


def test_01_a_consumer_fails_in_preparing_with_a_logic_error(world: World) -> None:
    world.publish("m1")
    run = world.start("file")

    failed = world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC, LOGIC)

    assert (failed.status, failed.phase) == (RunStatus.FAILED_LOGIC, Phase.PREPARING)
    assert (failed.error_class, failed.error_message, failed.error_place) == (
        FailureClass.LOGIC,
        LOGIC.message,
        LOGIC.place,
    )
    assert world.states() == {"m1": "pending"}
    session = world.session_row(run.session_id)
    assert (session.result, session.error) == (SessionResult.FAILED, LOGIC.message)
    workflow = world.workflow()
    assert (workflow.status, workflow.maintenance, workflow.error) == ("active", True, "")
    assert workflow.pending_retry_run_id is None

    task = world.model.create_maintenance_task(WORKFLOW, '{"error":"x is not a function"}')
    assert task.run_id == run.id
    repair(world)
    process_afresh(world, "m1")
    assert world.states() == {"m1": "consumed"}


def test_02_a_consumer_fails_in_emitting_with_a_logic_error(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1", result='{"rowId":7}')

    failed = world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC, LOGIC)

    assert (failed.status, failed.phase) == (RunStatus.FAILED_LOGIC, Phase.EMITTING)
    assert world.workflow().pending_retry_run_id == run.id
    assert (world.states(), world.holder("m1")) == ({"m1": "reserved"}, run.id)
    assert world.workflow().maintenance

    world.model.create_maintenance_task(WORKFLOW)
    repair(world)
    assert world.workflow().pending_retry_run_id == run.id, "leaving maintenance keeps the pending retry"
    retry = world.model.create_retry_run("run_retry", run.id, world.session())
    assert (retry.prepare_result, retry.mutation_result) == (run.prepare_result, '{"rowId":7}')
    assert retry.mutation_outcome is MutationOutcome.SUCCESS
    assert mutation_result_for_next(retry) == '{"status":"applied","result":{"rowId":7}}'
    assert world.holder("m1") == "run_retry"
    world.model.commit_consumer(retry.id)
    assert world.states() == {"m1": "consumed"}


def test_03_a_transient_error_in_preparing(world: World) -> None:
    world.publish("m1")
    run = world.prepared("m1")

    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, TRANSIENT)

    assert world.states() == {"m1": "pending"}
    assert world.session_row(run.session_id).result is SessionResult.FAILED
    workflow = world.workflow()
    assert (workflow.status, workflow.error, workflow.maintenance) == ("active", "", False)
    process_afresh(world, "m1")
    assert world.states() == {"m1": "consumed"}


def test_04_a_transient_error_in_emitting(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")

    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, TRANSIENT)

    assert world.states() == {"m1": "reserved"}
    assert (world.workflow().error, world.workflow().maintenance) == ("", False)
    finish_retry(world, run.id)
    assert world.states() == {"m1": "consumed"}


def test_05_a_mutation_is_applied(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")

    applied = world.model.apply_mutation(mutation.id, '{"rowId":7}')

    assert (applied.status, applied.result, applied.resolved_by) == ("applied", '{"rowId":7}', Resolver.CONNECTOR)
    run = world.run(mutation.run_id)
    assert (run.phase, run.mutation_outcome, run.status) == (Phase.MUTATED, "success", RunStatus.ACTIVE)
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    committed = world.model.commit_consumer(run.id, state='{"count":1}')
    assert (committed.phase, committed.status) == (Phase.COMMITTED, RunStatus.COMMITTED)
    assert world.states() == {"m1": "consumed"}
    assert world.handler("file").state == '{"count":1}'


def test_06_a_mutation_fails_definitely(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")

    world.model.fail_mutation(mutation.id, "400: no such sheet")

    run = world.run(mutation.run_id)
    assert (run.phase, run.mutation_outcome, run.status) == (Phase.MUTATED, "failure", RunStatus.ACTIVE)
    assert world.states() == {"m1": "pending"}
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC, LOGIC)
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().maintenance, world.workflow().pending_retry_run_id) == (True, None)
    world.model.create_maintenance_task(WORKFLOW)
    repair(world)
    process_afresh(world, "m1")
    assert world.states() == {"m1": "consumed"}


def test_07_a_crash_during_the_call_and_the_person_says_it_did_not_happen(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1", reconcilable=False)

    [recovered] = world.model.recover_crashed_runs()

    assert (recovered.id, recovered.status) == (mutation.run_id, RunStatus.PAUSED_RECONCILIATION)
    assert recovered.phase is Phase.MUTATING
    assert world.mutation(mutation.id).status is MutationStatus.INDETERMINATE
    assert world.states() == {"m1": "reserved"}
    assert world.workflow().pending_retry_run_id == mutation.run_id
    assert world.workflow().error.startswith("Mutation outcome uncertain")
    assert world.session_row(recovered.session_id).result is SessionResult.FAILED

    world.model.fail_mutation(mutation.id, resolved_by=Resolver.USER_ASSERT_FAILED, by="ada", why="no row in the sheet")

    settled = world.mutation(mutation.id)
    assert (settled.status, settled.resolved_by, settled.resolved_who) == ("failed", "user_assert_failed", "ada")
    assert world.run(mutation.run_id).phase is Phase.MUTATED
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().pending_retry_run_id, world.workflow().error) == (None, "")
    process_afresh(world, "m1")
    assert world.states() == {"m1": "consumed"}


def test_08_an_indeterminate_mutation_and_the_person_skips_it(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")

    world.model.skip_mutation(mutation.id, by="ada", why="not worth it")

    settled = world.mutation(mutation.id)
    assert (settled.status, settled.resolved_by) == ("failed", "user_skip")
    run = world.run(mutation.run_id)
    assert (run.phase, run.mutation_outcome, run.status) == ("mutated", "skipped", "paused:reconciliation")
    assert world.states() == {"m1": "skipped"}
    assert (world.workflow().pending_retry_run_id, world.workflow().error) == (run.id, "")

    retry = world.model.create_retry_run("run_retry", run.id, world.session())
    assert mutation_result_for_next(retry) == '{"status":"skipped","reason":"not worth it"}'
    world.model.commit_consumer(retry.id)
    assert world.states() == {"m1": "skipped"}


def test_09_prepare_returns_empty_reservations(world: World) -> None:
    world.publish("m1")
    run = world.start("file")

    run = world.model.update_consumer_phase(
        run.id, Phase.PREPARED, prepare_result='{"reservations":[]}', wake_at=1_700_000_100_000
    )

    assert run.reserved_count == 0
    assert world.handler("file").wake_at == 1_700_000_100_000
    run = world.model.update_consumer_phase(run.id, Phase.EMITTING)
    assert mutation_result_for_next(run) == '{"status":"none"}'
    world.model.commit_consumer(run.id, state='{"waiting":true}')
    assert world.states() == {"m1": "pending"}
    assert world.handler("file").state == '{"waiting":true}'


def test_10_a_full_consumer_cycle(world: World) -> None:
    world.publish("m1", "m2")
    run = world.start("file")
    world.model.update_consumer_phase(
        run.id, Phase.PREPARED, (Reserve("mail", ("m1", "m2")),), '{"data":{}}', "File two mails"
    )
    assert world.states() == {"m1": "reserved", "m2": "reserved"}
    world.model.update_consumer_phase(run.id, Phase.MUTATING)
    mutation = world.model.create_mutation("mut_1", run.id, "sheets", "append", "{}", "key", reconcilable=True)
    assert (mutation.status, mutation.title) == (MutationStatus.PENDING, "File two mails")
    world.model.update_mutation_status("mut_1", MutationStatus.IN_FLIGHT)
    world.model.apply_mutation("mut_1", '{"rowId":1}')
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    world.model.commit_consumer(run.id, (world.mail("row-1", "rows"),), state='{"n":1}')

    assert world.states() == {"m1": "consumed", "m2": "consumed"}
    assert world.states("rows") == {"row-1": "pending"}
    second = world.prepared("row-1", handler="announce", topic="rows")
    world.model.update_consumer_phase(second.id, Phase.EMITTING)
    world.model.commit_consumer(second.id)
    assert second.session_id == run.session_id, "the session goes on while there is work"
    session = world.model.finish_session(run.session_id)
    assert (session.result, session.handler_run_count) == (SessionResult.COMPLETED, 2)


def test_11a_a_crash_before_the_mutation_releases_the_events(world: World) -> None:
    world.publish("m1")
    run = world.prepared("m1")

    [recovered] = world.model.recover_crashed_runs()

    assert (recovered.id, recovered.status, recovered.phase) == (run.id, RunStatus.CRASHED, Phase.PREPARED)
    assert world.states() == {"m1": "pending"}
    assert (world.workflow().error, world.workflow().pending_retry_run_id) == ("", None)
    process_afresh(world, "m1")


def test_11a_a_crash_after_the_mutation_goes_forward(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.apply_mutation(mutation.id, "1")

    [recovered] = world.model.recover_crashed_runs()

    assert (recovered.status, recovered.phase) == (RunStatus.CRASHED, Phase.MUTATED)
    assert world.states() == {"m1": "reserved"}
    finish_retry(world, mutation.run_id)
    assert world.states() == {"m1": "consumed"}


def test_11b_a_crash_after_the_status_was_written_leaves_nothing_to_recover(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, TRANSIENT)
    before = world.workflow()

    assert world.model.recover_crashed_runs() == ()

    assert world.workflow() == before
    assert world.model.assert_no_orphaned_reserved_events() == []


def test_11c_a_crash_before_the_session_was_finished(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.commit_consumer(run.id, cost_micros=1200)

    [session] = world.model.recover_unfinished_sessions()

    assert (session.result, session.cost_micros, session.handler_run_count) == (SessionResult.COMPLETED, 1200, 1)
    assert world.model.recover_unfinished_sessions() == ()


def test_12_a_producer_succeeds(world: World) -> None:
    run = world.start("poll")

    committed = world.model.commit_producer(
        run.id, next_run_at=1_700_000_300_000, publishes=(world.mail("m1"),), state='{"cursor":9}'
    )

    assert (committed.phase, committed.status) == (Phase.COMMITTED, RunStatus.COMMITTED)
    assert committed.output_state == '{"cursor":9}'
    assert world.states() == {"m1": "pending"}
    handler = world.handler("poll")
    assert (handler.state, handler.next_run_at) == ('{"cursor":9}', 1_700_000_300_000)
    assert world.session_row(run.session_id).handler_run_count == 1


def test_13_a_producer_fails(world: World) -> None:
    run = world.start("poll")

    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC, LOGIC)

    assert world.session_row(run.session_id).result is SessionResult.FAILED
    workflow = world.workflow()
    assert (workflow.status, workflow.maintenance, workflow.pending_retry_run_id) == ("active", True, None)
    assert world.handler("poll").next_run_at == 0, "it is still due"


def test_14_an_auth_error_before_the_mutation(world: World) -> None:
    world.publish("m1")
    run = world.prepared("m1")

    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL, AUTH)

    assert world.states() == {"m1": "pending"}
    workflow = world.workflow()
    assert (workflow.error, workflow.error_class) == ("Authentication required", FailureClass.AUTH)
    assert workflow.pending_retry_run_id is None
    world.model.clear_workflow_error(WORKFLOW, by="ada", why="reconnected the mailbox")
    process_afresh(world, "m1")
    assert world.states() == {"m1": "consumed"}


def test_14_an_auth_error_after_the_mutation(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")

    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL, AUTH)

    assert world.states() == {"m1": "reserved"}
    assert world.workflow().error == "Authentication required"
    world.model.clear_workflow_error(WORKFLOW, by="ada")
    finish_retry(world, run.id)
    assert world.states() == {"m1": "consumed"}


def test_15_of_two_consumers_the_second_fails(world: World) -> None:
    world.publish("m1")
    first = world.emitting("m1")
    world.model.commit_consumer(first.id, (world.mail("row-1", "rows"),))
    second = world.prepared("row-1", handler="announce", topic="rows")
    world.model.update_consumer_phase(second.id, Phase.MUTATING)
    world.model.create_mutation("mut_2", second.id, "slack", "post", "{}", "key-2", reconcilable=True, send=True)
    world.model.apply_mutation("mut_2", '{"ts":1}')
    world.model.update_consumer_phase(second.id, Phase.EMITTING)

    world.model.update_handler_run_status(second.id, RunStatus.FAILED_LOGIC, LOGIC)

    session = world.session_row(first.session_id)
    assert (session.result, session.handler_run_count) == (SessionResult.FAILED, 1)
    assert world.states() == {"m1": "consumed"}
    assert world.states("rows") == {"row-1": "reserved"}
    world.model.create_maintenance_task(WORKFLOW)
    repair(world)
    finish_retry(world, second.id)
    assert world.states("rows") == {"row-1": "consumed"}
    world.model.finish_session(world.session())


def test_the_maintenance_task_keeps_its_evidence(world: World) -> None:
    run = world.start("poll")
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC, LOGIC)

    task = world.model.create_maintenance_task(WORKFLOW, '{"logs":["a"]}')

    assert isinstance(task, MaintenanceTask)
    assert msgspec.json.decode(task.evidence) == {"logs": ["a"]}


def test_a_dropped_handler_that_comes_back_has_its_state_and_is_planned_as_if_it_were_new(world: World) -> None:
    run = world.start("poll")
    world.model.commit_producer(run.id, next_run_at=5, state='{"cursor":9}')
    without = world.model.add_script_version("ver_without", WORKFLOW, 1, 1, "…")
    world.model.activate_script(without.id, TOPICS, (HandlerSpec("file", HandlerKind.CONSUMER, ("mail",)),))
    assert not world.handler("poll").declared
    repaired = world.model.add_script_version("ver_again", WORKFLOW, 1, 2, "…")

    world.model.activate_script(repaired.id, TOPICS, HANDLERS)

    handler = world.handler("poll")
    assert (handler.declared, handler.state, handler.next_run_at) == (True, '{"cursor":9}', 0)
