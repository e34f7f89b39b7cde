"""From what was seen to what follows: every end of a handler has a class, and every class a next step."""

import random
import typing

import pytest

from keep_actors.failures import STATUS, Failure, of_outcome, stop_for
from keep_actors.policy import Backoff, Policy
from keep_sandbox import outcomes
from keep_sandbox.outcomes import Place
from keep_storage.model import FailureClass, RunStatus

NOW = 1_700_000_000_000

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
    no_failures = {outcomes.Value, outcomes.Mutation, outcomes.Refused}
    assert {type(each) for each in ENDS} | no_failures == set(typing.get_args(outcomes.Terminal))


@pytest.mark.parametrize("cls", sorted(set(FailureClass) - {FailureClass.TRANSIENT}))
def test_what_does_not_pass_by_itself_is_not_tried_again(cls: FailureClass) -> None:
    stop = stop_for(Failure(cls, "why", "3:7"), 0, Policy(), NOW, random.Random(1))
    assert (stop.status, stop.retry_at) == (STATUS[cls], None)
    assert (stop.error.cls, stop.error.message, stop.error.place) == (cls, "why", "3:7")


def test_what_may_pass_is_tried_again_later_and_later_and_then_a_person_is_asked() -> None:
    policy = Policy(retry=Backoff(first_ms=10, cap_ms=25, attempts_max=4, jitter=0))
    failure = Failure(FailureClass.TRANSIENT, "503")
    stops = [stop_for(failure, before, policy, NOW, random.Random(1)) for before in range(5)]
    assert [stop.retry_at and stop.retry_at - NOW for stop in stops] == [10, 20, 25, None, None]
    assert [stop.status for stop in stops] == [RunStatus.PAUSED_TRANSIENT] * 3 + [RunStatus.PAUSED_APPROVAL] * 2
    assert "4 times in a row" in stops[3].error.message
    assert "503" in stops[3].error.message
    assert stops[3].error.cls is FailureClass.TRANSIENT


def test_the_other_side_may_ask_for_more_patience_but_not_for_less() -> None:
    policy = Policy(retry=Backoff(first_ms=100, jitter=0))
    longer = stop_for(Failure(FailureClass.TRANSIENT, "429", retry_after_ms=5_000), 0, policy, NOW, random.Random(1))
    shorter = stop_for(Failure(FailureClass.TRANSIENT, "429", retry_after_ms=5), 0, policy, NOW, random.Random(1))
    assert (longer.retry_at, shorter.retry_at) == (NOW + 5_000, NOW + 100)
