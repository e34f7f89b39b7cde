"""When a consumer runs again: news, wake-ups, and how long a handler that fails waits."""

from collections.abc import Callable

import pytest

from keep_storage import Rejected
from keep_storage.model import Handler, HandlerKind, MutationStatus, Phase, Resolver, Run, RunStatus
from keep_storage.operations import HandlerSpec, Publish, Reserve
from tests.storage.test_completeness import STOPPED
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World


def writes(world: World, topic: str = "mail") -> int:
    return world.topic(topic).writes


def seen(world: World, handler: str = "file") -> int | None:
    return world.handler(handler).seen


def backoff(world: World, handler: str = "file") -> tuple[int, int | None]:
    found = world.handler(handler)
    return found.failures, found.retry_at


def look(world: World, handler: str = "file", wake_at: int | None = None) -> Run:
    """A consumer runs, reserves nothing and commits."""
    run = empty(world, handler, wake_at)
    return world.model.commit_consumer(run.id)


def empty(world: World, handler: str = "file", wake_at: int | None = None) -> Run:
    """A consumer run that has reserved nothing and whose `next` is running."""
    run = world.start(handler)
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (), "{}", wake_at=wake_at)
    return world.model.update_consumer_phase(run.id, Phase.EMITTING)


# What is written to a topic.


def test_a_topic_counts_the_operations_that_wrote_to_it(world: World) -> None:
    world.publish("m1", "m2", "m3")
    assert (writes(world), writes(world, "rows")) == (1, 0)
    world.publish("m4")
    world.model.publish_events(WORKFLOW, (world.mail("m5"), world.mail("r1", "rows"), world.mail("m6")))
    assert (writes(world), writes(world, "rows")) == (3, 1)


def test_a_pending_event_that_changes_is_a_write(world: World) -> None:
    world.publish("m1")
    world.model.publish_events(WORKFLOW, (world.mail("m1", payload='{"v":2}'),))
    assert writes(world) == 2


def test_what_changes_nothing_is_no_write(world: World) -> None:
    world.publish("m1", "m2")
    world.publish("m1")
    world.model.skip_event(WORKFLOW, "mail", "m1")
    world.model.publish_events(WORKFLOW, (world.mail("m1", payload='{"v":2}'),))
    run = world.emitting("m2")
    world.model.publish_events(WORKFLOW, (world.mail("m2", payload='{"v":2}'),))
    world.model.commit_consumer(run.id)
    assert writes(world) == 1


def test_every_commit_that_publishes_counts(world: World) -> None:
    world.model.commit_producer(world.start("poll").id, 1, (world.mail("m1"),))
    world.model.commit_job(world.start("digest").id, 1, (world.mail("m2"),))
    world.model.commit_consumer(world.emitting("m1").id, (world.mail("m3"), world.mail("r1", "rows")))
    assert (writes(world), writes(world, "rows")) == (3, 1)


def test_what_is_refused_counts_nothing(world: World) -> None:
    with pytest.raises(Rejected):
        world.model.publish_events(WORKFLOW, (world.mail("m1"), Publish("evt_x", "mail", "m2", "")))
    assert writes(world) == 0


# What a run has seen.


def test_a_run_of_a_consumer_says_what_was_written_when_it_started(world: World) -> None:
    world.publish("m1")
    world.publish("r1", topic="rows")
    world.publish("m2")
    run = world.start("file")
    world.publish("m3")
    assert run.seen == world.run(run.id).seen == 2


def test_only_a_consumer_sees(world: World) -> None:
    world.publish("m1")
    for handler in ("poll", "digest"):
        run = world.start(handler)
        assert run.seen is None
        world.model.update_handler_run_status(run.id, RunStatus.CRASHED)


def test_a_consumer_sees_the_sum_of_its_topics(world: World) -> None:
    world.publish("m1")
    world.publish("r1", topic="rows")
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, (HandlerSpec("both", HandlerKind.CONSUMER, TOPICS),))
    run = world.model.create_run("run_x", world.session(), "both", Phase.PREPARING)
    assert run.seen == 2


def test_a_retry_has_seen_what_the_run_it_continues_has_seen(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    world.publish("m2")
    retry = world.model.create_retry_run("run_r", run.id, world.session())
    assert retry.seen == run.seen == 1


# News.


def test_a_pending_event_is_news_to_a_consumer_that_never_ran(world: World) -> None:
    assert not world.has_news("file")
    world.publish("m1")
    assert world.has_news("file")
    assert not world.has_news("announce")


def test_after_an_empty_look_nothing_is_news_until_the_next_event(world: World) -> None:
    world.publish("m1")
    look(world)
    assert seen(world) == 1
    assert not world.has_news("file")
    world.publish("m2")
    assert world.has_news("file")


def test_an_event_that_changes_after_an_empty_look_is_news(world: World) -> None:
    world.publish("m1")
    look(world)
    world.model.publish_events(WORKFLOW, (world.mail("m1", payload='{"v":2}'),))
    assert world.has_news("file")


def test_after_a_commit_that_reserved_something_what_is_pending_is_news(world: World) -> None:
    world.publish("m1", "m2")
    look(world)
    world.model.commit_consumer(world.emitting("m1").id)
    assert seen(world) is None
    assert world.has_news("file")
    world.model.commit_consumer(world.emitting("m2").id)
    assert not world.has_news("file"), "nothing is pending"


@pytest.mark.parametrize("when", ["preparing", "prepared", "emitting"])
def test_an_event_that_arrives_between_start_and_commit_is_news_afterwards(world: World, when: str) -> None:
    run = world.start()
    if when == "preparing":
        world.publish("m1")
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (), "{}")
    if when == "prepared":
        world.publish("m1")
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    if when == "emitting":
        world.publish("m1")
    world.model.commit_consumer(run.id)
    assert world.has_news("file")


def test_what_an_empty_run_publishes_to_itself_is_news(world: World) -> None:
    world.model.commit_consumer(empty(world).id, (world.mail("m1"),))
    assert world.has_news("file")


def test_an_event_of_another_topic_is_no_news(world: World) -> None:
    world.publish("m1")
    look(world)
    world.publish("r1", topic="rows")
    assert not world.has_news("file")


@pytest.mark.parametrize("status", STOPPED)
@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.EMITTING])
def test_what_a_run_saw_is_news_again_when_it_stops(world: World, phase: Phase, status: RunStatus) -> None:
    world.publish("m1")
    look(world)
    run = world.start() if phase is Phase.PREPARING else empty(world)
    world.model.update_handler_run_status(run.id, status)
    assert seen(world) is None
    assert world.has_news("file")


def test_a_run_of_another_handler_that_stops_is_no_news(world: World) -> None:
    world.publish("m1")
    look(world)
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.PAUSED_TRANSIENT)
    assert not world.has_news("file")


def test_recovery_makes_what_a_dead_run_saw_news_again(world: World) -> None:
    world.publish("m1")
    look(world)
    world.start()
    world.model.recover_crashed_runs()
    assert world.has_news("file")


def test_events_released_by_a_failed_mutation_are_news_before_the_run_has_stopped(world: World) -> None:
    world.publish("m1")
    look(world)
    world.model.fail_mutation(world.sent("m1").id)
    assert seen(world) is None
    assert world.has_news("file")


@pytest.mark.parametrize("resolver", [Resolver.USER_ASSERT_FAILED, Resolver.RECONCILIATION])
def test_events_released_by_a_verdict_are_news_again(world: World, resolver: Resolver) -> None:
    world.publish("m1")
    look(world)
    mutation = world.uncertain("m1", reconcilable=True)
    assert not world.has_news("file"), "its one event is held"
    world.model.fail_mutation(mutation.id, resolved_by=resolver, by="ada")
    assert world.has_news("file")


def test_events_of_a_call_that_was_sent_back_are_news_again(world: World) -> None:
    world.publish("m1")
    look(world)
    mutation = world.recorded("m1", ask=True)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    approval = world.open_approval(mutation.id)
    world.model.reject_mutation(approval, by="ada", retry=True)
    assert world.has_news("file")


def test_what_the_old_script_saw_is_news_to_the_new_one(world: World) -> None:
    world.publish("m1")
    look(world)
    redeploy(world)
    assert seen(world) is None
    assert world.has_news("file")


def test_what_was_seen_before_an_error_is_news_when_it_is_cleared(world: World) -> None:
    world.publish("m1")
    look(world)
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.FAILED_INTERNAL)
    assert not world.has_news("file")
    world.model.clear_workflow_error(WORKFLOW, by="ada")
    assert world.has_news("file")


def test_a_skipped_event_is_no_news(world: World) -> None:
    world.publish("m1")
    world.model.skip_event(WORKFLOW, "mail", "m1")
    assert not world.has_news("file")


def redeploy(world: World) -> None:
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, HANDLERS)


# Waking.


def test_a_wake_up_that_fails_in_prepare_stays_due(world: World) -> None:
    look(world, wake_at=5)
    world.model.update_handler_run_status(world.start().id, RunStatus.PAUSED_TRANSIENT)
    assert world.handler("file").wake_at == 5


@pytest.mark.parametrize("status", STOPPED)
def test_a_wake_up_that_fails_after_prepare_is_due_at_once(world: World, status: RunStatus) -> None:
    """`prepare` has asked for another time, or for none; and no event comes back that would start a fresh run."""
    look(world, wake_at=5)
    run = empty(world)
    assert world.handler("file").wake_at is None
    world.model.update_handler_run_status(run.id, status)
    assert world.handler("file").wake_at == world.run(run.id).ended_at


def test_a_wake_up_that_fails_is_news_again(world: World) -> None:
    world.publish("m1")
    look(world, wake_at=5)
    assert not world.has_news("file")
    world.model.update_handler_run_status(empty(world).id, RunStatus.PAUSED_TRANSIENT)
    assert world.has_news("file")


def test_a_run_whose_events_come_back_leaves_the_wake_up_it_asked_for(world: World) -> None:
    world.publish("m1")
    run = world.start()
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (Reserve("mail", ("m1",)),), "{}", wake_at=77)
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT)
    assert world.handler("file").wake_at == 77


# Backoff.

STOPS_THAT_COUNT = [status for status in STOPPED if status is not RunStatus.CRASHED]


@pytest.mark.parametrize("handler", ["file", "poll", "digest"])
@pytest.mark.parametrize("status", STOPS_THAT_COUNT)
def test_a_stop_counts_and_says_when_to_try_again(world: World, status: RunStatus, handler: str) -> None:
    world.model.update_handler_run_status(world.start(handler).id, status, retry_at=99)
    assert backoff(world, handler) == (1, 99)
    assert {each.name for each in world.handlers() if each.failures} == {handler}


def test_failures_add_up_and_the_last_one_says_when(world: World) -> None:
    for retry_at in (99, 199, None):
        world.model.update_handler_run_status(world.start().id, RunStatus.PAUSED_TRANSIENT, retry_at=retry_at)
    assert backoff(world) == (3, None)


def test_a_doubt_counts(world: World) -> None:
    world.publish("m1")
    mutation = world.sent("m1")
    world.model.update_mutation_status(mutation.id, MutationStatus.NEEDS_RECONCILE)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_RECONCILIATION, retry_at=99)
    assert backoff(world) == (1, 99)


def test_a_crash_is_not_the_fault_of_the_handler(world: World) -> None:
    world.model.update_handler_run_status(world.start().id, RunStatus.PAUSED_TRANSIENT, retry_at=99)
    world.model.update_handler_run_status(world.start().id, RunStatus.CRASHED, retry_at=199)
    assert backoff(world) == (1, 99)
    world.start()
    world.model.recover_crashed_runs()
    assert backoff(world) == (1, 99)


COMMITS: dict[str, Callable[[World], Run]] = {
    "file": look,
    "poll": lambda world: world.model.commit_producer(world.start("poll").id, next_run_at=9),
    "digest": lambda world: world.model.commit_job(world.start("digest").id, next_run_at=9),
}


@pytest.mark.parametrize("handler", COMMITS)
def test_a_commit_forgives_its_own_handler(world: World, handler: str) -> None:
    failed = fail_all(world)
    COMMITS[handler](world)
    assert backoff(world, handler) == (0, None)
    others = [backoff(world, each) for each in failed if each != handler]
    assert others == [(1, 99)] * len(others)


def test_the_commit_of_a_retry_forgives(world: World) -> None:
    world.publish("m1")
    run = world.emitting("m1")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_TRANSIENT, retry_at=99)
    world.model.commit_consumer(world.model.create_retry_run("run_r", run.id, world.session()).id)
    assert backoff(world) == (0, None)


def fail_all(world: World) -> list[str]:
    for spec in HANDLERS:
        world.model.update_handler_run_status(world.start(spec.name).id, RunStatus.PAUSED_TRANSIENT, retry_at=99)
    return [spec.name for spec in HANDLERS]


def clear_error(world: World) -> None:
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.FAILED_INTERNAL)
    world.model.clear_workflow_error(WORKFLOW, by="ada")


def repair(world: World) -> None:
    world.model.update_handler_run_status(world.start("poll").id, RunStatus.FAILED_LOGIC)
    world.model.exit_maintenance_mode(WORKFLOW, by="ada")


@pytest.mark.parametrize("mend", [clear_error, repair, redeploy], ids=lambda mend: mend.__name__)
def test_what_mends_a_workflow_forgives_all_its_handlers(world: World, mend: Callable[[World], None]) -> None:
    world.deploy("wf_other")
    other = world.start("poll", "wf_other")
    world.model.update_handler_run_status(other.id, RunStatus.PAUSED_TRANSIENT, retry_at=99)
    names = fail_all(world)
    mend(world)
    assert [backoff(world, each) for each in names] == [(0, None)] * len(names)
    [theirs] = [each for each in world.handlers("wf_other") if each.name == "poll"]
    assert (theirs.failures, theirs.retry_at) == (1, 99)


@pytest.mark.parametrize("mend", [clear_error, repair], ids=lambda mend: mend.__name__)
def test_what_mends_a_workflow_writes_only_handlers_that_had_failed(
    world: World, mend: Callable[[World], None]
) -> None:
    def others() -> list[Handler]:
        return [each for each in world.handlers() if each.name != "poll"]

    before = others()
    mend(world)
    assert others() == before


def test_what_comes_after_a_consumer_has_looked_is_news_even_if_its_run_is_written_down_later(world: World) -> None:
    world.publish("m1")
    looked = writes(world)
    world.publish("m2")
    run = world.model.create_run(world.name("run"), world.session(), "file", Phase.PREPARING, looked)
    world.model.update_consumer_phase(run.id, Phase.PREPARED, (), "{}")
    world.model.update_consumer_phase(run.id, Phase.EMITTING)
    world.model.commit_consumer(run.id)
    assert seen(world) == looked < writes(world)


def test_nobody_has_seen_more_than_there_is(world: World) -> None:
    world.publish("m1")
    run = world.model.create_run(world.name("run"), world.session(), "file", Phase.PREPARING, 99)
    assert run.seen == writes(world) == 1


def test_a_repair_that_no_person_has_seen_does_not_forget_how_often_a_handler_failed(world: World) -> None:
    run = world.start()
    world.model.update_handler_run_status(run.id, RunStatus.FAILED_LOGIC)
    version = world.workflow().active_version_id
    assert version
    world.model.activate_script(version, TOPICS, HANDLERS, is_repair=True)
    world.model.exit_maintenance_mode(WORKFLOW, by_person=False)
    assert backoff(world) == (1, None)
    world.model.activate_script(version, TOPICS, HANDLERS)
    assert backoff(world) == (0, None)
