"""Decide what a workflow does next: a pure function of its snapshot and the time.

Nothing is remembered between two plans, so a trigger that fires while a run is active is not lost: the plan after that
run sees it.
"""

from typing import TypeAlias

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import HandlerKind, Workflow, WorkflowStatus
from keep_storage.reads import HandlerView, Snapshot


class StartRun(msgspec.Struct, frozen=True):
    """Run this handler now."""

    handler: str
    trigger: str


class StartRetry(msgspec.Struct, frozen=True):
    """Carry on at `next` where this run stopped."""

    run_id: str
    handler: str
    trigger: str = "retry"


class Repair(msgspec.Struct, frozen=True):
    """Have the maintainer propose a repaired script."""

    task_id: str


class Reconcile(msgspec.Struct, frozen=True):
    """Ask a connector what became of a call whose outcome is unknown."""

    mutation_id: str


class ExpireApproval(msgspec.Struct, frozen=True):
    """Settle a question about a call that no person answered in time."""

    approval_id: str


class Rest(msgspec.Struct, frozen=True):
    """No work is due before `until`; None: before a message comes."""

    until: Millis | None


SideTask: TypeAlias = Reconcile | ExpireApproval | Repair

PlannedStep: TypeAlias = StartRun | StartRetry | SideTask | Rest

_KIND_ORDER = {HandlerKind.CONSUMER: 0, HandlerKind.PRODUCER: 1, HandlerKind.JOB: 2}
_LAST = 1 << 62


def plan(snapshot: Snapshot, now: Millis, *, repairs_max: int = 0) -> PlannedStep:
    """Questions and repairs first; then the pending retry, consumers (oldest pending event first), producers, jobs.

    Nothing overtakes the pending retry, even while it waits. A parked run whose outcome is known comes where the
    pending retry would, but while that waits the others go on.
    `repairs_max` is how often a handler is repaired by itself; 0: a person does it.
    """
    # What may have happened outside is looked into, whatever people want of the workflow; its script is not repaired.
    is_archived = snapshot.workflow.status is WorkflowStatus.ARCHIVED
    tasks = _side_tasks(snapshot, 0 if is_archived else repairs_max)
    if tasks and tasks[0][0] <= now:
        return tasks[0][1]
    later = [at for at, _ in tasks[:1]]
    if is_blocked(snapshot.workflow):
        return Rest(min(later, default=None))
    if snapshot.retry_run_id is not None:
        assert snapshot.retry_handler is not None, "a retry is of a run of some handler"
        waits = _waits(snapshot, snapshot.retry_handler)
        if waits <= now:
            return StartRetry(snapshot.retry_run_id, snapshot.retry_handler)
        later.append(waits)
        if snapshot.workflow.pending_retry_run_id is not None:
            return Rest(min(later))
    times = [(handler, due_at(handler)) for handler in snapshot.handlers]
    due = [handler for handler, at in times if at is not None and at <= now]
    if due:
        first = min(due, key=_rank)
        return StartRun(first.name, _trigger(first))
    return Rest(min([*later, *(at for _, at in times if at is not None)], default=None))


def _side_tasks(snapshot: Snapshot, repairs_max: int) -> list[tuple[Millis, SideTask]]:
    """Tasks beside the running of handlers, whatever stops those; the first one first."""
    tasks: list[tuple[Millis, SideTask]] = []
    if snapshot.reconcile_at is not None and snapshot.reconcile_id is not None:
        tasks.append((snapshot.reconcile_at, Reconcile(snapshot.reconcile_id)))
    if snapshot.approval_expires_at is not None and snapshot.approval_id is not None:
        tasks.append((snapshot.approval_expires_at, ExpireApproval(snapshot.approval_id)))
    task = snapshot.task
    if task is not None and task.held_version_id is None and task.repairs < repairs_max:
        tasks.append((task.next_attempt_at or 0, Repair(task.id)))
    return sorted(tasks, key=lambda each: each[0])


def is_blocked(workflow: Workflow) -> bool:
    """No handler of this workflow may run: it is not active, waits for a person, or its script is under repair."""
    return workflow.status is not WorkflowStatus.ACTIVE or bool(workflow.error) or workflow.maintenance


def due_at(handler: HandlerView) -> Millis | None:
    """When this handler wants to run: 0 for at once, None for not before something happens. Never before its retry, and
    not while a call of it waits for a person."""
    if handler.is_held:
        return None
    by_clock = handler.wake_at if handler.kind is HandlerKind.CONSUMER else handler.next_run_at
    at = 0 if handler.has_news else by_clock
    return None if at is None else max(at, handler.retry_at or 0)


def _waits(snapshot: Snapshot, handler: str) -> Millis:
    """Until when nothing of this handler is tried again; 0 if it may be now."""
    return next((each.retry_at or 0 for each in snapshot.handlers if each.name == handler), 0)


def _rank(handler: HandlerView) -> tuple[int, int, int, str]:
    oldest = handler.oldest_pending_seq if handler.oldest_pending_seq is not None else _LAST
    return _KIND_ORDER[handler.kind], oldest, due_at(handler) or 0, handler.name


def _trigger(handler: HandlerView) -> str:
    if handler.kind is not HandlerKind.CONSUMER:
        return "schedule"
    return "event" if handler.has_news else "wake"
