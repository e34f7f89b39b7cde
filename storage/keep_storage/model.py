"""The nouns of the execution model: a struct for each row. `states` has their states, which are found here, too.

A struct's fields are its table's columns, in order; a test compares them. JSON travels as text (`Json`): the
storage never looks inside what a script wrote.
"""

import msgspec

from keep_storage.ids import Millis
from keep_storage.states import (
    ApprovalStatus,
    AttentionKind,
    DeliveryStatus,
    EventStatus,
    FailureClass,
    GrantPolicy,
    HandlerKind,
    ItemState,
    MutationOutcome,
    MutationStatus,
    NoticeKind,
    OnUnknown,
    Phase,
    ProposalStatus,
    Resolver,
    RunStatus,
    Says,
    SessionResult,
    TaskStatus,
    WaitsOn,
    WorkflowStatus,
)

__all__ = [
    "Approval",
    "ApprovalStatus",
    "AttentionKind",
    "AttentionRow",
    "Delivery",
    "DeliveryStatus",
    "Event",
    "EventStatus",
    "FailureClass",
    "GrantPolicy",
    "Handler",
    "HandlerKind",
    "Item",
    "ItemState",
    "JournalEntry",
    "Json",
    "MaintenanceTask",
    "Mutation",
    "MutationOutcome",
    "MutationStatus",
    "NoticeKind",
    "NoticeRow",
    "OnUnknown",
    "Phase",
    "ProposalStatus",
    "Record",
    "Reservation",
    "Resolver",
    "Run",
    "RunStatus",
    "Says",
    "ScriptProposal",
    "ScriptVersion",
    "Session",
    "SessionResult",
    "StoredGrant",
    "TaskStatus",
    "Topic",
    "WaitsOn",
    "Workflow",
    "WorkflowStatus",
]

Json = str
"""JSON as text."""


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
    owner: str
    """The tenant that it belongs to, as the caller who deployed it named them; empty: that of all without one."""


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
    number: int
    """Its place among all runs of the file, which gives it; 0 before it is written."""


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
    note: str
    """The note of its connector about this attempt, for whoever looks for its outcome."""


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


class ScriptProposal(Record, frozen=True, gc=False):
    """A script that was proposed from outside, such as by an assistant. It runs only if a person accepts it."""

    id: str
    workflow_id: str | None
    """None: a new workflow, until it is accepted."""
    base_version_id: str | None
    """The script that was active when it was proposed."""
    name: str
    """The name of the workflow, or that of the new one."""
    source: str
    """Empty once nobody has to look at it any more: it was accepted and is a version, was replaced, or expired."""
    note: str
    """The words of whoever proposed it."""
    proposed_by: str
    status: ProposalStatus
    proposed_at: Millis
    expires_at: Millis
    decided_at: Millis | None
    decided_by: str
    reason: str
    version_id: str | None
    """The version that it became."""


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
