"""What a runtime and a console ask: what to do next and when, what came in, what went out, what came of what."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from keep_storage import Store, reads
from keep_storage.model import (
    Approval,
    HandlerKind,
    ItemState,
    MaintenanceTask,
    Mutation,
    MutationStatus,
    Phase,
    Resolver,
    RunStatus,
)
from keep_storage.operations import AskFirst, HandlerSpec, ItemScope, Reserve
from keep_storage.reads import Due, HandlerView, Snapshot, TaskView
from keep_storage.transaction import Database
from tests.storage.due import check_agenda
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World

LATER = 10**15


def snapshot(world: World) -> Snapshot:
    found = reads.snapshot(world.store.queries(), WORKFLOW)
    assert found
    return found


def view(world: World, name: str) -> HandlerView:
    return next(handler for handler in snapshot(world).handlers if handler.name == name)


def due(world: World, workflow: str = WORKFLOW) -> int | None:
    """When the agenda says that a workflow has something to do."""
    check_agenda(world.store.queries())
    return next((each.at for each in reads.agenda(world.store.queries()) if each.workflow_id == workflow), None)


def nothing_by_the_clock(world: World, at: int | None = None) -> None:
    """Producer and job have run, and are due at `at` or never."""
    world.model.commit_producer(world.start("poll").id, next_run_at=at)
    world.model.commit_job(world.start("digest").id, next_run_at=None)
    world.model.finish_session(world.session())


def look(world: World, wake_at: int | None = None) -> None:
    """The consumer `file` runs and reserves nothing."""
    run = world.start()
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (), "{}", wake_at=wake_at)
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    world.model.commit_consumer(run.id)
    world.model.finish_session(world.session())


# The snapshot.


def test_a_workflow_that_is_not_there_has_no_snapshot(world: World) -> None:
    assert reads.snapshot(world.store.queries(), "wf_none") is None


def test_a_snapshot_shows_the_workflow_and_its_declared_handlers_by_name(world: World) -> None:
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, tuple(spec for spec in HANDLERS if spec.name != "announce"))
    found = snapshot(world)
    assert found.workflow == world.workflow()
    assert [handler.name for handler in found.handlers] == ["digest", "file", "poll"]
    assert (found.open_session_id, found.retry_handler) == (None, None)
    assert (found.approval_expires_at, found.reconcile_at, found.task) == (None, None, None)
    assert view(world, "poll") == HandlerView(
        "poll", HandlerKind.PRODUCER, 0, None, None, 0, is_held=False, writes=0, oldest_pending_seq=None, has_news=False
    )


def test_a_draft_has_a_snapshot_without_handlers(world: World) -> None:
    world.model.create_workflow("wf_draft", "draft")
    found = reads.snapshot(world.store.queries(), "wf_draft")
    assert found
    assert found.handlers == ()


def test_a_snapshot_shows_the_session_that_is_open(world: World) -> None:
    run = world.start()
    assert snapshot(world).open_session_id == run.session_id


def test_a_snapshot_shows_whose_retry_is_pending(world: World) -> None:
    world.publish("m1")
    world.model.update_handler_run_status(world.emitting("m1").id, RunStatus.PAUSED_TRANSIENT, retry_at=LATER)
    assert snapshot(world).retry_handler == "file"
    assert (view(world, "file").retry_at, view(world, "file").failures) == (LATER, 1)


def test_a_snapshot_shows_the_oldest_pending_event_of_all_topics_of_a_consumer(world: World) -> None:
    world.publish("r1", topic="rows")
    world.publish("m1", "m2")
    world.publish("r2", topic="rows")
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, (HandlerSpec("both", HandlerKind.CONSUMER, TOPICS),))
    [row, _], [mail, _] = world.events("rows"), world.events()
    assert view(world, "both").oldest_pending_seq == row.seq
    world.model.skip_event(WORKFLOW, "rows", "r1")
    assert view(world, "both").oldest_pending_seq == mail.seq


def test_a_snapshot_shows_when_a_consumer_wants_to_be_woken(world: World) -> None:
    look(world, wake_at=77)
    assert view(world, "file").wake_at == 77


def asked(world: World, message_id: str, expires_at: int | None, *, pause: bool = True) -> Approval:
    """A call that waits for a person, and its run paused over it."""
    run = world.mutating(message_id)
    ask = AskFirst(world.name("apr"), expires_at)
    world.model.create_mutation(
        world.name("mut"), run.id, "sheets", "append", "{}", run.id, reconcilable=True, ask_first=ask
    )
    if pause:
        world.model.update_handler_run_status(run.id, RunStatus.PAUSED_APPROVAL)
    found = reads.approval(world.store.queries(), ask.approval_id)
    assert found
    return found


def doubted(world: World, message_id: str, reconcile_at: int) -> Mutation:
    """A mutation that its connector is to look into, and its run paused over it."""
    mutation = world.sent(message_id)
    mutation = world.model.update_mutation_status(
        mutation.id, MutationStatus.NEEDS_RECONCILE, next_reconcile_at=reconcile_at
    )
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_RECONCILIATION)
    return mutation


def broken(world: World, handler: str = "file", workflow: str = WORKFLOW) -> MaintenanceTask:
    """A run has failed by its logic, and the repair is ordered."""
    world.model.update_handler_run_status(world.start(handler, workflow).id, RunStatus.FAILED_LOGIC)
    return world.model.create_maintenance_task(workflow)


@pytest.mark.parametrize("expires_at", [None, LATER])
def test_a_snapshot_shows_when_a_question_expires(world: World, expires_at: int | None) -> None:
    world.publish("m1")
    approval = asked(world, "m1", expires_at)
    assert snapshot(world).approval_expires_at == expires_at
    world.model.reject_mutation(approval.id, by="ada")
    assert snapshot(world).approval_expires_at is None


def test_a_snapshot_shows_when_a_doubt_is_to_be_looked_into(world: World) -> None:
    world.publish("m1")
    mutation = doubted(world, "m1", 77)
    assert snapshot(world).reconcile_at == 77
    world.model.update_mutation_status(mutation.id, MutationStatus.NEEDS_RECONCILE, next_reconcile_at=99)
    assert snapshot(world).reconcile_at == 99
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE)
    assert snapshot(world).reconcile_at is None


def test_a_snapshot_shows_the_repair_under_way(world: World) -> None:
    world.deploy("wf_other")
    broken(world, "poll", "wf_other")
    assert snapshot(world).task is None
    task = broken(world)
    assert snapshot(world).task == TaskView(task.id, task.run_id, "file", 0, 0, None, None)
    world.model.note_repair_attempt(WORKFLOW, "no", next_attempt_at=77)
    assert snapshot(world).task == TaskView(task.id, task.run_id, "file", 1, 1, 77, None)
    world.model.add_script_version("ver_p", WORKFLOW, 1, 1, "repaired")
    world.model.hold_proposal(WORKFLOW, "ver_p")
    assert snapshot(world).task == TaskView(task.id, task.run_id, "file", 1, 1, None, "ver_p")
    world.model.exit_maintenance_mode(WORKFLOW, by_person=False)
    assert snapshot(world).task is None
    task = broken(world)
    assert snapshot(world).task == TaskView(task.id, task.run_id, "file", 0, 2, None, None)


def test_a_workflow_in_maintenance_without_an_order_shows_no_repair(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
    assert snapshot(world).task is None


# The agenda.


def test_a_workflow_with_nothing_to_come_is_left_out(world: World) -> None:
    nothing_by_the_clock(world)
    assert reads.agenda(world.store.queries()) == []


def test_the_earliest_of_the_clock_and_the_wake_up_counts(world: World) -> None:
    nothing_by_the_clock(world, at=500)
    assert due(world) == 500
    look(world, wake_at=300)
    assert due(world) == 300
    look(world, wake_at=700)
    assert due(world) == 500


def test_a_handler_that_failed_is_not_due_before_its_time(world: World) -> None:
    nothing_by_the_clock(world, at=500)
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.PAUSED_TRANSIENT, retry_at=900)
    assert due(world) == 900
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.PAUSED_TRANSIENT, retry_at=100)
    assert due(world) == 500


def test_a_consumer_with_news_is_due_at_once_or_when_it_may_try_again(world: World) -> None:
    nothing_by_the_clock(world, at=500)
    world.publish("m1")
    assert due(world) == 0
    look(world)
    assert due(world) == 500
    world.publish("m2")
    world.model.update_handler_run_status(world.start().id, RunStatus.PAUSED_TRANSIENT, retry_at=300)
    assert due(world) == 300


@pytest.mark.parametrize("retry_at", [None, LATER])
def test_a_pending_retry_comes_before_all_else(world: World, retry_at: int | None) -> None:
    nothing_by_the_clock(world, at=500)
    world.publish("m1", "m2")
    world.model.update_handler_run_status(world.emitting("m1").id, RunStatus.PAUSED_TRANSIENT, retry_at=retry_at)
    assert due(world) == (retry_at or 0)


def test_what_is_under_way_is_due_at_once(world: World) -> None:
    nothing_by_the_clock(world)
    session = world.session()
    assert due(world) == 0
    world.model.finish_session(session)
    assert due(world) is None
    world.start("poll")
    assert due(world) == 0


@pytest.mark.parametrize("stopped", ["paused", "error", "halted", "maintenance", "archived"])
def test_a_workflow_that_something_stops_is_left_out(world: World, stopped: str) -> None:
    world.publish("m1")
    assert due(world) == 0
    match stopped:
        case "paused":
            world.model.pause_workflow(WORKFLOW)
        case "error":
            world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_INTERNAL)
        case "halted":
            world.model.halt_workflow(WORKFLOW, "gave up")
        case "maintenance":
            world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
        case "archived":
            world.model.archive_workflow(WORKFLOW)
    assert due(world) is None


STOPS: dict[str, Callable[[World], object]] = {
    "nothing": lambda _: None,
    "paused": lambda world: world.model.pause_workflow(WORKFLOW),
    "halted": lambda world: world.model.halt_workflow(WORKFLOW, "gave up"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_a_question_that_expires_is_on_the_agenda_whatever_stops_the_workflow(world: World, stop: str) -> None:
    nothing_by_the_clock(world, at=500)
    world.publish("m1")
    approval = asked(world, "m1", LATER)
    STOPS[stop](world)
    assert due(world) == (500 if stop == "nothing" else LATER), "what is beside the question goes on"
    world.model.reject_mutation(approval.id, by="clock", expired=True)
    assert due(world) == (0 if stop == "nothing" else None), "`next` is told of the no"


def test_a_question_that_never_expires_is_on_no_agenda(world: World) -> None:
    nothing_by_the_clock(world)
    world.publish("m1")
    asked(world, "m1", None)
    assert due(world) is None


@pytest.mark.parametrize("stop", STOPS)
def test_a_doubt_to_be_looked_into_is_on_the_agenda_whatever_stops_the_workflow(world: World, stop: str) -> None:
    nothing_by_the_clock(world, at=500)
    world.publish("m1")
    mutation = doubted(world, "m1", LATER)
    STOPS[stop](world)
    assert due(world) == LATER, "a doubt stops its workflow"
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE)
    assert due(world) is None


@pytest.mark.parametrize("stop", STOPS)
def test_a_repair_is_on_the_agenda_whatever_stops_the_workflow(world: World, stop: str) -> None:
    nothing_by_the_clock(world, at=500)
    broken(world)
    STOPS[stop](world)
    assert due(world) == 0
    world.model.note_repair_attempt(WORKFLOW, "no", next_attempt_at=LATER)
    assert due(world) == LATER
    world.model.note_repair_attempt(WORKFLOW, "no")
    assert due(world) == 0


def test_a_repair_whose_proposal_waits_for_a_person_is_on_no_agenda(world: World) -> None:
    broken(world)
    world.model.add_script_version("ver_p", WORKFLOW, 1, 1, "repaired")
    world.model.hold_proposal(WORKFLOW, "ver_p")
    assert due(world) is None
    world.model.note_repair_attempt(WORKFLOW, "Not that way.", next_attempt_at=77)
    assert due(world) == 77


@pytest.mark.parametrize("what", ["a question", "a repair"])
def test_an_archived_workflow_is_on_no_agenda(world: World, what: str) -> None:
    world.publish("m1")
    match what:
        case "a question":
            asked(world, "m1", LATER)
        case "a repair":
            broken(world)
    assert due(world) is not None
    world.model.archive_workflow(WORKFLOW)
    assert due(world) is None


def test_a_doubt_is_looked_into_although_its_workflow_is_archived(world: World) -> None:
    world.publish("m1")
    mutation = doubted(world, "m1", LATER)
    world.model.archive_workflow(WORKFLOW)
    assert due(world) == LATER
    world.model.apply_mutation(mutation.id, resolved_by=Resolver.RECONCILIATION)
    assert due(world) is None


def test_every_workflow_has_its_own_time(world: World) -> None:
    nothing_by_the_clock(world, at=500)
    world.deploy("wf_other")
    world.publish("m1", workflow="wf_other")
    assert set(reads.agenda(world.store.queries())) == {Due(WORKFLOW, 500), Due("wf_other", 0)}


def test_a_handler_that_is_no_longer_declared_is_on_no_agenda(world: World) -> None:
    world.publish("m1")
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, ())
    assert due(world) is None


# By name, by number.


def test_a_name_finds_the_newest_workflow_that_is_not_archived(world: World) -> None:
    q = world.store.queries()
    for number in (3, 1, 2):
        world.model.create_workflow(f"wf_{number}", "Invoices")
    for expected in ("wf_2", "wf_1", "wf_3"):
        found = reads.workflow_by_name(q, "Invoices")
        assert found
        assert found.id == expected
        world.model.archive_workflow(found.id)
    assert reads.workflow_by_name(q, "Invoices") is None
    assert reads.workflow_by_name(q, "Nobody") is None


def test_versions_come_with_the_highest_number_first(world: World) -> None:
    for major, minor in ((1, 10), (2, 0), (1, 9)):
        world.model.add_script_version(f"ver_{major}_{minor}", WORKFLOW, major, minor, "…")
    q = world.store.queries()
    found = reads.versions(q, WORKFLOW)
    assert [(version.major, version.minor) for version in found] == [(2, 0), (1, 10), (1, 9), (1, 0)]
    assert reads.latest_version(q, WORKFLOW) == found[0]
    assert (reads.versions(q, "wf_none"), reads.latest_version(q, "wf_none")) == ([], None)


def test_sessions_come_newest_first_before_a_cursor(world: World) -> None:
    world.deploy("wf_other")
    world.session("wf_other")
    made = []
    for _ in range(3):
        made.append(world.session())
        world.model.finish_session(made[-1])
    q = world.store.queries()
    assert [session.id for session in reads.sessions(q, WORKFLOW)] == made[::-1]
    assert [session.id for session in reads.sessions(q, WORKFLOW, limit=1, before=made[2])] == [made[1]]


def test_the_journal_ends_where_the_last_entry_is(database: Database) -> None:
    assert reads.journal_end(database.queries()) == 0
    world = World(Store(database))
    assert reads.journal_end(database.queries()) == world.journal()[-1].seq


# What came in, what went out, what came of what.


def incoming(world: World, **page: int) -> list[tuple[str, str]]:
    found = reads.inputs(world.store.queries(), WORKFLOW, **page)
    return [(each.topic, each.event.message_id) for each in found]


def test_inputs_are_what_no_other_event_caused_newest_first(world: World) -> None:
    world.deploy("wf_other")
    world.publish("theirs", workflow="wf_other")
    world.publish("m1", "m2")
    world.model.commit_producer(world.start("poll").id, 1, (world.mail("m3"),))
    world.model.commit_job(world.start("digest").id, 1, (world.mail("r1", "rows"),))
    world.model.commit_consumer(world.emitting("m1").id, (world.mail("caused", "rows"), world.mail("m-caused")))
    world.publish("m4")
    assert incoming(world) == [("mail", "m4"), ("rows", "r1"), ("mail", "m3"), ("mail", "m2"), ("mail", "m1")]


def test_inputs_come_in_pages(world: World) -> None:
    for number in range(5):
        world.publish(f"m{number}")
        world.publish(f"r{number}", topic="rows")
    q = world.store.queries()
    seen: list[str] = []
    before = 2**62
    while page := reads.inputs(q, WORKFLOW, limit=3, before=before):
        assert len(page) <= 3
        seen += [each.event.message_id for each in page]
        before = page[-1].event.seq
    assert seen == [f"{topic}{number}" for number in (4, 3, 2, 1, 0) for topic in "rm"]


def test_an_event_from_outside_that_is_caused_later_is_no_input_any_more(world: World) -> None:
    world.publish("m1")
    world.publish("row-1", topic="rows")
    assert incoming(world) == [("rows", "row-1"), ("mail", "m1")]
    world.model.commit_consumer(world.emitting("m1").id, (world.mail("row-1", "rows"),))
    assert incoming(world) == [("mail", "m1")]
    world.model.publish_events(WORKFLOW, (world.mail("row-1", "rows", payload='{"v":3}'),))
    assert incoming(world) == [("mail", "m1")], "what caused it is not forgotten"


def test_what_an_empty_run_publishes_is_an_input(world: World) -> None:
    """Nothing else is known to be behind it."""
    run = world.prepared()
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    world.model.commit_consumer(run.id, (world.mail("r1", "rows"),))
    assert incoming(world) == [("rows", "r1")]


def test_outputs_are_the_mutations_of_a_workflow_newest_first(world: World) -> None:
    world.publish("m1", "m2", "m3")
    made = []
    for message_id in ("m1", "m2", "m3"):
        mutation = world.sent(message_id)
        world.model.fail_mutation(mutation.id)
        world.model.update_handler_run_status(mutation.run_id, RunStatus.CRASHED)
        made.append(mutation.id)
    q = world.store.queries()
    assert [mutation.id for mutation in reads.outputs(q, WORKFLOW)] == made[::-1]
    assert [mutation.id for mutation in reads.outputs(q, WORKFLOW, limit=1, before=made[2])] == [made[1]]
    assert reads.outputs(q, "wf_other") == []


def test_an_event_knows_the_mutations_of_all_runs_that_ever_held_it_or_what_it_caused(world: World) -> None:
    world.publish("m1", "m2")
    first = world.uncertain("m1")
    world.model.fail_mutation(first.id, resolved_by=Resolver.USER_ASSERT_FAILED, by="ada")
    second = world.sent("m1")
    world.model.apply_mutation(second.id)
    world.model.update_handler_run_status(second.run_id, RunStatus.PAUSED_TRANSIENT)
    retry = world.model.create_retry_run("run_r", second.run_id, world.session())
    world.model.commit_consumer(retry.id, (world.mail("row-1", "rows"),))
    run = world.prepared("row-1", handler="announce", topic="rows")
    world.model.update_consumer_phase(run.id, Phase.MUTATING)
    third = world.model.create_mutation("mut_z", run.id, "chat", "post", "{}", "key", reconcilable=True, send=True)

    q = world.store.queries()
    [m1, m2] = world.events()
    [row] = world.events("rows")
    assert [mutation.id for mutation in reads.mutations_of_event(q, m1.id)] == [first.id, second.id, third.id]
    assert [mutation.id for mutation in reads.mutations_of_event(q, row.id)] == [third.id]
    assert reads.mutations_of_event(q, m2.id) == []


# What waits, and for whom.


def test_open_questions_come_oldest_first_everywhere_or_in_one_workflow(world: World) -> None:
    world.deploy("wf_other")
    run = world.start("digest", "wf_other")
    world.model.open_item(run.id, "i1", "An item")
    scope, ask = ItemScope("i1", "hash"), AskFirst("apr_a")
    world.model.create_mutation("mut_t", run.id, "m", "s", "{}", "k", reconcilable=True, item=scope, ask_first=ask)
    world.publish("m1", "m2")
    answered = asked(world, "m1", LATER)
    world.model.reject_mutation(answered.id, by="ada")
    ours = asked(world, "m2", None)
    q = world.store.queries()
    theirs = reads.approval(q, "apr_a")
    assert theirs
    assert reads.open_approvals(q) == [theirs, ours]
    assert reads.open_approvals(q, WORKFLOW) == [ours]
    assert reads.open_approvals(q, "wf_other") == [theirs]
    assert reads.open_approvals(q, "wf_none") == []


def test_a_question_is_due_at_the_very_moment_at_which_it_expires(world: World) -> None:
    world.publish("m1")
    approval = asked(world, "m1", 500)
    q = world.store.queries()
    assert reads.approvals_due(q, WORKFLOW, 499) == []
    assert reads.approvals_due(q, WORKFLOW, 500) == [approval]
    assert reads.approvals_due(q, "wf_other", 500) == []
    world.model.reject_mutation(approval.id, by="clock", expired=True)
    assert reads.approvals_due(q, WORKFLOW, LATER) == []


def test_a_question_that_never_expires_is_never_due(world: World) -> None:
    world.publish("m1")
    asked(world, "m1", None)
    assert reads.approvals_due(world.store.queries(), WORKFLOW, LATER) == []


def test_a_doubt_is_due_when_it_is_to_be_looked_into(world: World) -> None:
    world.publish("m1")
    mutation = doubted(world, "m1", 500)
    q = world.store.queries()
    assert reads.mutations_due(q, WORKFLOW, 499) == []
    assert reads.mutations_due(q, WORKFLOW, 500) == [mutation]
    assert reads.mutations_due(q, "wf_other", 500) == []
    world.model.apply_mutation(mutation.id, resolved_by=Resolver.RECONCILIATION)
    assert reads.mutations_due(q, WORKFLOW, LATER) == []


def attention(world: World) -> list[str]:
    return [workflow.id for workflow in reads.workflows_needing_attention(world.store.queries())]


def test_a_healthy_workflow_needs_no_attention(world: World) -> None:
    world.model.create_workflow("wf_draft", "draft")
    world.deploy("wf_paused")
    world.model.pause_workflow("wf_paused")
    world.publish("m1")
    world.model.update_handler_run_status(world.start().id, RunStatus.PAUSED_TRANSIENT)
    world.start("poll")
    assert attention(world) == []


TROUBLE: dict[str, Callable[[World], object]] = {
    "an error": lambda world: world.model.halt_workflow(WORKFLOW, "gave up"),
    "a question": lambda world: asked(world, "m1", None),
    "a question whose run goes on": lambda world: asked(world, "m1", None, pause=False),
    "maintenance": lambda world: world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC),
    "a repair": broken,
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_workflow_in_trouble_needs_attention_until_it_is_archived(world: World, trouble: str) -> None:
    world.deploy("wf_other")
    world.publish("m1")
    TROUBLE[trouble](world)
    assert attention(world) == [WORKFLOW]
    world.model.archive_workflow(WORKFLOW)
    assert attention(world) == []


def test_a_doubt_needs_attention_until_it_is_settled_also_of_an_archived_workflow(world: World) -> None:
    world.publish("m1")
    mutation = doubted(world, "m1", 500)
    assert attention(world) == [WORKFLOW]
    world.model.archive_workflow(WORKFLOW)
    assert attention(world) == [WORKFLOW]
    world.model.skip_mutation(mutation.id, by="ada")
    assert attention(world) == []


def test_a_held_proposal_needs_attention_until_it_is_answered(world: World) -> None:
    broken(world)
    world.model.add_script_version("ver_p", WORKFLOW, 1, 1, "repaired")
    world.model.hold_proposal(WORKFLOW, "ver_p")
    assert attention(world) == [WORKFLOW]
    world.model.activate_script("ver_p", TOPICS, HANDLERS)
    world.model.exit_maintenance_mode(WORKFLOW, by="ada")
    assert attention(world) == []


def test_a_workflow_with_several_troubles_is_listed_once(world: World) -> None:
    world.deploy("wf_a")
    world.model.halt_workflow("wf_a", "gave up")
    broken(world)
    world.model.halt_workflow(WORKFLOW, "gave up")
    assert attention(world) == ["wf_a", WORKFLOW]


def test_repairs_come_newest_first_before_a_cursor(world: World) -> None:
    made = []
    for _ in range(3):
        made.append(broken(world).id)
        world.model.exit_maintenance_mode(WORKFLOW)
    q = world.store.queries()
    assert [task.id for task in reads.tasks(q, WORKFLOW)] == made[::-1]
    assert [task.id for task in reads.tasks(q, WORKFLOW, limit=1, before=made[2])] == [made[1]]
    assert reads.tasks(q, "wf_other") == []


# What a script version did.


def newer(world: World, minor: int = 1) -> str:
    """Another version, from now on the active one."""
    version = world.model.add_script_version(world.name("ver"), WORKFLOW, 1, minor, "newer").id
    world.model.activate_script(version, TOPICS, HANDLERS)
    return version


def active(world: World) -> str:
    version = world.workflow().active_version_id
    assert version
    return version


def test_a_version_knows_its_runs_oldest_first_after_a_cursor(world: World) -> None:
    first = active(world)
    made = [world.model.commit_producer(world.start("poll").id, next_run_at=0).id for _ in range(3)]
    second = newer(world)
    later = world.start("poll").id
    q = world.store.queries()
    assert [run.id for run in reads.runs_of_version(q, first)] == made
    assert [run.id for run in reads.runs_of_version(q, first, limit=1, after=made[0])] == [made[1]]
    assert [run.id for run in reads.runs_of_version(q, second)] == [later]
    assert reads.runs_of_version(q, "ver_none") == []


def test_a_version_knows_every_event_that_its_runs_held_whatever_became_of_it(world: World) -> None:
    first = active(world)
    world.publish("m1", "m2", "m3", "m4")
    world.model.update_handler_run_status(world.prepared("m2", "m1").id, RunStatus.PAUSED_TRANSIENT)
    world.model.commit_consumer(world.emitting("m1").id)
    second = newer(world)
    world.model.commit_consumer(world.emitting("m2", "m3").id)
    q = world.store.queries()
    assert [event.message_id for event in reads.events_of_version(q, first)] == ["m1", "m2"]
    assert [event.message_id for event in reads.events_of_version(q, second)] == ["m2", "m3"]
    [m1, *_] = world.events()
    assert [event.message_id for event in reads.events_of_version(q, first, limit=1)] == ["m1"]
    assert [event.message_id for event in reads.events_of_version(q, first, limit=1, after=m1.seq)] == ["m2"]


def test_events_of_a_version_are_read_in_pages_without_a_gap(world: World) -> None:
    names = [f"m{number}" for number in range(7)]
    world.publish(*names)
    for one, two in pairwise(names):
        run = world.start()
        world.model.update_consumer_phase(run.id, Phase.PREPARED, (Reserve("mail", (two, one)),), "{}")
        world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    q, seen, after = world.store.queries(), [], 0
    while page := reads.events_of_version(q, active(world), limit=3, after=after):
        seen += [event.message_id for event in page]
        after = page[-1].seq
    assert seen == names


def test_a_retry_is_of_the_version_that_carries_on(world: World) -> None:
    first = active(world)
    world.publish("m1")
    failed = world.emitting("m1")
    world.model.update_handler_run_status(failed.id, RunStatus.FAILED_LOGIC)
    second = newer(world)
    world.model.exit_maintenance_mode(WORKFLOW)
    retry = world.model.create_retry_run("run_r", failed.id, world.session())
    q = world.store.queries()
    assert [run.id for run in reads.runs_of_version(q, first)] == [failed.id]
    assert [run.id for run in reads.runs_of_version(q, second)] == [retry.id]
    assert [event.message_id for event in reads.events_of_version(q, second)] == ["m1"]
    assert len(reads.mutations_of_version(q, first)) == 1
    assert reads.mutations_of_version(q, second) == [], "it was made before"


def test_a_version_knows_its_mutations_oldest_first_after_a_cursor(world: World) -> None:
    first = active(world)
    world.publish("m1", "m2", "m3")
    made = []
    for message_id in ("m1", "m2"):
        made.append(world.sent(message_id).id)
        world.model.apply_mutation(made[-1])
        run_id = world.mutation(made[-1]).run_id
        world.model.update_consumer_phase(run_id, Phase.EMITTING)
        world.model.commit_consumer(run_id)
    second = newer(world)
    later = world.sent("m3").id
    q = world.store.queries()
    assert [mutation.id for mutation in reads.mutations_of_version(q, first)] == made
    assert [mutation.id for mutation in reads.mutations_of_version(q, first, limit=1, after=made[0])] == [made[1]]
    assert [mutation.id for mutation in reads.mutations_of_version(q, second)] == [later]


def work_on(world: World, *item_ids: str, state: ItemState = ItemState.DONE) -> None:
    """A job runs and enters these items."""
    run = world.start("digest")
    for item_id in item_ids:
        world.model.open_item(run.id, item_id, f"Item {item_id}")
        world.model.close_item(run.id, item_id, state)
    world.model.commit_job(run.id, next_run_at=0)


def items_of(world: World, version: str, **page: Any) -> list[tuple[str, int]]:
    found = reads.items_of_version(world.store.queries(), version, **page)
    return [(item.item_id, item.attempt) for item in found]


def test_a_version_knows_the_items_it_worked_on_also_when_a_newer_one_has_looked_at_them_since(world: World) -> None:
    first = active(world)
    work_on(world, "b", "a")
    second = newer(world)
    work_on(world, "a", "b", "c")
    assert items_of(world, first) == [("a", 1), ("b", 1)]
    assert items_of(world, second) == [("c", 1)], "the others were finished before it came"


def test_an_item_that_was_not_finished_belongs_to_every_version_that_worked_on_it(world: World) -> None:
    first = active(world)
    work_on(world, "a", state=ItemState.FAILED)
    work_on(world, "a", state=ItemState.FAILED)
    second = newer(world)
    work_on(world, "a")
    assert items_of(world, first) == items_of(world, second) == [("a", 1)]


def test_every_attempt_at_an_item_belongs_to_the_version_that_made_it(world: World) -> None:
    first = active(world)
    work_on(world, "a")
    second = newer(world)
    world.model.reprocess_item(WORKFLOW, "a", by="ada")
    assert items_of(world, first) == [("a", 1)], "nobody has worked on the second attempt yet"
    work_on(world, "a")
    assert (items_of(world, first), items_of(world, second)) == ([("a", 1)], [("a", 2)])


def test_items_of_a_version_come_in_pages(world: World) -> None:
    version = active(world)
    work_on(world, "a", "b", "c")
    world.model.reprocess_item(WORKFLOW, "b", by="ada")
    work_on(world, "b")
    assert items_of(world, version, limit=2) == [("a", 1), ("b", 1)]
    assert items_of(world, version, limit=2, after=("b", 1)) == [("b", 2), ("c", 1)]
    assert items_of(world, version, after=("c", 1)) == []
