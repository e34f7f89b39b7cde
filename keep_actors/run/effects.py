"""The values between a run and its driver: effects are what the run wants done, inputs are what came of them.

Both unions are closed. Every effect is answered by exactly one input, except `Finish`, which is the last. News comes
from outside at any time and asks for no effect.
"""

from typing import Any, TypeAlias

import msgspec

from keep_actors.connectors import CallOutcome, Method, Params, ReadOutcome, Verdict
from keep_actors.permissions import Envelope
from keep_actors.run.earlier_calls import Earlier
from keep_actors.run.gate import ScriptPhase
from keep_sandbox import IssuedMutation, Request
from keep_sandbox.outcomes import Terminal
from keep_storage.errors import Rejected
from keep_storage.model import Event, Item, Json, Mutation
from keep_storage.operations import Operation, Reserve, StopRun

Writes = tuple[Operation[Any], ...]
"""Operations to be written together, in this order."""


class Invoke(msgspec.Struct, frozen=True):
    """Run one function of the script. Answered by the first thing that it asks for, or by its end."""

    phase: ScriptPhase
    address: str
    """`consumers.file.prepare`."""
    arguments: Json
    """A JSON array: everything after `ctx`."""


class AnswerScript(msgspec.Struct, frozen=True):
    """Answer the request that the script waits for. Answered by the next request, or by the end of the script."""

    request_id: int
    text: Json


class EndScript(msgspec.Struct, frozen=True):
    """End the script instead of answering its request. It cannot catch that."""

    reason: str


class PeekEvents(msgspec.Struct, frozen=True):
    """Read pending events, oldest first, after the cursor of the last one seen."""

    topic: str
    limit: int
    after: int


class GetEvents(msgspec.Struct, frozen=True):
    """Read events by message id, in any state. A pending one that waits for a parked run is left out, as in `peek`."""

    topic: str
    message_ids: tuple[str, ...]


class CheckReservations(msgspec.Struct, frozen=True):
    """Check that these events can be reserved. `Saved`, or `SaveRefused` with the reason; nothing is written."""

    reservations: tuple[Reserve, ...]


class ReadEarlierCalls(msgspec.Struct, frozen=True):
    """Read the calls that earlier runs recorded in this attempt at an item."""

    item: Item


class CallRead(msgspec.Struct, frozen=True):
    """Call a connector method that only reads."""

    method: Method
    params: Params


class Save(msgspec.Struct, frozen=True):
    """Make these operations durable, all or none. `alarm` is logged as an error."""

    operations: Writes
    alarm: str = ""


class CallMutation(msgspec.Struct, frozen=True):
    """Make the call that the ledger has as `in_flight`."""

    method: Method
    params: Params
    mutation: Mutation


class CheckOutcome(msgspec.Struct, frozen=True):
    """Ask the connector what became of a call. Never makes the call again."""

    mutation: Mutation


class SaveAndInvoke(msgspec.Struct, frozen=True):
    """Begin to save, and invoke meanwhile. Answered as `Invoke` is; `AwaitSave` asks for the end of the save."""

    save: Save
    invoke: Invoke


class AwaitSave(msgspec.Struct, frozen=True):
    """Wait for the save that `SaveAndInvoke` began."""


class Finish(msgspec.Struct, frozen=True):
    """The end. `status` is a `RunStatus` or `not_admitted`; `failure` is the class of failure, if there was one."""

    status: str
    failure: str = ""


RunEffect: TypeAlias = (
    Invoke
    | AnswerScript
    | EndScript
    | PeekEvents
    | GetEvents
    | CheckReservations
    | ReadEarlierCalls
    | CallRead
    | Save
    | CallMutation
    | CheckOutcome
    | SaveAndInvoke
    | AwaitSave
    | Finish
)


class ScriptAsked(msgspec.Struct, frozen=True):
    """The script asks for something, and waits."""

    request: Request


class ScriptReturned(msgspec.Struct, frozen=True):
    """The function returned. `value` is None if it returned nothing."""

    value: Json | None
    logs: tuple[str, ...] = ()


class ScriptIssued(msgspec.Struct, frozen=True):
    """The function ended with its mutation."""

    issued: IssuedMutation
    logs: tuple[str, ...] = ()


class ScriptFailed(msgspec.Struct, frozen=True):
    """The function ended in any other way: it threw, met a limit, or lost its worker."""

    outcome: Terminal
    logs: tuple[str, ...] = ()


class ScriptStopped(msgspec.Struct, frozen=True):
    """`EndScript` is done."""

    logs: tuple[str, ...] = ()


class AnswerRefused(msgspec.Struct, frozen=True):
    """The answer does not fit into the sandbox: it is too large, or too deep."""

    problem: str


class EventsRead(msgspec.Struct, frozen=True):
    """`PeekEvents` or `GetEvents` is done."""

    events: tuple[Event, ...]


class EarlierCallsRead(msgspec.Struct, frozen=True):
    """`ReadEarlierCalls` is done."""

    earlier: tuple[Earlier, ...]


class ReadEnded(msgspec.Struct, frozen=True):
    """`CallRead` is done."""

    outcome: ReadOutcome
    cost_micros: int = 0


class Saved(msgspec.Struct, frozen=True):
    """The operations are durable; one answer for each."""

    answers: tuple[Any, ...] = ()


class SaveRefused(msgspec.Struct, frozen=True):
    """The storage refused the operations, and none of them happened."""

    error: Rejected


class CallEnded(msgspec.Struct, frozen=True):
    """`CallMutation` is done."""

    outcome: CallOutcome
    cost_micros: int = 0


class OutcomeChecked(msgspec.Struct, frozen=True):
    """`CheckOutcome` is done."""

    verdict: Verdict


RunInput: TypeAlias = (
    ScriptAsked
    | ScriptReturned
    | ScriptIssued
    | ScriptFailed
    | ScriptStopped
    | AnswerRefused
    | EventsRead
    | EarlierCallsRead
    | ReadEnded
    | Saved
    | SaveRefused
    | CallEnded
    | OutcomeChecked
)


class EventSkipped(msgspec.Struct, frozen=True):
    """A person skipped an event of this workflow."""


class StopRequested(msgspec.Struct, frozen=True):
    """A person paused or archived the workflow, or stopped the run: it makes no further call.

    `write` goes into the file with the end of a run that was not there when it was stopped.
    """

    why: str
    write: StopRun | None = None


class GrantsChanged(msgspec.Struct, frozen=True):
    """A person granted or revoked a permission."""

    envelope: Envelope


RunNews: TypeAlias = EventSkipped | StopRequested | GrantsChanged
