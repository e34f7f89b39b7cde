"""Archiving: the end of a workflow, which leaves no question behind."""

from keep_storage import approvals, mutation_rows, workflows
from keep_storage.ids import Millis
from keep_storage.journal import Change
from keep_storage.model import Workflow, WorkflowStatus
from keep_storage.operations import ArchiveWorkflow
from keep_storage.transaction import Transaction


def archive_workflow(tx: Transaction, op: ArchiveWorkflow, now: Millis) -> Change[Workflow]:
    """Calls that wait for a person are refused and their events released: people who bring it back are asked again."""
    archived = workflows.set_status(tx, op.workflow_id, WorkflowStatus.ARCHIVED, op.by, now)
    entries = list(archived.entries)
    for approval in mutation_rows.open_approvals(tx, op.workflow_id):
        entries += approvals.refuse(tx, approval, op.by, "the workflow was archived", now).entries
    return Change(workflows.existing(tx, op.workflow_id), tuple(entries))
