"""When a workflow has something to do, said a second time: from its snapshot, in the words of `docs/storage.md`."""

from keep_storage import reads
from keep_storage.ids import Millis
from keep_storage.model import WorkflowStatus
from keep_storage.reads import HandlerView, Snapshot
from keep_storage.transaction import Queries


def check_agenda(q: Queries) -> None:
    """The agenda never leaves out a workflow that has something to do, and never says too late."""
    agenda = {due.workflow_id: due.at for due in reads.agenda(q)}
    for workflow in reads.workflows(q):
        snapshot = reads.snapshot(q, workflow.id)
        assert snapshot, "a workflow that is there has a snapshot"
        first, said = first_work(snapshot), agenda.pop(workflow.id, None)
        assert first is None or said is not None, f"left out: {snapshot}"
        assert first is None or said is None or said <= first, f"too late, at {said}: {snapshot}"
        assert said is None or _nothing_stops(snapshot) or _questions(snapshot), f"nothing is to be done: {snapshot}"
    assert not agenda, "nobody knows these workflows"


def first_work(snapshot: Snapshot) -> Millis | None:
    """The earliest time at which there is something to do; none if there is nothing."""
    return min((at for at in (_first_run(snapshot), *_questions(snapshot)) if at is not None), default=None)


def _questions(snapshot: Snapshot) -> list[Millis]:
    """What is to be done about a workflow although nothing of it may run."""
    task = snapshot.task
    is_wanted = snapshot.workflow.status is not WorkflowStatus.ARCHIVED
    repair = (task.next_attempt_at or 0) if task and is_wanted and task.held_version_id is None else None
    return [at for at in (snapshot.approval_expires_at, snapshot.reconcile_at, repair) if at is not None]


def _first_run(snapshot: Snapshot) -> Millis | None:
    if not _nothing_stops(snapshot):
        return None
    if snapshot.open_session_id:
        return 0
    times = [at for each in snapshot.handlers for at in _times(each)]
    if snapshot.retry_handler:
        retry = next(each.retry_at or 0 for each in snapshot.handlers if each.name == snapshot.retry_handler)
        # What is parked waits for its own handler only.
        times = [retry] if snapshot.workflow.pending_retry_run_id else [retry, *times]
    return min(times, default=None)


def _nothing_stops(snapshot: Snapshot) -> bool:
    workflow = snapshot.workflow
    return workflow.status is WorkflowStatus.ACTIVE and not workflow.error and not workflow.maintenance


def _times(handler: HandlerView) -> list[Millis]:
    if handler.is_held:
        return []
    wanted = [handler.next_run_at, handler.wake_at, 0 if handler.has_news else None]
    return [max(at, handler.retry_at or 0) for at in wanted if at is not None]
