"""A result that a person gave can be put right, by name and with a reason, until something has used it."""

import msgspec
import pytest

from keep_storage.model import FailureClass, MutationStatus, OnUnknown, Resolver, RunStatus
from keep_storage.operations import ItemScope, RunError
from keep_storage.outcomes import mutation_result_for_next
from tests.storage.world import World


def asserted(world: World, result: str = '{"rowId":1}') -> str:
    world.publish("m1")
    mutation = world.uncertain("m1")
    return world.model.apply_mutation(mutation.id, result, Resolver.USER_ASSERT_APPLIED, by="ada", why="seen").id


def inside_item(world: World) -> str:
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "Item i1")
    return run.id


def test_next_is_given_the_amended_result(world: World) -> None:
    mutation_id = asserted(world)
    before = world.mutation(mutation_id)

    amended = world.model.amend_result(mutation_id, '{"rowId":2}', by="bob", why="read it wrong")

    assert (amended.result, amended.version) == ('{"rowId":2}', before.version + 1)
    assert (amended.resolved_by, amended.resolved_who, amended.resolved_why) == (
        Resolver.USER_ASSERT_APPLIED,
        "bob",
        "read it wrong",
    )
    assert amended == world.mutation(mutation_id)
    retry = world.model.create_retry_run("run_r", amended.run_id, world.session())
    assert mutation_result_for_next(retry) == '{"status":"applied","result":{"rowId":2}}'
    world.model.commit_consumer(retry.id)
    assert world.states() == {"m1": "consumed"}
    world.check()


def test_the_journal_has_both_results_who_amended_and_why(world: World) -> None:
    mutation_id = asserted(world)
    world.model.amend_result(mutation_id, '{"rowId":2}', by="bob", why="read it wrong")

    entry = world.journal()[-1]

    assert (entry.operation, entry.why, entry.run_id) == (
        "amend_result",
        "read it wrong",
        world.mutation(mutation_id).run_id,
    )
    assert msgspec.json.decode(entry.changed) == {
        "mutation": mutation_id,
        "result": ['{"rowId":1}', '{"rowId":2}'],
        "by": "bob",
    }


def test_a_result_is_amended_as_often_as_it_is_wrong_each_time_by_who_saw_the_last(world: World) -> None:
    mutation_id = asserted(world)
    for result in ("2", "3"):
        seen = world.mutation(mutation_id).version
        world.model.amend_result(mutation_id, result, by="bob", expected_version=seen)
    assert world.mutation(mutation_id).result == "3"
    world.check()


def test_a_parked_runs_result_is_amended_before_its_next(world: World) -> None:
    world.on_unknown = OnUnknown.PARK
    mutation_id = asserted(world)
    run_id = world.mutation(mutation_id).run_id
    world.model.amend_result(mutation_id, "2", by="bob")
    assert (world.run(run_id).parked, world.run(run_id).mutation_result) == (True, "2")
    world.check()


def test_inside_an_item_the_next_run_replays_the_amended_result(world: World) -> None:
    first = inside_item(world)
    scope = ItemScope("i1", "hash")

    def call(run_id: str) -> str:
        return world.model.create_mutation(
            world.name("mut"), run_id, "sheets", "append", "{}", "key", reconcilable=False, send=True, item=scope
        ).id

    mutation_id = call(first)
    world.model.update_mutation_status(mutation_id, MutationStatus.INDETERMINATE, "timed out")
    world.model.update_handler_run_status(first, RunStatus.PAUSED_RECONCILIATION)
    world.model.apply_mutation(mutation_id, "1", Resolver.USER_ASSERT_APPLIED, by="ada")

    world.model.amend_result(mutation_id, "2", by="bob")

    assert call(inside_item(world)) == mutation_id
    assert world.mutation(mutation_id).result == "2"
    world.check()


# What was settled is not called uncertain any more.


def test_a_call_that_was_settled_as_applied_carries_no_words_of_doubt(world: World) -> None:
    world.publish("m1")
    doubt = world.uncertain("m1")
    assert world.mutation(doubt.id).error == "timed out"
    world.model.apply_mutation(doubt.id, "1", Resolver.USER_ASSERT_APPLIED, by="ada")
    assert world.mutation(doubt.id).error == ""
    assert world.journal()[-1].why == ""


@pytest.mark.parametrize("words", ["", "the connector looked for it"])
def test_a_call_that_was_settled_as_failed_has_only_the_words_of_what_settled_it(world: World, words: str) -> None:
    world.publish("m1")
    doubt = world.uncertain("m1", reconcilable=True)
    world.model.fail_mutation(doubt.id, words, Resolver.RECONCILIATION)
    assert world.mutation(doubt.id).error == words


def test_an_item_is_not_left_with_a_doubt_that_was_settled(world: World) -> None:
    run_id = inside_item(world)
    mutation = world.model.create_mutation(
        "mut_1", run_id, "sheets", "append", "{}", "key", reconcilable=False, send=True, item=ItemScope("i1", "hash")
    )
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE)
    doubt = RunError(FailureClass.INDETERMINATE, "Mutation outcome uncertain")
    world.model.update_handler_run_status(run_id, RunStatus.PAUSED_RECONCILIATION, doubt)

    world.model.apply_mutation(mutation.id, "1", Resolver.USER_ASSERT_APPLIED, by="ada")

    item = world.model.open_item(world.start("digest").id, "i1", "Item i1")
    assert (item.error, str(item.state)) == ("", "failed")
    world.check()
