"""Handler runs: how they start, move through their phases and commit. `stopped_runs` has how they stop.

A phase only moves forward; a failure changes the status, never the phase.
"""

from msgspec.structs import replace

from keep_storage import event_rows, events, mutation_rows, rows, workflows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import HandlerKind, MutationOutcome, OnUnknown, Phase, Run, RunStatus
from keep_storage.operations import (
    CommitConsumer,
    CommitJob,
    CommitProducer,
    CreateRetryRun,
    CreateRun,
    UpdateConsumerPhase,
)
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import PHASE_NEXT, POST_MUTATION

_NOT_OF_KIND = {
    HandlerKind.CONSUMER: Reason.RUN_NOT_A_CONSUMER,
    HandlerKind.PRODUCER: Reason.RUN_NOT_A_PRODUCER,
    HandlerKind.JOB: Reason.RUN_NOT_A_JOB,
}


def existing(q: Queries, run_id: str) -> Run:
    run = rows.run(q, run_id)
    return run or reject(Reason.RUN_NOT_FOUND, f"There is no run {run_id!r}.")


def _active(q: Queries, run_id: str, kind: HandlerKind) -> Run:
    run = existing(q, run_id)
    if run.kind is not kind:
        reject(_NOT_OF_KIND[kind], f"Run {run_id!r} is of {run.kind} {run.handler!r}, not of a {kind}.")
    if run.status is not RunStatus.ACTIVE:
        reject(Reason.RUN_NOT_ACTIVE, f"Run {run_id!r} is {run.status}; it does not go on.")
    return run


# Starting.


def create_run(tx: Transaction, op: CreateRun, now: Millis) -> Change[Run]:
    admission = _admit(tx, op.session_id, op.handler)
    if admission.handler_kind is None:
        reject(Reason.HANDLER_NOT_DECLARED, f"The active script declares no handler {op.handler!r}.")
    if admission.pending_retry_run_id:
        reject(
            Reason.PENDING_RETRY_FIRST,
            f"Run {admission.pending_retry_run_id!r} holds events and waits for its retry; that comes first.",
        )
    if admission.held_run_id:
        reject(
            Reason.JOB_AWAITS_APPROVAL,
            f"Run {admission.held_run_id!r} of job {op.handler!r} waits for a person; it would ask the same again.",
        )
    may_prepare = admission.handler_kind is HandlerKind.CONSUMER and op.phase is Phase.PREPARING
    if op.phase is not Phase.PENDING and not may_prepare:
        reject(Reason.PHASE_ORDER, f"A run of a {admission.handler_kind} cannot start at {op.phase}.")
    if op.on_unknown is OnUnknown.PARK and admission.handler_kind is not HandlerKind.CONSUMER:
        reject(
            Reason.ONLY_CONSUMERS_PARK,
            f"Handler {op.handler!r} is a {admission.handler_kind}; only a consumer holds events that can be parked.",
        )
    run = Run(
        id=op.id,
        workflow_id=admission.workflow_id,
        session_id=op.session_id,
        version_id=admission.version_id,
        handler=op.handler,
        kind=admission.handler_kind,
        phase=op.phase,
        status=RunStatus.ACTIVE,
        mutation_outcome=MutationOutcome.NONE,
        retry_of=None,
        on_unknown=op.on_unknown,
        parked=False,
        stop_until=None,
        title="",
        reserved_count=0,
        seen=admission.seen if op.seen is None or admission.seen is None else min(op.seen, admission.seen),
        prepare_result=None,
        mutation_result=None,
        skip_reason="",
        output_state=None,
        error_class=None,
        error_message="",
        error_place="",
        logs="[]",
        cost_micros=0,
        created_at=now,
        ended_at=None,
        number=0,
    )
    run = _insert(tx, run)
    return changed(run, run.workflow_id, run.id, handler=run.handler, phase=run.phase)


def create_retry_run(tx: Transaction, op: CreateRetryRun, now: Millis) -> Change[Run]:
    failed = existing(tx, op.failed_run_id)
    if failed.kind is not HandlerKind.CONSUMER:
        reject(
            Reason.RUN_NOT_A_CONSUMER,
            f"Run {failed.id!r} is of a {failed.kind}; only consumers have a `next`.",
        )
    if failed.mutation_outcome not in POST_MUTATION:
        reject(
            Reason.RUN_NOT_POST_MUTATION,
            f"Run {failed.id!r} has no settled mutation to go on from (outcome {str(failed.mutation_outcome)!r}); "
            "start a fresh run.",
        )
    admission = _admit(tx, op.session_id, failed.handler)
    # A parked run goes on when nothing else owes its `next`.
    owed = admission.pending_retry_run_id or (failed.id if failed.parked else None)
    if owed != failed.id or failed.workflow_id != admission.workflow_id:
        reject(
            Reason.NOT_THE_PENDING_RETRY,
            f"Run {failed.id!r} is not the pending retry of workflow {admission.workflow_id!r}.",
        )
    retry = replace(
        failed,
        id=op.id,
        session_id=op.session_id,
        version_id=admission.version_id,
        phase=Phase.EMITTING,
        status=RunStatus.ACTIVE,
        retry_of=failed.id,
        parked=False,
        stop_until=None,
        output_state=None,
        error_class=None,
        error_message="",
        error_place="",
        logs="[]",
        cost_micros=0,
        created_at=now,
        ended_at=None,
        number=0,
    )
    retry = _insert(tx, retry)
    event_rows.transfer_reservations(tx, failed.id, retry.id, now)
    rows.unpark(tx, failed.id)
    workflow = workflows.existing(tx, failed.workflow_id)
    rows.save_workflow(tx, replace(workflow, pending_retry_run_id=None, updated_at=now))
    return changed(
        retry,
        retry.workflow_id,
        retry.id,
        retry_of=failed.id,
        phase=retry.phase,
        outcome=retry.mutation_outcome,
    )


def _admit(q: Queries, session_id: str, handler: str) -> rows.Admission:
    """Refuse unless a run may start in this workflow now."""
    admission = rows.admission(q, session_id, handler) or reject(
        Reason.SESSION_NOT_FOUND, f"There is no session {session_id!r}."
    )
    if admission.session_ended_at is not None:
        reject(Reason.SESSION_FINISHED, f"Session {session_id!r} has ended; sessions are never resumed.")
    workflows.check_free(
        admission.workflow_id, admission.status, admission.error, admission.maintenance, admission.active_run_id
    )
    return admission


def _insert(tx: Transaction, run: Run) -> Run:
    return rows.insert_run(tx, run) or reject(Reason.ID_TAKEN, f"There is already a run {run.id!r}.")


# Moving on.


def update_consumer_phase(tx: Transaction, op: UpdateConsumerPhase, now: Millis) -> Change[Run]:
    if op.phase is Phase.COMMITTED:
        reject(Reason.COMMIT_HAS_ITS_OWN_OPERATION, "A run is committed with `commit_consumer` and nothing else.")
    run = _active(tx, op.run_id, HandlerKind.CONSUMER)
    if op.phase not in PHASE_NEXT[run.phase]:
        reject(Reason.PHASE_ORDER, f"Run {run.id!r} is {run.phase}; it cannot become {op.phase}.")
    if op.phase is Phase.PREPARED:
        return _pin(tx, run, op, now)
    if op.prepare_result is not None or op.reservations or op.title or op.wake_at is not None:
        reject(Reason.PHASE_TAKES_NO_PREPARE_RESULT, f"Run {run.id!r} takes a PrepareResult only as `prepared`.")
    _may_enter(tx, run, op.phase)
    moved = replace(run, phase=op.phase)
    rows.set_phase(tx, moved)
    return changed(moved, run.workflow_id, run.id, phase=[run.phase, op.phase])


def _may_enter(q: Queries, run: Run, phase: Phase) -> None:
    if phase is Phase.MUTATING and run.reserved_count == 0:
        reject(Reason.NOTHING_RESERVED, f"Run {run.id!r} reserved nothing; it goes straight to `next`.")
    if phase is Phase.MUTATED and mutation_rows.mutation_by_identity(q, run.id):
        reject(
            Reason.MUTATION_SETTLES_THE_PHASE,
            f"Run {run.id!r} has a mutation; applying, failing or skipping that moves the phase.",
        )
    if phase is Phase.EMITTING and run.mutation_outcome is MutationOutcome.FAILURE:
        reject(Reason.MUTATION_FAILED, f"The mutation of run {run.id!r} failed; the run must stop, not go on.")


def _pin(tx: Transaction, run: Run, op: UpdateConsumerPhase, now: Millis) -> Change[Run]:
    """`prepare` succeeded: its inputs are reserved and its result is kept."""
    if op.prepare_result is None:
        reject(Reason.PHASE_NEEDS_A_PREPARE_RESULT, f"Run {run.id!r} cannot be prepared without its result.")
    claims = events.check_reservations(tx, run.workflow_id, run.handler, op.reservations)
    prepared = replace(
        run,
        phase=op.phase,
        title=op.title,
        reserved_count=len(claims),
        prepare_result=op.prepare_result,
    )
    events.reserve(tx, prepared, claims, now)
    rows.set_prepared(tx, prepared)
    rows.set_wake_at(tx, prepared, op.wake_at, now)
    return changed(
        prepared,
        run.workflow_id,
        run.id,
        phase=[run.phase, op.phase],
        reserved=len(claims),
        wake_at=op.wake_at,
    )


# Committing.


def commit_consumer(tx: Transaction, op: CommitConsumer, now: Millis) -> Change[Run]:
    run = _active(tx, op.run_id, HandlerKind.CONSUMER)
    if Phase.COMMITTED not in PHASE_NEXT[run.phase]:
        reject(Reason.PHASE_ORDER, f"Run {run.id!r} is {run.phase}; `next` has not run, so it cannot commit.")
    topics = events.check_publishes(tx, run.workflow_id, op.publishes)
    event_rows.consume_events(tx, run.id, now)
    published = events.append(tx, op.publishes, topics, run, now)
    # After an empty look, only what was not there when the run started is worth another.
    seen = None if run.reserved_count else run.seen
    rows.commit_handler(tx, run, op.state, None, seen, now)
    return _commit(tx, run, op, published, now)


def commit_producer(tx: Transaction, op: CommitProducer, now: Millis) -> Change[Run]:
    run = _active(tx, op.run_id, HandlerKind.PRODUCER)
    topics = events.check_publishes(tx, run.workflow_id, op.publishes)
    published = events.append(tx, op.publishes, topics, run, now)
    rows.commit_handler(tx, run, op.state, op.next_run_at, None, now)
    return _commit(tx, run, op, published, now)


def commit_job(tx: Transaction, op: CommitJob, now: Millis) -> Change[Run]:
    run = _active(tx, op.run_id, HandlerKind.JOB)
    if item := mutation_rows.open_item(tx, run.id):
        reject(Reason.ITEM_ALREADY_OPEN, f"Run {run.id!r} is still inside item {item.item_id!r}; close it first.")
    if mutation := mutation_rows.unsettled_mutation_of_run(tx, run.id):
        reject(
            Reason.MUTATION_OUTCOME_UNKNOWN,
            f"Run {run.id!r} has a mutation {mutation.id!r} that is {mutation.status}; it cannot commit.",
        )
    topics = events.check_publishes(tx, run.workflow_id, op.publishes)
    published = events.append(tx, op.publishes, topics, run, now)
    rows.commit_handler(tx, run, op.state, op.next_run_at, None, now)
    return _commit(tx, run, op, published, now)


def _commit(
    tx: Transaction, run: Run, op: CommitConsumer | CommitProducer | CommitJob, published: int, now: Millis
) -> Change[Run]:
    committed = replace(
        run,
        phase=Phase.COMMITTED,
        status=RunStatus.COMMITTED,
        output_state=op.state,
        logs=run.logs if op.logs is None else op.logs,
        cost_micros=run.cost_micros + op.cost_micros,
        ended_at=now,
    )
    rows.save_run(tx, committed)
    rows.count_committed_run(tx, run.session_id)
    return changed(committed, run.workflow_id, run.id, published=published)
