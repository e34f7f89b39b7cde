"""Matters that need attention, in words for people: what happened, and what they can do. Reads only.

The storage decides what is listed (`keep_storage.attention_reads`); `keep attention`, `keep status`, notices, metrics
and exit codes ask here. The policy of a workflow decides only how old a matter has to be, where age is what counts.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, assert_never

import msgspec

from keep_actors.api import overdue, views
from keep_actors.api.overdue import Moment
from keep_actors.run.missing import missing_methods
from keep_actors.text.call_text import preview
from keep_actors.text.visible import head
from keep_storage import attention_reads, proposal_reads, reads
from keep_storage.model import (
    AttentionKind,
    AttentionRow,
    Mutation,
    Run,
    RunStatus,
    WaitsOn,
    Workflow,
    WorkflowStatus,
)
from keep_storage.transaction import Queries

_OPEN_WITH_IT: Final = "Open the runtime with the connector: the workflow then continues by itself."
_TITLE_CHARS_MAX: Final = 200
"""A script's own words for a call do not push the call out of sight."""
_ANSWER_IT: Final = "Approve it, or reject it: its events or its item are then skipped, or prepared again with `retry`."
_LOOK_AT_IT: Final = "Look at it. Accept it, with the permissions that you choose; or reject it, with the reason."
_IS_MADE: Final = "is being made, though its workflow is archived."
_WAS_MADE: Final = "was being made when its process ended: it may have happened."
_IS_UNKNOWN: Final = "may have happened."


class Attention(msgspec.Struct, frozen=True):
    """A matter that waits for a person."""

    workflow_id: str
    """Empty for a proposed script that is to be a new workflow."""
    workflow: str
    kind: AttentionKind
    words: str
    run_id: str | None
    about: str | None
    """The approval, the mutation, the proposed version or the proposal to be answered about; the handler or topic that
    is overdue."""
    can_do: str
    item: str | None = None
    """The item of a job to be skipped or reprocessed."""


def attention(q: Queries, at: Moment) -> list[Attention]:
    """List what waits for a person in all workflows, and what has waited for long."""
    return [*(shown for _, shown in matters(q, None, at)), *_proposed(q, at)]


def attention_of(q: Queries, workflow: Workflow, at: Moment) -> Iterator[Attention]:
    """List the same for one workflow."""
    yield from (shown for _, shown in matters(q, workflow.id, at))
    yield from (each for each in _proposed(q, at) if each.workflow_id == workflow.id)


def matters(q: Queries, workflow_id: str | None, at: Moment) -> Iterator[tuple[AttentionRow, Attention]]:
    """The matters of one workflow, or of all: as the storage lists them, and as people see them. Without proposals."""
    workflow: Workflow | None = None
    times = {"stale_before": at.now - at.stale_after_ms, "expired_after": at.now - overdue.SHOWN_FOR_MS}
    for row in attention_reads.attention(q, workflow_id, **times):
        if workflow is None or workflow.id != row.workflow_id:
            workflow = reads.workflow(q, row.workflow_id)
            assert workflow is not None, "a matter is of a workflow"
        if (shown := _shown(q, workflow, row, at)) is not None:
            yield row, shown


def _shown(q: Queries, workflow: Workflow, row: AttentionRow, at: Moment) -> Attention | None:
    """None if it is not old enough, or if people have just approved it."""
    needs = partial(_matter, workflow, row)
    match row.kind:
        case AttentionKind.APPROVAL:
            return needs(_question(q, row), _ANSWER_IT, row.about)
        case AttentionKind.REPAIR:
            task, held = reads.open_task(q, workflow.id), reads.version(q, row.about or "")
            assert task is not None and held is not None, "a held version belongs to a task"  # noqa: PT018
            return needs(
                task.problem or "A repair waits.", "Look at it; accept or refuse it.", views.version_text(held)
            )
        case AttentionKind.MAINTENANCE:
            words = workflow.error or _run(q, row).error_message
            return needs(words, views.CAN_DO[RunStatus.FAILED_LOGIC])
        case AttentionKind.ERROR:
            can_do, item = _about_error(q, workflow, row)
            return needs(workflow.error, can_do, item=item)
        case AttentionKind.UNKNOWN if row.waits_on is WaitsOn.APPROVED_CALL:
            return None
        case AttentionKind.UNKNOWN:
            return needs(_doubt(q, workflow, row, at), _about_doubt(row, at), row.about)
        case AttentionKind.FAILING | AttentionKind.STALE | AttentionKind.EXPIRED:
            found = overdue.overdue(q, workflow, row, at)
            if found is None:
                return None
            return Attention(workflow.id, workflow.name, row.kind, found.words, None, found.about, found.can_do)
        case AttentionKind.PROPOSAL:
            raise AssertionError("no row of the view is a proposal: `_proposed` lists them")
        case _:
            assert_never(row.kind)


def _proposed(q: Queries, at: Moment) -> Iterator[Attention]:
    """The scripts that were proposed and wait, oldest first."""
    for each in proposal_reads.open_proposals(q, at.now):
        what = "another script" if each.workflow_id is not None else "a new workflow"
        note = f": {head(each.note, _TITLE_CHARS_MAX)}" if each.note else ""
        words = f"{each.proposed_by} proposes {what}{note}"
        yield Attention(each.workflow_id or "", each.name, AttentionKind.PROPOSAL, words, None, each.id, _LOOK_AT_IT)


def _matter(
    workflow: Workflow, row: AttentionRow, words: str, can_do: str, about: str | None = None, item: str | None = None
) -> Attention:
    return Attention(workflow.id, workflow.name, row.kind, words, row.run_id, about, can_do, item)


def _run(q: Queries, row: AttentionRow) -> Run:
    found = reads.run(q, row.run_id or "")
    assert found is not None, f"{row.kind} has its run"
    return found


def _question(q: Queries, row: AttentionRow) -> str:
    approval = reads.approval(q, row.about or "")
    assert approval is not None, "it has just been listed"
    question = views.question(q, approval)
    title = head(question.title, _TITLE_CHARS_MAX) or "A call"
    return f"{title}: {question.call} {preview(question.params)}"


def _about_error(q: Queries, workflow: Workflow, row: AttentionRow) -> tuple[str, str | None]:
    """Advice about an error, and the item to decide about."""
    if row.run_id is None:
        return "Fix the cause, then clear the error of the workflow.", None
    run = _run(q, row)
    item = views.item_in_need(q, run)
    return (_OPEN_WITH_IT if missing_methods(workflow.error_about) else views.can_do(run, item)), item


def _doubt(q: Queries, workflow: Workflow, row: AttentionRow, at: Moment) -> str:
    if workflow.status is WorkflowStatus.ARCHIVED:
        doubt = _mutation(q, row)
        made = _IS_MADE if at.is_owned else _WAS_MADE
        became = made if row.waits_on is WaitsOn.CALL else _IS_UNKNOWN
        return doubt.error or f"{doubt.connector}.{doubt.method} {became}"
    return workflow.error if row.run_id == workflow.error_run_id else f"{_run(q, row).error_message} (parked)"


def _mutation(q: Queries, row: AttentionRow) -> Mutation:
    found = reads.mutation(q, row.about or "")
    assert found is not None, "a line of the ledger is never deleted"
    return found


def _about_doubt(row: AttentionRow, at: Moment) -> str:
    if row.waits_on is WaitsOn.CALL and at.is_owned:
        return "Wait: the call is being made. Its outcome is not known yet."
    wait = "The connector is being asked, so you may wait. " if row.waits_on is WaitsOn.CONNECTOR else ""
    return f"{wait}{views.CAN_DO[RunStatus.PAUSED_RECONCILIATION]}"
