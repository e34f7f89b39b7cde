"""Publishing, reserving, and where an event came from."""

import pytest

from keep_storage import Reason, Rejected, reads
from keep_storage.model import Event, Phase, Reservation, RunStatus
from keep_storage.operations import Publish, Reserve
from keep_storage.records import find_all
from tests.storage.world import WORKFLOW, World


def payloads(world: World) -> dict[str, str]:
    return {event.message_id: event.payload for event in world.events()}


def test_the_last_write_wins_while_an_event_is_pending(world: World) -> None:
    world.publish("m1")
    [first] = world.events()

    world.model.publish_events(WORKFLOW, (Publish("evt_new", "mail", "m1", "New title", '{"v":2}'),))

    [event] = world.events()
    assert (event.title, event.payload) == ("New title", '{"v":2}')
    assert (event.id, event.seq, event.created_at) == (first.id, first.seq, first.created_at), "it keeps its place"


@pytest.mark.parametrize("status", ["reserved", "consumed", "skipped"])
def test_an_event_that_is_not_pending_never_changes(world: World, status: str) -> None:
    world.publish("m1")
    if status == "skipped":
        world.model.skip_event(WORKFLOW, "mail", "m1", by="ada", why="spam")
        before = world.events()
        world.model.publish_events(WORKFLOW, (world.mail("m1", payload='{"v":2}'),))
    else:
        run = world.emitting("m1")
        if status == "consumed":
            world.model.commit_consumer(run.id)
        before = world.events()
        world.model.publish_events(WORKFLOW, (world.mail("m1", payload='{"v":2}'),))
    assert world.events() == before
    assert before[0].status == status


def test_publishing_the_same_again_writes_nothing(world: World) -> None:
    world.publish("m1")
    [before] = world.events()
    world.publish("m1")
    assert world.events() == [before]


def test_a_handler_that_fails_publishes_nothing(world: World) -> None:
    run = world.start("poll")
    with pytest.raises(Rejected) as refusal:
        world.model.commit_producer(
            run.id, next_run_at=9, publishes=(world.mail("m1"), Publish("evt_x", "mail", "m2", "")), state='{"c":1}'
        )
    assert refusal.value.reason is Reason.TITLE_INVALID
    assert world.states() == {}
    assert (world.handler("poll").state, world.handler("poll").next_run_at) == (None, 0)
    assert world.run(run.id).status is RunStatus.ACTIVE


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Reserve("mail", ("m-unknown",)), Reason.EVENT_NOT_FOUND),
        (Reserve("mail", ("m-theirs",)), Reason.EVENT_NOT_FOUND),
        (Reserve("rows", ("r1",)), Reason.TOPIC_NOT_SUBSCRIBED),
        (Reserve("nowhere", ("m1",)), Reason.TOPIC_NOT_DECLARED),
        (Reserve("mail", ("m1",)), Reason.RESERVATION_REPEATED),
        (Reserve("mail", ("m-gone",)), Reason.EVENT_ALREADY_FINISHED),
    ],
)
def test_one_bad_reservation_refuses_them_all_by_name(world: World, bad: Reserve, reason: Reason) -> None:
    world.deploy("wf_other")
    world.publish("m-theirs", workflow="wf_other")
    world.publish("m1", "m2", "m-gone")
    world.publish("r1", topic="rows")
    world.model.skip_event(WORKFLOW, "mail", "m-gone")
    run = world.start()

    with pytest.raises(Rejected) as refusal:
        world.model.update_consumer_phase(run.id, Phase.PREPARED, (Reserve("mail", ("m1", "m2")), bad), "{}")

    assert refusal.value.reason is reason
    assert bad.ids[0] in refusal.value.message
    assert bad.topic in refusal.value.message
    assert world.states() == {"m1": "pending", "m2": "pending", "m-gone": "skipped"}
    assert world.run(run.id).phase is Phase.PREPARING


def test_history_keeps_every_run_that_ever_held_an_event_and_at_which_attempt(world: World) -> None:
    world.publish("m1")
    first = world.prepared("m1")
    world.model.update_handler_run_status(first.id, RunStatus.PAUSED_TRANSIENT)
    second = world.emitting("m1")
    world.model.update_handler_run_status(second.id, RunStatus.PAUSED_TRANSIENT)
    retry = world.model.create_retry_run("run_r", second.id, world.session())
    world.model.commit_consumer(retry.id)

    [event] = world.events()
    held = find_all(world.store.queries(), Reservation, "runs_of_event", {"event_id": event.id})

    assert {reservation.run_id: reservation.attempt for reservation in held} == {first.id: 1, second.id: 2, "run_r": 2}


def roots(world: World, topic: str, message_id: str) -> list[str]:
    [event] = [event for event in world.events(topic) if event.message_id == message_id]
    found = find_all(world.store.queries(), Event, "roots_of_event", {"event_id": event.id})
    return [root.message_id for root in found]


def test_what_a_consumer_publishes_inherits_the_roots_of_what_it_held(world: World) -> None:
    world.publish("m1", "m2", "m3")
    run = world.emitting("m1", "m2")
    world.model.commit_consumer(run.id, (world.mail("row-12", "rows"),))
    assert roots(world, "rows", "row-12") == ["m1", "m2"]

    second = world.prepared("row-12", handler="announce", topic="rows")
    world.model.update_consumer_phase(second.id, Phase.EMITTING)
    world.model.commit_consumer(second.id, (world.mail("row-next", "rows"),))

    assert roots(world, "rows", "row-next") == ["m1", "m2"], "the first causes, not the step between"
    assert roots(world, "mail", "m1") == []
    [first] = [event for event in world.events() if event.message_id == "m1"]
    caused = find_all(world.store.queries(), Event, "events_caused_by", {"event_id": first.id})
    assert [event.message_id for event in caused] == ["row-12", "row-next"]


def test_what_next_publishes_after_a_skip_still_names_its_roots(world: World) -> None:
    world.publish("m1")
    mutation = world.uncertain("m1")
    world.model.skip_mutation(mutation.id, by="ada")
    retry = world.model.create_retry_run("run_r", mutation.run_id, world.session())
    world.model.commit_consumer(retry.id, (world.mail("row-skipped", "rows"),))
    assert roots(world, "rows", "row-skipped") == ["m1"]


def test_what_a_producer_publishes_has_no_cause_but_itself(world: World) -> None:
    run = world.start("poll")
    world.model.commit_producer(run.id, next_run_at=1, publishes=(world.mail("m1"),))
    [event] = world.events()
    assert (event.created_by_run_id, roots(world, "mail", "m1")) == (run.id, [])


def test_a_job_publishes_in_its_commit(world: World) -> None:
    run = world.start("digest")
    world.model.commit_job(run.id, 9, (world.mail("m1"), world.mail("r1", "rows")), state='{"c":1}')
    assert (world.states(), world.states("rows")) == ({"m1": "pending"}, {"r1": "pending"})
    assert [event.created_by_run_id for event in world.events()] == [run.id]
    assert (world.handler("digest").state, world.handler("digest").next_run_at) == ('{"c":1}', 9)


def test_a_job_that_publishes_badly_does_not_commit(world: World) -> None:
    run = world.start("digest")
    with pytest.raises(Rejected) as refusal:
        world.model.commit_job(run.id, 9, (world.mail("m1"), world.mail("m2", "nowhere")), state='{"c":1}')
    assert refusal.value.reason is Reason.TOPIC_NOT_DECLARED
    assert world.states() == {}
    assert (world.handler("digest").state, world.handler("digest").next_run_at) == (None, 0)
    assert world.run(run.id).status is RunStatus.ACTIVE


def test_peek_gives_pending_events_oldest_first_after_a_cursor(world: World) -> None:
    world.publish(*(f"m{number}" for number in range(150)))
    world.model.skip_event(WORKFLOW, "mail", "m1")
    q = world.store.queries()

    page = reads.peek(q, WORKFLOW, "mail")
    assert [event.message_id for event in page[:3]] == ["m0", "m2", "m3"]
    assert len(page) == 100
    rest = reads.peek(q, WORKFLOW, "mail", after=page[-1].seq)
    assert len(rest) == 49
    assert reads.peek(q, WORKFLOW, "mail", limit=2, after=page[-1].seq) == rest[:2]
    assert reads.peek(q, WORKFLOW, "no such topic") == []


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_peek_refuses_a_limit_that_makes_no_sense(world: World, limit: int) -> None:
    with pytest.raises(ValueError, match="1 to 1000"):
        reads.peek(world.store.queries(), WORKFLOW, "mail", limit=limit)
