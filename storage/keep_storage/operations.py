"""Every change there is, as a value. An operation says everything: ids and texts come with it, and the time is
the store's. It is applied whole or not at all, and answered once.

`Operation[T]` carries the type of its answer. `manager.py` says which function applies it.
"""

from typing import Any, Generic, TypeVar

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import (
    Approval,
    Delivery,
    Event,
    FailureClass,
    GrantPolicy,
    HandlerKind,
    Item,
    ItemState,
    Json,
    MaintenanceTask,
    Mutation,
    MutationStatus,
    NoticeKind,
    NoticeRow,
    OnUnknown,
    Phase,
    Resolver,
    Run,
    RunStatus,
    Says,
    ScriptVersion,
    Session,
    StoredGrant,
    Workflow,
)

T_co = TypeVar("T_co", covariant=True)


class Operation(msgspec.Struct, Generic[T_co], frozen=True):
    """A change to the execution model, answered with a `T`."""


class Together(Operation[tuple[Any, ...]], frozen=True):
    """Several operations as one: in order, all or none, answered with a tuple."""

    operations: tuple[Operation[Any], ...]


class Done(msgspec.Struct, Generic[T_co], frozen=True):
    """The operation happened, and is durable."""

    answer: T_co

    def unwrap(self) -> T_co:
        return self.answer


class OperationRefused(msgspec.Struct, frozen=True):
    """The operation did not happen: `Rejected`, or a bug that raised inside it."""

    error: Exception

    def unwrap(self) -> Any:
        raise self.error


OperationOutcome = Done[Any] | OperationRefused


# Parts of operations.


class HandlerSpec(msgspec.Struct, frozen=True):
    """A handler as a script declares it."""

    name: str
    kind: HandlerKind
    subscribe: tuple[str, ...] = ()
    ordering: str | None = None
    """Where in the payload of its events the ordering key is, as in `customer.id`."""
    schedule: Json | None = None
    first_run_at: Millis | None = None
    """Of a handler that is new to the workflow, or has another schedule than before."""
    plan_anew: bool = False
    """It is so also for the schedule that it had: what that means is another, because of the time zone."""


class Publish(msgspec.Struct, frozen=True):
    """An event to append to a topic, or to update while it is still pending."""

    id: str
    topic: str
    message_id: str
    title: str
    payload: Json = "null"


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


class ItemScope(msgspec.Struct, frozen=True):
    """The logical item in which a job mutates, and the identity of the mutation in it (chapter 14)."""

    item_id: str
    identity_key: str
    subkey: str = ""
    is_method_alone: bool = False
    """The connector declares no identity: any call of this method with this subkey is this one."""


class GrantUse(msgspec.Struct, frozen=True):
    """A call that counts against a grant, on this day, with at most so many a day."""

    permission: str
    day: int
    per_day: int


class AskFirst(msgspec.Struct, frozen=True):
    """Hold the call until a person has approved it."""

    approval_id: str
    expires_at: Millis | None = None


# Workflows and scripts.


class CreateWorkflow(Operation[Workflow], frozen=True):
    id: str
    name: str
    timezone: str = "UTC"
    owner: str = ""


class AddScriptVersion(Operation[ScriptVersion], frozen=True):
    id: str
    workflow_id: str
    major: int
    minor: int
    source: str
    declaration: Json = "{}"
    author: str = ""


class ActivateScript(Operation[Workflow], frozen=True):
    """Make a version the one that runs. Topics and handlers become those it declares; events and state stay.

    Refused while events are unfinished in a topic that it no longer declares, unless that topic is in `drop` or `move`.
    """

    version_id: str
    topics: tuple[str, ...]
    handlers: tuple[HandlerSpec, ...]
    timezone: str | None = None
    """That of the workflow's schedules from now on; None: it stays."""
    is_repair: bool = False
    """Only a machine has looked at it: the failures of its handlers are kept."""
    drop: tuple[str, ...] = ()
    """Topics that it does not declare: their pending events are skipped. Refused while a run holds one of them."""
    move: tuple[tuple[str, str], ...] = ()
    """From a topic that it does not declare to one that it does: pending and reserved events go there as they are."""
    by: str = ""
    owner: str | None = None
    """That of the workflow from now on; None: it stays."""


class GrantPermission(Operation[StoredGrant], frozen=True):
    workflow_id: str
    major: int
    permission: str
    policy: GrantPolicy
    limits: Json = "{}"
    """An object; what is in it is the host's business."""
    by: str = ""


class RevokePermission(Operation[StoredGrant], frozen=True):
    """Take a permission back. Answered with the grant that is gone."""

    workflow_id: str
    major: int
    permission: str
    by: str = ""


class UseGrant(Operation[int], frozen=True):
    """Count a call that a run is about to make. Answered with the calls of that day, this one among them.

    Refused when `per_day` have been made: by whatever run, version or major, since the limit is about the outside.
    """

    run_id: str
    permission: str
    day: int
    per_day: int


class PauseWorkflow(Operation[Workflow], frozen=True):
    workflow_id: str
    by: str = ""


class ResumeWorkflow(Operation[Workflow], frozen=True):
    """Set the status to `active`. Does not clear `workflow.error`."""

    workflow_id: str
    by: str = ""


class ArchiveWorkflow(Operation[Workflow], frozen=True):
    """End a workflow. Calls that wait for approval are refused by this; unknown outcomes are still looked into."""

    workflow_id: str
    by: str = ""


class UnarchiveWorkflow(Operation[Workflow], frozen=True):
    """Bring an archived workflow back, paused. Refused while another one has its name."""

    workflow_id: str
    by: str = ""


class RunNow(Operation[Workflow], frozen=True):
    """A person does not want to wait for the clock: every producer and every job is due now."""

    workflow_id: str
    by: str = ""


class HaltWorkflow(Operation[Workflow], frozen=True):
    """The host gives up on a workflow, without a run to blame. An error that is there already stays."""

    workflow_id: str
    error: str
    cls: FailureClass = FailureClass.INTERNAL


class ClearWorkflowError(Operation[Workflow], frozen=True):
    """A person says "I fixed it". Refused while the error is an open question about a mutation."""

    workflow_id: str
    by: str
    why: str = ""
    permission: str = ""
    """Only if the error is about this permission at this moment: any other stays, and nothing is refused."""


# Sessions and runs.


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


# Mutations.


class CreateMutation(Operation[Mutation], frozen=True):
    """Write an external call into the ledger before it is made.

    `send=True` records it as `in_flight` at once: when this is answered, the call may be made. Inside an item
    the ledger may already know the call: the answer is then the existing line (applied: use its result;
    failed: it has been set `in_flight` again if `send`).

    Refused once a person has paused or archived the workflow, stopped the run, or taken `permission` back.
    """

    id: str
    run_id: str
    connector: str
    method: str
    params: Json
    idempotency_key: str
    reconcilable: bool
    send: bool = False
    item: ItemScope | None = None
    ask_first: AskFirst | None = None
    permission: str = ""
    """The permission that it needs: granted now, and not to be asked about unless it is. Empty: none."""


class UpdateMutationStatus(Operation[Mutation], frozen=True):
    """Move a mutation between its unsettled states. Labels only: nothing else changes.

    `counts` is for what needs a check and still does: whether this was one of the checks that it has.
    """

    mutation_id: str
    status: MutationStatus
    error: str = ""
    next_reconcile_at: Millis | None = None
    by: str = ""
    why: str = ""
    expected_version: int | None = None
    counts: bool = True


class ApplyMutation(Operation[Mutation], frozen=True):
    """The effect exists, and this is its result. From here the run can only go forward."""

    mutation_id: str
    result: Json = "null"
    resolved_by: Resolver = Resolver.CONNECTOR
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class FailMutation(Operation[Mutation], frozen=True):
    """The effect does not exist. The events are released."""

    mutation_id: str
    error: str = ""
    resolved_by: Resolver = Resolver.CONNECTOR
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class SkipMutation(Operation[Mutation], frozen=True):
    """A person gives up on knowing. The events are skipped; `next` still runs, through the retry path."""

    mutation_id: str
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class AmendResult(Operation[Mutation], frozen=True):
    """Put right the result of a call that a person said had happened. Refused once a run has used the first one."""

    mutation_id: str
    result: Json
    by: str = ""
    why: str = ""
    expected_version: int | None = None


class ApproveMutation(Operation[Mutation], frozen=True):
    """A person allows the recorded call: it is `in_flight` when this is answered, and counts against its grant."""

    approval_id: str
    by: str
    why: str = ""
    use: GrantUse | None = None


class RejectMutation(Operation[Mutation], frozen=True):
    """A person (or the clock, with `expired`) refuses the recorded call: its events or its item are skipped.

    With `retry` it counts as failed instead: the events are released, and a fresh run prepares again.
    """

    approval_id: str
    by: str
    why: str = ""
    retry: bool = False
    expired: bool = False


class AskAgain(Operation[Approval], frozen=True):
    """Ask a question once more that was not answered in time."""

    approval_id: str
    new_id: str
    expires_at: Millis | None = None


# Events and items.


class PublishEvents(Operation[tuple[Event, ...]], frozen=True):
    """Append events from outside any handler: a webhook of the embedding service, a test."""

    workflow_id: str
    publishes: tuple[Publish, ...]


class SkipEvent(Operation[Event], frozen=True):
    """A person skips a pending event."""

    workflow_id: str
    topic: str
    message_id: str
    by: str = ""
    why: str = ""


class OpenItem(Operation[Item], frozen=True):
    """A job enters `withItem`. The answer's state says whether the item is already done."""

    run_id: str
    item_id: str
    title: str


class CloseItem(Operation[Item], frozen=True):
    """A job leaves `withItem`: what it published inside is there with it, whatever becomes of the run."""

    run_id: str
    item_id: str
    state: ItemState
    error: str = ""
    publishes: tuple[Publish, ...] = ()


class SkipItem(Operation[Item], frozen=True):
    """A person skips an item: like `done`, it may not mutate any more."""

    workflow_id: str
    item_id: str
    by: str = ""
    why: str = ""
    state: ItemState | None = None
    """The state that the person saw: refused if it has changed since."""


class ReprocessItem(Operation[Item], frozen=True):
    """A person asks for the item to be processed again: the next attempt shares nothing with this one."""

    workflow_id: str
    item_id: str
    by: str = ""
    why: str = ""
    state: ItemState | None = None
    """The state that the person saw: refused if it has changed since."""


# Maintenance and recovery.


class CreateMaintenanceTask(Operation[MaintenanceTask], frozen=True):
    """The durable order to repair the script, for the run whose logic error set the flag."""

    workflow_id: str
    evidence: Json = "{}"


class NoteRepairAttempt(Operation[MaintenanceTask], frozen=True):
    """An attempt at repairing failed, or its proposal was refused: counted, and a held proposal is dropped."""

    workflow_id: str
    problem: str
    next_attempt_at: Millis | None = None
    by: str = ""


class HoldProposal(Operation[MaintenanceTask], frozen=True):
    """A proposed script waits for a person. Nothing else is tried meanwhile."""

    workflow_id: str
    version_id: str
    problem: str = ""


class ExitMaintenanceMode(Operation[Workflow], frozen=True):
    """The script is repaired. A pending retry stays pending.

    If a person saw to it, every handler may be repaired afresh; if not, it was one more repair of the handler.
    """

    workflow_id: str
    by: str = ""
    by_person: bool = True


class RecoverCrashedRuns(Operation[tuple[Run, ...]], frozen=True):
    """Settle what a dead process left active: in one workflow, or everywhere."""

    workflow_id: str | None = None


class RecoverUnfinishedSessions(Operation[tuple[Session, ...]], frozen=True):
    """Finish open sessions whose runs have all committed."""

    workflow_id: str | None = None


class RecoverMaintenanceMode(Operation[tuple[MaintenanceTask, ...]], frozen=True):
    """Create the tasks that a crash swallowed."""

    workflow_id: str | None = None


# Notices.


class OpenNotice(Operation[NoticeRow], frozen=True):
    """A matter needs a person: every sink named here is to be told. One open notice for one matter."""

    id: str
    workflow_id: str
    kind: NoticeKind
    about: str
    words: str
    can_do: str
    sinks: tuple[str, ...]
    run_id: str | None = None
    call: str = ""


class AddDelivery(Operation[Delivery], frozen=True):
    """A sink is to be told of an open notice that it does not know: a new sink, or one that was given up over it."""

    notice_id: str
    sink: str


class SettleNotice(Operation[NoticeRow], frozen=True):
    """Settle a matter: sinks that are told of its beginning are told of its end, in this order."""

    notice_id: str
    outcome: str = ""


class NoteDelivery(Operation[Delivery], frozen=True):
    """An attempt at telling a sink has ended. Without a problem it is delivered; with one and a time it is tried again
    then, and without a time it is given up."""

    notice_id: str
    sink: str
    says: Says
    problem: str | None = None
    next_attempt_at: Millis | None = None
