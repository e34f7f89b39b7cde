"""From what was seen to what follows: every end of a handler has a class, and every class a next step."""

import random
import typing
from itertools import pairwise

import pytest

from keep_actors.policy import Backoff, Policy
from keep_actors.run.failures import STATUS, Before, Failure, of_outcome, stop_for
from keep_sandbox import outcomes
from keep_sandbox.outcomes import Place
from keep_storage.model import FailureClass, RunStatus

NOW = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

ENDS = {
    outcomes.ScriptError(phase="run", name="TypeError", message="x is not a function", place=Place(3, 7)): (
        FailureClass.LOGIC,
        "TypeError: x is not a function",
    ),
    outcomes.InvalidValue(path="data.when", message="a Date"): (FailureClass.LOGIC, "data.when"),
    outcomes.CpuLimit(place=Place(1, 1)): (FailureClass.LOGIC, "endless loop"),
    outcomes.WallLimit(): (FailureClass.LOGIC, "in time"),
    outcomes.MemoryLimit(): (FailureClass.LOGIC, "memory"),
    outcomes.StackLimit(): (FailureClass.LOGIC, "recursion"),
    outcomes.CallLimit(limit=12): (FailureClass.LOGIC, "more than 12 times"),
    outcomes.SizeLimit(what="value", limit=5, path="data", message="more than 5 bytes"): (FailureClass.LOGIC, "data"),
    outcomes.Deadlock(): (FailureClass.LOGIC, "promise"),
    outcomes.WorkerLost(): (FailureClass.TRANSIENT, "from outside"),
    outcomes.EngineCrash(signal=11): (FailureClass.INTERNAL, "11"),
    outcomes.JailViolation(): (FailureClass.INTERNAL, "jail"),
    outcomes.ProtocolViolation(message="a frame after the end"): (FailureClass.INTERNAL, "after the end"),
}


@pytest.mark.parametrize("outcome", ENDS, ids=lambda outcome: type(outcome).__name__)
def test_every_end_of_a_handler_has_its_class_and_says_where(outcome: outcomes.Terminal) -> None:
    cls, words = ENDS[outcome]
    failure = of_outcome(outcome, "consumers.file.prepare")
    assert failure.cls is cls
    assert words in failure.message
    assert failure.message.startswith("consumers.file.prepare: ")
    place = getattr(outcome, "place", None)
    assert failure.place == (f"{place.line}:{place.column}" if place else "")


def test_no_end_was_forgotten() -> None:
    no_failures = {outcomes.Value, outcomes.IssuedMutation, outcomes.Refused}
    assert {type(each) for each in ENDS} | no_failures == set(typing.get_args(outcomes.Terminal))


@pytest.mark.parametrize("cls", sorted(set(FailureClass) - {FailureClass.TRANSIENT}))
def test_what_does_not_pass_by_itself_is_not_tried_again(cls: FailureClass) -> None:
    stop = stop_for(Failure(cls, "why", "3:7"), Before(), Policy(), NOW, random.Random(1))
    assert (stop.status, stop.retry_at) == (STATUS[cls], None)
    assert (stop.error.cls, stop.error.message, stop.error.place) == (cls, "why", "3:7")


def retries(policy: Policy, failure: Failure) -> list[tuple[int, RunStatus]]:
    """The failures of a handler that never succeeds: how long after the first one each is, and how its run stops."""
    now, rng = NOW, random.Random(1)
    seen: list[tuple[int, RunStatus]] = []
    while True:
        before = Before(len(seen), NOW if seen else None)
        stop = stop_for(failure, before, policy, now, rng)
        seen.append((now - NOW, stop.status))
        if stop.retry_at is None:
            return seen
        assert stop.retry_at > now
        now = stop.retry_at


def test_what_may_pass_is_tried_again_later_and_later_for_a_day_and_then_a_person_is_asked() -> None:
    seen = retries(Policy(retry=Backoff(jitter=0)), Failure(FailureClass.TRANSIENT, "503"))
    at = [ms for ms, _ in seen]
    # Doubling from 10 seconds; the try that 10 minutes would make late for the notice is made when that is due.
    assert at[:9] == [each * 1_000 for each in (0, 10, 30, 70, 150, 310, 630, 900, 1_500)]
    assert {later - earlier for earlier, later in pairwise(at[8:-1])} == {10 * MINUTE}
    assert at[-1] == DAY
    assert [status for _, status in seen] == [RunStatus.PAUSED_TRANSIENT] * (len(seen) - 1) + [
        RunStatus.PAUSED_APPROVAL
    ]


def test_an_outage_of_an_hour_is_no_question_to_a_person() -> None:
    failure, rng = Failure(FailureClass.TRANSIENT, "503"), random.Random(1)
    stop = stop_for(failure, Before(11, NOW - HOUR), Policy(), NOW, rng)
    assert stop.status is RunStatus.PAUSED_TRANSIENT
    assert stop.retry_at is not None
    assert NOW < stop.retry_at <= NOW + 11 * MINUTE


def test_the_person_who_is_asked_is_told_how_often_and_with_what_it_has_failed() -> None:
    failure, rng = Failure(FailureClass.TRANSIENT, "503"), random.Random(1)
    stop = stop_for(failure, Before(150, NOW - DAY), Policy(), NOW, rng)
    assert (stop.status, stop.retry_at) == (RunStatus.PAUSED_APPROVAL, None)
    assert "151 times in a row" in stop.error.message
    assert "503" in stop.error.message
    assert stop.error.cls is FailureClass.TRANSIENT


def test_a_policy_may_give_up_after_so_many_tries_or_sooner_than_after_a_day() -> None:
    failure = Failure(FailureClass.TRANSIENT, "503")
    counted = Policy(retry=Backoff(first_ms=10, cap_ms=25, attempts_max=4, jitter=0))
    assert [ms for ms, _ in retries(counted, failure)] == [0, 10, 30, 55]
    hurried = Policy(retry=Backoff(first_ms=10, cap_ms=25, jitter=0), give_up_after_ms=60)
    assert [ms for ms, _ in retries(hurried, failure)] == [0, 10, 30, 55, 60]


def test_a_stop_that_is_nobodys_fault_is_no_try_and_asks_nobody() -> None:
    stopped = Failure(FailureClass.TRANSIENT, "the workflow was paused", is_fault=False)
    stop = stop_for(stopped, Before(500, NOW - DAY), Policy(), NOW, random.Random(1))
    assert (stop.status, stop.retry_at) == (RunStatus.PAUSED_TRANSIENT, None)
    assert stop.error.message == "the workflow was paused"


def test_the_other_side_may_ask_for_more_patience_but_not_for_less() -> None:
    policy, rng = Policy(retry=Backoff(first_ms=100, jitter=0)), random.Random(1)
    longer = stop_for(Failure(FailureClass.TRANSIENT, "429", retry_after_ms=5_000), Before(), policy, NOW, rng)
    shorter = stop_for(Failure(FailureClass.TRANSIENT, "429", retry_after_ms=5), Before(), policy, NOW, rng)
    assert (longer.retry_at, shorter.retry_at) == (NOW + 5_000, NOW + 100)
