"""Settings of workflows: limits, timeouts, retries, as one frozen value with sane defaults.

`open(policy=...)` sets it for all workflows, `open(policies={"name": ...})` for one. `timeouts` overrides the timeouts
that connectors declare.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from keep_actors.backoff import Backoff
from keep_storage.ids import Millis
from keep_storage.model import HandlerKind, OnUnknown

__all__ = ["Backoff", "Policy", "in_words"]

_SECOND = 1_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A permission for one workflow. `ask` holds each mutation until a person has approved it."""

    permission: str
    policy: Literal["allow", "ask"] = "allow"
    per_run: int | None = None
    per_day: int | None = None
    """Maximum calls in a run and in a day (UTC)."""

    def __post_init__(self) -> None:
        if self.policy not in ("allow", "ask"):
            raise ValueError(f"a grant's policy must be 'allow' or 'ask', not {self.policy!r}")
        if any(limit is not None and limit < 1 for limit in (self.per_run, self.per_day)):
            raise ValueError("a grant must allow at least one call; to allow none, do not grant it")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a workflow. Times are milliseconds, sizes are bytes of JSON text."""

    producer_interval_ms: Millis = 5 * _MINUTE
    """The interval of a producer or job without a schedule."""
    wake_after_min_ms: Millis = 30 * _SECOND
    wake_after_max_ms: Millis = _DAY
    """`wakeAt` is moved into this window."""
    mutate_reads: Literal["none", "by_id"] = "none"
    """`by_id`: `mutate` may read by id before its mutation."""
    read_timeout_ms: Millis = 30 * _SECOND
    mutation_timeout_ms: Millis = _MINUTE
    """After this a mutation's outcome is unknown."""
    timeouts: Mapping[str, Millis] = {}
    """By connector (`gmail`) or method (`gmail.send`)."""
    retry: Backoff = Backoff()
    """Waiting times of a handler after transient failures."""
    give_up_after_ms: Millis = _DAY
    """A handler that failed for this long stops its workflow, and a person is asked."""
    notice_after_ms: Millis = 15 * _MINUTE
    """A handler that has failed for this long is reported to people, while it is still retried."""
    reconcile: Backoff = Backoff(cap_ms=_HOUR, attempts_max=12)
    """Attempts to learn the outcome of a call from its connector, before a person is asked."""
    reconcile_for_ms: Millis = _DAY
    """A person is asked after this time, even if there were few attempts. An attempt that finds no effect too early to
    be sure does not count."""
    on_unknown: Literal["pause", "park"] = "pause"
    """`pause`: the workflow waits while the outcome of a consumer's call is unknown. `park`: only the events of that
    run and those with its ordering keys wait. A job always stops its workflow."""
    parked_max: int = 10
    """Runs that wait without stopping their workflow, for an approval or (with `park`) for an outcome; one more stops
    it."""
    approval_expires_ms: Millis | None = 7 * _DAY
    """The time until an unanswered question is asked again. None: never."""
    approval_reminders: int = 2
    """The number of times it is asked again; then the answer is no."""
    repairs_max: int = 3
    """Attempts to repair a handler before a person is asked. Counted until it commits again."""
    repair_timeout_ms: Millis = 5 * _MINUTE
    repair_approval: Literal["impactful", "always"] = "impactful"
    """Proposals that need a person's approval: those not declared `safe`, or all."""
    state_bytes_max: int = 256 * 1024
    payload_bytes_max: int = 256 * 1024
    publishes_max: int = 1_000
    """Events that one run may publish."""
    reservations_max: int = 1_000
    """Events that one run may reserve."""
    stale_after_ms: Millis = 7 * _DAY
    """An event that is pending for longer is shown as stale."""

    def __post_init__(self) -> None:
        if not 0 < self.wake_after_min_ms <= self.wake_after_max_ms:
            raise ValueError("wake_after_min_ms must be > 0 and <= wake_after_max_ms")
        if min(self.producer_interval_ms, self.read_timeout_ms, self.mutation_timeout_ms, *self.timeouts.values()) <= 0:
            raise ValueError("intervals and timeouts must be > 0")
        if self.parked_max < 1:
            raise ValueError("parked_max must be >= 1")
        if self.approval_reminders < 0 or min(self.give_up_after_ms, self.notice_after_ms) <= 0:
            raise ValueError("approval_reminders must be >= 0, give_up_after_ms and notice_after_ms > 0")
        if (
            self.repairs_max < 0
            or min(self.repair_timeout_ms, self.reconcile_for_ms, self.approval_expires_ms or 1) <= 0
        ):
            raise ValueError(
                "repairs_max must be >= 0, repair_timeout_ms, reconcile_for_ms and approval_expires_ms > 0"
            )

    def tried_since(self, since: Millis, retry_at: Millis | None, started_at: Millis) -> Millis:
        """The start of a handler's outage, given its first failure and its next retry.

        The time before this process started does not count: the handler was not tried then.
        """
        off_ms = started_at - retry_at if retry_at is not None else 0
        return since if off_ms <= self.retry.cap_ms else since + off_ms

    def on_unknown_of(self, kind: HandlerKind, parked: int) -> OnUnknown:
        """The effect of an unknown outcome of a run that starts now, with this many runs parked."""
        parks = self.on_unknown == "park" and kind is HandlerKind.CONSUMER and parked < self.parked_max
        return OnUnknown.PARK if parks else OnUnknown.PAUSE

    def timeout_ms(self, full_name: str, own_ms: Millis | None, *, is_mutation: bool) -> Millis:
        """The timeout of a call: from `timeouts`, else the method's own, else the default."""
        connector = full_name.partition(".")[0]
        said = self.timeouts.get(full_name) or self.timeouts.get(connector) or own_ms
        return said or (self.mutation_timeout_ms if is_mutation else self.read_timeout_ms)

    def wake_at(self, wanted: Millis, now: Millis) -> Millis:
        """The time to wake a consumer that asked for `wanted`."""
        return max(now + self.wake_after_min_ms, min(wanted, now + self.wake_after_max_ms))


def in_words(ms: Millis) -> str:
    """A duration for people: in hours from two hours on, else in minutes."""
    return f"{ms // _HOUR} hours" if ms >= 2 * _HOUR else f"{ms // _MINUTE} minutes"
