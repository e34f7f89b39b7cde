"""Errors that stop a workflow until a person has seen to it, and their end.

When an error goes, the next thing that stops the workflow takes its place: a run beside it may be in doubt too.
"""

from msgspec.structs import replace

from keep_storage import mutation_rows, rows, workflows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import FailureClass, Run, RunStatus, Workflow
from keep_storage.operations import ClearWorkflowError
from keep_storage.transaction import Queries, Transaction
from keep_storage.transitions import RUN_STATUS_ERROR


def clear_workflow_error(tx: Transaction, op: ClearWorkflowError, now: Millis) -> Change[Workflow]:
    workflow = workflows.existing(tx, op.workflow_id)
    question = mutation_rows.unsettled_mutation_of_run(tx, workflow.error_run_id) if workflow.error_run_id else None
    if op.permission and (question or not _is_about(workflow, op.permission)):
        return Change(workflow, ())
    if not workflow.error:
        reject(Reason.WORKFLOW_HAS_NO_ERROR, f"Workflow {op.workflow_id!r} has no error to clear.")
    if question:
        reject(
            Reason.MUTATION_OUTCOME_UNKNOWN,
            f"The error is an open question about mutation {question.id!r} ({question.status}). "
            "Answer that: the error goes with it.",
        )
    was, run_id = workflow.error, workflow.error_run_id
    workflow = without_error(tx, workflow, now)
    rows.save_workflow(tx, workflow)
    rows.look_again_everywhere(tx, workflow.id, now)
    rows.forgive_failures(tx, workflow.id, now)
    return changed(workflow, workflow.id, run_id, op.why, error=[was, ""], by=op.by)


def _is_about(workflow: Workflow, permission: str) -> bool:
    """True if the error of a workflow is about this permission. Older errors name it only in their words."""
    if workflow.error_class is not FailureClass.PERMISSION:
        return False
    if workflow.error_about:
        return workflow.error_about == f"permission:{permission}"
    return repr(permission) in workflow.error


def without_error(q: Queries, workflow: Workflow, now: Millis) -> Workflow:
    """The workflow once its error is seen to: it goes on, or the next doubt stops it."""
    cleared = replace(workflow, error="", error_class=None, error_run_id=None, error_about="", updated_at=now)
    doubt = rows.doubt_that_stops(q, workflow.id)
    return with_error_of(cleared, doubt, now) if doubt else cleared


def with_error_of(workflow: Workflow, run: Run, now: Millis) -> Workflow:
    """The workflow stopped by the doubt of a run that is beside it."""
    return replace(
        workflow,
        error=run.error_message or RUN_STATUS_ERROR[RunStatus.PAUSED_RECONCILIATION],
        error_class=FailureClass.INDETERMINATE,
        error_run_id=run.id,
        error_about="",
        updated_at=now,
    )
