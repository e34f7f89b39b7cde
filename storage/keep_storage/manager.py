"""`ExecutionModelManager`: every transition of the execution model, in one list.

No other code writes a phase, a status, an event's state, a mutation's outcome or a session. Each method is one
operation: atomic, journalled, durable when it returns. `Rejected` means that nothing changed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from keep_storage import (
    amendments,
    approvals,
    archive,
    events,
    grants,
    items,
    maintenance,
    mutations,
    notices,
    proposals,
    recovery,
    runs,
    sessions,
    settlement,
    stopped_runs,
    stops,
    workflows,
)
from keep_storage import operations as ops
from keep_storage.ids import Millis
from keep_storage.journal import Change, Entries
from keep_storage.operations import Operation, OperationOutcome, Together
from keep_storage.transaction import Queries, Transaction

T = TypeVar("T")
P = ParamSpec("P")

OperationFunction = Callable[[Transaction, Any, Millis], Change[Any]]

OPERATIONS: Final[Mapping[type[Operation[Any]], OperationFunction]] = {
    ops.CreateWorkflow: workflows.create_workflow,
    ops.AddScriptVersion: workflows.add_script_version,
    ops.ActivateScript: workflows.activate_script,
    ops.GrantPermission: grants.grant_permission,
    ops.RevokePermission: grants.revoke_permission,
    ops.UseGrant: grants.use_grant,
    ops.PauseWorkflow: workflows.pause_workflow,
    ops.ResumeWorkflow: workflows.resume_workflow,
    ops.ArchiveWorkflow: archive.archive_workflow,
    ops.UnarchiveWorkflow: workflows.unarchive_workflow,
    ops.RunNow: workflows.run_now,
    ops.HaltWorkflow: workflows.halt_workflow,
    ops.ClearWorkflowError: stops.clear_workflow_error,
    ops.CreateSession: sessions.create_session,
    ops.FinishSession: sessions.finish_session,
    ops.CreateRun: runs.create_run,
    ops.CreateRetryRun: runs.create_retry_run,
    ops.StopRun: stopped_runs.stop_run,
    ops.CountCost: stopped_runs.count_cost,
    ops.UpdateHandlerRunStatus: stopped_runs.update_handler_run_status,
    ops.UpdateConsumerPhase: runs.update_consumer_phase,
    ops.CommitConsumer: runs.commit_consumer,
    ops.CommitProducer: runs.commit_producer,
    ops.CommitJob: runs.commit_job,
    ops.CreateMutation: mutations.create_mutation,
    ops.UpdateMutationStatus: mutations.update_mutation_status,
    ops.NoteMutation: mutations.note_mutation,
    ops.ApplyMutation: settlement.apply_mutation,
    ops.FailMutation: settlement.fail_mutation,
    ops.SkipMutation: settlement.skip_mutation,
    ops.AmendResult: amendments.amend_result,
    ops.ApproveMutation: approvals.approve_mutation,
    ops.RejectMutation: approvals.reject_mutation,
    ops.AskAgain: approvals.ask_again,
    ops.PublishEvents: events.publish_events,
    ops.SkipEvent: events.skip_event,
    ops.OpenItem: items.open_item,
    ops.CloseItem: items.close_item,
    ops.SkipItem: items.skip_item,
    ops.ReprocessItem: items.reprocess_item,
    ops.CreateMaintenanceTask: maintenance.create_maintenance_task,
    ops.NoteRepairAttempt: maintenance.note_repair_attempt,
    ops.HoldProposal: maintenance.hold_proposal,
    ops.ExitMaintenanceMode: maintenance.exit_maintenance_mode,
    ops.ProposeScript: proposals.propose_script,
    ops.DecideProposal: proposals.decide_proposal,
    ops.OpenNotice: notices.open_notice,
    ops.AddDelivery: notices.add_delivery,
    ops.SettleNotice: notices.settle_notice,
    ops.NoteDelivery: notices.note_delivery,
    ops.RecoverCrashedRuns: recovery.recover_crashed_runs,
    ops.RecoverUnfinishedSessions: recovery.recover_unfinished_sessions,
    ops.RecoverMaintenanceMode: recovery.recover_maintenance_mode,
}


def apply(tx: Transaction, operation: Operation[T], now: Millis, journal: Entries) -> T:
    """Carry out one operation inside a transaction, and add its entries to a journal that the caller writes."""
    if isinstance(operation, Together):
        return tuple(apply(tx, each, now, journal) for each in operation.operations)  # type: ignore[return-value]
    function = OPERATIONS[type(operation)]
    change: Change[T] = function(tx, operation, now)
    journal.extend((function.__name__, entry) for entry in change.entries)
    return change.answer


class Commits(Protocol):
    """A store as the manager needs it."""

    def commit(self, batch: Sequence[Operation[Any]]) -> list[OperationOutcome]: ...

    def queries(self) -> Queries: ...


def _method(
    operation: Callable[P, Operation[T]],
) -> Callable[Concatenate["ExecutionModelManager", P], T]:
    """A method that builds the operation from its arguments and carries it out."""

    def method(self: "ExecutionModelManager", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.execute(operation(*args, **kwargs))

    method.__doc__ = operation.__doc__
    return method


class ExecutionModelManager:
    """The execution model for synchronous callers: a method for each operation, a commit for each call.

    The runtime does not call it: it sends the same operations to the storage actor, which commits many at once.
    """

    def __init__(self, store: Commits) -> None:
        self._store = store

    def execute(self, operation: Operation[T]) -> T:
        """Carry out one operation and wait until it is durable."""
        [outcome] = self._store.commit([operation])
        answer: T = outcome.unwrap()
        return answer

    create_workflow = _method(ops.CreateWorkflow)
    add_script_version = _method(ops.AddScriptVersion)
    activate_script = _method(ops.ActivateScript)
    grant_permission = _method(ops.GrantPermission)
    revoke_permission = _method(ops.RevokePermission)
    use_grant = _method(ops.UseGrant)
    pause_workflow = _method(ops.PauseWorkflow)
    resume_workflow = _method(ops.ResumeWorkflow)
    archive_workflow = _method(ops.ArchiveWorkflow)
    unarchive_workflow = _method(ops.UnarchiveWorkflow)
    run_now = _method(ops.RunNow)
    halt_workflow = _method(ops.HaltWorkflow)
    clear_workflow_error = _method(ops.ClearWorkflowError)

    create_session = _method(ops.CreateSession)
    finish_session = _method(ops.FinishSession)

    create_run = _method(ops.CreateRun)
    create_retry_run = _method(ops.CreateRetryRun)
    stop_run = _method(ops.StopRun)
    count_cost = _method(ops.CountCost)
    update_handler_run_status = _method(ops.UpdateHandlerRunStatus)
    update_consumer_phase = _method(ops.UpdateConsumerPhase)
    commit_consumer = _method(ops.CommitConsumer)
    commit_producer = _method(ops.CommitProducer)
    commit_job = _method(ops.CommitJob)

    create_mutation = _method(ops.CreateMutation)
    update_mutation_status = _method(ops.UpdateMutationStatus)
    note_mutation = _method(ops.NoteMutation)
    apply_mutation = _method(ops.ApplyMutation)
    fail_mutation = _method(ops.FailMutation)
    skip_mutation = _method(ops.SkipMutation)
    amend_result = _method(ops.AmendResult)
    approve_mutation = _method(ops.ApproveMutation)
    reject_mutation = _method(ops.RejectMutation)
    ask_again = _method(ops.AskAgain)

    publish_events = _method(ops.PublishEvents)
    skip_event = _method(ops.SkipEvent)

    open_item = _method(ops.OpenItem)
    close_item = _method(ops.CloseItem)
    skip_item = _method(ops.SkipItem)
    reprocess_item = _method(ops.ReprocessItem)

    create_maintenance_task = _method(ops.CreateMaintenanceTask)
    note_repair_attempt = _method(ops.NoteRepairAttempt)
    hold_proposal = _method(ops.HoldProposal)
    exit_maintenance_mode = _method(ops.ExitMaintenanceMode)

    propose_script = _method(ops.ProposeScript)
    decide_proposal = _method(ops.DecideProposal)

    open_notice = _method(ops.OpenNotice)
    add_delivery = _method(ops.AddDelivery)
    settle_notice = _method(ops.SettleNotice)
    note_delivery = _method(ops.NoteDelivery)

    recover_crashed_runs = _method(ops.RecoverCrashedRuns)
    recover_unfinished_sessions = _method(ops.RecoverUnfinishedSessions)
    recover_maintenance_mode = _method(ops.RecoverMaintenanceMode)

    def assert_no_orphaned_reserved_events(self) -> list[recovery.Orphan]:
        """Events held by a run that will never let go of them: a loud report, never a release."""
        return recovery.assert_no_orphaned_reserved_events(self._store.queries())
