"""The findings of a dry run, as values."""

from typing import Literal, TypeAlias

import msgspec

from keep_storage.model import FailureClass

GrantVerdict: TypeAlias = Literal["allowed", "asked", "refused"]
"""Under the grants of today: made at once, held until a person approves it, or stopped before it is sent."""

Arrival: TypeAlias = Literal["new", "replaces", "known"]
"""A publish makes an event, changes one that is still pending, or finds one that a run has taken: then nothing."""

RestReason: TypeAlias = Literal["nothing", "sleeps", "failed", "limit"]
"""Why a consumer has no further run: nothing is pending, it reserved nothing, it failed, or enough was shown."""


class DryRunRefused(Exception):
    """It cannot be done at all. The text says why, and what to do."""


class EventRef(msgspec.Struct, frozen=True, order=True):
    """A pending event."""

    topic: str
    message_id: str
    title: str


class WantedCall(msgspec.Struct, frozen=True):
    """A mutation that would be made."""

    call: str
    """`sheets.appendRow`."""
    params: msgspec.Raw
    """As the script passed them."""
    verdict: GrantVerdict
    why: str = ""
    """Why it would be refused."""
    names: list[str] = []
    """The parameters of the method, in the order of its signature."""


class RehearsalFailure(msgspec.Struct, frozen=True):
    """Why a run would stop."""

    cls: FailureClass
    message: str
    place: str = ""
    """`line:column` in the script, for an error of the script."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a consumer, up to the call it wants."""

    handler: str
    events: list[EventRef] = []
    """The events that it reserved."""
    title: str = ""
    """Its own words for what it is about to do."""
    wants: WantedCall | None = None
    """None: nothing would be called."""
    failure: RehearsalFailure | None = None
    wake_at: int | None = None
    logs: list[str] = []


class Published(msgspec.Struct, frozen=True):
    """An event that a producer would publish."""

    topic: str
    message_id: str
    title: str
    payload: msgspec.Raw
    arrival: Arrival


class Unfinished(msgspec.Struct, frozen=True):
    """A consumer after its last simulated run."""

    handler: str
    rest: RestReason
    pending: int
    """Events that are left in its topics."""
    is_more: bool = False
    """There are more in the file than were looked at."""


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one script."""

    version: str
    """`1.2`, or `new` for a script that is not in the file."""
    runs: list[Simulated] = []
    ends: list[Unfinished] = []
    published: list[Published] = []
    failure: RehearsalFailure | None = None
    """Why the producer would stop, if one was asked for."""
    state: msgspec.Raw | None = None
    """The state that the producer would keep."""
    logs: list[str] = []

    @property
    def is_well(self) -> bool:
        """True if no run would fail and no call be refused."""
        refused = any(run.wants is not None and run.wants.verdict == "refused" for run in self.runs)
        return self.failure is None and not refused and not any(run.failure for run in self.runs)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `dry_run`. No mutation was made and nothing was written."""

    workflow: str
    producer: str | None
    new: Rehearsal
    old: Rehearsal | None = None
    """The version to compare with, on the same events."""
    not_run: list[str] = []
    """Its jobs: what a job does next depends on what its calls answer, so none can be dry-run."""
