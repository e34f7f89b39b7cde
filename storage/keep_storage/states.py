"""The states and kinds of the execution model. Each is a CHECK of the schema too; a test compares the values."""

from enum import StrEnum


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


class ProposalStatus(StrEnum):
    OPEN = "open"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    REPLACED = "replaced"
    """A later one for the same workflow, or of the same new name, took its place."""
    EXPIRED = "expired"
    """The time was over before anybody decided."""


class AttentionKind(StrEnum):
    """The kinds of matters that need attention, in the order in which people see them."""

    APPROVAL = "approval"
    """May a recorded call be made?"""
    REPAIR = "repair"
    """A proposed repair: accept or refuse it."""
    PROPOSAL = "proposal"
    """A script that was proposed from outside: accept or reject it."""
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
