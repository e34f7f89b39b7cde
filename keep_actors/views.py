"""What people see: what came in, what was done about it, why something is stuck, and what they can do. Reads only."""

from collections.abc import Mapping
from typing import Final

import msgspec

from keep_storage import reads
from keep_storage.ids import Millis
from keep_storage.model import (
    Event,
    EventStatus,
    JournalEntry,
    Json,
    Mutation,
    MutationStatus,
    Run,
    RunStatus,
    Workflow,
)
from keep_storage.transaction import Queries


class Output(msgspec.Struct, frozen=True):
    """Something that was done outside, or was to be: the script's words for it, and what the host saw."""

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
    """Something that came in, and all that was done about it."""

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
    outputs: list[Output]


class Explanation(msgspec.Struct, frozen=True):
    """Why a run is where it is."""

    run: Run
    workflow: Workflow
    selected: list[Event]
    """The events it reserved."""
    attempted: list[Output]
    why: str
    """Why it does not go on; empty if it does, or is done."""
    can_do: list[str]
    """What a person can do about it."""
    journal: list[JournalEntry]


CAN_DO: Final[Mapping[RunStatus, str]] = {
    RunStatus.ACTIVE: "Wait: it is under way. Pausing the workflow lets this run come to its end, and starts no other.",
    RunStatus.COMMITTED: "",
    RunStatus.CRASHED: "Nothing: it was carried on by another run, or will be.",
    RunStatus.PAUSED_TRANSIENT: "Nothing: it is tried again by itself.",
    RunStatus.PAUSED_APPROVAL: "Put right what the error says, then clear the error of the workflow.",
    RunStatus.PAUSED_RECONCILIATION: "Find out whether the call took effect, and say so. Its events are held.",
    RunStatus.FAILED_LOGIC: "Deploy a repaired script: what waits goes on with it.",
    RunStatus.FAILED_INTERNAL: "Read the log and report it; then clear the error of the workflow.",
}
"""What a person can do about a run that stopped this way."""

assert set(CAN_DO) == set(RunStatus), "every status says what can be done"


def outputs(q: Queries, workflow_id: str, limit: int, before: str | None) -> list[Output]:
    """What was done outside, newest first."""
    found = reads.outputs(q, workflow_id, limit=limit, **({"before": before} if before else {}))
    return [_output(each) for each in found]


def inputs(q: Queries, workflow_id: str, limit: int, before: int | None, stale_before: Millis) -> list[Input]:
    """What came in from outside, newest first, each with what was done about it."""
    found = reads.inputs(q, workflow_id, limit=limit, **({"before": before} if before else {}))
    return [_input(q, each.topic, each.event, stale_before) for each in found]


def explain(q: Queries, run_id: str) -> Explanation | None:
    """All there is to know about a run. None if there is no such run."""
    run = reads.run(q, run_id)
    if run is None:
        return None
    workflow = reads.workflow(q, run.workflow_id)
    assert workflow is not None, "a run has its workflow"
    return Explanation(
        run=run,
        workflow=workflow,
        selected=reads.events_of_run(q, run.id),
        attempted=[_output(each) for each in reads.mutations_of_run(q, run.id)],
        why=_why(run, workflow),
        can_do=[CAN_DO[run.status]] if CAN_DO[run.status] else [],
        journal=reads.journal_of_run(q, run.id),
    )


def _why(run: Run, workflow: Workflow) -> str:
    if run.status in (RunStatus.ACTIVE, RunStatus.COMMITTED):
        return ""
    place = f" (script {run.error_place})" if run.error_place else ""
    waits = " It waits for its `next`." if workflow.pending_retry_run_id == run.id else ""
    return f"{run.status} in {run.phase}: {run.error_message or 'no words were left'}{place}.{waits}"


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
        error=mutation.error,
        at=mutation.updated_at,
    )
