"""Many operations in one commit: one outcome each, all or nothing where that was asked for, and a journal of it."""

import pytest

from keep_storage import Reason, Rejected, Together
from keep_storage.operations import CreateSession, Done, Operation, OperationRefused, PauseWorkflow, PublishEvents
from tests.storage.world import WORKFLOW, World


def publish(world: World, message_id: str) -> PublishEvents:
    return PublishEvents(WORKFLOW, (world.mail(message_id),))


def test_a_batch_gives_one_outcome_per_operation_in_order(world: World) -> None:
    outcomes = world.store.commit([publish(world, "m1"), PauseWorkflow("wf_none"), publish(world, "m2")])

    first, second, third = outcomes
    assert isinstance(first, Done)
    assert isinstance(second, OperationRefused)
    assert isinstance(second.error, Rejected)
    assert second.error.reason is Reason.WORKFLOW_NOT_FOUND
    assert isinstance(third, Done)
    assert world.states() == {"m1": "pending", "m2": "pending"}, "the others are untouched"


def test_later_operations_of_a_batch_see_what_earlier_ones_did(world: World) -> None:
    first, second = world.store.commit([CreateSession("ses_1", WORKFLOW), CreateSession("ses_2", WORKFLOW)])
    assert isinstance(first, Done)
    assert isinstance(second, OperationRefused)


def test_an_operation_that_raises_in_the_middle_is_undone_alone(world: World) -> None:
    bug = PublishEvents(WORKFLOW, (world.mail("half"), world.mail("other", payload=object())))  # type: ignore[arg-type]

    good, bad, also_good = world.store.commit([publish(world, "m1"), bug, publish(world, "m2")])

    assert isinstance(bad, OperationRefused)
    assert not isinstance(bad.error, Rejected)
    assert (type(good), type(also_good)) == (Done, Done)
    assert world.states() == {"m1": "pending", "m2": "pending"}


def test_an_empty_batch_is_nothing(world: World) -> None:
    assert world.store.commit([]) == []


def test_together_is_all_or_nothing(world: World) -> None:
    both: Operation[tuple[object, ...]] = Together((publish(world, "m1"), PauseWorkflow("wf_none")))
    with pytest.raises(Rejected):
        world.model.execute(both)
    assert world.states() == {}

    answers = world.model.execute(Together((publish(world, "m1"), PauseWorkflow(WORKFLOW))))
    assert len(answers) == 2
    assert (world.states(), world.workflow().status) == ({"m1": "pending"}, "paused")


def test_every_operation_leaves_one_journal_entry_and_a_refused_one_none(world: World) -> None:
    before = len(world.journal())
    world.store.commit([publish(world, "m1"), PauseWorkflow("wf_none"), PauseWorkflow(WORKFLOW, by="ada")])
    entries = world.journal()[before:]
    assert [entry.operation for entry in entries] == ["publish_events", "pause_workflow"]
    assert entries[1].changed == '{"status":["active","paused"],"by":"ada"}'
