"""Runs that stop without a commit, with all that follows: their events, handler, item, session and workflow.

`disposition` decides about the events, in the same transaction. The phase stays as it is.
"""

from msgspec.structs import replace

from keep_storage import event_rows, mutation_rows, rows, runs, stops, workflows
from keep_storage.disposition import Disposition, disposition
from keep_storage.errors import Reason, reject, storable
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import (
    FailureClass,
    HandlerKind,
    ItemState,
    Json,
    Mutation,
    OnUnknown,
    Phase,
    Run,
    RunStatus,
    SessionResult,
    Workflow,
    WorkflowStatus,
)
from keep_storage.operations import CountCost, RunError, StopRun, UpdateHandlerRunStatus
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import ITEM_FINISHED, RUN_STATUS_ERROR, STATUS_NEXT


def stop_run(tx: Transaction, op: StopRun, _now: Millis) -> Change[Run]:
    run = runs.existing(tx, op.run_id)
    if run.status is not RunStatus.ACTIVE:
        reject(Reason.RUN_NOT_ACTIVE, f"Run {run.id!r} is {run.status}; there is nothing to stop.")
    stopped = replace(run, stop_until=op.until)
    rows.save_run(tx, stopped)
    return changed(stopped, run.workflow_id, run.id, op.why, stop_until=op.until, by=op.by)


def count_cost(tx: Transaction, op: CountCost, _now: Millis) -> Change[Run]:
    run = runs.existing(tx, op.run_id)
    costlier = replace(run, cost_micros=run.cost_micros + op.cost_micros)
    rows.save_run(tx, costlier)
    rows.sum_cost(tx, run.session_id)
    return changed(costlier, run.workflow_id, run.id, cost_micros=op.cost_micros)


def update_handler_run_status(tx: Transaction, op: UpdateHandlerRunStatus, now: Millis) -> Change[Run]:
    if op.status is RunStatus.COMMITTED:
        reject(
            Reason.COMMIT_HAS_ITS_OWN_OPERATION,
            "A run is committed with `commit_consumer`, `commit_producer` or `commit_job`, never by its status.",
        )
    run = runs.existing(tx, op.run_id)
    if op.status not in STATUS_NEXT[run.status]:
        reject(Reason.RUN_STATUS_REFUSED, f"Run {run.id!r} is {run.status}; it cannot become {op.status}.")
    return stop(
        tx,
        run,
        op.status,
        op.error,
        now,
        logs=op.logs,
        cost_micros=op.cost_micros,
        retry_at=op.retry_at,
        failing_since=op.failing_since,
        is_fault=op.is_fault,
        parks=op.parks,
    )


def stop(
    tx: Transaction,
    run: Run,
    status: RunStatus,
    error: RunError | None,
    now: Millis,
    *,
    logs: Json | None = None,
    cost_micros: int = 0,
    retry_at: Millis | None = None,
    failing_since: Millis | None = None,
    is_fault: bool = True,
    parks: bool = True,
) -> Change[Run]:
    """The run ends without a commit. Its events, handler, session and workflow follow in the same transaction."""
    mutation = mutation_rows.unsettled_mutation_of_run(tx, run.id)
    held = disposition(run.phase, run.mutation_outcome, mutation.status if mutation else None)
    _may_stop(tx, run, status, held, mutation)
    is_parked = _is_parked(run, held, parks=parks)

    stopped = replace(
        run,
        status=status,
        parked=is_parked,
        error_class=error.cls if error else None,
        error_message=storable(error.message) if error else "",
        error_place=storable(error.place) if error else "",
        logs=run.logs if logs is None else logs,
        cost_micros=run.cost_micros + cost_micros,
        ended_at=run.ended_at or now,
    )
    rows.save_run(tx, stopped)
    if run.kind is HandlerKind.CONSUMER and held is Disposition.RELEASE:
        event_rows.release_events(tx, run.id, now)
    is_fault = is_fault and status is not RunStatus.CRASHED and not is_parked
    if is_fault:
        rows.count_failure(tx, stopped, retry_at, failing_since, now)
    elif is_parked and run.status is RunStatus.ACTIVE:
        # Once: how the handler fares by now is not known from a call of a run that stopped long ago.
        rows.forgive_handler(tx, stopped, now)
    _look_again_after_stop(tx, stopped, held, now)
    if run.stop_until is not None and run.status is RunStatus.ACTIVE:
        # Once: what came since is not put off when the call of a run that has stopped turns out unknown.
        rows.put_off(tx, stopped, run.stop_until, now)
    if item := mutation_rows.open_item(tx, run.id):
        has_failed = item.state is ItemState.PROCESSING and (is_fault or status is RunStatus.CRASHED)
        left = ItemState.FAILED if has_failed else item.state
        # A finished item keeps its words: the run failed, and nothing new is known of the item.
        words = item.error if item.state in ITEM_FINISHED else stopped.error_message
        mutation_rows.save_item(tx, replace(item, is_open=False, state=left, error=words, updated_at=now))
    rows.end_session(tx, run.session_id, SessionResult.FAILED, stopped.error_message or status, now)
    workflow = workflows.existing(tx, run.workflow_id)
    after = _after_stop(tx, workflow, stopped, held, error.about if error else "", now)
    if after != workflow:
        rows.save_workflow(tx, after)
    return changed(
        stopped,
        run.workflow_id,
        run.id,
        stopped.error_message,
        status=[run.status, status],
        events=held,
        parked=is_parked or None,
    )


def _is_parked(run: Run, held: Disposition, *, parks: bool) -> bool:
    """A question holds only its own events: whether a call may be made, and if the run says so whether one happened.
    What has been beside its workflow stays there: two runs cannot both be the pending retry."""
    match held:
        case Disposition.HOLD_FOR_APPROVAL:
            return parks
        case Disposition.HOLD_UNCERTAIN:
            return run.parked or run.on_unknown is OnUnknown.PARK
        case Disposition.RELEASE | Disposition.RETRY_FORWARD:
            return False


def _look_again_after_stop(tx: Transaction, run: Run, held: Disposition, now: Millis) -> None:
    """Make what the run saw news again."""
    rows.look_again(tx, run, now)
    has_prepared = run.kind is HandlerKind.CONSUMER and run.phase not in (Phase.PENDING, Phase.PREPARING)
    if has_prepared and held is Disposition.RELEASE and run.reserved_count == 0:
        # No event comes back that would start a fresh run, and `prepare` has replaced the time that started this one.
        rows.set_wake_at(tx, run, now, now)


def _may_stop(q: Queries, run: Run, status: RunStatus, held: Disposition, mutation: Mutation | None) -> None:
    if held is Disposition.HOLD_UNCERTAIN and status is RunStatus.FAILED_LOGIC:
        reject(
            Reason.UNKNOWN_OUTCOME_IS_NEVER_REPAIRED,
            f"The mutation of run {run.id!r} may have happened; no new script can settle that. Pause it for "
            "reconciliation.",
        )
    if held is not Disposition.HOLD_UNCERTAIN and status is RunStatus.PAUSED_RECONCILIATION:
        reject(Reason.MUTATION_OUTCOME_KNOWN, f"Run {run.id!r} has no mutation whose outcome is unknown.")
    if held is Disposition.HOLD_FOR_APPROVAL:
        assert mutation, "only a mutation can wait for approval"
        if status is not RunStatus.PAUSED_APPROVAL or not mutation_rows.open_approval(q, mutation.id):
            reject(
                Reason.MUTATION_STILL_PENDING,
                f"Mutation {mutation.id!r} of run {run.id!r} was recorded and never sent. Fail it first, or hold "
                "it for approval.",
            )


def _after_stop(q: Queries, workflow: Workflow, run: Run, held: Disposition, about: str, now: Millis) -> Workflow:
    """The workflow once this run has stopped. Never touches `status`: that belongs to people."""
    if run.parked:
        beside = _without(q, workflow, run, now)
        is_to_stop = held is Disposition.HOLD_UNCERTAIN and run.on_unknown is OnUnknown.PAUSE
        return stops.with_error_of(beside, run, now) if is_to_stop and not beside.error else beside
    if run.kind is HandlerKind.CONSUMER and held is not Disposition.RELEASE:
        workflow = replace(workflow, pending_retry_run_id=run.id, updated_at=now)
    if run.status is RunStatus.FAILED_LOGIC:
        workflow = replace(workflow, maintenance=True, maintenance_run_id=run.id, updated_at=now)
    words = RUN_STATUS_ERROR[run.status]
    if held is Disposition.HOLD_UNCERTAIN:
        words = words or RUN_STATUS_ERROR[RunStatus.PAUSED_RECONCILIATION]
    if workflow.status is WorkflowStatus.ARCHIVED and held is not Disposition.HOLD_UNCERTAIN:
        # It runs no more, so there is no error to put right.
        return workflow
    if words:
        workflow = replace(
            workflow,
            error=run.error_message or words,
            error_class=run.error_class or _class_of(run.status, held),
            error_run_id=run.id,
            error_about=about,
            updated_at=now,
        )
    return workflow


def _without(q: Queries, workflow: Workflow, run: Run, now: Millis) -> Workflow:
    """The workflow goes on beside a run that is parked: also beside one whose call has waited for a person before."""
    if workflow.error_run_id == run.id:
        workflow = stops.without_error(q, workflow, now)
    if workflow.pending_retry_run_id == run.id:
        workflow = replace(workflow, pending_retry_run_id=None, updated_at=now)
    return workflow


def _class_of(status: RunStatus, held: Disposition) -> FailureClass:
    """The class of an error that brought none of its own."""
    if held is Disposition.HOLD_UNCERTAIN:
        return FailureClass.INDETERMINATE
    return FailureClass.PERMISSION if status is RunStatus.PAUSED_APPROVAL else FailureClass.INTERNAL
