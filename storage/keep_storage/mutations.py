"""The mutation ledger: an external call is written here before it is made, and labelled while its outcome is unknown.

`settlement` has how a call is settled, once. Neither touches the status of a run.
"""

from msgspec.structs import replace

from keep_storage import mutation_rows, rows, runs, workflows
from keep_storage.errors import Reason, reject, storable
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import (
    Approval,
    ApprovalStatus,
    GrantPolicy,
    HandlerKind,
    Item,
    Mutation,
    MutationStatus,
    Phase,
    Run,
    RunStatus,
    WorkflowStatus,
)
from keep_storage.operations import AskFirst, CreateMutation, ItemScope, NoteMutation, UpdateMutationStatus
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import ITEM_FINISHED, MUTATION_NEXT, SETTLED


def existing(q: Queries, mutation_id: str) -> Mutation:
    mutation = mutation_rows.mutation(q, mutation_id)
    return mutation or reject(Reason.MUTATION_NOT_FOUND, f"There is no mutation {mutation_id!r}.")


# Recording.


def create_mutation(tx: Transaction, op: CreateMutation, now: Millis) -> Change[Mutation]:
    run = runs.existing(tx, op.run_id)
    if run.status is not RunStatus.ACTIVE:
        reject(Reason.RUN_NOT_ACTIVE, f"Run {run.id!r} is {run.status}; it calls nothing any more.")
    if op.send and op.ask_first:
        reject(Reason.MUTATION_AWAITS_APPROVAL, "A call that a person must approve first cannot be sent at once.")
    _refuse_if_stopped(tx, run, op)
    if run.kind is HandlerKind.PRODUCER:
        reject(Reason.RUN_MAY_NOT_MUTATE, f"Run {run.id!r} is of a producer; producers only read.")
    if run.kind is HandlerKind.CONSUMER:
        return _record_for_consumer(tx, run, op, now)
    return _record_in_item(tx, run, op, now)


def _refuse_if_stopped(q: Queries, run: Run, op: CreateMutation) -> None:
    """Obey people who have stopped, paused or archived since the run began: a stop is a stop."""
    workflow = workflows.existing(q, run.workflow_id)
    if workflow.status is not WorkflowStatus.ACTIVE:
        reject(Reason.WORKFLOW_NOT_ACTIVE, f"Workflow {workflow.id!r} is {workflow.status}; it calls nothing.")
    if run.stop_until is not None:
        reject(Reason.RUN_WAS_STOPPED, f"A person has stopped run {run.id!r}; it makes no further call.")
    if not op.permission:
        return
    grant = rows.grant_of_run(q, run.id, op.permission) or reject(
        Reason.GRANT_NOT_FOUND, f"The permission {op.permission!r} was taken back from workflow {workflow.id!r}."
    )
    if grant.policy is GrantPolicy.ASK and not op.ask_first:
        reject(Reason.GRANT_ASKS_FIRST, f"The permission {op.permission!r} now wants a person to be asked first.")


def _record_for_consumer(tx: Transaction, run: Run, op: CreateMutation, now: Millis) -> Change[Mutation]:
    if op.item is not None:
        reject(Reason.RUN_MAY_NOT_MUTATE, f"Run {run.id!r} is of a consumer; items belong to jobs.")
    if run.phase is not Phase.MUTATING:
        reject(Reason.RUN_MAY_NOT_MUTATE, f"Run {run.id!r} is {run.phase}; only `mutate` may change the outside.")
    if first := mutation_rows.mutation_by_identity(tx, run.id):
        reject(
            Reason.MUTATION_EXISTS,
            f"Run {run.id!r} has already called {first.connector}.{first.method}; a run mutates at most once.",
        )
    return _record(tx, _new(run, op, run.id, None, now), op.ask_first, now)


def _record_in_item(tx: Transaction, run: Run, op: CreateMutation, now: Millis) -> Change[Mutation]:
    if op.item is None:
        reject(Reason.MUTATION_NEEDS_AN_ITEM, f"Job run {run.id!r} may mutate only inside `withItem`.")
    if op.item.identity_key in ("", run.id):
        reject(
            Reason.MUTATION_NEEDS_AN_IDENTITY,
            f"A mutation of item {op.item.item_id!r} needs its identity hash.",
        )
    item = mutation_rows.open_item(tx, run.id)
    if item is None or item.item_id != op.item.item_id:
        reject(Reason.ITEM_NOT_OPEN, f"Run {run.id!r} is not inside item {op.item.item_id!r}.")
    if item.state in ITEM_FINISHED:
        reject(
            Reason.ITEM_IS_DONE,
            f"Item {item.item_id!r} is {item.state} and may not change the outside again. "
            "Check `ctx.item.isDone` before the call.",
        )
    if unsettled := mutation_rows.unsettled_mutation_of_run(tx, run.id):
        reject(
            Reason.MUTATION_OUTCOME_UNKNOWN,
            f"Mutation {unsettled.id!r} of run {run.id!r} is {unsettled.status}; a run makes one call at a time.",
        )
    known = _known(tx, item, op, op.item)
    if known is None:
        return _record(tx, _new(run, op, op.item.identity_key, item, now), op.ask_first, now)
    if (known.workflow_id, known.item_id, known.item_attempt) != (item.workflow_id, item.item_id, item.attempt):
        reject(
            Reason.MUTATION_EXISTS,
            f"The identity {op.item.identity_key!r} belongs to item {known.item_id!r} of workflow "
            f"{known.workflow_id!r}, attempt {known.item_attempt}. Hash the workflow, item and attempt into it.",
        )
    if known.status is MutationStatus.APPLIED:
        return changed(known, run.workflow_id, run.id, mutation=known.id, replayed=True)
    if known.status is not MutationStatus.FAILED:
        reject(
            Reason.MUTATION_OUTCOME_UNKNOWN,
            f"Mutation {known.id!r} of item {item.item_id!r} is {known.status}; settle it before trying again.",
        )
    return _record_again(tx, run, known, op, now)


def _known(q: Queries, item: Item, op: CreateMutation, scope: ItemScope) -> Mutation | None:
    """The line that is about this call already. One kept under its words, from earlier on, is it in any words."""
    known = mutation_rows.mutation_by_identity(q, scope.identity_key)
    if known is None and scope.is_method_alone:
        return mutation_rows.mutation_of_older_identity(q, item, op.connector, op.method, op.params)
    return known


def _new(run: Run, op: CreateMutation, identity_key: str, item: Item | None, now: Millis) -> Mutation:
    return Mutation(
        id=op.id,
        identity_key=identity_key,
        idempotency_key=op.idempotency_key,
        workflow_id=run.workflow_id,
        run_id=run.id,
        item_id=item.item_id if item else None,
        item_attempt=item.attempt if item else None,
        connector=op.connector,
        method=op.method,
        params=op.params,
        title=run.title if item is None else item.title,
        reconcilable=op.reconcilable,
        status=MutationStatus.IN_FLIGHT if op.send else MutationStatus.PENDING,
        version=1,
        result=None,
        error="",
        attempts=int(op.send),
        reconcile_attempts=0,
        next_reconcile_at=None,
        sent_at=now if op.send else None,
        resolved_by=None,
        resolved_at=None,
        resolved_who="",
        resolved_why="",
        created_at=now,
        updated_at=now,
        subkey=op.item.subkey if op.item else "",
        doubted_at=None,
        note="",
    )


def _record(tx: Transaction, mutation: Mutation, ask_first: AskFirst | None, now: Millis) -> Change[Mutation]:
    if not mutation_rows.insert_mutation(tx, mutation):
        reject(Reason.ID_TAKEN, f"There is already a mutation {mutation.id!r}.")
    return _recorded(tx, mutation, ask_first, now)


def _record_again(tx: Transaction, run: Run, known: Mutation, op: CreateMutation, now: Millis) -> Change[Mutation]:
    """It did not happen last time: the same line of the ledger, the same idempotency key, one attempt more."""
    again = replace(
        known,
        run_id=run.id,
        params=op.params,
        status=MutationStatus.IN_FLIGHT if op.send else MutationStatus.PENDING,
        version=known.version + 1,
        error="",
        attempts=known.attempts + int(op.send),
        reconcile_attempts=0,
        doubted_at=None,
        note="",
        sent_at=now if op.send else known.sent_at,
        resolved_by=None,
        resolved_at=None,
        resolved_who="",
        resolved_why="",
        updated_at=now,
    )
    mutation_rows.save_mutation(tx, again)
    return _recorded(tx, again, op.ask_first, now)


def _recorded(tx: Transaction, mutation: Mutation, ask_first: AskFirst | None, now: Millis) -> Change[Mutation]:
    if ask_first:
        approval = Approval(
            id=ask_first.approval_id,
            workflow_id=mutation.workflow_id,
            mutation_id=mutation.id,
            status=ApprovalStatus.OPEN,
            requested_at=now,
            expires_at=ask_first.expires_at,
            decided_at=None,
            decided_by="",
            reason="",
        )
        if not mutation_rows.insert_approval(tx, approval):
            reject(Reason.ID_TAKEN, f"There is already an approval {approval.id!r}.")
    return changed(
        mutation,
        mutation.workflow_id,
        mutation.run_id,
        mutation=mutation.id,
        call=f"{mutation.connector}.{mutation.method}",
        mutation_status=mutation.status,
        approval=ask_first.approval_id if ask_first else None,
    )


# Labelling.


def update_mutation_status(tx: Transaction, op: UpdateMutationStatus, now: Millis) -> Change[Mutation]:
    mutation = unsettled(tx, op.mutation_id, op.expected_version)
    if op.status in SETTLED or op.status not in MUTATION_NEXT[mutation.status]:
        reject(
            Reason.MUTATION_TRANSITION_REFUSED,
            f"Mutation {mutation.id!r} is {mutation.status}; it cannot be labelled {op.status}. "
            "What became of it is said by applying, failing or skipping it.",
        )
    if op.status is MutationStatus.IN_FLIGHT and mutation_rows.open_approval(tx, mutation.id):
        reject(Reason.MUTATION_AWAITS_APPROVAL, f"Mutation {mutation.id!r} waits for a person's approval.")
    if op.status is MutationStatus.NEEDS_RECONCILE and not mutation.reconcilable:
        reject(
            Reason.MUTATION_CANNOT_BE_RECONCILED,
            f"{mutation.connector}.{mutation.method} has no way to check; only a person can tell.",
        )
    labelled = label(mutation, op.status, op.error, op.next_reconcile_at, now, counts=op.counts)
    mutation_rows.save_mutation(tx, labelled)
    return changed(
        labelled,
        mutation.workflow_id,
        mutation.run_id,
        op.why or storable(op.error),
        mutation=mutation.id,
        mutation_status=[mutation.status, op.status],
        by=op.by,
    )


def label(
    mutation: Mutation,
    status: MutationStatus,
    error: str,
    next_reconcile_at: Millis | None,
    now: Millis,
    *,
    counts: bool = True,
) -> Mutation:
    """The same mutation in another unsettled state, with its counters."""
    starts = status is MutationStatus.IN_FLIGHT
    checked_again = status is mutation.status is MutationStatus.NEEDS_RECONCILE
    # A doubt begins, or a person wants it looked into as if it had: what was counted so far does not count.
    begins = status is MutationStatus.NEEDS_RECONCILE and not checked_again
    return replace(
        mutation,
        status=status,
        version=mutation.version + 1,
        error=storable(error) or mutation.error,
        attempts=mutation.attempts + int(starts),
        reconcile_attempts=0 if begins else mutation.reconcile_attempts + int(checked_again and counts),
        doubted_at=now if begins else mutation.doubted_at,
        next_reconcile_at=_due(status, next_reconcile_at, now),
        sent_at=now if starts else mutation.sent_at,
        note="" if starts else mutation.note,
        updated_at=now,
    )


def note_mutation(tx: Transaction, op: NoteMutation, now: Millis) -> Change[Mutation]:
    """No version more: a note changes nothing that a person judges, and the call goes on."""
    mutation = unsettled(tx, op.mutation_id, None)
    if mutation.status is not MutationStatus.IN_FLIGHT or mutation.attempts != op.attempt:
        reject(
            Reason.NOTE_IS_TOO_LATE,
            f"Mutation {mutation.id!r} is {mutation.status} at attempt {mutation.attempts}; "
            f"attempt {op.attempt} is over and notes nothing any more.",
        )
    noted = replace(mutation, note=op.note, updated_at=now)
    mutation_rows.save_mutation(tx, noted)
    return changed(noted, mutation.workflow_id, mutation.run_id, mutation=mutation.id, note=op.note)


def _due(status: MutationStatus, next_reconcile_at: Millis | None, now: Millis) -> Millis | None:
    """The time of the next check. A mutation that needs one always has a time: at once, if none is given."""
    if status is not MutationStatus.NEEDS_RECONCILE:
        return None
    return now if next_reconcile_at is None else next_reconcile_at


def unsettled(q: Queries, mutation_id: str, expected_version: int | None) -> Mutation:
    """A mutation that is not settled, as it was when the caller looked."""
    mutation = existing(q, mutation_id)
    if mutation.status in SETTLED:
        who = f" by {mutation.resolved_who}" if mutation.resolved_who else ""
        reject(
            Reason.MUTATION_ALREADY_SETTLED,
            f"Mutation {mutation_id!r} is already {mutation.status} ({mutation.resolved_by}{who}).",
        )
    check_version(mutation, expected_version)
    return mutation


def check_version(mutation: Mutation, expected_version: int | None) -> None:
    """Refuse a word on something that has changed since it was looked at."""
    if expected_version not in (None, mutation.version):
        reject(
            Reason.MUTATION_VERSION_STALE,
            f"Mutation {mutation.id!r} is at version {mutation.version}, not {expected_version}: it changed since "
            "you looked. Look again.",
        )
