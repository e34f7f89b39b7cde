"""Finding things by what a person types, and whether a runtime has a file."""

import threading
from pathlib import Path

from keep_storage import Store, lookups
from keep_storage.ownership import owner_of
from tests.storage.world import WORKFLOW, World


def test_an_id_is_found_by_its_beginning(world: World) -> None:
    world.publish("m1")
    first = world.sent("m1")
    assert lookups.beginning_with(world.store.queries(), "mutation", first.id) == [first.id]
    assert lookups.beginning_with(world.store.queries(), "mutation", first.id[:-1]) == [first.id]
    assert lookups.beginning_with(world.store.queries(), "run", first.run_id) == [first.run_id]
    assert lookups.beginning_with(world.store.queries(), "workflow", WORKFLOW) == [WORKFLOW]
    assert lookups.beginning_with(world.store.queries(), "run", "nothing like it") == []


def test_events_are_found_by_their_message_id_and_counted_up_to_a_limit(world: World) -> None:
    for number in range(5):
        world.publish(f"m{number}")
    [found] = lookups.events_named(world.store.queries(), "m3")
    assert (found.workflow_id, found.event.message_id) == (WORKFLOW, "m3")
    assert lookups.event(world.store.queries(), found.event.id) == found
    assert lookups.event(world.store.queries(), "evt_none") is None
    assert lookups.pending(world.store.queries(), most=3)[WORKFLOW][found.topic] == 3
    assert lookups.pending(world.store.queries(), most=100)[WORKFLOW][found.topic] == 5


def test_calls_that_are_not_settled_and_runs_under_way_are_counted(world: World) -> None:
    assert (lookups.unsettled(world.store.queries()), lookups.under_way(world.store.queries())) == ({}, [])
    world.publish("m1")
    mutation = world.sent("m1")
    assert lookups.unsettled(world.store.queries()) == {WORKFLOW: 1}
    assert [each.id for each in lookups.under_way(world.store.queries())] == [mutation.run_id]


def test_the_end_of_the_journal_is_read_from_its_end(world: World) -> None:
    world.publish("m1")
    everywhere, here = (
        lookups.newest_journal(world.store.queries(), limit=2),
        lookups.newest_journal(world.store.queries(), workflow_id=WORKFLOW),
    )
    assert [each.seq for each in everywhere] == [each.seq for each in here[-2:]]
    assert (
        lookups.newest_journal(world.store.queries(), before=everywhere[0].seq, limit=1)[0].seq == everywhere[0].seq - 1
    )


def test_the_owner_of_a_file_is_known_and_not_disturbed(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    assert owner_of(db) is None
    with Store.open(db):
        assert owner_of(db) is not None
        assert owner_of(tmp_path / "other.db") is None
    assert owner_of(db) is None


def test_who_only_asks_does_not_keep_a_runtime_from_starting(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    Store.open(db).close()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            owner_of(db)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for each in askers:
        each.start()
    try:
        for _ in range(30):
            Store.open(db).close()
    finally:
        done.set()
        for each in askers:
            each.join()
