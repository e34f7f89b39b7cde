"""Changes of sessions and runs."""

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import FailureClass, Json, OnUnknown, Phase, Run, RunStatus, Session
from keep_storage.operations.events import Publish
from keep_storage.operations.operation import Operation


class Reserve(msgspec.Struct, frozen=True):
    """Events of one topic that a PrepareResult claims, by message id."""

    topic: str
    ids: tuple[str, ...]


class RunError(msgspec.Struct, frozen=True):
    """Why a run stopped: the host's class, the message, and where in the author's script."""

    cls: FailureClass
    message: str
    place: str = ""
    about: str = ""
    """Its subject, for code: see `Workflow.error_about`."""


class CreateSession(Operation[Session], frozen=True):
    id: str
    workflow_id: str
    trigger: str = ""


class FinishSession(Operation[Session], frozen=True):
    """End a session whose runs have all committed.

    With `if_idle` it goes with the commit of a run, which may be the last: a session that has more to do stays open,
    and nothing is refused.
    """

    session_id: str
    if_idle: bool = False


class CreateRun(Operation[Run], frozen=True):
    """Start a handler. `phase` may be `preparing` for a consumer whose `prepare` starts at once.

    `seen` is for a consumer that has looked at its topics already: what had been written to them before that
    (`HandlerView.writes`), so that what came since is news to it. Without it, it looks from now on.
    """

    id: str
    session_id: str
    handler: str
    phase: Phase = Phase.PENDING
    seen: int | None = None
    on_unknown: OnUnknown = OnUnknown.PAUSE
    """`park` is for consumers only."""


class CreateRetryRun(Operation[Run], frozen=True):
    """Carry on at `next` after a mutation that is settled for good, with the same stored result."""

    id: str
    failed_run_id: str
    session_id: str


class StopRun(Operation[Run], frozen=True):
    """A person wants a run to stop: it makes no further call, and its handler does not run again before `until`."""

    run_id: str
    until: Millis
    by: str = ""
    why: str = ""


class CountCost(Operation[Run], frozen=True):
    """Add to the cost of a run that has stopped: what an approved call has cost."""

    run_id: str
    cost_micros: int


class UpdateHandlerRunStatus(Operation[Run], frozen=True):
    """A run stops before its commit: failure, pause or crash. Decides what becomes of its events.

    All but a crash count as a failure of the handler, which is not to run again before `retry_at`, unless `is_fault`
    is false. `failing_since` is when its failures began, if not with the first that is counted. A run whose call waits
    for approval is parked, unless `parks` is false: then its workflow stops.
    """

    run_id: str
    status: RunStatus
    error: RunError | None = None
    logs: Json | None = None
    cost_micros: int = 0
    retry_at: Millis | None = None
    failing_since: Millis | None = None
    is_fault: bool = True
    parks: bool = True


class UpdateConsumerPhase(Operation[Run], frozen=True):
    """A consumer moves on. `prepared` takes the PrepareResult and reserves its events; nothing else does."""

    run_id: str
    phase: Phase
    reservations: tuple[Reserve, ...] = ()
    prepare_result: Json | None = None
    title: str = ""
    wake_at: Millis | None = None


class CommitConsumer(Operation[Run], frozen=True):
    """`next` returned: consume the events, append the publishes, keep the state. One transaction."""

    run_id: str
    publishes: tuple[Publish, ...] = ()
    state: Json | None = None
    logs: Json | None = None
    cost_micros: int = 0


class CommitProducer(Operation[Run], frozen=True):
    """A producer returned: append the publishes, keep the state, set the next run. One transaction."""

    run_id: str
    next_run_at: Millis | None
    publishes: tuple[Publish, ...] = ()
    state: Json | None = None
    logs: Json | None = None
    cost_micros: int = 0


class CommitJob(Operation[Run], frozen=True):
    """A job returned: append the publishes, keep the state, set the next run. One transaction."""

    run_id: str
    next_run_at: Millis | None
    publishes: tuple[Publish, ...] = ()
    state: Json | None = None
    logs: Json | None = None
    cost_micros: int = 0
