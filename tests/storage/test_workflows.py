"""What people and the host do to a workflow as a whole."""

import pytest

from keep_storage import Reason, Rejected
from keep_storage.model import FailureClass, RunStatus
from keep_storage.operations import RunError
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World

# Whose scripts they are.


def test_a_major_version_has_one_author(world: World) -> None:
    added = world.model.add_script_version("ver_2", WORKFLOW, 2, 0, "source", author="ann")
    assert (added.author, '"author":"ann"' in world.journal()[-1].changed) == ("ann", True)
    assert world.model.add_script_version("ver_3", WORKFLOW, 2, 1, "source", author="ann").minor == 1
    for major, author in ((1, "ann"), (2, "bob"), (2, "")):
        with pytest.raises(Rejected, match="grants are for the words of one author") as refusal:
            world.model.add_script_version("ver_4", WORKFLOW, major, 7, "source", author=author)
        assert refusal.value.reason is Reason.VERSION_INVALID


# To whom they belong.


def test_a_workflow_belongs_to_the_owner_it_was_created_for(world: World) -> None:
    assert world.model.create_workflow("wf_hers", "hers", owner="ann").owner == "ann"
    assert world.workflow("wf_hers").owner == "ann"
    assert '"owner":"ann"' in world.journal()[-1].changed
    assert world.workflow().owner == ""


def test_an_activation_keeps_the_owner_unless_it_names_one_and_the_journal_has_both(world: World) -> None:
    version = world.workflow().active_version_id
    assert version
    for named, owner, changed in (
        ("ann", "ann", '"owner":["","ann"]'),
        (None, "ann", None),
        ("ann", "ann", None),
        ("bob", "bob", '"owner":["ann","bob"]'),
        ("", "", '"owner":["bob",""]'),
    ):
        activated = world.model.activate_script(version, TOPICS, HANDLERS, owner=named, by="ada")
        assert (activated.owner, activated) == (owner, world.workflow())
        said = world.journal()[-1].changed
        assert changed in said if changed else "owner" not in said


def test_the_owner_stays_whatever_else_becomes_of_a_workflow(world: World) -> None:
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, HANDLERS, owner="ann")
    world.model.pause_workflow(WORKFLOW)
    world.model.halt_workflow(WORKFLOW, "gave up")
    world.model.clear_workflow_error(WORKFLOW, by="ada")
    world.model.archive_workflow(WORKFLOW, by="ada")
    assert world.model.unarchive_workflow(WORKFLOW, by="ada").owner == world.workflow().owner == "ann"


# Now.


def test_run_now_makes_every_producer_and_job_due_whatever_its_clock_and_backoff_say(world: World) -> None:
    world.model.commit_producer(world.start("poll").id, next_run_at=10**15)
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.PAUSED_TRANSIENT, retry_at=10**15)
    world.model.update_handler_run_status(world.start("digest").id, RunStatus.PAUSED_TRANSIENT, retry_at=10**15)
    world.model.update_handler_run_status(world.start("file").id, RunStatus.PAUSED_TRANSIENT, retry_at=99)
    others = [each for each in world.handlers() if each.name not in ("poll", "digest")]

    workflow = world.model.run_now(WORKFLOW, by="ada")

    for due in (world.handler("poll"), world.handler("digest")):
        assert (due.next_run_at, due.retry_at, due.failures) == (world.clock_of_last_commit(), None, 1)
    assert [each for each in world.handlers() if each.name not in ("poll", "digest")] == others
    assert workflow == world.workflow()
    assert world.journal()[-1].operation == "run_now"


def test_run_now_leaves_a_producer_alone_that_the_script_no_longer_declares(world: World) -> None:
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, tuple(spec for spec in HANDLERS if spec.name != "poll"))
    before = world.handler("poll")
    world.model.run_now(WORKFLOW)
    assert world.handler("poll") == before


# Giving up.


def test_the_host_gives_up_without_a_run(world: World) -> None:
    workflow = world.model.halt_workflow(WORKFLOW, "The actor crashed 5 times in a row.")
    assert (workflow.error, workflow.error_class) == ("The actor crashed 5 times in a row.", FailureClass.INTERNAL)
    assert workflow.error_run_id is None
    assert workflow == world.workflow()
    with pytest.raises(Rejected) as refusal:
        world.start()
    assert refusal.value.reason is Reason.WORKFLOW_HAS_ERROR


def test_the_host_says_of_which_class_it_is(world: World) -> None:
    workflow = world.model.halt_workflow(WORKFLOW, "No such connector.", FailureClass.PRECONDITION)
    assert workflow.error_class is FailureClass.PRECONDITION


def test_the_first_question_wins_and_the_second_is_in_the_journal(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(
        run.id, RunStatus.FAILED_INTERNAL, RunError(FailureClass.INTERNAL, "the first")
    )
    before = world.workflow()
    after = world.model.halt_workflow(WORKFLOW, "the second")
    assert after == world.workflow() == before
    assert after.error_run_id == run.id
    assert (world.journal()[-1].operation, world.journal()[-1].why) == ("halt_workflow", "the second")


def test_a_person_clears_what_the_host_gave_up_on(world: World) -> None:
    world.model.halt_workflow(WORKFLOW, "gave up")
    workflow = world.model.clear_workflow_error(WORKFLOW, by="ada")
    assert (workflow.error, workflow.error_class, workflow.error_run_id) == ("", None, None)
    assert world.start().status is RunStatus.ACTIVE


def test_a_doubt_found_after_the_host_gave_up_is_the_question_that_stays(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.halt_workflow(WORKFLOW, "gave up")
    world.check()
    world.model.recover_crashed_runs()
    assert world.workflow().error_run_id == mutation.run_id


def test_the_host_can_give_up_whatever_the_words(world: World) -> None:
    assert world.model.halt_workflow(WORKFLOW, "half \ud800 a character").error == "half ? a character"
