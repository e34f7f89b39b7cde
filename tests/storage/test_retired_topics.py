"""A new script does not declare a topic any more: its events are dropped or moved by a person, never left behind."""

import pickle
from typing import Any

import msgspec
import pytest

from keep_storage import EventsWouldWait, Reason, Rejected, reads
from keep_storage.model import Event, OnUnknown, Resolver, Workflow
from keep_storage.operations import HandlerSpec
from tests.storage.world import HANDLERS, WORKFLOW, World

READERS = {"file": "post", "announce": "rows"}
"""Which topic each consumer reads after `mail` was renamed to `post`."""


def activate(
    world: World,
    readers: dict[str, str] = READERS,
    *,
    ordering: str | None = None,
    also: tuple[str, ...] = (),
    **more: Any,
) -> Workflow:
    """The next version of the script: its topics are those that are read, and `also`."""
    number = len(reads.versions(world.store.queries(), WORKFLOW))
    version = world.model.add_script_version(world.name("ver"), WORKFLOW, 1, number, f"version {number}")
    handlers = tuple(
        _reading(each, readers, ordering) for each in HANDLERS if not each.subscribe or each.name in readers
    )
    return world.model.activate_script(version.id, (*readers.values(), *also), handlers, by="ann", **more)


def _reading(spec: HandlerSpec, readers: dict[str, str], ordering: str | None) -> HandlerSpec:
    if spec.name not in readers:
        return spec
    return msgspec.structs.replace(
        spec, subscribe=(readers[spec.name],), ordering=ordering if spec.name == "file" else None
    )


def peek(world: World, topic: str) -> list[str]:
    return [each.message_id for each in reads.peek(world.store.queries(), WORKFLOW, topic)]


def said(world: World) -> Any:
    """What the journal says of the last operation."""
    return msgspec.json.decode(world.journal()[-1].changed)


def essence(event: Event) -> dict[str, Any]:
    """All but where it is, and since when."""
    return {
        name: value for name, value in msgspec.structs.asdict(event).items() if name not in ("topic_id", "updated_at")
    }


# Refused.


def test_a_script_that_would_leave_events_behind_is_refused_with_every_topic_and_how_many_wait(world: World) -> None:
    world.publish("m1", "m2", "m3")
    world.publish("r1", topic="rows")
    world.uncertain("m2")
    with pytest.raises(EventsWouldWait) as refusal:
        activate(world, {"file": "post"}, also=("lines",))
    assert refusal.value.reason is Reason.TOPIC_HAS_EVENTS
    assert refusal.value.topics == {"mail": 3, "rows": 1}
    assert refusal.value.declared == ("post", "lines")
    assert "'mail' (3 waiting) and 'rows' (1 waiting)" in str(refusal.value)
    assert world.topic("mail").declared
    world.check()


def test_a_word_about_one_topic_is_no_word_about_another(world: World) -> None:
    world.publish("m1")
    world.publish("r1", topic="rows")
    with pytest.raises(EventsWouldWait) as refusal:
        activate(world, {"file": "post"}, move=(("mail", "post"),))
    assert refusal.value.topics == {"rows": 1}


def test_a_topic_whose_events_are_all_finished_goes_without_a_question(world: World) -> None:
    world.publish("m1", "m2")
    world.model.commit_consumer(world.emitting("m1").id)
    world.model.skip_event(WORKFLOW, "mail", "m2")
    activate(world)
    assert world.states() == {"m1": "consumed", "m2": "skipped"}
    assert not world.topic("mail").declared
    world.check()


def test_the_refusal_has_its_list_also_in_another_process() -> None:
    error = EventsWouldWait({"mail": 3}, ("post", "rows"))
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.topics, copy.declared, str(copy)) == (error.topics, error.declared, str(error))


# Dropped.


def test_the_pending_events_of_a_dropped_topic_are_skipped_and_the_journal_says_how_many_and_by_whom(
    world: World,
) -> None:
    world.publish("m1", "m2", "m3")
    world.model.commit_consumer(world.emitting("m1").id)
    activate(world, drop=("mail",))
    assert world.states() == {"m1": "consumed", "m2": "skipped", "m3": "skipped"}
    assert (said(world)["dropped"], said(world)["by"]) == ({"mail": 2}, "ann")
    world.check()


def test_a_topic_that_is_gone_already_can_be_dropped_again(world: World) -> None:
    world.publish("m1")
    activate(world, drop=("mail",))
    activate(world, drop=("mail",))
    assert said(world)["dropped"] == {"mail": 0}


def test_a_topic_with_an_event_that_a_run_holds_is_dropped_only_after_that_run_is_settled(world: World) -> None:
    world.publish("m1", "m2")
    doubt = world.uncertain("m1")
    with pytest.raises(Rejected, match=doubt.run_id) as refusal:
        activate(world, drop=("mail",))
    assert refusal.value.reason is Reason.EVENT_ALREADY_RESERVED
    assert world.states() == {"m1": "reserved", "m2": "pending"}
    world.model.fail_mutation(doubt.id, "not found", Resolver.USER_ASSERT_FAILED, by="ann")
    activate(world, drop=("mail",))
    assert world.states() == {"m1": "skipped", "m2": "skipped"}
    world.check()


# Moved.


def test_moved_events_keep_their_ids_words_causes_and_order_and_are_news_to_their_new_consumer(world: World) -> None:
    world.publish("m1")
    world.model.commit_consumer(world.emitting("m1").id, (world.mail("r1", "rows", '{"row":1}'),))
    world.publish("r3", "r2", topic="rows")
    before = world.events("rows")
    activate(world, {"file": "mail", "announce": "lines"}, move=(("rows", "lines"),))
    moved = world.events("lines")
    assert list(map(essence, moved)) == list(map(essence, before))
    assert (world.events("rows"), peek(world, "lines")) == ([], ["r1", "r3", "r2"])
    roots = reads.roots_of_event(world.store.queries(), moved[0].id)
    assert [each.message_id for each in roots] == ["m1"]
    assert (world.topic("lines").writes, world.has_news("announce")) == (1, True)
    assert said(world)["moved"] == {"rows": {"to": "lines", "events": 3, "skipped": 0}}
    assert said(world)["by"] == "ann"
    world.check()


def test_what_is_finished_moves_along_and_is_not_begun_again_when_it_is_published_again(world: World) -> None:
    world.publish("m1", "m2", "m3")
    world.model.commit_consumer(world.emitting("m1").id)
    world.model.skip_event(WORKFLOW, "mail", "m3")
    activate(world, move=(("mail", "post"),))
    moved = {"m1": "consumed", "m2": "pending", "m3": "skipped"}
    assert (world.states("mail"), world.states("post")) == ({}, moved)
    assert said(world)["moved"] == {"mail": {"to": "post", "events": 1, "skipped": 0}}
    world.publish("m1", "m3", topic="post")
    assert world.states("post") == moved
    world.check()


def test_an_event_that_the_new_topic_has_already_is_skipped_and_counted(world: World) -> None:
    world.publish("m1", "m2", "m3")
    activate(world, {"file": "mail", "announce": "rows"}, also=("post",))
    world.publish("m1", "m2", topic="post")
    world.model.skip_event(WORKFLOW, "post", "m2")
    activate(world, move=(("mail", "post"),))
    assert world.states("mail") == {"m1": "skipped", "m2": "skipped"}
    assert world.states("post") == {"m3": "pending", "m1": "pending", "m2": "skipped"}
    assert said(world)["moved"] == {"mail": {"to": "post", "events": 1, "skipped": 2}}
    world.check()


def test_of_two_topics_that_become_one_a_shared_message_id_is_one_event(world: World) -> None:
    world.publish("m1", "m2")
    world.publish("m2", "m3", topic="rows")
    activate(world, {"file": "post"}, move=(("mail", "post"), ("rows", "post")))
    assert world.states("post") == {"m1": "pending", "m2": "pending", "m3": "pending"}
    assert world.states("rows") == {"m2": "skipped"}
    world.check()


def test_the_event_that_a_run_holds_stays_when_another_topic_brings_a_pending_one_of_its_message_id(
    world: World,
) -> None:
    world.publish("m1", topic="rows")
    world.publish("m1")
    doubt = world.uncertain("m1")
    activate(world, {"file": "post"}, move=(("rows", "post"), ("mail", "post")))
    assert (world.states("post"), world.states("rows")) == ({"m1": "reserved"}, {"m1": "skipped"})
    assert world.events("post")[0].reserved_by_run_id == doubt.run_id
    world.check()


def test_the_new_consumer_finds_the_ordering_key_where_it_wants_it(world: World) -> None:
    world.on_unknown = OnUnknown.PARK
    keyed = [("a1", 1), ("a2", 1), ("b1", 2)]
    world.model.publish_events(WORKFLOW, tuple(world.mail(each, payload=f'{{"to":{to}}}') for each, to in keyed))
    activate(world, {"file": "mail", "announce": "rows"}, also=("post",))
    doubt = world.uncertain("a1")
    activate(world, ordering="to", move=(("mail", "post"),))
    assert [each.ordering_key for each in world.events("post")] == ["1", "1", "2"]
    assert peek(world, "post") == ["b1"], "a2 waits for the parked run"
    assert world.run(doubt.run_id).parked
    world.check()


def test_a_retry_finishes_the_events_it_holds_under_their_new_topic(world: World) -> None:
    world.publish("m1", "m2")
    doubt = world.uncertain("m1")
    activate(world, move=(("mail", "post"),))
    assert world.states("post") == {"m1": "reserved", "m2": "pending"}
    assert said(world)["moved"] == {"mail": {"to": "post", "events": 2, "skipped": 0}}
    world.check()
    world.model.apply_mutation(doubt.id, "1", Resolver.USER_ASSERT_APPLIED, by="ann")
    again = world.model.create_retry_run(world.name("run"), doubt.run_id, world.session())
    world.model.commit_consumer(again.id)
    assert world.states("post") == {"m1": "consumed", "m2": "pending"}
    world.check()


def test_a_held_event_is_not_moved_onto_one_of_the_same_message_id(world: World) -> None:
    world.publish("m1")
    activate(world, {"file": "mail", "announce": "rows"}, also=("post",))
    world.publish("m1", topic="post")
    doubt = world.uncertain("m1")
    with pytest.raises(Rejected, match=doubt.run_id) as refusal:
        activate(world, move=(("mail", "post"),))
    assert refusal.value.reason is Reason.EVENT_ALREADY_RESERVED
    assert (world.states("mail"), world.states("post")) == ({"m1": "reserved"}, {"m1": "pending"})
    world.check()


def test_moved_events_come_back_with_the_script_that_had_the_old_name(world: World) -> None:
    world.publish("m1", "m2")
    activate(world, move=(("mail", "post"),))
    activate(world, {"file": "mail", "announce": "rows"}, move=(("post", "mail"),))
    assert (world.states("mail"), world.states("post")) == ({"m1": "pending", "m2": "pending"}, {})
    assert world.has_news("file")
    world.check()
