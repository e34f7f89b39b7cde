"""What a workflow does next: each rule by a literal case, and all of them together for any workflow there could be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from keep_actors.workflow.plan import ExpireApproval, PlannedStep, Reconcile, Repair, Rest, StartRetry, StartRun, plan
from keep_storage.ids import Millis
from keep_storage.model import FailureClass, HandlerKind, Workflow, WorkflowStatus
from keep_storage.reads import HandlerView, Snapshot, TaskView

NOW = 1_700_000_000_000
LATE = NOW + 10**9

ACTIVE = Workflow(
    id="wf_1",
    name="orders",
    timezone="UTC",
    status=WorkflowStatus.ACTIVE,
    error="",
    error_class=None,
    error_run_id=None,
    maintenance=False,
    maintenance_run_id=None,
    pending_retry_run_id=None,
    active_version_id="ver_1",
    created_at=NOW,
    updated_at=NOW,
    error_about="",
    owner="",
)


def handler(name: str, kind: HandlerKind, **known: Any) -> HandlerView:
    quiet: dict[str, Any] = dict.fromkeys(("next_run_at", "wake_at", "retry_at", "oldest_pending_seq"))
    quiet |= {"has_news": False, "is_held": False}
    return HandlerView(name=name, kind=kind, failures=0, writes=0, **{**quiet, **known})


def consumer(name: str, *, oldest: int | None = None, **known: Any) -> HandlerView:
    """With an oldest pending event there is news, unless it is said that there is none."""
    return handler(
        name, HandlerKind.CONSUMER, **{"oldest_pending_seq": oldest, "has_news": oldest is not None, **known}
    )


def producer(name: str, at: Millis | None, **known: Any) -> HandlerView:
    return handler(name, HandlerKind.PRODUCER, next_run_at=at, **known)


def job(name: str, at: Millis | None, **known: Any) -> HandlerView:
    return handler(name, HandlerKind.JOB, next_run_at=at, **known)


def task(*, repairs: int = 0, next_attempt_at: Millis | None = None, held: bool = False) -> TaskView:
    """A repair that was tried so often, and may wait for a person."""
    return TaskView("task_1", "run_failed", "file", repairs, repairs, next_attempt_at, "ver_2" if held else None)


def snapshot(
    *handlers: HandlerView,
    retry: str | None = None,
    parked: str | None = None,
    approval_expires_at: Millis | None = None,
    reconcile_at: Millis | None = None,
    task: TaskView | None = None,
    **changed: Any,
) -> Snapshot:
    """A workflow that nothing stops. `retry` names the handler of the run whose retry is pending, `parked` that of one
    that is parked and has an outcome."""
    pending = "run_stopped" if retry is not None else None
    workflow = replace(ACTIVE, pending_retry_run_id=pending, **changed)
    return Snapshot(
        workflow,
        handlers,
        open_session_id=None,
        parked=int(parked is not None),
        retry_run_id=pending or ("run_parked" if parked is not None else None),
        retry_handler=retry or parked,
        approval_expires_at=approval_expires_at,
        approval_id="apr_1" if approval_expires_at is not None else None,
        reconcile_at=reconcile_at,
        reconcile_id="mut_1" if reconcile_at is not None else None,
        task=task,
    )


def started(step: PlannedStep) -> str:
    assert isinstance(step, StartRun)
    return step.handler


# What stops everything.

EVERYTHING_DUE = (consumer("file", oldest=1), producer("poll", NOW), job("sweep", NOW))


@pytest.mark.parametrize("status", sorted(set(WorkflowStatus) - {WorkflowStatus.ACTIVE}))
@pytest.mark.parametrize("retry", [None, "file"])
def test_only_an_active_workflow_does_anything(status: WorkflowStatus, retry: str | None) -> None:
    assert plan(snapshot(*EVERYTHING_DUE, retry=retry, status=status), NOW) == Rest(None)


@pytest.mark.parametrize("retry", [None, "file"])
def test_an_error_that_waits_for_a_person_stops_everything(retry: str | None) -> None:
    stopped = snapshot(*EVERYTHING_DUE, retry=retry, error="Sign in again", error_class=FailureClass.AUTH)
    assert plan(stopped, NOW) == Rest(None)


@pytest.mark.parametrize("retry", [None, "file"])
def test_nothing_runs_while_the_script_is_under_repair(retry: str | None) -> None:
    assert plan(snapshot(*EVERYTHING_DUE, retry=retry, maintenance=True), NOW) == Rest(None)


# The order.


def test_a_pending_retry_comes_before_everything_else() -> None:
    assert plan(snapshot(*EVERYTHING_DUE, retry="file"), NOW) == StartRetry("run_stopped", "file")


def test_a_pending_retry_waits_for_its_backoff_and_everything_else_waits_with_it() -> None:
    waiting = snapshot(consumer("file", retry_at=NOW + 7), consumer("other", oldest=1), retry="file")
    assert plan(waiting, NOW) == Rest(NOW + 7)
    assert plan(waiting, NOW + 7) == StartRetry("run_stopped", "file")


def test_a_parked_run_with_an_outcome_goes_on_first_and_the_others_do_not_wait_with_it() -> None:
    assert plan(snapshot(*EVERYTHING_DUE, parked="file"), NOW) == StartRetry("run_parked", "file")
    waiting = snapshot(consumer("file", retry_at=NOW + 7), consumer("other", oldest=1), parked="file")
    assert started(plan(waiting, NOW)) == "other"
    assert plan(replace(waiting, handlers=waiting.handlers[:1]), NOW) == Rest(NOW + 7)
    assert plan(waiting, NOW + 7) == StartRetry("run_parked", "file")


def test_a_pending_retry_comes_before_what_is_parked() -> None:
    both = snapshot(consumer("file"), consumer("other"), retry="other", parked="file")
    assert plan(both, NOW) == StartRetry("run_stopped", "other")


def test_the_backoff_of_another_handler_does_not_hold_up_a_retry() -> None:
    ready = snapshot(consumer("file"), consumer("other", oldest=1, retry_at=NOW + 7), retry="file")
    assert plan(ready, NOW) == StartRetry("run_stopped", "file")


def test_of_several_consumers_the_one_with_the_oldest_pending_event_runs() -> None:
    assert started(plan(snapshot(consumer("a", oldest=9), consumer("b", oldest=4)), NOW)) == "b"


def test_consumers_run_before_producers_and_those_before_jobs() -> None:
    assert plan(snapshot(*EVERYTHING_DUE), NOW) == StartRun("file", "event")
    assert plan(snapshot(*EVERYTHING_DUE[1:]), NOW) == StartRun("poll", "schedule")
    assert plan(snapshot(*EVERYTHING_DUE[2:]), NOW) == StartRun("sweep", "schedule")


def test_a_producer_that_has_been_due_for_longer_does_not_overtake_a_consumer() -> None:
    assert started(plan(snapshot(producer("poll", NOW - 10**9), consumer("file", oldest=1)), NOW)) == "file"


def test_of_several_producers_the_one_that_has_been_due_for_longest_runs() -> None:
    assert started(plan(snapshot(producer("a", NOW - 1), producer("b", NOW - 2), producer("c", NOW)), NOW)) == "b"


def test_of_two_that_are_equal_the_name_decides() -> None:
    assert started(plan(snapshot(producer("b", NOW), producer("a", NOW)), NOW)) == "a"


# When.


def test_a_consumer_that_has_looked_at_what_is_pending_sleeps() -> None:
    assert plan(snapshot(consumer("file", oldest=1, has_news=False)), NOW) == Rest(None)


def test_a_consumer_runs_when_it_asked_to_be_woken_and_not_before() -> None:
    asleep = snapshot(consumer("file", wake_at=NOW + 5))
    assert plan(asleep, NOW) == Rest(NOW + 5)
    assert plan(asleep, NOW + 5) == StartRun("file", "wake")


def test_news_wake_a_consumer_before_the_time_it_asked_for() -> None:
    assert plan(snapshot(consumer("file", oldest=1, wake_at=NOW + 5)), NOW) == StartRun("file", "event")


def test_a_consumer_that_is_woken_comes_after_one_whose_event_is_older_and_before_one_without_any() -> None:
    woken = consumer("woken", oldest=5, has_news=False, wake_at=NOW)
    assert started(plan(snapshot(woken, consumer("older", oldest=4)), NOW)) == "older"
    assert started(plan(snapshot(woken, consumer("empty", wake_at=NOW - 9)), NOW)) == "woken"


@pytest.mark.parametrize(
    "failed",
    [
        consumer("it", oldest=1, retry_at=NOW + 3),
        consumer("it", wake_at=NOW - 1, retry_at=NOW + 3),
        producer("it", NOW - 1, retry_at=NOW + 3),
        job("it", NOW, retry_at=NOW + 3),
    ],
    ids=["with news", "woken", "producer", "job"],
)
def test_nothing_that_failed_runs_before_its_retry_whatever_else_is_due(failed: HandlerView) -> None:
    assert plan(snapshot(failed), NOW) == Rest(NOW + 3)
    assert started(plan(snapshot(failed), NOW + 3)) == "it"


def test_a_handler_that_backs_off_lets_the_others_run() -> None:
    assert started(plan(snapshot(consumer("file", oldest=1, retry_at=NOW + 3), producer("poll", NOW)), NOW)) == "poll"


def test_a_backoff_that_has_passed_does_not_start_what_has_nothing_to_do() -> None:
    assert plan(snapshot(consumer("file", retry_at=NOW - 1), producer("poll", None, retry_at=NOW)), NOW) == Rest(None)


def test_it_rests_until_the_earliest_of_all() -> None:
    quiet = snapshot(producer("a", NOW + 9), consumer("b", wake_at=NOW + 4), job("c", NOW + 2, retry_at=NOW + 6))
    assert plan(quiet, NOW) == Rest(NOW + 4)


def test_without_anything_to_wait_for_it_rests_until_something_happens() -> None:
    assert plan(snapshot(consumer("file")), NOW) == Rest(None)
    assert plan(snapshot(), NOW) == Rest(None)


# Questions and repairs.

UNDER_REPAIR: dict[str, Any] = {"maintenance": True, "maintenance_run_id": "run_failed"}


@pytest.mark.parametrize("changed", [{"error": "Approval required"}, {"status": WorkflowStatus.PAUSED}])
def test_a_question_that_nobody_answers_expires_whatever_stops_the_workflow(changed: dict[str, Any]) -> None:
    asked = snapshot(*EVERYTHING_DUE, approval_expires_at=NOW + 5, **changed)
    assert plan(asked, NOW) == Rest(NOW + 5)
    assert plan(asked, NOW + 5) == ExpireApproval("apr_1")


def test_a_script_under_repair_is_repaired_by_itself_as_often_as_it_may_be() -> None:
    failed = snapshot(*EVERYTHING_DUE, task=task(repairs=2), **UNDER_REPAIR)
    assert plan(failed, NOW, repairs_max=3) == Repair("task_1")
    assert plan(failed, NOW, repairs_max=2) == Rest(None)
    assert plan(failed, NOW) == Rest(None)


def test_the_next_attempt_at_a_repair_waits_for_its_time() -> None:
    failed = snapshot(task=task(repairs=1, next_attempt_at=NOW + 5), **UNDER_REPAIR)
    assert plan(failed, NOW, repairs_max=3) == Rest(NOW + 5)
    assert plan(failed, NOW + 5, repairs_max=3) == Repair("task_1")


def test_a_repair_that_waits_for_a_person_is_not_tried_again() -> None:
    held = snapshot(task=task(repairs=1, held=True), **UNDER_REPAIR)
    assert plan(held, NOW, repairs_max=3) == Rest(None)


def test_in_an_archived_workflow_nothing_runs_and_nothing_is_repaired() -> None:
    gone = snapshot(*EVERYTHING_DUE, task=task(), status=WorkflowStatus.ARCHIVED)
    assert plan(gone, NOW, repairs_max=3) == Rest(None)


def test_the_doubts_of_an_archived_workflow_are_still_looked_into() -> None:
    gone = snapshot(*EVERYTHING_DUE, reconcile_at=NOW + 5, task=task(), status=WorkflowStatus.ARCHIVED)
    assert plan(gone, NOW, repairs_max=3) == Rest(NOW + 5)
    assert plan(gone, NOW + 5, repairs_max=3) == Reconcile("mut_1")


# Any workflow there could be.

TIMES = st.integers(NOW - 5, NOW + 20)
MAYBE = st.none() | TIMES
NAMES = st.sampled_from("abcdef")


@st.composite
def handlers(draw: st.DrawFn) -> HandlerView:
    kind = draw(st.sampled_from(HandlerKind))
    name, retry_at = draw(NAMES), draw(MAYBE)
    if kind is not HandlerKind.CONSUMER:
        return handler(name, kind, next_run_at=draw(MAYBE), retry_at=retry_at)
    oldest = draw(st.none() | st.integers(1, 9))
    news = oldest is not None and draw(st.booleans())
    return consumer(name, oldest=oldest, has_news=news, wake_at=draw(MAYBE), retry_at=retry_at)


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """What may stop a workflow, and what a person or a maintainer is asked meanwhile."""
    found: dict[str, Any] = {
        "status": draw(st.sampled_from(WorkflowStatus)),
        "error": draw(st.sampled_from(["", "Sign in again"])),
    }
    # A workflow has one or the other: while a call waits for a person, nothing runs that could fail.
    match draw(st.sampled_from(["neither", "question", "repair"])):
        case "question":
            found |= {"approval_expires_at": draw(TIMES)}
        case "repair":
            repair = task(repairs=draw(st.integers(0, 3)), next_attempt_at=draw(MAYBE), held=draw(st.booleans()))
            found |= {"task": repair, **UNDER_REPAIR}
    return found


@st.composite
def snapshots(draw: st.DrawFn, *, may_be_blocked: bool = True) -> Snapshot:
    found = draw(st.lists(handlers(), max_size=6, unique_by=lambda each: each.name))
    consumers = [each.name for each in found if each.kind is HandlerKind.CONSUMER]
    retry = draw(st.none() | st.sampled_from(consumers)) if consumers else None
    parked = draw(st.none() | st.sampled_from(consumers)) if consumers else None
    stopped = draw(st.just({}) | blocks()) if may_be_blocked else {}
    return snapshot(*found, retry=retry, parked=parked, **stopped)


REPAIRS = st.integers(0, 3)


def due(each: HandlerView, now: Millis) -> bool:
    """The rules once more, said differently: it has a reason to run now, and no reason to wait."""
    by_clock = each.wake_at if each.kind is HandlerKind.CONSUMER else each.next_run_at
    has_reason = each.has_news or (by_clock is not None and by_clock <= now)
    return has_reason and (each.retry_at is None or each.retry_at <= now)


@given(found=snapshots(), now=TIMES, repairs_max=REPAIRS)
def test_what_is_blocked_starts_nothing(found: Snapshot, now: Millis, repairs_max: int) -> None:
    workflow = found.workflow
    is_blocked = workflow.status is not WorkflowStatus.ACTIVE or bool(workflow.error) or workflow.maintenance
    step = plan(found, now, repairs_max=repairs_max)
    if is_blocked:
        assert not isinstance(step, StartRun | StartRetry)


@given(found=snapshots(), now=TIMES, repairs_max=REPAIRS)
def test_a_repair_is_tried_only_when_it_may_be_and_a_question_expires_only_when_it_is_late(
    found: Snapshot, now: Millis, repairs_max: int
) -> None:
    match plan(found, now, repairs_max=repairs_max):
        case Repair(task_id=task_id):
            assert found.task is not None
            assert (found.task.id, found.task.held_version_id) == (task_id, None)
            assert found.task.repairs < repairs_max
            assert (found.task.next_attempt_at or 0) <= now
        case ExpireApproval():
            assert found.approval_expires_at is not None
            assert found.approval_expires_at <= now


@given(found=snapshots(), now=TIMES)
def test_what_starts_is_due_and_nothing_that_comes_first_is(found: Snapshot, now: Millis) -> None:
    step = plan(found, now)
    if not isinstance(step, StartRun):
        return
    [chosen] = [each for each in found.handlers if each.name == step.handler]
    assert due(chosen, now)
    order = [HandlerKind.CONSUMER, HandlerKind.PRODUCER, HandlerKind.JOB]
    before = [each for each in found.handlers if due(each, now) and order.index(each.kind) < order.index(chosen.kind)]
    assert before == []
    if chosen.kind is HandlerKind.CONSUMER:
        rivals = [each.oldest_pending_seq for each in found.handlers if due(each, now) and each.kind is chosen.kind]
        oldest = min((seq for seq in rivals if seq is not None), default=None)
        assert chosen.oldest_pending_seq == oldest


@given(found=snapshots(may_be_blocked=False), now=TIMES)
def test_whatever_is_due_starts_unless_a_retry_is_pending(found: Snapshot, now: Millis) -> None:
    step = plan(found, now)
    if found.retry_run_id is None:
        assert isinstance(step, StartRun) == any(due(each, now) for each in found.handlers)


@given(found=snapshots(may_be_blocked=False), now=TIMES)
def test_a_pending_retry_is_never_overtaken_and_never_early(found: Snapshot, now: Millis) -> None:
    step = plan(found, now)
    if found.retry_run_id is None:
        assert not isinstance(step, StartRetry)
        return
    if found.workflow.pending_retry_run_id is not None:
        assert not isinstance(step, StartRun)
    [stopped] = [each for each in found.handlers if each.name == found.retry_handler]
    may_start = stopped.retry_at is None or stopped.retry_at <= now
    assert isinstance(step, StartRetry) == may_start
    if isinstance(step, StartRetry):
        assert (step.run_id, step.handler) == (found.retry_run_id, found.retry_handler)


@given(found=snapshots(), now=TIMES, repairs_max=REPAIRS, data=st.data())
def test_it_rests_exactly_until_there_is_something_to_do(
    found: Snapshot, now: Millis, repairs_max: int, data: st.DataObject
) -> None:
    step = plan(found, now, repairs_max=repairs_max)
    if not isinstance(step, Rest):
        return
    if step.until is None:
        assert plan(found, LATE, repairs_max=repairs_max) == step
        return
    assert step.until > now
    between = data.draw(st.integers(now, step.until - 1))
    assert plan(found, between, repairs_max=repairs_max) == step
    assert plan(found, step.until - 1, repairs_max=repairs_max) == step
    assert not isinstance(plan(found, step.until, repairs_max=repairs_max), Rest)


@given(found=snapshots(), now=TIMES, rng=st.randoms(use_true_random=False))
def test_nothing_depends_on_the_order_in_which_handlers_are_listed(found: Snapshot, now: Millis, rng: Any) -> None:
    shuffled = list(found.handlers)
    rng.shuffle(shuffled)
    assert plan(replace(found, handlers=tuple(shuffled)), now) == plan(found, now)
