"""Every reason to refuse has a way to meet it, and a refusal changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from keep_storage import ExecutionModelManager, Operation, Reason, Rejected, Store
from keep_storage.limits import PROPOSAL_OPEN_MS, PROPOSAL_SOURCE_CHARS_MAX, PROPOSALS_A_DAY_MAX, PROPOSALS_OPEN_MAX
from keep_storage.model import (
    GrantPolicy,
    HandlerKind,
    ItemState,
    MutationStatus,
    NoticeKind,
    OnUnknown,
    Phase,
    Resolver,
    RunStatus,
    Says,
)
from keep_storage.operations import AskFirst, GrantUse, HandlerSpec, ItemScope, Publish, Reserve
from tests.storage.databases import Contents, Opened
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World, ordered

Attempt = Callable[[World], Any]
ATTEMPTS: list[tuple[Reason, Attempt]] = []


def meets(reason: Reason) -> Callable[[Attempt], Attempt]:
    """The function prepares a world and ends with the one call that is refused."""

    def note(attempt: Attempt) -> Attempt:
        ATTEMPTS.append((reason, attempt))
        return attempt

    return note


def activate(world: World, topics: tuple[str, ...], *handlers: HandlerSpec, **more: Any) -> None:
    version = world.model.add_script_version(world.name("ver"), WORKFLOW, 2, 0, "…")
    world.model.activate_script(version.id, topics, handlers, **more)


def prepare(world: World, run_id: str, *reservations: Reserve) -> None:
    world.model.update_consumer_phase(run_id, Phase.PREPARED, reservations, "{}")


def call(world: World, run_id: str, item: ItemScope | None = None, **options: Any) -> Any:
    name = world.name("mut")
    return world.model.create_mutation(
        name, run_id, "sheets", "append", "{}", f"key-{name}", options.pop("reconcilable", True), item=item, **options
    )


def inside_item(world: World, item_id: str = "i1") -> str:
    run = world.start("digest")
    world.model.open_item(run.id, item_id, f"Item {item_id}")
    return run.id


def finished_item(world: World, state: ItemState = ItemState.DONE) -> None:
    run_id = inside_item(world)
    world.model.close_item(run_id, "i1", state)
    world.model.commit_job(run_id, next_run_at=1)


def broken(world: World) -> None:
    """A run has failed by its logic, and the repair is ordered."""
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.FAILED_LOGIC)
    world.model.create_maintenance_task(WORKFLOW)


def proposal(world: World, minor: int = 1) -> str:
    return world.model.add_script_version(world.name("ver"), WORKFLOW, 1, minor, "repaired").id


# The thing that was named is not there, or is already there.


@meets(Reason.ID_TAKEN)
def a_second_workflow_with_the_same_id(world: World) -> None:
    world.model.create_workflow(WORKFLOW, "again")


@meets(Reason.ID_TAKEN)
def a_second_version_with_the_same_id(world: World) -> None:
    world.model.add_script_version("ver_x", WORKFLOW, 3, 0, "…")
    world.model.add_script_version("ver_x", WORKFLOW, 3, 1, "…")


@meets(Reason.ID_TAKEN)
def a_second_session_with_the_same_id(world: World) -> None:
    session = world.session()
    world.model.finish_session(session)
    world.model.create_session(session, WORKFLOW)


@meets(Reason.ID_TAKEN)
def a_second_run_with_the_same_id(world: World) -> None:
    run = world.start("poll")
    world.model.commit_producer(run.id, next_run_at=1)
    world.model.create_run(run.id, world.session(), "poll")


@meets(Reason.ID_TAKEN)
def a_second_mutation_with_the_same_id(world: World) -> None:
    world.publish("m1", "m2")
    mutation = world.sent("m1")
    world.model.fail_mutation(mutation.id)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.CRASHED)
    run = world.mutating("m2")
    world.model.create_mutation(mutation.id, run.id, "a", "b", "{}", "k", reconcilable=True)


@meets(Reason.ID_TAKEN)
def a_second_approval_with_the_same_id(world: World) -> None:
    world.publish("m1", "m2")
    first = world.mutating("m1")
    call(world, first.id, ask_first=AskFirst("apr_x"))
    world.model.update_handler_run_status(first.id, RunStatus.PAUSED_APPROVAL)
    world.model.reject_mutation("apr_x", by="ada")
    second = world.mutating("m2")
    call(world, second.id, ask_first=AskFirst("apr_x"))


@meets(Reason.WORKFLOW_NOT_FOUND)
def pausing_a_workflow_that_is_not_there(world: World) -> None:
    world.model.pause_workflow("wf_none")


@meets(Reason.WORKFLOW_NOT_FOUND)
def granting_to_a_workflow_that_is_not_there(world: World) -> None:
    world.model.grant_permission("wf_none", 1, "gmail.send", GrantPolicy.ASK)


@meets(Reason.WORKFLOW_NOT_FOUND)
def running_now_what_is_not_there(world: World) -> None:
    world.model.run_now("wf_none")


@meets(Reason.WORKFLOW_NOT_FOUND)
def revoking_from_a_workflow_that_is_not_there(world: World) -> None:
    world.model.revoke_permission("wf_none", 1, "gmail.send")


@meets(Reason.WORKFLOW_NOT_FOUND)
def noting_an_attempt_at_a_workflow_that_is_not_there(world: World) -> None:
    world.model.note_repair_attempt("wf_none", "no")


@meets(Reason.WORKFLOW_NOT_FOUND)
def holding_a_proposal_for_a_workflow_that_is_not_there(world: World) -> None:
    world.model.hold_proposal("wf_none", "ver_none")


@meets(Reason.WORKFLOW_NOT_FOUND)
def halting_a_workflow_that_is_not_there(world: World) -> None:
    world.model.halt_workflow("wf_none", "gave up")


@meets(Reason.VERSION_NOT_FOUND)
def activating_a_version_that_is_not_there(world: World) -> None:
    world.model.activate_script("ver_none", (), ())


@meets(Reason.VERSION_NOT_FOUND)
def holding_a_version_that_is_not_there(world: World) -> None:
    broken(world)
    world.model.hold_proposal(WORKFLOW, "ver_none")


@meets(Reason.VERSION_EXISTS)
def changing_a_version(world: World) -> None:
    world.model.add_script_version("ver_other", WORKFLOW, 1, 0, "…")


@meets(Reason.VERSION_INVALID)
def a_version_below_zero(world: World) -> None:
    world.model.add_script_version("ver_x", WORKFLOW, -1, 0, "…")


@meets(Reason.PERMISSION_INVALID)
def granting_a_permission_without_a_name(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, " ", GrantPolicy.ALLOW)


@meets(Reason.PERMISSION_INVALID)
def using_a_permission_without_a_name(world: World) -> None:
    world.model.use_grant(world.start().id, " ", 1, 5)


@meets(Reason.LIMITS_INVALID)
def granting_with_limits_that_are_a_list(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW, "[1]")


@meets(Reason.LIMITS_INVALID)
def granting_with_limits_that_are_no_json(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW, "{per_day: 5}")


@meets(Reason.GRANT_NOT_FOUND)
def revoking_what_was_not_granted(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.read", GrantPolicy.ALLOW)
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send")


@meets(Reason.GRANT_NOT_FOUND)
def revoking_from_another_major_version(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    world.model.revoke_permission(WORKFLOW, 2, "gmail.send")


@meets(Reason.GRANT_NOT_FOUND)
def revoking_twice(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send")
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send")


@meets(Reason.SESSION_NOT_FOUND)
def running_in_a_session_that_is_not_there(world: World) -> None:
    world.model.create_run("run_x", "ses_none", "file")


@meets(Reason.SESSION_NOT_FOUND)
def finishing_a_session_that_is_not_there(world: World) -> None:
    world.model.finish_session("ses_none")


@meets(Reason.RUN_NOT_FOUND)
def stopping_a_run_that_is_not_there(world: World) -> None:
    world.model.update_handler_run_status("run_none", RunStatus.CRASHED)


@meets(Reason.RUN_NOT_FOUND)
def using_a_grant_in_a_run_that_is_not_there(world: World) -> None:
    world.model.use_grant("run_none", "gmail.send", 1, 5)


@meets(Reason.MUTATION_NOT_FOUND)
def applying_a_mutation_that_is_not_there(world: World) -> None:
    world.model.apply_mutation("mut_none")


@meets(Reason.EVENT_NOT_FOUND)
def skipping_an_event_that_is_not_there(world: World) -> None:
    world.model.skip_event(WORKFLOW, "mail", "m-none")


@meets(Reason.EVENT_NOT_FOUND)
def reserving_an_event_that_is_not_there(world: World) -> None:
    prepare(world, world.start().id, Reserve("mail", ("m-none",)))


@meets(Reason.EVENT_NOT_FOUND)
def reserving_an_event_of_another_workflow(world: World) -> None:
    world.deploy("wf_other")
    world.publish("m-theirs", workflow="wf_other")
    prepare(world, world.start().id, Reserve("mail", ("m-theirs",)))


@meets(Reason.ITEM_NOT_FOUND)
def reprocessing_an_item_that_is_not_there(world: World) -> None:
    world.model.reprocess_item(WORKFLOW, "i-none")


@meets(Reason.APPROVAL_NOT_FOUND)
def approving_what_nobody_asked(world: World) -> None:
    world.model.approve_mutation("apr_none", by="ada")


# The declaration of the script.


@meets(Reason.HANDLER_NOT_DECLARED)
def running_a_handler_that_the_script_does_not_declare(world: World) -> None:
    world.model.create_run("run_x", world.session(), "nobody")


@meets(Reason.HANDLER_NOT_DECLARED)
def dropping_the_consumer_that_a_retry_needs(world: World) -> None:
    world.publish("m1")
    world.model.update_handler_run_status(world.emitting("m1").id, RunStatus.PAUSED_TRANSIENT)
    activate(world, TOPICS, *(spec for spec in HANDLERS if spec.name != "file"))


@meets(Reason.HANDLER_DECLARED_TWICE)
def declaring_a_handler_twice(world: World) -> None:
    activate(world, (), HandlerSpec("a", HandlerKind.PRODUCER), HandlerSpec("a", HandlerKind.JOB))


@meets(Reason.TOPIC_NOT_DECLARED)
def subscribing_to_a_topic_that_is_not_declared(world: World) -> None:
    activate(world, ("mail",), HandlerSpec("file", HandlerKind.CONSUMER, ("mali",)))


@meets(Reason.TOPIC_NOT_DECLARED)
def publishing_to_a_topic_that_is_not_declared(world: World) -> None:
    world.publish("m1", topic="mali")


@meets(Reason.TOPIC_NOT_DECLARED)
def reserving_from_a_topic_that_is_not_declared(world: World) -> None:
    prepare(world, world.start().id, Reserve("mali", ("m1",)))


@meets(Reason.TOPIC_NOT_DECLARED)
def moving_events_to_a_topic_that_the_script_does_not_declare(world: World) -> None:
    activate(world, ("post",), move=(("mail", "pots"), ("rows", "post")))


@meets(Reason.TOPIC_NOT_FOUND)
def dropping_a_topic_that_never_was(world: World) -> None:
    activate(world, TOPICS, *HANDLERS, drop=("mali",))


@meets(Reason.TOPIC_NOT_FOUND)
def moving_a_topic_that_never_was(world: World) -> None:
    activate(world, TOPICS, *HANDLERS, move=(("mali", "mail"),))


@meets(Reason.TOPIC_STILL_DECLARED)
def dropping_a_topic_that_the_script_declares(world: World) -> None:
    activate(world, TOPICS, *HANDLERS, drop=("mail",))


@meets(Reason.TOPIC_STILL_DECLARED)
def moving_from_a_topic_that_the_script_declares(world: World) -> None:
    activate(world, TOPICS, *HANDLERS, move=(("mail", "rows"),))


@meets(Reason.TOPIC_NAMED_TWICE)
def dropping_and_moving_a_topic(world: World) -> None:
    world.publish("m1")
    activate(world, ("rows",), drop=("mail",), move=(("mail", "rows"),))


@meets(Reason.TOPIC_NAMED_TWICE)
def moving_a_topic_to_two_others(world: World) -> None:
    activate(world, ("rows", "post"), move=(("mail", "rows"), ("mail", "post")))


@meets(Reason.TOPIC_HAS_EVENTS)
def leaving_pending_events_behind(world: World) -> None:
    world.publish("m1")
    activate(world, ("post", "rows"))


@meets(Reason.TOPIC_HAS_EVENTS)
def leaving_events_behind_that_a_run_holds(world: World) -> None:
    world.publish("m1")
    world.uncertain("m1")
    activate(world, ("post",), HandlerSpec("file", HandlerKind.CONSUMER, ("post",)))


@meets(Reason.TOPIC_HAS_TWO_CONSUMERS)
def two_consumers_on_one_topic(world: World) -> None:
    one, two = (HandlerSpec(name, HandlerKind.CONSUMER, ("mail",)) for name in ("one", "two"))
    activate(world, ("mail",), one, two)


@meets(Reason.ONLY_CONSUMERS_SUBSCRIBE)
def a_producer_that_subscribes(world: World) -> None:
    activate(world, ("mail",), HandlerSpec("poll", HandlerKind.PRODUCER, ("mail",)))


@meets(Reason.ONLY_CONSUMERS_ORDER)
def a_producer_with_an_ordering_key(world: World) -> None:
    activate(world, ("mail",), HandlerSpec("poll", HandlerKind.PRODUCER, ordering="to"))


@meets(Reason.ONLY_CONSUMERS_ORDER)
def an_ordering_key_that_is_nowhere(world: World) -> None:
    activate(world, ("mail",), HandlerSpec("file", HandlerKind.CONSUMER, ("mail",), ordering=""))


@meets(Reason.ONLY_CONSUMERS_PARK)
def a_job_that_would_be_parked(world: World) -> None:
    world.model.create_run("run_x", world.session(), "digest", on_unknown=OnUnknown.PARK)


# The workflow may not do this now.


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def pausing_a_paused_workflow(world: World) -> None:
    world.model.pause_workflow(WORKFLOW)
    world.model.pause_workflow(WORKFLOW)


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def activating_a_script_of_an_archived_workflow(world: World) -> None:
    version = proposal(world)
    world.model.archive_workflow(WORKFLOW)
    world.model.activate_script(version, TOPICS, HANDLERS)


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def resuming_a_draft(world: World) -> None:
    world.model.create_workflow("wf_draft", "draft")
    world.model.resume_workflow("wf_draft")


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def halting_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.model.halt_workflow(WORKFLOW, "gave up")


@meets(Reason.TEXT_INVALID)
def halting_without_an_error(world: World) -> None:
    world.model.halt_workflow(WORKFLOW, "")


@meets(Reason.TEXT_INVALID)
def halting_with_a_blank_error(world: World) -> None:
    world.model.halt_workflow(WORKFLOW, " \n")


@meets(Reason.WORKFLOW_NOT_ACTIVE)
def running_now_while_paused(world: World) -> None:
    world.model.pause_workflow(WORKFLOW)
    world.model.run_now(WORKFLOW)


@meets(Reason.WORKFLOW_NOT_ACTIVE)
def running_now_what_was_never_resumed(world: World) -> None:
    world.model.create_workflow("wf_draft", "draft")
    world.model.run_now("wf_draft")


@meets(Reason.WORKFLOW_HAS_ERROR)
def running_now_while_a_person_is_needed(world: World) -> None:
    world.model.halt_workflow(WORKFLOW, "gave up")
    world.model.run_now(WORKFLOW)


@meets(Reason.WORKFLOW_IN_MAINTENANCE)
def running_now_while_under_repair(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
    world.model.run_now(WORKFLOW)


@meets(Reason.RUN_ALREADY_ACTIVE)
def running_now_under_a_run(world: World) -> None:
    world.start("poll")
    world.model.run_now(WORKFLOW)


@meets(Reason.WORKFLOW_HAS_ERROR)
def running_what_the_host_gave_up_on(world: World) -> None:
    world.model.halt_workflow(WORKFLOW, "gave up")
    world.start("poll")


@meets(Reason.TITLE_INVALID)
def a_job_that_publishes_without_a_title(world: World) -> None:
    world.model.commit_job(world.start("digest").id, 1, (Publish("evt_x", "mail", "m1", ""),))


@meets(Reason.WORKFLOW_NOT_ACTIVE)
def running_while_paused(world: World) -> None:
    world.model.pause_workflow(WORKFLOW)
    world.start("poll")


@meets(Reason.WORKFLOW_HAS_ERROR)
def running_while_a_person_is_needed(world: World) -> None:
    world.publish("m1")
    world.uncertain("m1")
    world.start("poll")


@meets(Reason.WORKFLOW_HAS_NO_ERROR)
def clearing_an_error_that_is_not_there(world: World) -> None:
    world.model.clear_workflow_error(WORKFLOW, by="ada")


@meets(Reason.WORKFLOW_IN_MAINTENANCE)
def running_while_under_repair(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
    world.start("poll")


@meets(Reason.WORKFLOW_NOT_IN_MAINTENANCE)
def repairing_what_works(world: World) -> None:
    world.model.create_maintenance_task(WORKFLOW)


@meets(Reason.WORKFLOW_NOT_IN_MAINTENANCE)
def leaving_maintenance_twice(world: World) -> None:
    world.model.exit_maintenance_mode(WORKFLOW)


@meets(Reason.MAINTENANCE_TASK_EXISTS)
def two_repairs_at_once(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
    world.model.create_maintenance_task(WORKFLOW)
    world.model.create_maintenance_task(WORKFLOW)


@meets(Reason.MAINTENANCE_TASK_NOT_FOUND)
def noting_an_attempt_at_what_needs_no_repair(world: World) -> None:
    world.model.note_repair_attempt(WORKFLOW, "no")


@meets(Reason.MAINTENANCE_TASK_NOT_FOUND)
def noting_an_attempt_before_the_repair_is_ordered(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
    world.model.note_repair_attempt(WORKFLOW, "no")


@meets(Reason.MAINTENANCE_TASK_NOT_FOUND)
def noting_an_attempt_after_the_repair(world: World) -> None:
    broken(world)
    world.model.exit_maintenance_mode(WORKFLOW)
    world.model.note_repair_attempt(WORKFLOW, "no")


@meets(Reason.MAINTENANCE_TASK_NOT_FOUND)
def holding_a_proposal_for_what_needs_no_repair(world: World) -> None:
    world.model.hold_proposal(WORKFLOW, proposal(world))


@meets(Reason.PROPOSAL_OF_ANOTHER_WORKFLOW)
def holding_a_script_of_another_workflow(world: World) -> None:
    world.model.create_workflow("wf_other", "Other")
    world.model.add_script_version("ver_theirs", "wf_other", 1, 0, "…")
    broken(world)
    world.model.hold_proposal(WORKFLOW, "ver_theirs")


@meets(Reason.PROPOSAL_IS_ACTIVE)
def holding_the_script_that_failed(world: World) -> None:
    broken(world)
    active = world.workflow().active_version_id
    assert active
    world.model.hold_proposal(WORKFLOW, active)


@meets(Reason.PROPOSAL_ALREADY_HELD)
def holding_two_proposals(world: World) -> None:
    broken(world)
    world.model.hold_proposal(WORKFLOW, proposal(world, 1))
    world.model.hold_proposal(WORKFLOW, proposal(world, 2))


@meets(Reason.PROPOSAL_ALREADY_HELD)
def holding_a_proposal_twice(world: World) -> None:
    broken(world)
    version = proposal(world)
    world.model.hold_proposal(WORKFLOW, version)
    world.model.hold_proposal(WORKFLOW, version)


@meets(Reason.PENDING_RETRY_FIRST)
def starting_a_fresh_run_before_the_pending_retry(world: World) -> None:
    world.publish("m1")
    world.model.update_handler_run_status(world.emitting("m1").id, RunStatus.PAUSED_TRANSIENT)
    world.start("file")


# Sessions.


@meets(Reason.SESSION_ALREADY_OPEN)
def two_sessions_at_once(world: World) -> None:
    world.session()
    world.model.create_session("ses_x", WORKFLOW)


@meets(Reason.SESSION_FINISHED)
def running_in_a_session_that_has_ended(world: World) -> None:
    session = world.session()
    world.model.finish_session(session)
    world.model.create_run("run_x", session, "poll")


@meets(Reason.SESSION_FINISHED)
def finishing_a_session_twice(world: World) -> None:
    session = world.session()
    world.model.finish_session(session)
    world.model.finish_session(session)


@meets(Reason.SESSION_HAS_UNCOMMITTED_RUN)
def finishing_a_session_with_a_run_under_way(world: World) -> None:
    world.start("poll")
    world.model.finish_session(world.session())


# Runs.


@meets(Reason.RUN_ALREADY_ACTIVE)
def two_runs_at_once(world: World) -> None:
    world.start("poll")
    world.start("file")


@meets(Reason.RUN_ALREADY_ACTIVE)
def exchanging_the_script_under_a_run(world: World) -> None:
    world.start("poll")
    activate(world, TOPICS, *HANDLERS)


@meets(Reason.RUN_NOT_A_CONSUMER)
def preparing_a_producer(world: World) -> None:
    prepare(world, world.start("poll").id)


@meets(Reason.RUN_NOT_A_CONSUMER)
def retrying_a_producer(world: World) -> None:
    run = world.start("poll")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.create_retry_run("run_x", run.id, world.session())


@meets(Reason.RUN_NOT_A_PRODUCER)
def committing_a_consumer_as_a_producer(world: World) -> None:
    world.model.commit_producer(world.start().id, next_run_at=1)


@meets(Reason.RUN_NOT_A_JOB)
def opening_an_item_in_a_consumer(world: World) -> None:
    world.model.open_item(world.start().id, "i1", "Item")


@meets(Reason.RUN_NOT_ACTIVE)
def going_on_after_a_stop(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    prepare(world, run.id)


@meets(Reason.RUN_NOT_ACTIVE)
def using_a_grant_after_a_stop(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.use_grant(run.id, "gmail.send", 1, 5)


@meets(Reason.RUN_NOT_ACTIVE)
def using_a_grant_after_the_commit(world: World) -> None:
    run = world.start("poll")
    world.model.commit_producer(run.id, next_run_at=1)
    world.model.use_grant(run.id, "gmail.send", 1, 5)


@meets(Reason.RUN_NOT_ACTIVE)
def calling_after_a_stop(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    call(world, run.id)


@meets(Reason.RUN_STILL_ACTIVE)
def a_verdict_while_the_run_is_at_work(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1", reconcilable=False)
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE)
    world.model.skip_mutation(mutation.id, by="ada")


@meets(Reason.RUN_STILL_ACTIVE)
def approving_before_the_run_has_paused(world: World) -> None:
    world.publish("m1")
    call(world, world.mutating("m1").id, ask_first=AskFirst("apr_x"))
    world.model.approve_mutation("apr_x", by="ada")


@meets(Reason.RUN_STATUS_REFUSED)
def stopping_twice(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC)


@meets(Reason.RUN_STATUS_REFUSED)
def resuming_a_run(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.update_handler_run_status(run.id, RunStatus.ACTIVE)


@meets(Reason.COMMIT_HAS_ITS_OWN_OPERATION)
def committing_by_the_phase(world: World) -> None:
    world.publish("m1")
    world.model.update_consumer_phase(world.emitting("m1").id, Phase.COMMITTED)


@meets(Reason.PHASE_ORDER)
def going_back(world: World) -> None:
    world.publish("m1")
    world.model.update_consumer_phase(world.mutating("m1").id, Phase.PREPARED, prepare_result="{}")


@meets(Reason.PHASE_ORDER)
def leaving_out_a_phase(world: World) -> None:
    world.model.update_consumer_phase(world.start().id, Phase.MUTATING)


@meets(Reason.PHASE_ORDER)
def committing_before_next_has_run(world: World) -> None:
    world.publish("m1")
    world.model.commit_consumer(world.prepared("m1").id)


@meets(Reason.PHASE_ORDER)
def starting_in_the_middle(world: World) -> None:
    world.model.create_run("run_x", world.session(), "file", Phase.EMITTING)


@meets(Reason.PHASE_NEEDS_A_PREPARE_RESULT)
def preparing_without_a_result(world: World) -> None:
    world.model.update_consumer_phase(world.start().id, Phase.PREPARED)


@meets(Reason.PHASE_TAKES_NO_PREPARE_RESULT)
def changing_the_prepare_result_later(world: World) -> None:
    world.publish("m1")
    world.model.update_consumer_phase(world.prepared("m1").id, Phase.MUTATING, prepare_result="{}")


@meets(Reason.PHASE_TAKES_NO_PREPARE_RESULT)
def reserving_later(world: World) -> None:
    world.publish("m1", "m2")
    run = world.prepared("m1")
    world.model.update_consumer_phase(run.id, Phase.MUTATING, reservations=(Reserve("mail", ("m2",)),))


@meets(Reason.NOTHING_RESERVED)
def mutating_without_a_reservation(world: World) -> None:
    world.model.update_consumer_phase(world.prepared().id, Phase.MUTATING)


@meets(Reason.MUTATION_SETTLES_THE_PHASE)
def going_past_a_mutation_by_hand(world: World) -> None:
    world.publish("m1")
    world.model.update_consumer_phase(world.sent("m1").run_id, Phase.MUTATED)


@meets(Reason.MUTATION_FAILED)
def going_on_after_a_failed_mutation(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.fail_mutation(mutation.id)
    world.model.update_consumer_phase(mutation.run_id, Phase.EMITTING)


@meets(Reason.RUN_NOT_POST_MUTATION)
def retrying_what_never_mutated(world: World) -> None:
    world.publish("m1")
    run = world.prepared("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.create_retry_run("run_x", run.id, world.session())


@meets(Reason.NOT_THE_PENDING_RETRY)
def retrying_what_has_been_retried(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    retry = world.model.create_retry_run("run_r", run.id, world.session())
    world.model.commit_consumer(retry.id)
    world.model.create_retry_run("run_x", run.id, world.session())


@meets(Reason.NOT_THE_PENDING_RETRY)
def retrying_in_the_session_of_another_workflow(world: World) -> None:
    world.deploy("wf_other")
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.create_retry_run("run_x", run.id, world.session("wf_other"))


@meets(Reason.UNKNOWN_OUTCOME_IS_NEVER_REPAIRED)
def calling_a_doubt_a_logic_error(world: World) -> None:
    world.publish("m1")
    world.model.update_handler_run_status(world.sent("m1").run_id, RunStatus.FAILED_LOGIC)


# Reservations and publishes.


@meets(Reason.RESERVATION_REPEATED)
def reserving_an_event_twice(world: World) -> None:
    world.publish("m1")
    prepare(world, world.start().id, Reserve("mail", ("m1",)), Reserve("mail", ("m1",)))


@meets(Reason.TOPIC_NOT_SUBSCRIBED)
def reserving_from_a_topic_of_another_consumer(world: World) -> None:
    world.publish("r1", topic="rows")
    prepare(world, world.start("file").id, Reserve("rows", ("r1",)))


@meets(Reason.EVENT_ALREADY_RESERVED)
def skipping_an_event_that_a_run_holds(world: World) -> None:
    world.publish("m1")
    world.prepared("m1")
    world.model.skip_event(WORKFLOW, "mail", "m1")


@meets(Reason.EVENT_ALREADY_RESERVED)
def dropping_a_topic_while_a_run_holds_an_event_of_it(world: World) -> None:
    world.publish("m1")
    world.uncertain("m1")
    activate(world, ("rows",), HandlerSpec("file", HandlerKind.CONSUMER, ("rows",)), drop=("mail",))


@meets(Reason.EVENT_ALREADY_RESERVED)
def moving_a_held_event_onto_one_of_its_message_id(world: World) -> None:
    world.publish("m1", topic="rows")
    world.publish("m1")
    world.uncertain("m1")
    activate(world, ("rows",), HandlerSpec("file", HandlerKind.CONSUMER, ("rows",)), move=(("mail", "rows"),))


@meets(Reason.EVENT_ALREADY_FINISHED)
def reserving_an_event_that_was_skipped(world: World) -> None:
    world.publish("m1")
    world.model.skip_event(WORKFLOW, "mail", "m1")
    prepare(world, world.start().id, Reserve("mail", ("m1",)))


@meets(Reason.EVENT_ALREADY_FINISHED)
def skipping_an_event_that_was_consumed(world: World) -> None:
    world.publish("m1")
    world.model.commit_consumer(world.emitting("m1").id)
    world.model.skip_event(WORKFLOW, "mail", "m1")


@meets(Reason.EVENT_HELD_BACK)
def reserving_an_event_whose_key_is_parked(world: World) -> None:
    activate(world, TOPICS, *ordered("to"))
    world.model.publish_events(WORKFLOW, (world.mail("m1", payload='{"to":1}'), world.mail("m2", payload='{"to":1}')))
    world.on_unknown = OnUnknown.PARK
    world.uncertain("m1")
    prepare(world, world.start().id, Reserve("mail", ("m2",)))


@meets(Reason.TITLE_INVALID)
def publishing_without_a_title(world: World) -> None:
    world.model.publish_events(WORKFLOW, (Publish("evt_x", "mail", "m1", ""),))


@meets(Reason.TITLE_INVALID)
def publishing_with_a_blank_title(world: World) -> None:
    world.model.publish_events(WORKFLOW, (Publish("evt_x", "mail", "m1", "   "),))


@meets(Reason.TITLE_INVALID)
def publishing_with_a_title_without_end(world: World) -> None:
    world.model.publish_events(WORKFLOW, (Publish("evt_x", "mail", "m1", "x" * 501),))


@meets(Reason.TEXT_INVALID)
def publishing_with_half_a_character_in_the_title(world: World) -> None:
    world.model.publish_events(WORKFLOW, (Publish("evt_x", "mail", "m1", "half \ud83d"),))


@meets(Reason.MESSAGE_ID_INVALID)
def publishing_with_nul_in_the_message_id(world: World) -> None:
    world.model.publish_events(WORKFLOW, (Publish("evt_x", "mail", "m\0", "Mail"),))


@meets(Reason.MESSAGE_ID_INVALID)
def publishing_without_a_message_id(world: World) -> None:
    world.model.publish_events(WORKFLOW, (Publish("evt_x", "mail", "", "Mail"),))


# Mutations.


@meets(Reason.RUN_MAY_NOT_MUTATE)
def a_producer_that_mutates(world: World) -> None:
    call(world, world.start("poll").id)


@meets(Reason.RUN_MAY_NOT_MUTATE)
def mutating_in_prepare(world: World) -> None:
    world.publish("m1")
    call(world, world.prepared("m1").id)


@meets(Reason.RUN_MAY_NOT_MUTATE)
def mutating_in_next(world: World) -> None:
    world.publish("m1")
    call(world, world.emitting("m1").id)


@meets(Reason.RUN_MAY_NOT_MUTATE)
def a_consumer_that_mutates_in_an_item(world: World) -> None:
    world.publish("m1")
    call(world, world.mutating("m1").id, ItemScope("i1", "hash"))


@meets(Reason.GRANT_USED_UP)
def using_a_grant_more_often_than_a_day_allows(world: World) -> None:
    run = world.start()
    world.model.use_grant(run.id, "gmail.send", 1, 2)
    world.model.use_grant(run.id, "gmail.send", 1, 2)
    world.model.use_grant(run.id, "gmail.send", 1, 2)


@meets(Reason.GRANT_USED_UP)
def using_a_grant_that_allows_nothing(world: World) -> None:
    world.model.use_grant(world.start().id, "gmail.send", 1, 0)


@meets(Reason.MUTATION_EXISTS)
def mutating_twice(world: World) -> None:
    world.publish("m1")
    call(world, world.sent("m1").run_id)


@meets(Reason.MUTATION_NEEDS_AN_ITEM)
def a_job_that_mutates_outside_an_item(world: World) -> None:
    call(world, world.start("digest").id)


@meets(Reason.MUTATION_NEEDS_AN_IDENTITY)
def a_mutation_of_an_item_without_identity(world: World) -> None:
    call(world, inside_item(world), ItemScope("i1", ""))


@meets(Reason.MUTATION_VERSION_STALE)
def a_verdict_on_what_has_changed_since(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=True)
    world.model.update_mutation_status(mutation.id, MutationStatus.NEEDS_RECONCILE)
    world.model.skip_mutation(mutation.id, by="ada", expected_version=mutation.version)


@meets(Reason.MUTATION_ALREADY_SETTLED)
def applying_what_failed(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.fail_mutation(mutation.id)
    world.model.apply_mutation(mutation.id)


@meets(Reason.MUTATION_ALREADY_SETTLED)
def failing_what_was_applied(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.apply_mutation(mutation.id)
    world.model.fail_mutation(mutation.id)


@meets(Reason.MUTATION_NOT_SENT)
def applying_what_was_never_sent(world: World) -> None:
    world.publish("m1")
    world.model.apply_mutation(world.recorded("m1").id)


@meets(Reason.MUTATION_STILL_PENDING)
def stopping_with_a_call_that_was_never_sent(world: World) -> None:
    world.publish("m1")
    world.model.update_handler_run_status(world.recorded("m1").run_id, RunStatus.PAUSED_TRANSIENT)


@meets(Reason.MUTATION_STILL_PENDING)
def holding_for_approval_what_nobody_was_asked(world: World) -> None:
    world.publish("m1")
    world.model.update_handler_run_status(world.recorded("m1").run_id, RunStatus.PAUSED_APPROVAL)


@meets(Reason.MUTATION_IN_FLIGHT)
def skipping_an_approved_call_while_it_is_made(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    mutation = call(world, run.id, ask_first=AskFirst("apr_x"))
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL)
    world.model.approve_mutation("apr_x", by="ada")
    world.model.skip_mutation(mutation.id, by="bob")


@meets(Reason.MUTATION_TRANSITION_REFUSED)
def labelling_a_mutation_applied(world: World) -> None:
    world.publish("m1")
    world.model.update_mutation_status(world.sent("m1").id, MutationStatus.APPLIED)


@meets(Reason.MUTATION_TRANSITION_REFUSED)
def sending_twice(world: World) -> None:
    world.publish("m1")
    world.model.update_mutation_status(world.sent("m1").id, MutationStatus.IN_FLIGHT)


@meets(Reason.MUTATION_TRANSITION_REFUSED)
def recovery_that_settles_a_call_in_doubt(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=True)
    world.model.fail_mutation(mutation.id, resolved_by=Resolver.RECOVERY)


@meets(Reason.MUTATION_OUTCOME_UNKNOWN)
def clearing_the_error_of_an_open_question(world: World) -> None:
    world.publish("m1")
    world.uncertain("m1")
    world.model.clear_workflow_error(WORKFLOW, by="ada")


@meets(Reason.MUTATION_OUTCOME_UNKNOWN)
def committing_a_job_with_a_call_in_flight(world: World) -> None:
    run_id = inside_item(world)
    call(world, run_id, ItemScope("i1", "hash"), send=True)
    world.model.close_item(run_id, "i1", ItemState.FAILED)
    world.model.commit_job(run_id, next_run_at=1)


@meets(Reason.MUTATION_OUTCOME_UNKNOWN)
def leaving_an_item_as_done_with_a_call_in_flight(world: World) -> None:
    run_id = inside_item(world)
    call(world, run_id, ItemScope("i1", "hash"), send=True)
    world.model.close_item(run_id, "i1", ItemState.DONE)


@meets(Reason.MUTATION_OUTCOME_UNKNOWN)
def calling_again_while_the_first_call_is_in_doubt(world: World) -> None:
    run_id = inside_item(world)
    call(world, run_id, ItemScope("i1", "hash"), send=True)
    call(world, run_id, ItemScope("i1", "hash"), send=True)


@meets(Reason.MUTATION_OUTCOME_UNKNOWN)
def two_calls_at_once(world: World) -> None:
    run_id = inside_item(world)
    call(world, run_id, ItemScope("i1", "hash-1"), send=True)
    call(world, run_id, ItemScope("i1", "hash-2"), send=True)


@meets(Reason.MUTATION_EXISTS)
def an_identity_of_another_item(world: World) -> None:
    first = inside_item(world, "i1")
    world.model.apply_mutation(call(world, first, ItemScope("i1", "hash"), send=True).id)
    world.model.close_item(first, "i1", ItemState.DONE)
    world.model.open_item(first, "i2", "Item two")
    call(world, first, ItemScope("i2", "hash"), send=True)


@meets(Reason.MUTATION_TRANSITION_REFUSED)
def applying_with_the_word_that_it_did_not_happen(world: World) -> None:
    world.publish("m1")
    world.model.apply_mutation(world.uncertain("m1").id, "1", Resolver.USER_ASSERT_FAILED, by="ada")


@meets(Reason.MUTATION_TRANSITION_REFUSED)
def failing_with_the_word_that_it_happened(world: World) -> None:
    world.publish("m1")
    world.model.fail_mutation(world.uncertain("m1").id, resolved_by=Resolver.USER_ASSERT_APPLIED, by="ada")


@meets(Reason.NOTE_IS_TOO_LATE)
def noting_about_a_call_in_doubt(world: World) -> None:
    world.publish("m1")
    world.model.note_mutation(world.uncertain("m1").id, 1, "task 7")


@meets(Reason.NOTE_IS_TOO_LATE)
def noting_for_another_attempt(world: World) -> None:
    world.publish("m1")
    world.model.note_mutation(world.sent("m1").id, 2, "task 7")


@meets(Reason.APPROVAL_NOT_FOUND)
def failing_with_an_answer_to_what_nobody_asked(world: World) -> None:
    world.publish("m1")
    world.model.fail_mutation(world.recorded("m1").id, resolved_by=Resolver.APPROVAL_REJECTED)


@meets(Reason.ITEM_NOT_FINISHED)
def a_job_that_skips_its_item(world: World) -> None:
    world.model.close_item(inside_item(world), "i1", ItemState.SKIPPED)


@meets(Reason.MUTATION_OUTCOME_KNOWN)
def pausing_for_reconciliation_without_a_doubt(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.PAUSED_RECONCILIATION)


@meets(Reason.ONLY_A_PERSON_CAN_ASSERT)
def a_machine_that_settles_what_machines_gave_up_on(world: World) -> None:
    world.publish("m1")
    world.model.apply_mutation(world.uncertain("m1").id, "1", Resolver.RECONCILIATION)


@meets(Reason.MUTATION_CANNOT_BE_RECONCILED)
def trying_again_without_a_way_to_check(world: World) -> None:
    world.publish("m1")
    world.model.update_mutation_status(world.uncertain("m1").id, MutationStatus.NEEDS_RECONCILE)


def asserted(world: World) -> str:
    """A call of which a person has said that it happened."""
    world.publish("m1")
    mutation = world.uncertain("m1")
    return world.model.apply_mutation(mutation.id, "1", Resolver.USER_ASSERT_APPLIED, by="ada").id


def asserted_in_item(world: World) -> str:
    """The same inside an item of a job."""
    run_id = inside_item(world)
    mutation = call(world, run_id, ItemScope("i1", "hash"), send=True)
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE)
    world.model.update_handler_run_status(run_id, RunStatus.PAUSED_RECONCILIATION)
    return world.model.apply_mutation(mutation.id, "1", Resolver.USER_ASSERT_APPLIED, by="ada").id


@meets(Reason.MUTATION_NOT_FOUND)
def amending_what_is_not_there(world: World) -> None:
    world.model.amend_result("mut_none", "2")


@meets(Reason.RESULT_NOT_A_PERSONS)
def amending_what_the_connector_answered(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.apply_mutation(mutation.id, "1")
    world.model.amend_result(mutation.id, "2", by="ada")


@meets(Reason.RESULT_NOT_A_PERSONS)
def amending_what_nobody_has_settled(world: World) -> None:
    world.publish("m1")
    world.model.amend_result(world.uncertain("m1").id, "2", by="ada")


@meets(Reason.RESULT_NOT_A_PERSONS)
def amending_what_a_person_said_did_not_happen(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    world.model.fail_mutation(mutation.id, resolved_by=Resolver.USER_ASSERT_FAILED, by="ada")
    world.model.amend_result(mutation.id, "2", by="ada")


@meets(Reason.MUTATION_VERSION_STALE)
def amending_what_was_amended_since(world: World) -> None:
    mutation_id = asserted(world)
    seen = world.mutation(mutation_id).version
    world.model.amend_result(mutation_id, "2", by="bob", expected_version=seen)
    world.model.amend_result(mutation_id, "3", by="ada", expected_version=seen)


@meets(Reason.RESULT_ALREADY_USED)
def amending_what_next_is_running_with(world: World) -> None:
    mutation_id = asserted(world)
    world.model.create_retry_run(world.name("run"), world.mutation(mutation_id).run_id, world.session())
    world.model.amend_result(mutation_id, "2", by="ada")


@meets(Reason.RESULT_ALREADY_USED)
def amending_what_next_has_run_with(world: World) -> None:
    mutation_id = asserted(world)
    retry = world.model.create_retry_run(world.name("run"), world.mutation(mutation_id).run_id, world.session())
    world.model.commit_consumer(retry.id)
    world.model.amend_result(mutation_id, "2", by="ada")


@meets(Reason.RESULT_ALREADY_USED)
def amending_inside_an_item_that_a_run_has_entered_since(world: World) -> None:
    mutation_id = asserted_in_item(world)
    inside_item(world)
    world.model.amend_result(mutation_id, "2", by="ada")


@meets(Reason.RESULT_ALREADY_USED)
def amending_inside_an_attempt_that_is_over(world: World) -> None:
    mutation_id = asserted_in_item(world)
    world.model.reprocess_item(WORKFLOW, "i1")
    world.model.amend_result(mutation_id, "2", by="ada")


@meets(Reason.MUTATION_AWAITS_APPROVAL)
def sending_at_once_what_a_person_must_approve(world: World) -> None:
    world.publish("m1")
    call(world, world.mutating("m1").id, send=True, ask_first=AskFirst("apr_x"))


@meets(Reason.MUTATION_AWAITS_APPROVAL)
def sending_without_waiting_for_the_answer(world: World) -> None:
    world.publish("m1")
    mutation = call(world, world.mutating("m1").id, ask_first=AskFirst("apr_x"))
    world.model.update_mutation_status(mutation.id, MutationStatus.IN_FLIGHT)


@meets(Reason.MUTATION_AWAITS_APPROVAL)
def failing_what_a_person_was_asked_about(world: World) -> None:
    world.publish("m1")
    mutation = call(world, world.mutating("m1").id, ask_first=AskFirst("apr_x"))
    world.model.fail_mutation(mutation.id)


@meets(Reason.APPROVAL_ALREADY_DECIDED)
def answering_second(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    call(world, run.id, ask_first=AskFirst("apr_x"))
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL)
    world.model.reject_mutation("apr_x", by="ada")
    world.model.approve_mutation("apr_x", by="bob")


@meets(Reason.APPROVAL_EXPIRED)
def approving_too_late(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    call(world, run.id, ask_first=AskFirst("apr_x", expires_at=1))
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL)
    world.model.approve_mutation("apr_x", by="ada")


# Items.


@meets(Reason.ITEM_ALREADY_OPEN)
def an_item_inside_an_item(world: World) -> None:
    world.model.open_item(inside_item(world), "i2", "Item two")


@meets(Reason.ITEM_ALREADY_OPEN)
def committing_a_job_inside_an_item(world: World) -> None:
    world.model.commit_job(inside_item(world), next_run_at=1)


@meets(Reason.ITEM_NOT_OPEN)
def leaving_an_item_that_was_not_entered(world: World) -> None:
    world.model.close_item(world.start("digest").id, "i1", ItemState.DONE)


@meets(Reason.ITEM_STATE_CHANGED)
def reprocessing_an_item_that_was_done_meanwhile(world: World) -> None:
    finished_item(world)
    world.model.reprocess_item(WORKFLOW, "i1", by="ada", state=ItemState.FAILED)


@meets(Reason.ITEM_IS_DONE)
def changing_the_outside_for_a_done_item(world: World) -> None:
    finished_item(world)
    call(world, inside_item(world), ItemScope("i1", "hash"), send=True)


@meets(Reason.ITEM_IS_DONE)
def skipping_a_done_item(world: World) -> None:
    finished_item(world)
    world.model.skip_item(WORKFLOW, "i1", by="ada")


@meets(Reason.ITEM_NOT_FINISHED)
def leaving_an_item_as_processing(world: World) -> None:
    world.model.close_item(inside_item(world), "i1", ItemState.PROCESSING)


@meets(Reason.ITEM_NOT_FINISHED)
def reprocessing_what_has_not_been_processed(world: World) -> None:
    finished_item(world)
    world.model.reprocess_item(WORKFLOW, "i1", by="ada")
    world.model.reprocess_item(WORKFLOW, "i1", by="ada")


# Proposals from outside.


def proposed(world: World, proposal_id: str = "prp_1", source: str = "better", **more: Any) -> str:
    fields = {"workflow_id": WORKFLOW, "base_version_id": world.workflow().active_version_id, **more}
    name = fields.pop("name", world.workflow().name)
    return world.model.propose_script(proposal_id, name, source, "ada's assistant", **fields).id


@meets(Reason.PROPOSAL_INVALID)
def a_proposal_without_a_script(world: World) -> None:
    proposed(world, source="")


@meets(Reason.PROPOSAL_INVALID)
def a_proposal_with_a_script_that_is_too_long(world: World) -> None:
    proposed(world, source="x" * (PROPOSAL_SOURCE_CHARS_MAX + 1))


@meets(Reason.PROPOSAL_INVALID)
def a_proposal_for_a_workflow_of_another_name(world: World) -> None:
    proposed(world, name="another")


@meets(Reason.WORKFLOW_NOT_FOUND)
def a_proposal_for_a_workflow_that_is_not_there(world: World) -> None:
    proposed(world, workflow_id="wf_none")


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def a_proposal_for_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW, "ada")
    proposed(world)


@meets(Reason.PROPOSAL_IS_OUTDATED)
def a_proposal_made_from_a_script_that_does_not_run(world: World) -> None:
    proposed(world, base_version_id=None)


@meets(Reason.PROPOSAL_IS_ACTIVE)
def a_proposal_of_the_script_that_runs(world: World) -> None:
    proposed(world, source="export default Keep.workflow({})")


@meets(Reason.PROPOSAL_WAS_REJECTED)
def a_proposal_of_a_script_that_a_person_rejected(world: World) -> None:
    world.model.decide_proposal(proposed(world), "ada", "it drops the amount")
    proposed(world, "prp_2")


@meets(Reason.PROPOSALS_TOO_MANY)
def one_more_proposal_than_people_can_read(world: World) -> None:
    for number in range(PROPOSALS_OPEN_MAX):
        world.model.propose_script(f"prp_n{number}", f"new {number}", "script", "ada's assistant")
    proposed(world)


@meets(Reason.PROPOSALS_TOO_MANY)
def one_more_proposal_than_a_day_has(world: World) -> None:
    for number in range(PROPOSALS_A_DAY_MAX + 1):
        proposed(world, f"prp_{number}", f"better {number}")


@meets(Reason.ID_TAKEN)
def a_second_proposal_with_the_same_id(world: World) -> None:
    proposed(world)
    proposed(world, source="best")


@meets(Reason.PROPOSAL_NOT_FOUND)
def deciding_about_a_proposal_that_is_not_there(world: World) -> None:
    world.model.decide_proposal("prp_none", "ada")


@meets(Reason.PROPOSAL_ALREADY_DECIDED)
def deciding_about_a_proposal_twice(world: World) -> None:
    proposal_id = proposed(world)
    world.model.decide_proposal(proposal_id, "ada", "no")
    world.model.decide_proposal(proposal_id, "bob", "no")


@meets(Reason.PROPOSAL_ALREADY_DECIDED)
def deciding_about_a_proposal_that_another_one_replaced(world: World) -> None:
    proposal_id = proposed(world)
    proposed(world, "prp_2", "best")
    world.model.decide_proposal(proposal_id, "ada", "no")


@meets(Reason.PROPOSAL_HAS_EXPIRED)
def deciding_about_a_proposal_too_late(world: World) -> None:
    proposal_id = proposed(world)
    world.clock.now += PROPOSAL_OPEN_MS
    world.model.decide_proposal(proposal_id, "ada")


@meets(Reason.VERSION_NOT_FOUND)
def accepting_a_proposal_as_a_version_that_is_not_there(world: World) -> None:
    world.model.decide_proposal(proposed(world), "ada", "", "ver_none")


@meets(Reason.PROPOSAL_NOT_DEPLOYED)
def accepting_a_proposal_that_was_not_activated(world: World) -> None:
    version = world.model.add_script_version(world.name("ver"), WORKFLOW, 2, 0, "better")
    world.model.decide_proposal(proposed(world), "ada", "", version.id)


@meets(Reason.PROPOSAL_NOT_DEPLOYED)
def accepting_a_proposal_as_another_script(world: World) -> None:
    world.model.decide_proposal(proposed(world), "ada", "", world.workflow().active_version_id)


@meets(Reason.PROPOSAL_NOT_DEPLOYED)
def accepting_a_proposal_as_a_version_of_another_workflow(world: World) -> None:
    proposal_id = proposed(world)
    world.deploy("wf_other")
    world.model.decide_proposal(proposal_id, "ada", "", world.workflow("wf_other").active_version_id)


# Notices and their deliveries.


def opened(world: World, *, sinks: tuple[str, ...] = ("pager",), notice_id: str = "ntc_1") -> str:
    return world.model.open_notice(notice_id, WORKFLOW, NoticeKind.ERROR, "", "It broke.", "Mend it.", sinks).id


@meets(Reason.WORKFLOW_NOT_FOUND)
def a_notice_about_a_workflow_that_is_not_there(world: World) -> None:
    world.model.open_notice("ntc_1", "wf_none", NoticeKind.ERROR, "", "It broke.", "Mend it.", ("pager",))


@meets(Reason.RUN_NOT_FOUND)
def a_notice_about_a_run_that_is_not_there(world: World) -> None:
    world.model.open_notice("ntc_1", WORKFLOW, NoticeKind.ERROR, "", "It broke.", "Mend it.", ("pager",), "run_none")


@meets(Reason.SINK_INVALID)
def a_notice_to_nobody(world: World) -> None:
    opened(world, sinks=())


@meets(Reason.SINK_INVALID)
def a_notice_to_a_sink_without_a_name(world: World) -> None:
    opened(world, sinks=(" ",))


@meets(Reason.SINK_INVALID)
def a_notice_to_one_sink_twice(world: World) -> None:
    opened(world, sinks=("pager", "pager"))


@meets(Reason.SINK_INVALID)
def a_delivery_to_a_sink_without_a_name(world: World) -> None:
    world.model.add_delivery(opened(world), "")


@meets(Reason.NOTICE_ALREADY_OPEN)
def a_second_notice_about_the_same_matter(world: World) -> None:
    opened(world)
    opened(world, notice_id="ntc_2")


@meets(Reason.ID_TAKEN)
def a_second_notice_with_the_same_id(world: World) -> None:
    world.model.settle_notice(opened(world))
    opened(world)


@meets(Reason.NOTICE_NOT_FOUND)
def settling_a_notice_that_is_not_there(world: World) -> None:
    world.model.settle_notice("ntc_none")


@meets(Reason.NOTICE_NOT_FOUND)
def delivering_a_notice_that_is_not_there(world: World) -> None:
    world.model.note_delivery("ntc_none", "pager", Says.NEEDS_PERSON)


@meets(Reason.NOTICE_ALREADY_SETTLED)
def settling_a_notice_twice(world: World) -> None:
    notice_id = opened(world)
    world.model.settle_notice(notice_id)
    world.model.settle_notice(notice_id)


@meets(Reason.NOTICE_ALREADY_SETTLED)
def telling_a_new_sink_of_what_is_settled(world: World) -> None:
    notice_id = opened(world)
    world.model.settle_notice(notice_id)
    world.model.add_delivery(notice_id, "chat")


@meets(Reason.DELIVERY_EXISTS)
def telling_a_sink_that_is_to_be_told_already(world: World) -> None:
    world.model.add_delivery(opened(world), "pager")


@meets(Reason.DELIVERY_NOT_FOUND)
def delivering_to_a_sink_that_was_not_to_be_told(world: World) -> None:
    world.model.note_delivery(opened(world), "chat", Says.NEEDS_PERSON)


@meets(Reason.DELIVERY_NOT_FOUND)
def delivering_the_end_of_what_is_not_settled(world: World) -> None:
    world.model.note_delivery(opened(world), "pager", Says.SETTLED)


@meets(Reason.DELIVERY_INVALID)
def trying_again_what_was_delivered(world: World) -> None:
    world.model.note_delivery(opened(world), "pager", Says.NEEDS_PERSON, None, 5)


@meets(Reason.DELIVERY_ALREADY_ENDED)
def delivering_twice(world: World) -> None:
    notice_id = opened(world)
    world.model.note_delivery(notice_id, "pager", Says.NEEDS_PERSON)
    world.model.note_delivery(notice_id, "pager", Says.NEEDS_PERSON)


@meets(Reason.DELIVERY_OUT_OF_ORDER)
def delivering_the_end_before_the_beginning(world: World) -> None:
    notice_id = opened(world)
    world.model.settle_notice(notice_id)
    world.model.note_delivery(notice_id, "pager", Says.SETTLED)


# What people have said: a stop is a stop, and an archive is closed.


def asked(world: World) -> str:
    """A run that has paused for approval `apr_x`."""
    world.publish("m1")
    run = world.mutating("m1")
    call(world, run.id, ask_first=AskFirst("apr_x"))
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL)
    return run.id


@meets(Reason.RUN_NOT_FOUND)
def telling_a_run_to_stop_that_is_not_there(world: World) -> None:
    world.model.stop_run("run_none", until=5)


@meets(Reason.RUN_NOT_FOUND)
def counting_the_cost_of_a_run_that_is_not_there(world: World) -> None:
    world.model.count_cost("run_none", 5)


@meets(Reason.NOT_THE_PENDING_RETRY)
def carrying_on_from_a_parked_run_in_a_session_of_another_workflow(world: World) -> None:
    run_id = asked(world)
    world.model.reject_mutation("apr_x", by="ada")
    world.deploy("wf_other")
    world.model.create_retry_run("run_retry", run_id, world.session("wf_other"))


@meets(Reason.RUN_NOT_ACTIVE)
def telling_a_run_to_stop_that_has_stopped(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.model.stop_run(run.id, until=5)


@meets(Reason.RUN_WAS_STOPPED)
def calling_although_a_person_has_stopped_the_run(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    world.model.stop_run(run.id, until=5, by="ada")
    call(world, run.id, send=True)


@meets(Reason.RUN_WAS_STOPPED)
def asking_for_approval_although_a_person_has_stopped_the_run(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    world.model.stop_run(run.id, until=5, by="ada")
    call(world, run.id, ask_first=AskFirst("apr_x"))


@meets(Reason.WORKFLOW_NOT_ACTIVE)
def calling_in_an_item_although_the_workflow_was_paused(world: World) -> None:
    run_id = inside_item(world)
    world.model.pause_workflow(WORKFLOW)
    call(world, run_id, ItemScope("i1", "hash"), send=True)


@meets(Reason.WORKFLOW_NOT_ACTIVE)
def calling_although_the_workflow_was_archived(world: World) -> None:
    world.publish("m1")
    run = world.mutating("m1")
    world.model.archive_workflow(WORKFLOW)
    call(world, run.id, send=True)


@meets(Reason.GRANT_NOT_FOUND)
def calling_although_the_permission_was_taken_back(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    run_id = inside_item(world)
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send")
    call(world, run_id, ItemScope("i1", "hash"), send=True, permission="gmail.send")


@meets(Reason.GRANT_NOT_FOUND)
def calling_with_the_permission_of_another_major_version(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 2, "gmail.send", GrantPolicy.ALLOW)
    call(world, inside_item(world), ItemScope("i1", "hash"), send=True, permission="gmail.send")


@meets(Reason.GRANT_ASKS_FIRST)
def calling_although_a_person_is_to_be_asked_by_now(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    run_id = inside_item(world)
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ASK)
    call(world, run_id, ItemScope("i1", "hash"), send=True, permission="gmail.send")


@meets(Reason.JOB_AWAITS_APPROVAL)
def starting_a_job_whose_call_waits_for_a_person(world: World) -> None:
    run_id = inside_item(world)
    call(world, run_id, ItemScope("i1", "hash"), ask_first=AskFirst("apr_x"))
    world.model.update_handler_run_status(run_id, RunStatus.PAUSED_APPROVAL)
    world.start("digest")


@meets(Reason.GRANT_USED_UP)
def approving_one_call_too_many(world: World) -> None:
    asked(world)
    world.model.approve_mutation("apr_x", by="ada", use=GrantUse("gmail.send", 1, 0))


@meets(Reason.APPROVAL_NOT_FOUND)
def asking_again_what_nobody_asked(world: World) -> None:
    world.model.ask_again("apr_none", "apr_again")


@meets(Reason.RUN_STILL_ACTIVE)
def asking_again_before_the_run_has_paused(world: World) -> None:
    world.publish("m1")
    call(world, world.mutating("m1").id, ask_first=AskFirst("apr_x"))
    world.model.ask_again("apr_x", "apr_again")


@meets(Reason.APPROVAL_ALREADY_DECIDED)
def asking_again_what_was_answered(world: World) -> None:
    asked(world)
    world.model.reject_mutation("apr_x", by="ada")
    world.model.ask_again("apr_x", "apr_again")


@meets(Reason.ID_TAKEN)
def asking_again_under_the_same_id(world: World) -> None:
    asked(world)
    world.model.ask_again("apr_x", "apr_x")


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def adding_a_script_to_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    proposal(world)


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def publishing_to_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.publish("m1")


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def granting_to_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def pausing_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.model.pause_workflow(WORKFLOW)


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def resuming_an_archived_workflow(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.model.resume_workflow(WORKFLOW)


@meets(Reason.WORKFLOW_STATUS_REFUSED)
def unarchiving_what_is_not_archived(world: World) -> None:
    world.model.unarchive_workflow(WORKFLOW)


@meets(Reason.WORKFLOW_NOT_FOUND)
def unarchiving_what_is_not_there(world: World) -> None:
    world.model.unarchive_workflow("wf_none")


@meets(Reason.WORKFLOW_NAME_TAKEN)
def unarchiving_when_another_has_the_name(world: World) -> None:
    world.model.archive_workflow(WORKFLOW)
    world.model.create_workflow("wf_next", "Mail to rows")
    world.model.unarchive_workflow(WORKFLOW)


def test_every_reason_is_met() -> None:
    assert {reason for reason, _ in ATTEMPTS} == set(Reason)


class Watched(ExecutionModelManager):
    """A manager that looks at every row of the database before each operation."""

    def __init__(self, store: Store, opened: Opened) -> None:
        super().__init__(store)
        self.opened = opened
        self.before: Contents = {}

    def execute(self, operation: Operation[Any]) -> Any:
        self.before = self.opened.contents()
        return super().execute(operation)


@pytest.mark.parametrize(("reason", "attempt"), ATTEMPTS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_refusal_says_why_and_changes_nothing(world: World, opened: Opened, reason: Reason, attempt: Attempt) -> None:
    watched = world.model = Watched(world.store, opened)
    with pytest.raises(Rejected) as refusal:
        attempt(world)
    assert opened.contents() == watched.before

    assert refusal.value.reason is reason, str(refusal.value)
    assert str(reason) in str(refusal.value)
    assert len(refusal.value.message) > 20, "the message says what, where and what to do"
