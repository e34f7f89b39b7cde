"""Approvals: a recorded call waits for a person, who lets it be made exactly as recorded, or refuses it.

The first answer wins. A refusal settles the mutation as failed, or skips it.
"""

from msgspec.structs import replace

from keep_storage import mutations, rows, runs
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import (
    Approval,
    ApprovalStatus,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Resolver,
    RunStatus,
)
from keep_storage.operations import ApproveMutation, RejectMutation
from keep_storage.transaction import Queries, Transaction


def approve_mutation(tx: Transaction, op: ApproveMutation, now: Millis) -> Change[Mutation]:
    approval, mutation = _question(tx, op.approval_id)
    if approval.expires_at is not None and approval.expires_at <= now:
        reject(Reason.APPROVAL_EXPIRED, f"Approval {approval.id!r} expired; the call will not be made.")
    _answer(tx, approval, ApprovalStatus.APPROVED, op.by, op.why, now)
    sent = mutations.label(mutation, MutationStatus.IN_FLIGHT, "", None, now)
    rows.save_mutation(tx, sent)
    return changed(
        sent,
        mutation.workflow_id,
        mutation.run_id,
        op.why,
        mutation=mutation.id,
        mutation_status=[mutation.status, sent.status],
        approval=ApprovalStatus.APPROVED,
        by=op.by,
    )


def reject_mutation(tx: Transaction, op: RejectMutation, now: Millis) -> Change[Mutation]:
    approval, mutation = _question(tx, op.approval_id)
    status = ApprovalStatus.EXPIRED if op.expired else ApprovalStatus.REJECTED
    outcome = MutationOutcome.SKIPPED if op.skip else MutationOutcome.FAILURE
    resolver = Resolver.APPROVAL_EXPIRED if op.expired else Resolver.APPROVAL_REJECTED
    if op.skip:
        resolver = Resolver.USER_SKIP
    run = mutations.may_settle(tx, mutation, outcome, resolver)
    _answer(tx, approval, status, op.by, op.why, now)
    settled = mutations.settled_as(mutation, MutationStatus.FAILED, resolver, op.by, op.why, now)
    return mutations.settle(tx, run, mutation, settled, outcome, now)


def _question(q: Queries, approval_id: str) -> tuple[Approval, Mutation]:
    """An open question and the call it is about, whose run has stopped to wait."""
    approval = rows.approval(q, approval_id) or reject(
        Reason.APPROVAL_NOT_FOUND, f"There is no approval {approval_id!r}."
    )
    if approval.status is not ApprovalStatus.OPEN:
        reject(
            Reason.APPROVAL_ALREADY_DECIDED,
            f"Approval {approval_id!r} is already {approval.status}, by {approval.decided_by or 'nobody named'}.",
        )
    mutation = mutations.existing(q, approval.mutation_id)
    run = runs.existing(q, mutation.run_id)
    if run.status is RunStatus.ACTIVE:
        reject(Reason.RUN_STILL_ACTIVE, f"Run {run.id!r} has not paused for approval {approval_id!r} yet.")
    return approval, mutation


def _answer(tx: Transaction, approval: Approval, status: ApprovalStatus, by: str, why: str, now: Millis) -> None:
    rows.decide_approval(tx, replace(approval, status=status, decided_at=now, decided_by=by, reason=why))
