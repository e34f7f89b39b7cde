"""The nouns of the execution model: their states, and a struct for each row.

A struct's fields are its table's columns, in order; a test compares them. JSON travels as text (`Json`): the
storage never looks inside what a script wrote.
"""

from enum import StrEnum

import msgspec

from keep_storage.ids import Millis

Json = str
"""JSON as text."""


class Phase(StrEnum):
    """How far a run has come. Moves forward only. Producers and jobs know only `pending` and `committed`."""

    PENDING = "pending"
    PREPARING = "preparing"
    PREPARED = "prepared"
    MUTATING = "mutating"
    MUTATED = "mutated"
    """The mutate phase is over and its outcome is known: `mutation_outcome` says which."""
    EMITTING = "emitting"
    COMMITTED = "committed"


class RunStatus(StrEnum):
    """Why a run goes on or does not. Orthogonal to its phase."""

    ACTIVE = "active"
    PAUSED_TRANSIENT = "paused:transient"
    PAUSED_APPROVAL = "paused:approval"
    PAUSED_RECONCILIATION = "paused:reconciliation"
    FAILED_LOGIC = "failed:logic"
    FAILED_INTERNAL = "failed:internal"
    CRASHED = "crashed"
    COMMITTED = "committed"


class MutationOutcome(StrEnum):
    """The outcome of a run's mutation, kept beside the phase so that no join is needed to decide."""

    NONE = ""
    SUCCESS = "success"
    FAILURE = "failure"
    SKIPPED = "skipped"


class OnUnknown(StrEnum):
    """The work that stands still while the outcome of a run's mutation is unknown."""

    PAUSE = "pause"
    """The whole workflow."""
    PARK = "park"
    """The events of that run, and those with an ordering key that it holds."""


class MutationStatus(StrEnum):
    """Where an external call stands in the ledger."""

    PENDING = "pending"
    """Recorded, never sent."""
    IN_FLIGHT = "in_flight"
    """May have been sent, may have happened. Durable before the call starts."""
    APPLIED = "applied"
    FAILED = "failed"
    """It did not happen, or a person chose to skip it (`resolved_by` says so)."""
    NEEDS_RECONCILE = "needs_reconcile"
    INDETERMINATE = "indeterminate"
    """Only a person can tell."""


class Resolver(StrEnum):
    """The one who found out the outcome of a mutation."""

    CONNECTOR = "connector"
    RECONCILIATION = "reconciliation"
    RECOVERY = "recovery"
    USER_ASSERT_APPLIED = "user_assert_applied"
    USER_ASSERT_FAILED = "user_assert_failed"
    USER_SKIP = "user_skip"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_EXPIRED = "approval_expired"


class EventStatus(StrEnum):
    PENDING = "pending"
    RESERVED = "reserved"
    CONSUMED = "consumed"
    SKIPPED = "skipped"


class HandlerKind(StrEnum):
    PRODUCER = "producer"
    CONSUMER = "consumer"
    JOB = "job"


class WorkflowStatus(StrEnum):
    """The will of the people who own the workflow. The system never changes it by itself."""

    DRAFT = "draft"
    READY = "ready"
    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"


class SessionResult(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"


class FailureClass(StrEnum):
    """The kind of a failure, as the host saw it. Scripts never classify."""

    TRANSIENT = "transient"
    LOGIC = "logic"
    AUTH = "auth"
    PERMISSION = "permission"
    PRECONDITION = "precondition"
    INDETERMINATE = "indeterminate"
    INTERNAL = "internal"


class ItemState(StrEnum):
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    NEEDS_ATTENTION = "needs_attention"


class TaskStatus(StrEnum):
    OPEN = "open"
    DONE = "done"


class ApprovalStatus(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


class GrantPolicy(StrEnum):
    ALLOW = "allow"
    ASK = "ask"


class AttentionKind(StrEnum):
    """The kinds of matters that need attention, in the order in which people see them."""

    APPROVAL = "approval"
    """May a recorded call be made?"""
    REPAIR = "repair"
    """A proposed repair: accept or refuse it."""
    MAINTENANCE = "maintenance"
    """A script failed and has to be repaired."""
    UNKNOWN = "unknown"
    """A call may have happened."""
    ERROR = "error"
    """An error stops the workflow."""
    FAILING = "failing"
    """A handler keeps failing."""
    STALE = "stale"
    """The oldest pending event of a topic."""
    EXPIRED = "expired"
    """A call was refused by policy, because no person answered in time."""


class WaitsOn(StrEnum):
    """The step that comes before a person is called for a matter."""

    PERSON = "person"
    """A person is asked now."""
    CONNECTOR = "connector"
    """The connector is still being asked for the outcome."""
    CALL = "call"
    """The call is being made, though its workflow is archived."""
    APPROVED_CALL = "approved_call"
    """A call that a person approved is being made."""
    MAINTAINER = "maintainer"
    """A machine may repair the script, if the workflow has one."""
    RETRY = "retry"
    """The handler is tried again by itself; a person is called if that takes too long."""
    LOOK = "look"
    """No person is called: people who look see it."""


class NoticeKind(StrEnum):
    """Why a person is needed."""

    APPROVAL = "approval"
    REPAIR = "repair"
    MAINTENANCE = "maintenance"
    UNKNOWN = "unknown"
    ERROR = "error"


class Says(StrEnum):
    """The message of a delivery: the beginning of a matter, or its end."""

    NEEDS_PERSON = "needs_person"
    SETTLED = "settled"


class DeliveryStatus(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row. Only an operation changes it. Holds no containers, so the garbage collector need not look."""


class Workflow(Record, frozen=True, gc=False):
    id: str
    name: str
    timezone: str
    status: WorkflowStatus
    error: str
    """Empty, or what a person must see to before anything runs again."""
    error_class: FailureClass | None
    error_run_id: str | None
    """The run that set the error: resolving another run's mutation does not clear it. None if the host gave up."""
    maintenance: bool
    maintenance_run_id: str | None
    """The run whose logic error set the flag."""
    pending_retry_run_id: str | None
    active_version_id: str | None
    created_at: Millis
    updated_at: Millis
    error_about: str
    """The subject of the error, for code: `permission:mail.send`, or `missing:mail.send …`; empty if unknown."""


class ScriptVersion(Record, frozen=True, gc=False):
    id: str
    workflow_id: str
    major: int
    minor: int
    source: str
    declaration: Json
    created_at: Millis
    activated_at: Millis | None
    author: str
    """As the caller who deployed it named them; empty if they did not. A repair has that of the script it repairs."""


class Handler(Record, frozen=True, gc=False):
    """A producer, consumer or job of a workflow: its own state and, if it runs by the clock, its schedule."""

    workflow_id: str
    name: str
    kind: HandlerKind
    declared: bool
    """False once a newer script has dropped it; its state stays."""
    schedule: Json | None
    next_run_at: Millis | None
    wake_at: Millis | None
    seen: int | None
    """The `writes` of its topics that an empty run of this consumer has looked at; none if it must look again."""
    failures: int
    """Stops in a row without a commit; what is not the handler's fault (a crash, a person's stop) does not count."""
    failing_since: Millis | None
    """When the first of these stops was."""
    retry_at: Millis | None
    """Not before this, after a failure."""
    repairs: int
    """Attempts at repairing it since it last committed, or since a person saw to it."""
    updated_at: Millis
    state: Json | None


class Topic(Record, frozen=True, gc=False):
    id: int
    workflow_id: str
    name: str
    declared: bool
    consumer: str | None
    """The one handler that may reserve from it."""
    ordering: str | None
    """Where in a payload that handler finds the ordering key."""
    writes: int
    """Grows with every commit that appended an event or changed a pending one."""


class Session(Record, frozen=True, gc=False):
    """Runs that belong together for the eye. Decides nothing."""

    id: str
    workflow_id: str
    trigger: str
    started_at: Millis
    ended_at: Millis | None
    result: SessionResult | None
    error: str
    cost_micros: int
    handler_run_count: int


class Run(Record, frozen=True, gc=False):
    id: str
    workflow_id: str
    session_id: str
    version_id: str
    handler: str
    kind: HandlerKind
    phase: Phase
    status: RunStatus
    mutation_outcome: MutationOutcome
    retry_of: str | None
    on_unknown: OnUnknown
    parked: bool
    """It has stopped over a question and holds its events beside its workflow: a call that waits for approval, or an
    unknown outcome (which stops the workflow too, if `on_unknown` says so)."""
    stop_until: Millis | None
    """A person wants it to stop at its next call, and its handler not to run before this."""
    title: str
    """`ui.title`: the script's own words for what it is about to do."""
    reserved_count: int
    seen: int | None
    """The `writes` of the consumer's topics when the run started; none for other kinds."""
    prepare_result: Json | None
    mutation_result: Json | None
    """Given to `next` when the outcome is success; a retry inherits it."""
    skip_reason: str
    """Why the mutation was skipped, in the words of who did; `next` is told."""
    output_state: Json | None
    error_class: FailureClass | None
    error_message: str
    error_place: str
    logs: Json
    cost_micros: int
    created_at: Millis
    ended_at: Millis | None


class Event(Record, frozen=True, gc=False):
    seq: int
    """Append order, and the cursor of `peek`."""
    id: str
    topic_id: int
    message_id: str
    title: str
    payload: Json
    status: EventStatus
    ordering_key: str | None
    """Its consumer wants events of one key in order; an event without one waits for no other."""
    attempt: int
    """Grows each time that a run releases it."""
    reserved_by_run_id: str | None
    created_by_run_id: str | None
    caused: bool
    """Some other event was behind it: `roots_of_event` says which."""
    created_at: Millis
    updated_at: Millis


class Reservation(Record, frozen=True, gc=False):
    """History: this run held this event, at this attempt."""

    run_id: str
    event_id: str
    attempt: int
    reserved_at: Millis


class Mutation(Record, frozen=True, gc=False):
    """A line of the ledger: one external call, known before it is made."""

    id: str
    identity_key: str
    """The run's id in a consumer; the hash of chapter 14 inside an item."""
    idempotency_key: str
    """Handed to the connector; the same for every attempt."""
    workflow_id: str
    run_id: str
    item_id: str | None
    item_attempt: int | None
    connector: str
    method: str
    params: Json
    title: str
    reconcilable: bool
    status: MutationStatus
    version: int
    """Grows with every change: a verdict names the version it judged."""
    result: Json | None
    error: str
    attempts: int
    """How often the call was started."""
    reconcile_attempts: int
    next_reconcile_at: Millis | None
    sent_at: Millis | None
    resolved_by: Resolver | None
    resolved_at: Millis | None
    resolved_who: str
    resolved_why: str
    created_at: Millis
    updated_at: Millis
    subkey: str | None
    """Inside an item: which of several equal calls it is. None in lines that are older than this column."""
    doubted_at: Millis | None
    """The time since which its outcome is looked for; reset when a person wants it looked for again."""


class Approval(Record, frozen=True, gc=False):
    """A question to a person: may this recorded call be made?"""

    id: str
    workflow_id: str
    mutation_id: str
    status: ApprovalStatus
    requested_at: Millis
    expires_at: Millis | None
    decided_at: Millis | None
    decided_by: str
    reason: str


class StoredGrant(Record, frozen=True, gc=False):
    workflow_id: str
    major: int
    permission: str
    policy: GrantPolicy
    limits: Json
    granted_by: str
    granted_at: Millis


class Item(Record, frozen=True, gc=False):
    """One attempt at a logical item. Earlier attempts stay readable."""

    workflow_id: str
    item_id: str
    attempt: int
    title: str
    state: ItemState
    run_id: str
    """The last run that entered its scope."""
    is_open: bool
    """That run is inside the scope now."""
    error: str
    created_at: Millis
    updated_at: Millis


class MaintenanceTask(Record, frozen=True, gc=False):
    """The order to repair a script, for one failure."""

    id: str
    workflow_id: str
    run_id: str
    status: TaskStatus
    evidence: Json
    attempts: int
    """How many came to nothing: failed, or their proposal was refused."""
    next_attempt_at: Millis | None
    held_version_id: str | None
    """A proposal that waits for a person; nothing else is tried meanwhile."""
    problem: str
    """The problem of the last attempt, or the reason why its proposal waits."""
    created_at: Millis
    ended_at: Millis | None


class AttentionRow(Record, frozen=True, gc=False):
    """A matter that needs attention: a row of the view `needs_attention`, which is the one place that decides that."""

    workflow_id: str
    kind: AttentionKind
    about: str | None
    """The approval, the held version, the mutation, the handler or the event; None if it is the workflow as a whole."""
    run_id: str | None
    since: Millis
    waits_on: WaitsOn


class NoticeRow(Record, frozen=True, gc=False):
    """A matter that needs a person, or did, as people are told of it."""

    id: str
    workflow_id: str
    kind: NoticeKind
    about: str
    """The approval, the mutation, the proposed version or the run; empty if it is the workflow as a whole."""
    run_id: str | None
    call: str
    """The external call that it is about, `connector.method`; empty if it is about none."""
    words: str
    can_do: str
    opened_at: Millis
    settled_at: Millis | None
    outcome: str
    """How it was settled, if that is known."""


class Delivery(Record, frozen=True, gc=False):
    """One sink is told one thing about a notice."""

    notice_id: str
    sink: str
    says: Says
    status: DeliveryStatus
    attempts: int
    next_attempt_at: Millis | None
    """None while it waits: the sink has not been told yet that a person is needed."""
    problem: str
    """The problem of the last attempt."""
    ended_at: Millis | None
    """When it was delivered, or given up."""


class JournalEntry(Record, frozen=True, gc=False):
    """One operation that happened. Never changed, never deleted."""

    seq: int
    at: Millis
    operation: str
    workflow_id: str | None
    run_id: str | None
    changed: Json
    why: str
