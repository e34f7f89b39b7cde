"""What a runtime and a console ask: what to do next and when, what came in, what went out, what came of what."""

import pytest

from keep_storage import Store, reads
from keep_storage.model import HandlerKind, Phase, Resolver, RunStatus
from keep_storage.operations import HandlerSpec
from keep_storage.reads import Due, HandlerView, Snapshot
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
    assert (found.active_run_id, found.open_session_id, found.retry_handler) == (None, None, None)
    assert view(world, "poll") == HandlerView("poll", HandlerKind.PRODUCER, 0, None, None, 0, 0, None, has_news=False)


def test_a_draft_has_a_snapshot_without_handlers(world: World) -> None:
    world.model.create_workflow("wf_draft", "draft")
    found = reads.snapshot(world.store.queries(), "wf_draft")
    assert found
    assert found.handlers == ()


def test_a_snapshot_shows_what_is_under_way(world: World) -> None:
    run = world.start()
    assert (snapshot(world).active_run_id, snapshot(world).open_session_id) == (run.id, run.session_id)


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


def test_the_journal_ends_where_the_last_entry_is() -> None:
    with Store.in_memory() as store:
        assert reads.journal_end(store.queries()) == 0
        world = World(store)
        assert reads.journal_end(store.queries()) == world.journal()[-1].seq


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
