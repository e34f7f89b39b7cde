"""Results of the tools that look: ids, states, numbers and times are ours, everything else is `Quoted`. Pure."""

import msgspec

from keep_actors.api.item_views import ItemAttempt, ItemView
from keep_actors.api.standing import RunView
from keep_actors.api.views import Input, Output
from keep_actors.cli.assistant.quoted import Quoted, name, ours, quoted
from keep_storage.ids import Millis
from keep_storage.model import Event, JournalEntry, Mutation

_PAYLOAD_MAX = 4_000
_CALLS_MAX = 20
"""Of one event, or of one attempt at an item."""


class CallShown(msgspec.Struct, frozen=True):
    """A call to the outside, made or not."""

    mutation_id: str
    run_id: str
    call: str
    """The method, as the host saw it."""
    status: str
    at: Millis
    title: Quoted
    """The script's words. They prove nothing."""
    params: Quoted
    """JSON, as the host saw them."""
    result: Quoted | None
    error: Quoted


class InputShown(msgspec.Struct, frozen=True):
    """An event that came in, and the calls that it led to."""

    seq: int
    at: Millis
    status: str
    attempt: int
    is_stale: bool
    held_by: str | None
    topic: Quoted
    message_id: Quoted
    title: Quoted
    outputs: list[CallShown]
    more_outputs: int
    """The number of calls that are left out."""


class EventShown(msgspec.Struct, frozen=True):
    """An event."""

    event_id: str
    at: Millis
    status: str
    attempt: int
    message_id: Quoted
    title: Quoted
    payload: Quoted


class RunShown(msgspec.Struct, frozen=True):
    """A run, and how it stands now."""

    run_id: str
    kind: str
    phase: str
    standing: str
    began_at: Millis
    ended_at: Millis | None
    handler: Quoted
    title: Quoted
    error: Quoted
    error_place: str
    """`line:column` in the script."""
    settled: Quoted


class ItemShown(msgspec.Struct, frozen=True):
    """An item of a job."""

    item_id: Quoted
    state: str
    attempt: int
    is_open: bool
    run_id: str
    at: Millis
    title: Quoted
    error: Quoted


class AttemptShown(msgspec.Struct, frozen=True):
    """An attempt at an item."""

    attempt: int
    state: str
    began_at: Millis
    at: Millis
    title: Quoted
    error: Quoted
    runs: list[str]
    calls: list[CallShown]
    more_calls: int
    """The number of calls that are left out."""


class JournalShown(msgspec.Struct, frozen=True):
    """An entry of the journal."""

    seq: int
    at: Millis
    operation: str
    workflow_id: str | None
    run_id: str | None
    changed: Quoted
    why: Quoted


def call(each: Output) -> CallShown:
    return CallShown(
        mutation_id=each.mutation_id,
        run_id=each.run_id,
        call=ours(each.call),
        status=each.status,
        at=each.at,
        title=name(each.title),
        params=quoted(each.params),
        result=None if each.result is None else quoted(each.result),
        error=quoted(each.error),
    )


def came_in(each: Input) -> InputShown:
    return InputShown(
        seq=each.seq,
        at=each.at,
        status=each.status,
        attempt=each.attempt,
        is_stale=each.is_stale,
        held_by=each.held_by,
        topic=name(each.topic),
        message_id=name(each.message_id),
        title=name(each.title),
        outputs=[call(output) for output in each.outputs[:_CALLS_MAX]],
        more_outputs=max(len(each.outputs) - _CALLS_MAX, 0),
    )


def event(each: Event) -> EventShown:
    return EventShown(
        event_id=each.id,
        at=each.created_at,
        status=each.status,
        attempt=each.attempt,
        message_id=name(each.message_id),
        title=name(each.title),
        payload=quoted(each.payload, _PAYLOAD_MAX),
    )


def run(each: RunView) -> RunShown:
    return RunShown(
        run_id=each.id,
        kind=each.kind,
        phase=each.phase,
        standing=each.standing,
        began_at=each.created_at,
        ended_at=each.ended_at,
        handler=name(each.handler),
        title=name(each.title),
        error=quoted(each.error_message),
        error_place=ours(each.error_place),
        settled=quoted(each.settled),
    )


def item(each: ItemView) -> ItemShown:
    return ItemShown(
        item_id=quoted(each.item_id),
        state=each.state,
        attempt=each.attempt,
        is_open=each.is_open,
        run_id=each.run_id,
        at=each.at,
        title=name(each.title),
        error=quoted(each.error),
    )


def attempt(each: ItemAttempt) -> AttemptShown:
    return AttemptShown(
        attempt=each.attempt,
        state=each.state,
        began_at=each.began_at,
        at=each.at,
        title=name(each.title),
        error=quoted(each.error),
        runs=each.runs[:_CALLS_MAX],
        calls=[call(output) for output in each.calls[:_CALLS_MAX]],
        more_calls=max(len(each.calls) - _CALLS_MAX, 0),
    )


def entry(each: JournalEntry) -> JournalShown:
    return JournalShown(
        seq=each.seq,
        at=each.at,
        operation=ours(each.operation),
        workflow_id=each.workflow_id,
        run_id=each.run_id,
        changed=quoted(each.changed),
        why=quoted(each.why),
    )


def noted(each: Mutation) -> Quoted:
    """The note that its connector made."""
    return quoted(each.note)
