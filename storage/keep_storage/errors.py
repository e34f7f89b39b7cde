"""Errors of the storage, by whose fault they are.

`Rejected` is part of the protocol: the caller asked for something the execution model refuses, and nothing
changed. `StorageError` and its kinds are about the file and the disk under it. Anything else is a bug here.
"""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any, NoReturn


class Reason(StrEnum):
    """Why an operation was refused, grouped by what it is about. A test meets every one."""

    # The thing that was named is not there, or is already there.
    ID_TAKEN = auto()
    WORKFLOW_NOT_FOUND = auto()
    VERSION_NOT_FOUND = auto()
    VERSION_EXISTS = auto()
    VERSION_INVALID = auto()
    PERMISSION_INVALID = auto()
    LIMITS_INVALID = auto()
    GRANT_NOT_FOUND = auto()
    TEXT_INVALID = auto()
    SESSION_NOT_FOUND = auto()
    RUN_NOT_FOUND = auto()
    MUTATION_NOT_FOUND = auto()
    TOPIC_NOT_FOUND = auto()
    EVENT_NOT_FOUND = auto()
    ITEM_NOT_FOUND = auto()
    APPROVAL_NOT_FOUND = auto()
    NOTICE_NOT_FOUND = auto()
    DELIVERY_NOT_FOUND = auto()
    PROPOSAL_NOT_FOUND = auto()

    # The declaration of the script.
    HANDLER_NOT_DECLARED = auto()
    HANDLER_DECLARED_TWICE = auto()
    TOPIC_NOT_DECLARED = auto()
    TOPIC_HAS_TWO_CONSUMERS = auto()
    TOPIC_STILL_DECLARED = auto()
    TOPIC_NAMED_TWICE = auto()
    TOPIC_HAS_EVENTS = auto()
    ONLY_CONSUMERS_SUBSCRIBE = auto()
    ONLY_CONSUMERS_ORDER = auto()
    ONLY_CONSUMERS_PARK = auto()

    # The workflow may not do this now.
    WORKFLOW_STATUS_REFUSED = auto()
    WORKFLOW_NOT_ACTIVE = auto()
    WORKFLOW_HAS_ERROR = auto()
    WORKFLOW_HAS_NO_ERROR = auto()
    WORKFLOW_IN_MAINTENANCE = auto()
    WORKFLOW_NOT_IN_MAINTENANCE = auto()
    WORKFLOW_NAME_TAKEN = auto()
    MAINTENANCE_TASK_EXISTS = auto()
    MAINTENANCE_TASK_NOT_FOUND = auto()
    PROPOSAL_OF_ANOTHER_WORKFLOW = auto()
    PROPOSAL_IS_ACTIVE = auto()
    PROPOSAL_ALREADY_HELD = auto()
    PENDING_RETRY_FIRST = auto()

    # Sessions.
    SESSION_ALREADY_OPEN = auto()
    SESSION_FINISHED = auto()
    SESSION_HAS_UNCOMMITTED_RUN = auto()

    # Runs: kind, status, phase.
    RUN_ALREADY_ACTIVE = auto()
    RUN_NOT_A_CONSUMER = auto()
    RUN_NOT_A_PRODUCER = auto()
    RUN_NOT_A_JOB = auto()
    RUN_NOT_ACTIVE = auto()
    RUN_STILL_ACTIVE = auto()
    RUN_WAS_STOPPED = auto()
    JOB_AWAITS_APPROVAL = auto()
    RUN_STATUS_REFUSED = auto()
    COMMIT_HAS_ITS_OWN_OPERATION = auto()
    PHASE_ORDER = auto()
    PHASE_NEEDS_A_PREPARE_RESULT = auto()
    PHASE_TAKES_NO_PREPARE_RESULT = auto()
    NOTHING_RESERVED = auto()
    MUTATION_SETTLES_THE_PHASE = auto()
    MUTATION_FAILED = auto()
    RUN_NOT_POST_MUTATION = auto()
    NOT_THE_PENDING_RETRY = auto()
    UNKNOWN_OUTCOME_IS_NEVER_REPAIRED = auto()

    # Reservations and publishes: each names the event.
    RESERVATION_REPEATED = auto()
    TOPIC_NOT_SUBSCRIBED = auto()
    EVENT_ALREADY_RESERVED = auto()
    EVENT_ALREADY_FINISHED = auto()
    EVENT_HELD_BACK = auto()
    TITLE_INVALID = auto()
    MESSAGE_ID_INVALID = auto()

    # Mutations.
    RUN_MAY_NOT_MUTATE = auto()
    GRANT_USED_UP = auto()
    GRANT_ASKS_FIRST = auto()
    MUTATION_EXISTS = auto()
    MUTATION_NEEDS_AN_ITEM = auto()
    MUTATION_NEEDS_AN_IDENTITY = auto()
    MUTATION_VERSION_STALE = auto()
    MUTATION_ALREADY_SETTLED = auto()
    MUTATION_NOT_SENT = auto()
    MUTATION_STILL_PENDING = auto()
    MUTATION_IN_FLIGHT = auto()
    MUTATION_TRANSITION_REFUSED = auto()
    NOTE_IS_TOO_LATE = auto()
    MUTATION_OUTCOME_UNKNOWN = auto()
    MUTATION_OUTCOME_KNOWN = auto()
    ONLY_A_PERSON_CAN_ASSERT = auto()
    MUTATION_CANNOT_BE_RECONCILED = auto()
    RESULT_NOT_A_PERSONS = auto()
    RESULT_ALREADY_USED = auto()
    MUTATION_AWAITS_APPROVAL = auto()
    APPROVAL_ALREADY_DECIDED = auto()
    APPROVAL_EXPIRED = auto()

    # Items.
    ITEM_ALREADY_OPEN = auto()
    ITEM_NOT_OPEN = auto()
    ITEM_STATE_CHANGED = auto()
    ITEM_IS_DONE = auto()
    ITEM_NOT_FINISHED = auto()

    # Proposals from outside.
    PROPOSAL_INVALID = auto()
    PROPOSAL_IS_OUTDATED = auto()
    PROPOSAL_WAS_REJECTED = auto()
    PROPOSALS_TOO_MANY = auto()
    PROPOSAL_ALREADY_DECIDED = auto()
    PROPOSAL_HAS_EXPIRED = auto()
    PROPOSAL_NOT_DEPLOYED = auto()

    # Notices and their deliveries.
    SINK_INVALID = auto()
    NOTICE_ALREADY_OPEN = auto()
    NOTICE_ALREADY_SETTLED = auto()
    DELIVERY_EXISTS = auto()
    DELIVERY_INVALID = auto()
    DELIVERY_ALREADY_ENDED = auto()
    DELIVERY_OUT_OF_ORDER = auto()


class Rejected(Exception):
    """The execution model refuses the operation; nothing changed. `reason` is for code, the text for people."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} [{self.reason}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.message)


class EventsWouldWait(Rejected):
    """The script was not activated: it does not declare topics in which events wait, and nothing would read them.

    `topics` says how many wait in each, `declared` which topics the script has. Say `drop` or `move` for each of them.
    """

    def __init__(self, topics: Mapping[str, int], declared: tuple[str, ...]) -> None:
        waiting = " and ".join(f"{name!r} ({count} waiting)" for name, count in topics.items())
        there = ", ".join(map(repr, declared)) or "none"
        super().__init__(
            Reason.TOPIC_HAS_EVENTS,
            f"The script does not declare every topic that has unfinished events: {waiting}. Drop the events of such a "
            f"topic (`drop`), or move them (`move`) to a topic that the script declares: {there}.",
        )
        self.topics = dict(topics)
        self.declared = tuple(declared)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topics, self.declared)


def reject(reason: Reason, message: str) -> NoReturn:
    """Refuse the operation. The message says what, where, and what to do about it."""
    raise Rejected(reason, message)


def storable(text: str) -> str:
    """Words of an error as a database keeps them: a script may throw text with an unpaired surrogate."""
    return text.encode("utf-8", "replace").decode("utf-8")


class StorageError(Exception):
    """A problem with the database file or the disk under it."""


class StorageUnavailable(StorageError):
    """The commit failed and none of its operations happened, now or after a restart. It may be tried again."""


class StorageLost(StorageUnavailable):
    """The commit failed, and so did the attempt to make sure of it: if the process dies now, it may turn out to have
    happened. Nothing else happens before the store has made sure; then read, and do not send again blindly."""


class StorageOwned(StorageError):
    """Another runtime has this file open."""


class StorageTooNew(StorageError):
    """The file was written by a newer version of this library."""


class StorageForeign(StorageError):
    """The file is a database, but not one of ours."""


class StorageCorrupt(StorageError):
    """The file is damaged, or is not a database at all."""
