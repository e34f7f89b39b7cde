"""The tables: what may follow what. Closed and total; what is not listed is refused.

`docs/architecture.md` draws them, and a test compares the drawing with these tables.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from keep_storage.model import (
    EventStatus,
    ItemState,
    MutationOutcome,
    MutationStatus,
    Phase,
    Resolver,
    RunStatus,
    WorkflowStatus,
)

PHASE_NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.PENDING: frozenset({Phase.PREPARING}),
    Phase.PREPARING: frozenset({Phase.PREPARED}),
    Phase.PREPARED: frozenset({Phase.MUTATING, Phase.EMITTING}),
    Phase.MUTATING: frozenset({Phase.MUTATED}),
    Phase.MUTATED: frozenset({Phase.EMITTING}),
    Phase.EMITTING: frozenset({Phase.COMMITTED}),
    Phase.COMMITTED: frozenset(),
}
"""The way of a consumer. Producers and jobs go from `pending` to `committed` in their one commit."""

STATUS_NEXT: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.ACTIVE: frozenset(RunStatus) - {RunStatus.ACTIVE},
    RunStatus.PAUSED_TRANSIENT: frozenset(),
    # An approved call is made while its run is paused; its outcome can turn out unknown.
    RunStatus.PAUSED_APPROVAL: frozenset({RunStatus.PAUSED_RECONCILIATION}),
    RunStatus.PAUSED_RECONCILIATION: frozenset(),
    RunStatus.FAILED_LOGIC: frozenset(),
    RunStatus.FAILED_INTERNAL: frozenset(),
    RunStatus.CRASHED: frozenset(),
    RunStatus.COMMITTED: frozenset(),
}
"""A run that stopped is never resumed: a fresh run, or a retry that starts at `next`, carries on."""

MUTATION_NEXT: Final[Mapping[MutationStatus, frozenset[MutationStatus]]] = {
    MutationStatus.PENDING: frozenset({MutationStatus.IN_FLIGHT, MutationStatus.FAILED}),
    MutationStatus.IN_FLIGHT: frozenset(
        {
            MutationStatus.APPLIED,
            MutationStatus.FAILED,
            MutationStatus.NEEDS_RECONCILE,
            MutationStatus.INDETERMINATE,
        }
    ),
    MutationStatus.NEEDS_RECONCILE: frozenset(
        {
            MutationStatus.NEEDS_RECONCILE,
            MutationStatus.APPLIED,
            MutationStatus.FAILED,
            MutationStatus.INDETERMINATE,
        }
    ),
    MutationStatus.INDETERMINATE: frozenset(
        {MutationStatus.NEEDS_RECONCILE, MutationStatus.APPLIED, MutationStatus.FAILED}
    ),
    MutationStatus.APPLIED: frozenset(),
    # Only inside an item: the handler runs again from the start and re-attempts what did not happen.
    MutationStatus.FAILED: frozenset({MutationStatus.PENDING, MutationStatus.IN_FLIGHT}),
}

MAY_SETTLE: Final[Mapping[MutationOutcome, Mapping[MutationStatus, frozenset[Resolver]]]] = {
    MutationOutcome.SUCCESS: {
        # The call is being made: only the one who makes it can know.
        MutationStatus.IN_FLIGHT: frozenset({Resolver.CONNECTOR, Resolver.RECONCILIATION}),
        MutationStatus.NEEDS_RECONCILE: frozenset(
            {Resolver.CONNECTOR, Resolver.RECONCILIATION, Resolver.USER_ASSERT_APPLIED}
        ),
        # Machines have given up.
        MutationStatus.INDETERMINATE: frozenset({Resolver.USER_ASSERT_APPLIED}),
    },
    MutationOutcome.FAILURE: {
        # It never left: the host may give up on it, recovery may, and the person who was asked may refuse.
        MutationStatus.PENDING: frozenset(
            {Resolver.CONNECTOR, Resolver.RECOVERY, Resolver.APPROVAL_REJECTED, Resolver.APPROVAL_EXPIRED}
        ),
        MutationStatus.IN_FLIGHT: frozenset({Resolver.CONNECTOR, Resolver.RECONCILIATION}),
        MutationStatus.NEEDS_RECONCILE: frozenset(
            {Resolver.CONNECTOR, Resolver.RECONCILIATION, Resolver.USER_ASSERT_FAILED}
        ),
        MutationStatus.INDETERMINATE: frozenset({Resolver.USER_ASSERT_FAILED}),
    },
    MutationOutcome.SKIPPED: {
        # A refusal is a no: what was to be done is skipped.
        MutationStatus.PENDING: frozenset({Resolver.USER_SKIP, Resolver.APPROVAL_REJECTED, Resolver.APPROVAL_EXPIRED}),
        MutationStatus.NEEDS_RECONCILE: frozenset({Resolver.USER_SKIP}),
        MutationStatus.INDETERMINATE: frozenset({Resolver.USER_SKIP}),
    },
}
"""The resolvers that may settle a mutation, by outcome and status. Others may not."""

VERDICTS: Final = frozenset({Resolver.USER_ASSERT_APPLIED, Resolver.USER_ASSERT_FAILED, Resolver.USER_SKIP})
"""A person's word on an unknown outcome."""

ANSWERS: Final = frozenset({Resolver.APPROVAL_REJECTED, Resolver.APPROVAL_EXPIRED})
"""The answers to a question whether a call may be made; said by answering it."""

EVENT_NEXT: Final[Mapping[EventStatus, frozenset[EventStatus]]] = {
    EventStatus.PENDING: frozenset({EventStatus.RESERVED, EventStatus.SKIPPED}),
    EventStatus.RESERVED: frozenset({EventStatus.PENDING, EventStatus.CONSUMED, EventStatus.SKIPPED}),
    EventStatus.CONSUMED: frozenset(),
    EventStatus.SKIPPED: frozenset(),
}

WORKFLOW_NEXT: Final[Mapping[WorkflowStatus, frozenset[WorkflowStatus]]] = {
    WorkflowStatus.DRAFT: frozenset({WorkflowStatus.READY, WorkflowStatus.ARCHIVED}),
    WorkflowStatus.READY: frozenset({WorkflowStatus.ACTIVE, WorkflowStatus.ARCHIVED}),
    WorkflowStatus.ACTIVE: frozenset({WorkflowStatus.PAUSED, WorkflowStatus.ARCHIVED}),
    WorkflowStatus.PAUSED: frozenset({WorkflowStatus.ACTIVE, WorkflowStatus.ARCHIVED}),
    # Brought back, it waits to be resumed; one that never had a script is a draft again.
    WorkflowStatus.ARCHIVED: frozenset({WorkflowStatus.PAUSED, WorkflowStatus.DRAFT}),
}

UNCERTAIN: Final = frozenset({MutationStatus.IN_FLIGHT, MutationStatus.NEEDS_RECONCILE, MutationStatus.INDETERMINATE})
"""The effect may exist."""

SETTLED: Final = frozenset({MutationStatus.APPLIED, MutationStatus.FAILED})

ITEM_FINISHED: Final = frozenset({ItemState.DONE, ItemState.SKIPPED})
"""A finished item may not change the outside again, and stays as it is."""

POST_MUTATION: Final = frozenset({MutationOutcome.SUCCESS, MutationOutcome.SKIPPED})
"""Only forward from here: a retry starts at `next`."""

RUN_STATUS_ERROR: Final[Mapping[RunStatus, str]] = {
    RunStatus.ACTIVE: "",
    RunStatus.PAUSED_TRANSIENT: "",
    RunStatus.PAUSED_APPROVAL: "Approval required",
    RunStatus.PAUSED_RECONCILIATION: "Mutation outcome uncertain",
    RunStatus.FAILED_LOGIC: "",
    RunStatus.FAILED_INTERNAL: "Internal error",
    RunStatus.CRASHED: "",
    RunStatus.COMMITTED: "",
}
"""The words of `workflow.error` when a run stops this way and brings none of its own. Empty: nothing to do
for a person, because a retry, maintenance or recovery carries on."""


def _covers(table: Mapping[Any, object], states: type[StrEnum]) -> bool:
    return set(table) == set(states)


assert _covers(PHASE_NEXT, Phase), "every phase has its row"
assert _covers(STATUS_NEXT, RunStatus), "every run status has its row"
assert _covers(RUN_STATUS_ERROR, RunStatus), "every run status says whether a person is needed"
assert _covers(MUTATION_NEXT, MutationStatus), "every mutation status has its row"
assert set(MAY_SETTLE) == set(MutationOutcome) - {MutationOutcome.NONE}, "every way to settle says who may"
assert _covers(EVENT_NEXT, EventStatus), "every event status has its row"
assert _covers(WORKFLOW_NEXT, WorkflowStatus), "every workflow status has its row"
