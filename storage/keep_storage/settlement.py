"""Settling a call: `apply`, `fail` and `skip` write its outcome once, and move its run, its events, its item and its
workflow in the same transaction. The status of the run stays as it is.
"""

from typing import NoReturn

from msgspec.structs import replace

from keep_storage import event_rows, mutation_rows, mutations, rows, runs, stops, workflows
from keep_storage.disposition import Disposition, disposition
from keep_storage.errors import Reason, reject, storable
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import (
    HandlerKind,
    ItemState,
    Json,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Phase,
    Resolver,
    Run,
    RunStatus,
)
from keep_storage.operations import ApplyMutation, FailMutation, SkipMutation
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import ANSWERS, MAY_SETTLE, VERDICTS


def apply_mutation(tx: Transaction, op: ApplyMutation, now: Millis) -> Change[Mutation]:
    mutation = mutations.unsettled(tx, op.mutation_id, op.expected_version)
    if mutation.status is MutationStatus.PENDING:
        reject(Reason.MUTATION_NOT_SENT, f"Mutation {mutation.id!r} was never sent; it cannot have happened.")
    run = may_settle(tx, mutation, MutationOutcome.SUCCESS, op.resolved_by)
    settled = settled_as(mutation, MutationStatus.APPLIED, op.resolved_by, op.by, op.why, now, result=op.result)
    return settle(tx, run, mutation, settled, MutationOutcome.SUCCESS, now)


def fail_mutation(tx: Transaction, op: FailMutation, now: Millis) -> Change[Mutation]:
    mutation = mutations.unsettled(tx, op.mutation_id, op.expected_version)
    _refuse_if_asked(tx, mutation)
    if op.resolved_by in ANSWERS:
        reject(Reason.APPROVAL_NOT_FOUND, f"No person was asked about mutation {mutation.id!r}; it has no answer.")
    run = may_settle(tx, mutation, MutationOutcome.FAILURE, op.resolved_by)
    settled = settled_as(mutation, MutationStatus.FAILED, op.resolved_by, op.by, op.why, now, error=op.error)
    return settle(tx, run, mutation, settled, MutationOutcome.FAILURE, now)


def skip_mutation(tx: Transaction, op: SkipMutation, now: Millis) -> Change[Mutation]:
    mutation = mutations.unsettled(tx, op.mutation_id, op.expected_version)
    _refuse_if_asked(tx, mutation)
    run = may_settle(tx, mutation, MutationOutcome.SKIPPED, Resolver.USER_SKIP)
    settled = settled_as(mutation, MutationStatus.FAILED, Resolver.USER_SKIP, op.by, op.why, now)
    return settle(tx, run, mutation, settled, MutationOutcome.SKIPPED, now)


def _refuse_if_asked(q: Queries, mutation: Mutation) -> None:
    if mutation_rows.open_approval(q, mutation.id):
        reject(Reason.MUTATION_AWAITS_APPROVAL, f"Mutation {mutation.id!r} is a question to a person; answer that.")


def may_settle(q: Queries, mutation: Mutation, outcome: MutationOutcome, resolver: Resolver) -> Run:
    """The run whose mutation this is, if `resolver` may say that this became of it."""
    run = runs.existing(q, mutation.run_id)
    if resolver in VERDICTS and run.status is RunStatus.ACTIVE:
        reject(
            Reason.RUN_STILL_ACTIVE,
            f"Run {run.id!r} is still at work on mutation {mutation.id!r}; a person is asked once it has paused.",
        )
    if resolver not in MAY_SETTLE[outcome].get(mutation.status, ()):
        _refuse_resolver(mutation, outcome, resolver)
    return run


def _refuse_resolver(mutation: Mutation, outcome: MutationOutcome, resolver: Resolver) -> NoReturn:
    where = f"Mutation {mutation.id!r} is {mutation.status}"
    if mutation.status is MutationStatus.INDETERMINATE and resolver not in VERDICTS:
        reject(Reason.ONLY_A_PERSON_CAN_ASSERT, f"{where}; only a person can say what became of it.")
    if mutation.status is MutationStatus.IN_FLIGHT and resolver in VERDICTS:
        reject(Reason.MUTATION_IN_FLIGHT, f"{where}; its outcome is known when the call has ended.")
    reject(Reason.MUTATION_TRANSITION_REFUSED, f"{where}; {resolver} cannot make it a {outcome}.")


def settled_as(
    mutation: Mutation,
    status: MutationStatus,
    resolver: Resolver,
    who: str,
    why: str,
    now: Millis,
    *,
    result: Json | None = None,
    error: str = "",
) -> Mutation:
    return replace(
        mutation,
        status=status,
        version=mutation.version + 1,
        result=result,
        error=storable(error),  # the words of the doubt are in the journal, and no longer true
        next_reconcile_at=None,
        resolved_by=resolver,
        resolved_at=now,
        resolved_who=who,
        resolved_why=why,
        updated_at=now,
    )


def settle(
    tx: Transaction, run: Run, before: Mutation, settled: Mutation, outcome: MutationOutcome, now: Millis
) -> Change[Mutation]:
    """Write the outcome, and let the run, its events and its workflow follow."""
    mutation_rows.save_mutation(tx, settled)
    held = disposition(Phase.MUTATED, outcome, settled.status)
    if run.kind is HandlerKind.CONSUMER:
        why = settled.resolved_why if outcome is MutationOutcome.SKIPPED else ""
        mutated = replace(
            run, phase=Phase.MUTATED, mutation_outcome=outcome, mutation_result=settled.result, skip_reason=why
        )
        rows.set_outcome(tx, mutated)
        if held is Disposition.RELEASE:
            event_rows.release_events(tx, run.id, now)
            rows.look_again(tx, run, now)
        elif outcome is MutationOutcome.SKIPPED:
            event_rows.skip_events(tx, run.id, now)
    elif outcome is MutationOutcome.SKIPPED or run.status is not RunStatus.ACTIVE:
        _let_item_follow(tx, settled, outcome, now)
    if run.status is not RunStatus.ACTIVE:
        _let_workflow_go_on(tx, run, held, now)
    return changed(
        settled,
        run.workflow_id,
        run.id,
        settled.resolved_why or settled.error,
        mutation=settled.id,
        mutation_status=[before.status, settled.status],
        outcome=outcome,
        resolved_by=settled.resolved_by,
        by=settled.resolved_who,
    )


def _let_workflow_go_on(tx: Transaction, run: Run, held: Disposition, now: Millis) -> None:
    """The question that stopped the run is answered, and with it what that stopped. An active run stopped nothing."""
    if run.parked and (run.kind is HandlerKind.JOB or held is Disposition.RELEASE):
        rows.unpark(tx, run.id)
        # Another run of the handler may be active that has looked before, and found nothing.
        event_rows.count_write_for_consumer(tx, run)
    workflow = workflows.existing(tx, run.workflow_id)
    if workflow.error_run_id == run.id:
        rows.stood_still(tx, run, now)
        workflow = stops.without_error(tx, workflow, now)
    if run.kind is HandlerKind.CONSUMER and not run.parked:
        if held is Disposition.RETRY_FORWARD:
            workflow = replace(workflow, pending_retry_run_id=run.id)
        elif workflow.pending_retry_run_id == run.id:
            workflow = replace(workflow, pending_retry_run_id=None)
    rows.save_workflow(tx, replace(workflow, updated_at=now))


def _let_item_follow(tx: Transaction, mutation: Mutation, outcome: MutationOutcome, now: Millis) -> None:
    """A skipped call skips its item, which says why; the doubt that an item was left with is none any more."""
    assert mutation.item_id, "a job mutates only inside an item"
    item = mutation_rows.item(tx, mutation.workflow_id, mutation.item_id)
    assert item, "a mutation's item is never deleted"
    if item.attempt == mutation.item_attempt:
        is_skipped = outcome is MutationOutcome.SKIPPED
        state = ItemState.SKIPPED if is_skipped else item.state
        words = mutation.resolved_why if is_skipped else mutation.error
        mutation_rows.save_item(tx, replace(item, state=state, error=words, updated_at=now))
