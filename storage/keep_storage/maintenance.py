"""Maintenance: a script is repaired after a logic error. The flag is set with the failure; this is about the order.

One order for one failure, with the attempts at it. A proposal that a person must see is held; what is activated, and
when to stop trying, is decided by the runtime, from what is counted here.
"""

from msgspec.structs import replace

from keep_storage import rows, runs, workflows
from keep_storage.errors import Reason, reject, storable
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import Json, MaintenanceTask, Run, TaskStatus, Workflow
from keep_storage.operations import CreateMaintenanceTask, ExitMaintenanceMode, HoldProposal, NoteRepairAttempt
from keep_storage.transaction import Queries, Transaction


def create_maintenance_task(tx: Transaction, op: CreateMaintenanceTask, now: Millis) -> Change[MaintenanceTask]:
    workflow = workflows.existing(tx, op.workflow_id)
    if not workflow.maintenance:
        reject(Reason.WORKFLOW_NOT_IN_MAINTENANCE, f"Workflow {op.workflow_id!r} needs no repair.")
    if task := rows.open_task(tx, op.workflow_id):
        reject(Reason.MAINTENANCE_TASK_EXISTS, f"Task {task.id!r} already repairs workflow {op.workflow_id!r}.")
    return order_repair(tx, workflow, op.evidence, now)


def order_repair(tx: Transaction, workflow: Workflow, evidence: Json, now: Millis) -> Change[MaintenanceTask]:
    assert workflow.maintenance_run_id, "maintenance names the run that set it"
    task = MaintenanceTask(
        # One task for one failure: the id says which, so creating it twice cannot happen.
        id=workflow.maintenance_run_id.replace("run_", "task_", 1),
        workflow_id=workflow.id,
        run_id=workflow.maintenance_run_id,
        status=TaskStatus.OPEN,
        evidence=evidence,
        attempts=0,
        next_attempt_at=None,
        held_version_id=None,
        problem="",
        created_at=now,
        ended_at=None,
    )
    rows.insert_task(tx, task)
    return changed(task, workflow.id, task.run_id, task=task.id)


def note_repair_attempt(tx: Transaction, op: NoteRepairAttempt, now: Millis) -> Change[MaintenanceTask]:
    task = _under_way(tx, op.workflow_id)
    dropped = task.held_version_id
    task = replace(
        task,
        attempts=task.attempts + 1,
        next_attempt_at=op.next_attempt_at,
        held_version_id=None,
        problem=storable(op.problem),
    )
    rows.save_task(tx, task)
    rows.count_repair(tx, runs.existing(tx, task.run_id), now)
    return changed(
        task,
        task.workflow_id,
        task.run_id,
        task.problem,
        task=task.id,
        attempts=task.attempts,
        next_attempt_at=task.next_attempt_at,
        dropped=dropped,
        by=op.by,
    )


def hold_proposal(tx: Transaction, op: HoldProposal, _now: Millis) -> Change[MaintenanceTask]:
    workflow = workflows.existing(tx, op.workflow_id)
    version = rows.version(tx, op.version_id) or reject(
        Reason.VERSION_NOT_FOUND, f"There is no script version {op.version_id!r}."
    )
    task = _under_way(tx, op.workflow_id)
    if version.workflow_id != workflow.id:
        reject(
            Reason.PROPOSAL_OF_ANOTHER_WORKFLOW,
            f"Version {version.id!r} is a script of workflow {version.workflow_id!r}, not of {workflow.id!r}.",
        )
    if version.id == workflow.active_version_id:
        reject(Reason.PROPOSAL_IS_ACTIVE, f"Version {version.id!r} is the script that failed; it repairs nothing.")
    if task.held_version_id:
        reject(
            Reason.PROPOSAL_ALREADY_HELD,
            f"Version {task.held_version_id!r} already waits for a person; drop it with `note_repair_attempt` first.",
        )
    task = replace(task, next_attempt_at=None, held_version_id=version.id, problem=storable(op.problem))
    rows.save_task(tx, task)
    return changed(task, task.workflow_id, task.run_id, task.problem, task=task.id, held=version.id)


def _under_way(q: Queries, workflow_id: str) -> MaintenanceTask:
    workflows.existing(q, workflow_id)
    return rows.open_task(q, workflow_id) or reject(
        Reason.MAINTENANCE_TASK_NOT_FOUND, f"Workflow {workflow_id!r} has no open repair."
    )


def exit_maintenance_mode(tx: Transaction, op: ExitMaintenanceMode, now: Millis) -> Change[Workflow]:
    workflow = workflows.existing(tx, op.workflow_id)
    if not workflow.maintenance:
        reject(Reason.WORKFLOW_NOT_IN_MAINTENANCE, f"Workflow {op.workflow_id!r} is not in maintenance.")
    failed = _failed_run(tx, workflow)
    rows.end_task(tx, workflow.id, now)
    if op.by_person:
        rows.forgive_failures(tx, workflow.id, now)
        rows.forgive_repairs(tx, workflow.id, now)
    else:
        rows.count_repair(tx, failed, now)
    workflow = replace(workflow, maintenance=False, maintenance_run_id=None, updated_at=now)
    rows.save_workflow(tx, workflow)
    return changed(workflow, workflow.id, None, maintenance=[True, False], by=op.by, by_person=op.by_person)


def _failed_run(q: Queries, workflow: Workflow) -> Run:
    """Asked of the workflow and not of the order: a crash may have come before that."""
    assert workflow.maintenance_run_id, "maintenance names the run that set it"
    return runs.existing(q, workflow.maintenance_run_id)
