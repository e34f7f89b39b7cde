"""Approvals: a recorded call waits for a person, who lets it be made exactly as recorded, or refuses it.

The first answer wins. A refusal is a no: what the call was about is skipped, unless a fresh run is wanted.
"""

from msgspec.structs import replace

from keep_storage import grants, mutation_rows, mutations, runs, settlement, workflows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import Approval, ApprovalStatus, Mutation, MutationOutcome, MutationStatus, Resolver, RunStatus
from keep_storage.operations import ApproveMutation, AskAgain, RejectMutation
from keep_storage.transaction import Queries, Transaction


def approve_mutation(tx: Transaction, op: ApproveMutation, now: Millis) -> Change[Mutation]:
    approval, mutation = _question(tx, op.approval_id)
    if approval.expires_at is not None and approval.expires_at <= now:
        reject(Reason.APPROVAL_EXPIRED, f"Approval {approval.id!r} expired; the call will not be made.")
    workflows.living(tx, mutation.workflow_id)
    if op.use is not None:
        grants.count(tx, mutation.workflow_id, op.use)
    _answer(tx, approval, ApprovalStatus.APPROVED, op.by, op.why, now)
    sent = mutations.label(mutation, MutationStatus.IN_FLIGHT, "", None, now)
    mutation_rows.save_mutation(tx, sent)
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
    outcome = MutationOutcome.FAILURE if op.retry else MutationOutcome.SKIPPED
    resolver = Resolver.APPROVAL_EXPIRED if op.expired else Resolver.APPROVAL_REJECTED
    return _refuse(tx, approval, mutation, outcome, resolver, op.by, op.why, now)


def refuse(tx: Transaction, approval: Approval, by: str, why: str, now: Millis) -> Change[Mutation]:
    """Refuse an open question for its workflow as a whole, whatever its run is at: the call did not happen."""
    mutation = mutations.existing(tx, approval.mutation_id)
    return _refuse(tx, approval, mutation, MutationOutcome.FAILURE, Resolver.APPROVAL_REJECTED, by, why, now)


def _refuse(
    tx: Transaction,
    approval: Approval,
    mutation: Mutation,
    outcome: MutationOutcome,
    resolver: Resolver,
    by: str,
    why: str,
    now: Millis,
) -> Change[Mutation]:
    run = settlement.may_settle(tx, mutation, outcome, resolver)
    is_late = resolver is Resolver.APPROVAL_EXPIRED
    _answer(tx, approval, ApprovalStatus.EXPIRED if is_late else ApprovalStatus.REJECTED, by, why, now)
    settled = settlement.settled_as(mutation, MutationStatus.FAILED, resolver, by, why, now)
    return settlement.settle(tx, run, mutation, settled, outcome, now)


def ask_again(tx: Transaction, op: AskAgain, now: Millis) -> Change[Approval]:
    approval, mutation = _question(tx, op.approval_id)
    if mutation_rows.approval(tx, op.new_id):
        reject(Reason.ID_TAKEN, f"There is already an approval {op.new_id!r}.")
    _answer(tx, approval, ApprovalStatus.EXPIRED, "policy", "not answered in time; asked again", now)
    again = replace(approval, id=op.new_id, requested_at=now, expires_at=op.expires_at)
    mutation_rows.insert_approval(tx, again)
    return changed(
        again, mutation.workflow_id, mutation.run_id, mutation=mutation.id, expired=approval.id, approval=again.id
    )


def _question(q: Queries, approval_id: str) -> tuple[Approval, Mutation]:
    """An open question and the call it is about, whose run has stopped to wait."""
    approval = mutation_rows.approval(q, approval_id) or reject(
        Reason.APPROVAL_NOT_FOUND, f"There is no approval {approval_id!r}."
    )
    if approval.status is not ApprovalStatus.OPEN:
        who, why = approval.decided_by or "an unnamed person", f": {approval.reason}" if approval.reason else ""
        reject(
            Reason.APPROVAL_ALREADY_DECIDED,
            f"Approval {approval_id!r} is already {approval.status}, by {who}{why}.",
        )
    mutation = mutations.existing(q, approval.mutation_id)
    run = runs.existing(q, mutation.run_id)
    if run.status is RunStatus.ACTIVE:
        reject(Reason.RUN_STILL_ACTIVE, f"Run {run.id!r} has not paused for approval {approval_id!r} yet.")
    return approval, mutation


def _answer(tx: Transaction, approval: Approval, status: ApprovalStatus, by: str, why: str, now: Millis) -> None:
    mutation_rows.decide_approval(tx, replace(approval, status=status, decided_at=now, decided_by=by, reason=why))
