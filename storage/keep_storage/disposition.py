"""Rules 2a-2d: the events of a consumer run that stops before it commits. Pure. Every release asks this table."""

from enum import StrEnum

from keep_storage.model import MutationOutcome, MutationStatus, Phase
from keep_storage.transitions import POST_MUTATION, UNCERTAIN


class Disposition(StrEnum):
    RELEASE = "release"
    """2a. Nothing happened outside: the events go back to `pending`, a fresh run starts at `prepare`."""
    RETRY_FORWARD = "retry_forward"
    """2b. The mutation is settled for good: the events stay reserved, a retry runs `next`."""
    HOLD_UNCERTAIN = "hold_uncertain"
    """2c. The effect may exist: the events stay reserved until someone knows."""
    HOLD_FOR_APPROVAL = "hold_for_approval"
    """2d. A recorded call waits for a person: the events stay reserved."""


def disposition(phase: Phase, mutation_outcome: MutationOutcome, mutation_status: MutationStatus | None) -> Disposition:
    """Decide about the events.

    The order is the safety argument: a doubt about the outside world (2c) is asked about first and releases
    nothing, whatever the other two say; what is left at the end is what certainly did not happen (2a).
    The ledger and the outcome are believed over the phase: a phase can lag behind, an effect cannot be undone.
    """
    assert phase is not Phase.COMMITTED, "a committed run has no events left to dispose of"
    if mutation_status in UNCERTAIN:
        return Disposition.HOLD_UNCERTAIN
    if mutation_status is MutationStatus.PENDING:
        return Disposition.HOLD_FOR_APPROVAL
    if mutation_status is MutationStatus.APPLIED or mutation_outcome in POST_MUTATION:
        return Disposition.RETRY_FORWARD
    return Disposition.RELEASE
