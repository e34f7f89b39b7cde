"""The repair of a script: attempts that come to nothing, proposals that wait for a person, and what is counted."""

from collections.abc import Callable

import pytest

from keep_storage import reads
from keep_storage.model import MaintenanceTask, Phase, Run, RunStatus, TaskStatus
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World


def repairs(world: World, handler: str = "file") -> int:
    return world.handler(handler).repairs


def broken(world: World, handler: str = "file") -> MaintenanceTask:
    """A run has failed by its logic, and the repair is ordered."""
    world.model.update_handler_run_status(world.start(handler).id, RunStatus.FAILED_LOGIC)
    return world.model.create_maintenance_task(WORKFLOW, '{"stack":"…"}')


def proposal(world: World, minor: int = 1) -> str:
    return world.model.add_script_version(world.name("ver"), WORKFLOW, 1, minor, "repaired").id


def task(world: World) -> MaintenanceTask:
    found = reads.open_task(world.store.queries(), WORKFLOW)
    assert found
    return found


def automatic_repair(world: World) -> None:
    """What the runtime does when an attempt went well and nobody need see it."""
    version = proposal(world, len(reads.versions(world.store.queries(), WORKFLOW)))
    world.model.activate_script(version, TOPICS, HANDLERS)
    world.model.exit_maintenance_mode(WORKFLOW, by="repair", by_person=False)


# An order, and attempts that come to nothing.


def test_a_repair_begins_without_attempts(world: World) -> None:
    ordered = broken(world)
    assert (ordered.attempts, ordered.next_attempt_at, ordered.held_version_id, ordered.problem) == (0, None, None, "")
    assert ordered == task(world)
    assert repairs(world) == 0


def test_an_attempt_that_failed_is_counted_and_says_why_and_when_to_try_again(world: World) -> None:
    before = broken(world)
    after = world.model.note_repair_attempt(WORKFLOW, "The proposal does not parse.", next_attempt_at=77, by="model-1")
    assert (after.attempts, after.problem, after.next_attempt_at) == (1, "The proposal does not parse.", 77)
    assert after == task(world)
    assert (after.id, after.run_id, after.evidence, after.status) == (
        before.id,
        before.run_id,
        before.evidence,
        TaskStatus.OPEN,
    )


def test_attempts_add_up_and_the_last_one_says_what_and_when(world: World) -> None:
    broken(world)
    for next_attempt_at, problem in ((77, "one"), (99, "two"), (None, "three")):
        world.model.note_repair_attempt(WORKFLOW, problem, next_attempt_at)
    found = task(world)
    assert (found.attempts, found.problem, found.next_attempt_at) == (3, "three", None)
    assert repairs(world) == 3


def test_an_attempt_counts_for_the_handler_that_failed_and_for_no_other(world: World) -> None:
    broken(world, "poll")
    others = [each for each in world.handlers() if each.name != "poll"]
    world.model.note_repair_attempt(WORKFLOW, "no")
    assert repairs(world, "poll") == 1
    assert [each for each in world.handlers() if each.name != "poll"] == others


def test_an_attempt_leaves_the_workflow_in_maintenance(world: World) -> None:
    broken(world)
    before = world.workflow()
    world.model.note_repair_attempt(WORKFLOW, "no")
    assert world.workflow() == before


def test_an_attempt_is_in_the_journal_with_its_problem_and_who_refused_it(world: World) -> None:
    run_id = broken(world).run_id
    world.model.note_repair_attempt(WORKFLOW, "It deletes mail.", by="ada")
    entry = world.journal()[-1]
    assert (entry.operation, entry.run_id, entry.why) == ("note_repair_attempt", run_id, "It deletes mail.")
    assert '"by":"ada"' in entry.changed


def test_a_problem_can_be_noted_whatever_the_words(world: World) -> None:
    broken(world)
    assert world.model.note_repair_attempt(WORKFLOW, "half \ud800 a character").problem == "half ? a character"


# A proposal that waits for a person.


def test_a_held_proposal_waits_and_is_not_an_attempt_yet(world: World) -> None:
    broken(world)
    world.model.note_repair_attempt(WORKFLOW, "no", next_attempt_at=77)
    version = proposal(world)
    held = world.model.hold_proposal(WORKFLOW, version, "It wants gmail.send.")
    assert (held.held_version_id, held.problem, held.attempts) == (version, "It wants gmail.send.", 1)
    assert held.next_attempt_at is None, "nothing is tried while it waits"
    assert held == task(world)
    assert repairs(world) == 1


def test_a_refused_proposal_is_dropped_and_counted(world: World) -> None:
    broken(world)
    world.model.hold_proposal(WORKFLOW, proposal(world), "It wants gmail.send.")
    after = world.model.note_repair_attempt(WORKFLOW, "Not that way.", next_attempt_at=77, by="ada")
    assert (after.held_version_id, after.attempts, after.problem, after.next_attempt_at) == (
        None,
        1,
        "Not that way.",
        77,
    )
    second = proposal(world, 2)
    assert world.model.hold_proposal(WORKFLOW, second).held_version_id == second


def test_a_version_that_ran_before_can_be_proposed(world: World) -> None:
    """To go back is a repair."""
    before = world.workflow().active_version_id
    assert before
    world.model.activate_script(proposal(world), TOPICS, HANDLERS)
    broken(world)
    assert world.model.hold_proposal(WORKFLOW, before).held_version_id == before


def test_a_held_proposal_survives_recovery(world: World) -> None:
    broken(world)
    held = world.model.hold_proposal(WORKFLOW, proposal(world))
    world.model.recover_crashed_runs()
    assert world.model.recover_maintenance_mode() == ()
    assert task(world) == held


# The end of a repair.


@pytest.mark.parametrize("by_person", [True, False])
def test_the_end_of_a_repair_drops_what_waits_and_keeps_what_was_tried(world: World, by_person: bool) -> None:
    broken(world)
    world.model.note_repair_attempt(WORKFLOW, "no", next_attempt_at=77)
    world.model.hold_proposal(WORKFLOW, proposal(world), "It wants gmail.send.")
    world.model.exit_maintenance_mode(WORKFLOW, by="ada", by_person=by_person)
    assert reads.open_task(world.store.queries(), WORKFLOW) is None
    [ended] = world.tasks()
    assert (ended.status, ended.held_version_id, ended.next_attempt_at) == (TaskStatus.DONE, None, None)
    assert (ended.attempts, ended.problem) == (1, "It wants gmail.send.")


def test_a_person_who_repairs_lets_every_handler_be_repaired_afresh(world: World) -> None:
    for handler in ("poll", "file"):
        broken(world, handler)
        world.model.note_repair_attempt(WORKFLOW, "no")
        world.model.exit_maintenance_mode(WORKFLOW, by_person=False)
    broken(world, "digest")
    world.model.note_repair_attempt(WORKFLOW, "no")
    world.model.exit_maintenance_mode(WORKFLOW, by="ada")
    assert [each.repairs for each in world.handlers()] == [0, 0, 0, 0]


def test_who_says_nothing_else_is_a_person(world: World) -> None:
    broken(world)
    world.model.note_repair_attempt(WORKFLOW, "no")
    world.model.exit_maintenance_mode(WORKFLOW)
    assert repairs(world) == 0


def test_an_automatic_repair_counts_for_its_handler_and_for_no_other(world: World) -> None:
    broken(world)
    automatic_repair(world)
    assert {each.name: each.repairs for each in world.handlers()} == {"announce": 0, "digest": 0, "file": 1, "poll": 0}


def test_an_automatic_repair_counts_also_if_a_crash_swallowed_the_order(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.FAILED_LOGIC)
    world.model.exit_maintenance_mode(WORKFLOW, by_person=False)
    assert repairs(world) == 1


def test_repairs_that_do_not_help_add_up_over_several_failures(world: World) -> None:
    for _ in range(3):
        broken(world)
        world.model.note_repair_attempt(WORKFLOW, "no")
        automatic_repair(world)
    assert repairs(world) == 6


def test_a_person_who_repairs_one_workflow_says_nothing_about_another(world: World) -> None:
    world.deploy("wf_other")
    for workflow in ("wf_other", WORKFLOW):
        world.model.update_handler_run_status(world.start("poll", workflow).id, RunStatus.FAILED_LOGIC)
        world.model.create_maintenance_task(workflow)
        world.model.note_repair_attempt(workflow, "no")
    world.model.exit_maintenance_mode(WORKFLOW, by="ada")
    assert {each.repairs for each in world.handlers("wf_other")} == {0, 1}


def test_a_repair_ends_without_touching_handlers_that_needed_none(world: World) -> None:
    broken(world, "poll")
    others = [each for each in world.handlers() if each.name != "poll"]
    world.model.exit_maintenance_mode(WORKFLOW, by="ada")
    assert [each for each in world.handlers() if each.name != "poll"] == others


# What a handler proves.


def look(world: World) -> Run:
    run = world.start()
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (), "{}")
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    return world.model.commit_consumer(run.id)


COMMITS: dict[str, Callable[[World], Run]] = {
    "file": look,
    "poll": lambda world: world.model.commit_producer(world.start("poll").id, next_run_at=0),
    "digest": lambda world: world.model.commit_job(world.start("digest").id, next_run_at=0),
}


@pytest.mark.parametrize("handler", COMMITS)
def test_a_commit_proves_the_repair_of_its_own_handler(world: World, handler: str) -> None:
    for name in COMMITS:
        broken(world, name)
        world.model.exit_maintenance_mode(WORKFLOW, by_person=False)
    COMMITS[handler](world)
    assert {name: repairs(world, name) for name in COMMITS} == {name: int(name != handler) for name in COMMITS}


def test_the_commit_of_a_retry_proves_the_repair(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC)
    world.model.exit_maintenance_mode(WORKFLOW, by_person=False)
    assert repairs(world) == 1
    world.model.commit_consumer(world.model.create_retry_run("run_r", run.id, world.session()).id)
    assert repairs(world) == 0


def test_neither_a_new_script_nor_a_cleared_error_proves_anything(world: World) -> None:
    """Else a repair that does not help would be tried for ever."""
    broken(world)
    automatic_repair(world)
    world.model.activate_script(proposal(world, 5), TOPICS, HANDLERS)
    world.model.halt_workflow(WORKFLOW, "gave up")
    world.model.clear_workflow_error(WORKFLOW, by="ada")
    assert repairs(world) == 1
