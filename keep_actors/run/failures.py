"""Failures: their class, and the stop that follows. Pure.

The host classifies; a script has no say in it.
"""

import random
from collections.abc import Mapping
from typing import Final, assert_never

import msgspec

from keep_actors.policy import Policy, in_words
from keep_actors.run.missing import about_missing
from keep_sandbox.outcomes import (
    CallLimit,
    CpuLimit,
    Deadlock,
    EngineCrash,
    InvalidValue,
    IssuedMutation,
    JailViolation,
    MemoryLimit,
    Place,
    ProtocolViolation,
    Refused,
    ScriptError,
    SizeLimit,
    StackLimit,
    Terminal,
    Value,
    WallLimit,
    WorkerLost,
)
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.model import FailureClass, RunStatus
from keep_storage.operations import RunError


class Failure(msgspec.Struct, frozen=True):
    """The reason why a run cannot continue."""

    cls: FailureClass
    message: str
    place: str = ""
    retry_after_ms: Millis | None = None
    """The wait that the other side asked for, if it did."""
    is_fault: bool = True
    """False for a run that a person stopped, or whose event was skipped: it does not count, and is tried again."""
    about: str = ""
    """Its subject, for code: see `Workflow.error_about`."""


class StopDecision(msgspec.Struct, frozen=True):
    """How the run is stopped, and when its handler may try again; None: when something happens."""

    status: RunStatus
    error: RunError
    retry_at: Millis | None = None
    failing_since: Millis | None = None
    """Since when its handler is tried in vain; None: this failure is no such one."""


STATUS: Final[Mapping[FailureClass, RunStatus]] = {
    FailureClass.TRANSIENT: RunStatus.PAUSED_TRANSIENT,
    FailureClass.LOGIC: RunStatus.FAILED_LOGIC,
    FailureClass.AUTH: RunStatus.PAUSED_APPROVAL,
    FailureClass.PERMISSION: RunStatus.PAUSED_APPROVAL,
    FailureClass.PRECONDITION: RunStatus.PAUSED_APPROVAL,
    FailureClass.INDETERMINATE: RunStatus.PAUSED_RECONCILIATION,
    FailureClass.INTERNAL: RunStatus.FAILED_INTERNAL,
}
assert set(STATUS) == set(FailureClass), "every class of failure has its status"


NOT_ADMITTED_REASONS: Final = frozenset(
    {Reason.WORKFLOW_NOT_ACTIVE, Reason.WORKFLOW_HAS_ERROR, Reason.WORKFLOW_IN_MAINTENANCE}
)
"""The workflow was stopped. A run that is not in the file yet leaves nothing behind."""

CLASS_OF_REFUSAL: Final[Mapping[Reason, FailureClass]] = {
    Reason.RESERVATION_REPEATED: FailureClass.LOGIC,
    Reason.TOPIC_NOT_DECLARED: FailureClass.LOGIC,
    Reason.TOPIC_NOT_SUBSCRIBED: FailureClass.LOGIC,
    Reason.EVENT_NOT_FOUND: FailureClass.LOGIC,
    Reason.EVENT_ALREADY_RESERVED: FailureClass.LOGIC,
    Reason.EVENT_ALREADY_FINISHED: FailureClass.LOGIC,
    # It was free when `peek` showed it: publishing it again may give it another key. It will be free again.
    Reason.EVENT_HELD_BACK: FailureClass.TRANSIENT,
    Reason.MESSAGE_ID_INVALID: FailureClass.LOGIC,
    Reason.TITLE_INVALID: FailureClass.LOGIC,
    Reason.TEXT_INVALID: FailureClass.LOGIC,
    Reason.ITEM_ALREADY_OPEN: FailureClass.LOGIC,
    Reason.GRANT_USED_UP: FailureClass.PERMISSION,
    Reason.GRANT_NOT_FOUND: FailureClass.PERMISSION,
    # A person was quicker than the run, and has stopped it.
    Reason.WORKFLOW_NOT_ACTIVE: FailureClass.TRANSIENT,
    Reason.RUN_WAS_STOPPED: FailureClass.TRANSIENT,
    Reason.GRANT_ASKS_FIRST: FailureClass.TRANSIENT,
}
"""Refusals of the storage that are about the script's wishes, or about people's actions. Any other is a bug of the
runtime: it ends this run, and not its actor."""

_NO_FAULT: Final = frozenset(
    {Reason.WORKFLOW_NOT_ACTIVE, Reason.RUN_WAS_STOPPED, Reason.GRANT_ASKS_FIRST, Reason.GRANT_NOT_FOUND}
)


class Before(msgspec.Struct, frozen=True):
    """How often the handler has failed in a row before this."""

    failures: int = 0
    since: Millis | None = None
    """Since when it is tried in vain: see `Policy.tried_since`."""


def stop_for(failure: Failure, before: Before, policy: Policy, now: Millis, rng: random.Random) -> StopDecision:
    """How a run that met this failure stops. What may pass is tried again, later and later, and not for ever."""
    error = RunError(failure.cls, failure.message, failure.place, failure.about)
    if failure.cls is not FailureClass.TRANSIENT or not failure.is_fault:
        return StopDecision(STATUS[failure.cls], error)
    failures, since = before.failures + 1, before.since if before.since is not None else now
    if now - since >= policy.give_up_after_ms or policy.retry.is_used_up(failures):
        spent = in_words(now - since)
        tired = f"Failed {failures} times in a row, for {spent}, the last time with: {failure.message}"
        return StopDecision(RunStatus.PAUSED_APPROVAL, msgspec.structs.replace(error, message=tired))
    planned = now + policy.retry.delay_ms(failures, rng)
    # Tried at the very moment from which people are told, or asked: they hear of nothing that has passed meanwhile.
    milestones = [since + policy.notice_after_ms, since + policy.give_up_after_ms]
    retry_at = min([planned, *(at for at in milestones if at > now)])
    return StopDecision(RunStatus.PAUSED_TRANSIENT, error, max(retry_at, now + (failure.retry_after_ms or 0)), since)


def of_outcome(outcome: Terminal, handler: str) -> Failure:  # noqa: C901  # one case for each end there is
    """Classify the end of a handler that failed. Not for a value or a mutation."""
    match outcome:
        case ScriptError():
            return _logic(handler, f"{outcome.name}: {outcome.message}", outcome.place)
        case InvalidValue():
            where = f" at {outcome.path}" if outcome.path else ""
            return _logic(handler, f"a value that is not JSON{where}: {outcome.message}", outcome.place)
        case CpuLimit():
            return _logic(handler, "computed for too long; look for an endless loop", outcome.place)
        case WallLimit():
            return _logic(handler, "did not finish in time", None)
        case MemoryLimit():
            return _logic(handler, "used too much memory; work on fewer events at a time", outcome.place)
        case StackLimit():
            return _logic(handler, "called too deeply; look for an endless recursion", outcome.place)
        case CallLimit():
            return _logic(handler, f"asked the host more than {outcome.limit} times in one go", None)
        case SizeLimit():
            where = f" at {outcome.path}" if outcome.path else ""
            return _logic(handler, f"a {outcome.what} that is too large{where}: {outcome.message}", outcome.place)
        case Deadlock():
            return _logic(handler, "waits for a promise that nothing will ever settle", None)
        case WorkerLost():
            return Failure(FailureClass.TRANSIENT, f"{handler}: its worker process was ended from outside")
        case EngineCrash():
            return Failure(FailureClass.INTERNAL, f"{handler}: the JavaScript engine crashed ({outcome.signal})")
        case JailViolation():
            return Failure(FailureClass.INTERNAL, f"{handler}: its worker tried what the jail forbids; see the log")
        case ProtocolViolation():
            return Failure(FailureClass.INTERNAL, f"{handler}: its worker broke the protocol: {outcome.message}")
        case Refused() | Value() | IssuedMutation():
            raise AssertionError("the host knows why it refused, and the other two are no failures")
        case _:
            assert_never(outcome)


def of_refusal(error: Rejected, handler: str, *, event_was_skipped: bool) -> Failure:
    """The failure that a refusal of the storage is: the script's mistake, unless a person was quicker."""
    if error.reason is Reason.EVENT_ALREADY_FINISHED and event_was_skipped:
        words = f"{handler}: an event was skipped while it was being prepared."
        return Failure(FailureClass.TRANSIENT, words, is_fault=False)
    cls = CLASS_OF_REFUSAL.get(error.reason, FailureClass.INTERNAL)
    return Failure(cls, f"{handler}: {error}", is_fault=error.reason not in _NO_FAULT)


def not_here(methods: list[str]) -> Failure:
    """No connector of this runtime has these methods today: not the script's mistake, and nothing to repair."""
    names = ", ".join(f"`ctx.{name}`" for name in methods)
    words = f"This runtime has no {names}. Open it with the connector: the workflow then continues by itself."
    return Failure(FailureClass.PRECONDITION, words, about=about_missing(methods))


def logic(handler: str, message: str) -> Failure:
    """The script made a request, or returned a value, that is not allowed."""
    return Failure(FailureClass.LOGIC, f"{handler}: {message}")


def _logic(handler: str, message: str, place: Place | None) -> Failure:
    where = f"{place.line}:{place.column}" if place is not None else ""
    return Failure(FailureClass.LOGIC, f"{handler}: {message}", where)
