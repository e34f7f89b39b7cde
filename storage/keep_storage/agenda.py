"""Work that is due: the next steps of one workflow, and the time of the next step of each. Reads only."""

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import HandlerKind, Workflow
from keep_storage.records import decode
from keep_storage.rows import run
from keep_storage.transaction import Queries, Row


class HandlerView(msgspec.Struct, frozen=True, gc=False):
    """A declared handler, with all that decides when it runs."""

    name: str
    kind: HandlerKind
    next_run_at: Millis | None
    wake_at: Millis | None
    retry_at: Millis | None
    """Not before this, whatever else is due."""
    failures: int
    is_held: bool
    """A call of this job waits for a person: it would run into the same question again."""
    writes: int
    """How often the topics of a consumer have been written to: what a run that looks now has seen."""
    oldest_pending_seq: int | None
    """The oldest pending event in the topics of a consumer."""
    has_news: bool
    """An event is pending that an empty run has not looked at."""


class TaskView(msgspec.Struct, frozen=True, gc=False):
    """An open repair, with all that decides about it."""

    id: str
    run_id: str
    handler: str
    """The handler that failed."""
    attempts: int
    repairs: int
    """Of the handler: more than `attempts` if earlier repairs did not help."""
    next_attempt_at: Millis | None
    held_version_id: str | None


class Snapshot(msgspec.Struct, frozen=True):
    """A workflow with all that decides what it does next."""

    workflow: Workflow
    handlers: tuple[HandlerView, ...]
    """Those that the active script declares, by name."""
    open_session_id: str | None
    parked: int
    """How many runs of its consumers are parked."""
    retry_run_id: str | None
    """The run whose `next` is to run: the pending retry, or else the first that is parked and has an outcome."""
    retry_handler: str | None
    """The handler of that run."""
    approval_expires_at: Millis | None
    """When the first of its open questions expires."""
    approval_id: str | None
    """That question."""
    reconcile_at: Millis | None
    """When the first of its doubts is to be looked into."""
    reconcile_id: str | None
    """That mutation."""
    task: TaskView | None
    """The open repair."""


class Due(msgspec.Struct, frozen=True, gc=False):
    """When a workflow may have something to do."""

    workflow_id: str
    at: Millis


def snapshot(q: Queries, workflow_id: str) -> Snapshot | None:
    """The next steps of one workflow. Several statements: a reader that wants one moment asks inside
    `reader.snapshot()`."""
    row = q.one("workflow_at_work", {"id": workflow_id})
    if row is None:
        return None
    found = q.all("handlers_at_work", {"workflow_id": workflow_id})
    owner = decode(Workflow, row[:-8])
    _active_run_id, open_session_id, parked, retry_run_id, *first = row[-8:]
    approval_expires_at, approval_id, reconcile_at, reconcile_id = first
    retried = run(q, retry_run_id) if retry_run_id is not None else None
    return Snapshot(
        workflow=owner,
        handlers=tuple(map(_view, found)),
        open_session_id=open_session_id,
        parked=parked,
        retry_run_id=retry_run_id,
        retry_handler=retried.handler if retried is not None else None,
        approval_expires_at=approval_expires_at,
        approval_id=approval_id,
        reconcile_at=reconcile_at,
        reconcile_id=reconcile_id,
        task=_task_at_work(q, workflow_id) if owner.maintenance else None,
    )


def _task_at_work(q: Queries, workflow_id: str) -> TaskView | None:
    row = q.one("task_at_work", {"workflow_id": workflow_id})
    return None if row is None else TaskView(*row)


def _view(row: Row) -> HandlerView:
    *known, oldest_pending_seq, is_unseen = row
    return decode(HandlerView, (*known, oldest_pending_seq, oldest_pending_seq is not None and is_unseen))


def agenda(q: Queries) -> list[Due]:
    """When each workflow may have something to do: 0 is at once. May be too early, never too late.

    One that something stops is there if a question expires, a doubt is to be looked into or a repair to be tried.
    One that is left out has nothing to do until something is written.
    """
    handlers_first = _earliest(q.all("times_of_handlers", {}))
    first = _earliest(q.all("times_of_questions", {}))
    for workflow_id, before_all_else in q.all("workflows_that_may_run", {}):
        at = handlers_first.get(workflow_id) if before_all_else is None else before_all_else
        if at is not None:
            first[workflow_id] = min(at, first.get(workflow_id, at))
    return [Due(workflow_id, at) for workflow_id, at in first.items()]


def _earliest(times: list[Row]) -> dict[str, Millis]:
    """The first time of each workflow."""
    first: dict[str, Millis] = {}
    for workflow_id, at in times:
        first[workflow_id] = min(at, first.get(workflow_id, at))
    return first
