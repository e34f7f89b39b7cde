"""Rows that the writer keeps: as true as the tables, after a commit, a refusal, an undo and an end."""

from typing import Any

from msgspec.structs import replace

from keep_storage import Together, invariants
from keep_storage.kept import Kept
from keep_storage.model import Mutation, Run, Workflow
from keep_storage.operations import (
    ApplyMutation,
    CommitConsumer,
    CreateWorkflow,
    Operation,
    OperationRefused,
    PauseWorkflow,
)
from tests.storage.world import WORKFLOW, World


def kept(world: World) -> Kept:
    return world.store.queries().kept


def test_an_active_run_is_kept_as_it_is_written_and_forgotten_when_it_ends(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    assert kept(world).find(Run, run.id) == run == decoded(world, run.id)
    world.store.commit([CommitConsumer(run.id)])
    assert kept(world).find(Run, run.id) is None
    assert world.run(run.id).status == "committed"


def decoded(world: World, run_id: str) -> Run:
    """A run as it is in the table."""
    kept(world).clear()
    return world.run(run_id)


def test_a_call_is_kept_until_it_is_settled(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    assert kept(world).find(Mutation, mutation.id) == mutation
    world.store.commit([ApplyMutation(mutation.id, "{}")])
    assert kept(world).find(Mutation, mutation.id) is None


def test_a_row_that_is_not_as_its_table_says_is_a_broken_promise(world: World) -> None:
    kept(world).keep(replace(world.workflow(), name="not in the table"))
    [broken] = invariants.check(world.store.queries(), deep=False)
    assert broken.name == "kept_rows_are_true"
    kept(world).clear()


def test_what_is_undone_is_not_believed(world: World) -> None:
    before = world.workflow()
    half: Operation[Any] = Together((PauseWorkflow(WORKFLOW), CreateWorkflow(WORKFLOW, "again")))
    [outcome] = world.store.commit([half])
    assert isinstance(outcome, OperationRefused)
    assert world.workflow() == before
    assert invariants.check(world.store.queries(), deep=True) == []


def test_a_long_value_is_read_each_time(world: World) -> None:
    world.publish("m1")
    run = world.prepared("m1")
    rows = Kept()
    rows.keep(run)
    assert rows.find(Run, run.id) == run
    rows.keep(replace(run, prepare_result="x" * 100_000))
    assert rows.find(Run, run.id) is None


def test_a_reader_keeps_nothing(world: World) -> None:
    world.publish("m1")
    world.prepared("m1")
    assert list(world.store.reader().kept.all()) == []


def test_the_oldest_row_makes_room(world: World) -> None:
    rows, row = Kept(2), world.workflow()
    for number in range(3):
        rows.keep(replace(row, id=f"wf_{number}"))
    assert [each.id for each in rows.all()] == ["wf_1", "wf_2"]
    assert rows.find(Workflow, "wf_0") is None
