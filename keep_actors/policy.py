"""What the host allows and how patient it is: one frozen value, with sane defaults.

`open(policy=...)` sets it for all workflows, `open(policies={"name": ...})` for one. A connector's method may bring
a timeout of its own; `timeouts` here has the last word.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from keep_actors.kernel.backoff import Backoff
from keep_storage.ids import Millis
from keep_storage.model import HandlerKind, OnUnknown

__all__ = ["Backoff", "Policy", "in_words"]

_SECOND = 1_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a workflow. Times are milliseconds, sizes are bytes of JSON text."""

    producer_interval_ms: Millis = 5 * _MINUTE
    """How often a producer or job without a schedule runs."""
    wake_after_min_ms: Millis = 30 * _SECOND
    wake_after_max_ms: Millis = _DAY
    """`wakeAt` is moved into this window."""
    mutate_reads: Literal["none", "by_id"] = "none"
    """Whether `mutate` may read by id before its mutation."""
    read_timeout_ms: Millis = 30 * _SECOND
    mutation_timeout_ms: Millis = _MINUTE
    """After this a mutation's outcome is unknown."""
    timeouts: Mapping[str, Millis] = {}
    """By connector (`gmail`) or method (`gmail.send`)."""
    retry: Backoff = Backoff()
    """How long a handler waits after a failure that may pass by itself."""
    give_up_after_ms: Millis = _DAY
    """A handler that was tried in vain for so long stops its workflow, and a person is asked."""
    notice_after_ms: Millis = 15 * _MINUTE
    """People are told of a handler that was tried in vain for so long, while it is still tried."""
    reconcile: Backoff = Backoff(cap_ms=_HOUR, attempts_max=12)
    """How often a connector is asked what became of a call, before a person is."""
    reconcile_for_ms: Millis = _DAY
    """After this long a person is asked, however few the checks were. An absence that is found too early to be believed
    is not counted, and asks nobody."""
    on_unknown: Literal["pause", "park"] = "pause"
    """What stands still while nobody knows whether a consumer's call took effect: the workflow, or only the events of
    that run and those with an ordering key that it holds. A job always stops its workflow."""
    parked_max: int = 10
    """Runs that wait beside their workflow, for an approval or (with `park`) for an outcome; the next one stops it."""
    approval_expires_ms: Millis | None = 7 * _DAY
    """How long a question waits for a person's answer before it is asked again. None: for ever."""
    approval_reminders: int = 2
    """How often it is asked again; then the answer is no."""
    repairs_max: int = 3
    """Attempts at repairing a handler before a person is asked. Counted until it commits again."""
    repair_timeout_ms: Millis = 5 * _MINUTE
    repair_approval: Literal["impactful", "always"] = "impactful"
    """Which proposals wait for a person: those that are not declared `safe`, or every one."""
    state_bytes_max: int = 256 * 1024
    payload_bytes_max: int = 256 * 1024
    publishes_max: int = 1_000
    """Events that one run may publish."""
    reservations_max: int = 1_000
    """Events that one run may reserve."""
    stale_after_ms: Millis = 7 * _DAY
    """An event that was pending for longer is shown as stale."""

    def __post_init__(self) -> None:
        if not 0 < self.wake_after_min_ms <= self.wake_after_max_ms:
            raise ValueError("the earliest wake is after now and not after the latest one")
        if min(self.producer_interval_ms, self.read_timeout_ms, self.mutation_timeout_ms, *self.timeouts.values()) <= 0:
            raise ValueError("an interval or a timeout is longer than nothing")
        if self.parked_max < 1:
            raise ValueError("a workflow that parks its runs parks at least one")
        if self.approval_reminders < 0 or min(self.give_up_after_ms, self.notice_after_ms) <= 0:
            raise ValueError("a question is asked again never or more often, and a failure is given some time to pass")
        if (
            self.repairs_max < 0
            or min(self.repair_timeout_ms, self.reconcile_for_ms, self.approval_expires_ms or 1) <= 0
        ):
            raise ValueError("a repair has attempts and time, and an approval does not expire before it is asked for")

    def tried_since(self, since: Millis, retry_at: Millis | None, started_at: Millis) -> Millis:
        """Since when a handler is tried in vain that has failed since then, and was to be tried again at `retry_at`.

        Nobody tried it before this process started: a time without one is no part of an outage.
        """
        off_ms = started_at - retry_at if retry_at is not None else 0
        return since if off_ms <= self.retry.cap_ms else since + off_ms

    def on_unknown_of(self, kind: HandlerKind, parked: int) -> OnUnknown:
        """What stands still if a run that starts now ends in doubt, with so many parked already."""
        parks = self.on_unknown == "park" and kind is HandlerKind.CONSUMER and parked < self.parked_max
        return OnUnknown.PARK if parks else OnUnknown.PAUSE

    def timeout_ms(self, full_name: str, own_ms: Millis | None, *, is_mutation: bool) -> Millis:
        """How long a call of this method may take: said here, else by the method, else the default."""
        connector = full_name.partition(".")[0]
        said = self.timeouts.get(full_name) or self.timeouts.get(connector) or own_ms
        return said or (self.mutation_timeout_ms if is_mutation else self.read_timeout_ms)

    def wake_at(self, wanted: Millis, now: Millis) -> Millis:
        """When a consumer that asked to be woken then is woken."""
        return max(now + self.wake_after_min_ms, min(wanted, now + self.wake_after_max_ms))


def in_words(ms: Millis) -> str:
    """A span of time for a person: minutes, and hours from two on."""
    return f"{ms // _HOUR} hours" if ms >= 2 * _HOUR else f"{ms // _MINUTE} minutes"
