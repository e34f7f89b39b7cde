"""What recovery must do in corners that no scenario reaches by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keep_storage import Ids, Store, reads
from keep_storage.model import FailureClass, Mutation, MutationStatus, Phase, RunStatus
from tests.storage.world import WORKFLOW, CountingClock, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = CountingClock()
    with Store.open(tmp_path / "keep.db", clock) as store:
        yield World(store)


def approved(world: World, *, reconcilable: bool) -> Mutation:
    """A call that a person has approved: it is in flight, and its run is paused."""
    world.publish("m1")
    mutation = world.recorded("m1", ask=True, reconcilable=reconcilable)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    approval = reads.open_approval(world.store.queries(), mutation.id)
    assert approval
    return world.model.approve_mutation(approval.id, "ann")


@pytest.mark.parametrize("reconcilable", [True, False])
def test_a_crash_while_an_approved_call_is_in_flight_pauses_its_run_for_reconciliation(
    reconcilable: bool, world: World
) -> None:
    mutation = approved(world, reconcilable=reconcilable)
    world.model.recover_crashed_runs()
    assert world.run(mutation.run_id).status is RunStatus.PAUSED_RECONCILIATION
    assert world.workflow().error_class is FailureClass.INDETERMINATE
    assert world.states() == {"m1": "reserved"}
    world.check()


@pytest.mark.parametrize("status", [MutationStatus.NEEDS_RECONCILE, MutationStatus.INDETERMINATE])
def test_a_crash_after_an_approved_call_turned_out_unknown_pauses_its_run_for_reconciliation(
    status: MutationStatus, world: World
) -> None:
    """The doubt is recorded first and the run is paused over it next; the process dies between the two."""
    mutation = approved(world, reconcilable=True)
    world.model.update_mutation_status(mutation.id, status, "timed out")
    world.model.recover_crashed_runs()
    assert world.run(mutation.run_id).status is RunStatus.PAUSED_RECONCILIATION
    assert world.workflow().error_class is FailureClass.INDETERMINATE
    assert world.states() == {"m1": "reserved"}
    world.check()


def test_a_repair_is_ordered_for_the_last_failure_even_if_the_clock_went_back(world: World) -> None:
    """Ids are made from the time, so those of a process with an earlier clock sort before those of the last one."""
    later, earlier = Ids(CountingClock(2_000)), Ids(CountingClock(1_000))
    world.publish("m1")
    for ids in (later, earlier):
        run = world.model.create_run(ids.new("run"), world.session(), "file", Phase.PREPARING)
        world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC)
        [task] = world.model.recover_maintenance_mode()
        assert task.run_id == run.id
        world.model.exit_maintenance_mode(WORKFLOW)
    world.check()
