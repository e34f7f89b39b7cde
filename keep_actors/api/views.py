"""Views for people: events that came in, calls that were made, reasons why runs are stuck, and actions. Reads only."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from keep_actors.api import standing
from keep_actors.api.standing import RunView
from keep_storage import item_reads, reads
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.limits import PEEK_MAX
from keep_storage.model import (
    Approval,
    Event,
    EventStatus,
    HandlerKind,
    Item,
    JournalEntry,
    Json,
    Mutation,
    MutationStatus,
    Run,
    RunStatus,
    ScriptVersion,
    Workflow,
)
from keep_storage.transaction import Queries
from keep_storage.transitions import POST_MUTATION


class Output(msgspec.Struct, frozen=True):
    """A call that changed something outside, or was to: the script's words for it, and what the host saw."""

    mutation_id: str
    run_id: str
    title: str
    """The script's own words. Not to be trusted: `call` and `params` are what the host saw."""
    call: str
    params: Json
    status: MutationStatus
    result: Json | None
    error: str
    at: Millis


class Input(msgspec.Struct, frozen=True):
    """An event that came in, and all that was done about it."""

    seq: int
    """Append order: `before` of the next page."""
    topic: str
    message_id: str
    title: str
    status: EventStatus
    at: Millis
    is_stale: bool
    """It has been pending for longer than the policy's `stale_after_ms`."""
    held_by: str | None
    """The run that holds it, if one does."""
    attempt: int
    """Grows each time that a run releases it without having used it."""
    outputs: list[Output]


class Explanation(msgspec.Struct, frozen=True):
    """The state of a run, and the reasons for it."""

    run: RunView
    workflow: Workflow
    selected: list[Event]
    """The events it reserved."""
    attempted: list[Output]
    why: str
    """The reason why it stopped, or how that was settled; empty if it is active or done."""
    can_do: list[str]
    """The actions that a person has."""
    journal: list[JournalEntry]
    item: str | None = None
    """The item that it left for a person to decide about."""


class ApprovalQuestion(msgspec.Struct, frozen=True):
    """May this recorded call be made?"""

    approval_id: str
    workflow_id: str
    run_id: str
    title: str
    """The script's own words. Not to be trusted: `call` and `params` are what the host saw, and what would be sent."""
    call: str
    params: Json
    asked_at: Millis
    expires_at: Millis | None


class BlastRadius(msgspec.Struct, frozen=True):
    """Records that runs of one version have touched. Each list is cut at `limit`; `is_cut` says whether one was."""

    version: str
    events: list[Event]
    mutations: list[Output]
    items: list[Item]
    is_cut: bool


class Proposed(msgspec.Struct, frozen=True):
    """A repair that waits for a person."""

    workflow_id: str
    version: str
    source: str
    note: str
    """The maintainer's own words."""
    diff: str
    """From the script that failed to the proposed one, as a unified diff."""
    error: str
    blast_radius: BlastRadius


CAN_DO: Final[Mapping[RunStatus, str]] = {
    RunStatus.ACTIVE: "Wait: it is active. To end it at its next call, stop it or pause the workflow.",
    RunStatus.COMMITTED: "",
    RunStatus.CRASHED: "Nothing: another run has continued it, or will.",
    RunStatus.PAUSED_TRANSIENT: "Nothing: it is tried again by itself.",
    RunStatus.PAUSED_APPROVAL: "Fix what the error says, then clear the error of the workflow.",
    RunStatus.PAUSED_RECONCILIATION: "Find out whether the call took effect, and say so. Its events are held.",
    RunStatus.FAILED_LOGIC: "Deploy a repaired script: the waiting work continues with it.",
    RunStatus.FAILED_INTERNAL: "Read the log and report it; then clear the error of the workflow.",
}
"""The actions of a person on a run that stopped this way."""

_CAN_DO_SINCE: Final[Mapping[str, str]] = {
    standing.RESOLVED: "",
    standing.INTERRUPTED: "Start a runtime: it settles the interrupted run, and continues.",
}
"""The same, of one whose status is history."""

assert set(CAN_DO) == set(RunStatus), "every status says what can be done"


def outputs(q: Queries, workflow_id: str, limit: int, before: str | None) -> list[Output]:
    """Calls that changed something outside, newest first."""
    found = reads.outputs(q, workflow_id, limit=limit, **({"before": before} if before else {}))
    return [_output(each) for each in found]


def calls(mutations: Iterable[Mutation]) -> list[Output]:
    """Lines of the ledger as people see them."""
    return [_output(each) for each in mutations]


def inputs(q: Queries, workflow_id: str, limit: int, before: int | None, stale_before: Millis) -> list[Input]:
    """Events from outside, newest first, each with what was done about it."""
    found = reads.inputs(q, workflow_id, limit=limit, **({"before": before} if before else {}))
    return [_input(q, each.topic, each.event, stale_before) for each in found]


def runs(q: Queries, workflow: Workflow, limit: int, before: str | None, *, is_owned: bool = True) -> list[RunView]:
    """Its runs, newest first, and how each stands now. `is_owned`: a runtime has the file."""
    found = reads.runs(q, workflow.id, limit=limit, **({"before": before} if before else {}))
    return [standing.view(q, each, workflow, is_owned=is_owned) for each in found]


def explain(q: Queries, run_id: str, *, is_owned: bool = True) -> Explanation | None:
    """All there is to know about a run. None if there is no such run. `is_owned`: a runtime has the file."""
    found = reads.run(q, run_id)
    if found is None:
        return None
    workflow = reads.workflow(q, found.workflow_id)
    assert workflow is not None, "a run has its workflow"
    run = standing.view(q, found, workflow, is_owned=is_owned)
    item = item_in_need(q, found)
    advice = _CAN_DO_SINCE.get(run.standing, can_do(found, item))
    return Explanation(
        run=run,
        workflow=workflow,
        selected=reads.events_of_run(q, run.id),
        attempted=[_output(each) for each in reads.mutations_of_run(q, run.id)],
        why=_why(run, workflow),
        can_do=[advice] if advice else [],
        journal=reads.journal_of_run(q, run.id),
        item=item,
    )


def approvals(q: Queries, workflow_id: str | None) -> list[ApprovalQuestion]:
    """The recorded calls that wait for a person, oldest first."""
    return [question(q, each) for each in reads.open_approvals(q, workflow_id)]


def question(q: Queries, approval: Approval) -> ApprovalQuestion:
    """An approval with the call that it is about."""
    mutation = reads.mutation(q, approval.mutation_id)
    assert mutation is not None, "an approval is about a mutation"
    return ApprovalQuestion(
        approval_id=approval.id,
        workflow_id=approval.workflow_id,
        run_id=mutation.run_id,
        title=mutation.title,
        call=f"{mutation.connector}.{mutation.method}",
        params=mutation.params,
        asked_at=approval.requested_at,
        expires_at=approval.expires_at,
    )


def blast_radius(q: Queries, workflow_id: str, number: tuple[int, int], limit: int = PEEK_MAX) -> BlastRadius:
    """Records that runs of a version have touched. Raises `Rejected`."""
    version = reads.version_by_number(q, workflow_id, *number)
    if version is None:
        raise Rejected(Reason.VERSION_NOT_FOUND, f"There is no version {number[0]}.{number[1]}.")
    events = reads.events_of_version(q, version.id, limit=limit)
    mutations = reads.mutations_of_version(q, version.id, limit=limit)
    items = reads.items_of_version(q, version.id, limit=limit)
    is_cut = max(len(events), len(mutations), len(items)) >= limit
    return BlastRadius(version_text(version), events, [_output(each) for each in mutations], items, is_cut)


def proposal(q: Queries, workflow_id: str) -> Proposed | None:
    """The repair that waits for a person, if one does."""
    task, workflow = reads.open_task(q, workflow_id), reads.workflow(q, workflow_id)
    if task is None or task.held_version_id is None or workflow is None or workflow.active_version_id is None:
        return None
    old, new = reads.version(q, workflow.active_version_id), reads.version(q, task.held_version_id)
    run = reads.run(q, task.run_id)
    assert old is not None and new is not None and run is not None, "a proposal is between two versions"  # noqa: PT018
    # Only who looks at a proposal loads it.
    from keep_actors.text.difference import difference

    diff = difference(old.source, new.source, version_text(old), version_text(new))
    radius = blast_radius(q, workflow_id, (old.major, old.minor))
    return Proposed(workflow_id, version_text(new), new.source, task.problem, diff, run.error_message, radius)


def item_in_need(q: Queries, run: Run) -> str | None:
    """The item that a run of a job left for a person to decide about; None once that is decided."""
    found = item_reads.item_in_need(q, run.id) if run.kind is HandlerKind.JOB else None
    return None if found is None else found.item_id


def can_do(run: Run, item: str | None) -> str:
    """Advice about a run that stopped, and the item that it left."""
    if item is None:
        return CAN_DO[run.status]
    return f"Look at item {item!r}; then skip or reprocess it, and clear the error of the workflow."


def version_text(version: ScriptVersion) -> str:
    """The number of a version as people write it."""
    return f"{version.major}.{version.minor}"


def _why(run: RunView, workflow: Workflow) -> str:
    if run.standing == standing.INTERRUPTED:
        return "Its process ended while it was active."
    if run.status in (RunStatus.ACTIVE, RunStatus.COMMITTED):
        return ""
    place = f" (script {run.error_place})" if run.error_place else ""
    goes_on = (workflow.pending_retry_run_id == run.id or run.parked) and run.mutation_outcome in POST_MUTATION
    waits = " It waits for its `next`." if goes_on else ""
    if run.standing == standing.RESOLVED:
        return f"It stopped in {run.phase}. That is settled now: {run.settled}.{waits}"
    return f"{run.status} in {run.phase}: {run.error_message or 'no message'}{place}.{waits}"


def _input(q: Queries, topic: str, event: Event, stale_before: Millis) -> Input:
    return Input(
        seq=event.seq,
        topic=topic,
        message_id=event.message_id,
        title=event.title,
        status=event.status,
        at=event.created_at,
        is_stale=event.status is EventStatus.PENDING and event.created_at < stale_before,
        held_by=event.reserved_by_run_id,
        attempt=event.attempt,
        outputs=[_output(each) for each in reads.mutations_of_event(q, event.id)],
    )


def _output(mutation: Mutation) -> Output:
    return Output(
        mutation_id=mutation.id,
        run_id=mutation.run_id,
        title=mutation.title,
        call=f"{mutation.connector}.{mutation.method}",
        params=mutation.params,
        status=mutation.status,
        result=mutation.result,
        # Files of earlier versions still have the doubt of what was settled.
        error="" if mutation.status is MutationStatus.APPLIED else mutation.error,
        at=mutation.updated_at,
    )
