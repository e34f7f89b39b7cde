"""One row in this process: an open connector behind a way that can be disturbed, and a host that believes it.

The host acts as the runtime does: an unknown outcome is looked into again and again, `NotApplied` is believed after the
deadline of the call, and a call that did not happen is made again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec

from keep_actors.connectors import (
    Applied,
    CallOutcome,
    Catalog,
    DidNotHappen,
    Happened,
    Method,
    MutationCall,
    NotApplied,
    Retry,
    Unknown,
    Verdict,
)
from keep_actors.connectors.calls import OnSending
from keep_actors.testing.certification.ground import ExampleCall, Ground, Route, RowBroken
from keep_storage import wall_clock
from keep_storage.model import FailureClass, Json

T = TypeVar("T")

_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 3.0
_TRIES: Final = 5
DEAF_S: Final = 5.0
"""A call that has to end has ended by then."""
LATE_MS: Final = 100
"""A request can be on its way so long, at least, when the time of its call is over."""
LONG_MS: Final = 10_000
"""The time of a call that nothing disturbs: a busy machine is no fault of the connector."""


def tell_nobody() -> None:
    """Do nothing before a send."""


class Belief(StrEnum):
    """The belief of the host in the end."""

    HAPPENED = "it happened"
    DID_NOT_HAPPEN = "it did not happen"
    ASKED = "a person is asked"


class SettledCall(NamedTuple):
    """The end of a call, as the host believes it."""

    known: Belief
    words: str
    result: Json | None = None


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that was made."""

    wanted: ExampleCall
    call: MutationCall
    outcome: CallOutcome | None
    """None: the host cancelled it."""
    deadline: float


class Trial:
    """A connector that is open, with one of its mutations."""

    def __init__(self, ground: Ground, way: Route, method: Method) -> None:
        self.ground = ground
        self.way = way
        self.method = method

    @classmethod
    @asynccontextmanager
    async def open(cls, ground: Ground) -> AsyncIterator["Trial"]:
        """Make a connector of its own for a row, and close it."""
        async with ground.way() as way:
            catalog = Catalog([ground.certification.connector(way.seen)])
            async with catalog.opened():
                [method] = [each for each in catalog.methods.values() if each.name == ground.method.name]
                yield cls(ground, way, method)

    # Calls.

    def call_of(self, wanted: ExampleCall, key: str | None = None, on_sending: OnSending = tell_nobody) -> MutationCall:
        """The call, as the host would make it."""
        key = key or self.ground.new_key()
        return MutationCall(
            idempotency_key=key,
            workflow_id="wf_certification",
            run_id="run_certification",
            mutation_id=key,
            params=wanted.params.values,
            sent_at=wall_clock(),
            attempt=1,
            on_sending=on_sending,
        )

    async def make(self, wanted: ExampleCall, *, timeout_ms: int | None = None, key: str | None = None) -> MadeCall:
        """Make a call, for at most this long."""
        timeout_ms = timeout_ms or self.ground.timeout_ms
        call, deadline = self.call_of(wanted, key), anyio.current_time() + timeout_ms / 1000
        outcome = await self.in_time(timeout_ms, lambda: self.method.mutate(wanted.params, call, timeout_ms))
        return MadeCall(wanted, call, outcome, deadline)

    async def happens(self, wanted: ExampleCall, *, key: str | None = None) -> MadeCall:
        """Make a call that must happen. A busy service may say some times that it did not."""
        made = await self.make(wanted, timeout_ms=LONG_MS, key=key)
        for _ in range(_TRIES):
            if not (isinstance(made.outcome, DidNotHappen) and made.outcome.cls is FailureClass.TRANSIENT):
                break
            await anyio.sleep(_PAUSE_S)
            made = await self.make(wanted, timeout_ms=LONG_MS, key=key)
        if not isinstance(made.outcome, Happened):
            raise RowBroken(f"without a fault: {said(made.outcome)}")
        return made

    async def in_time(self, limit_ms: int, work: Callable[[], Awaitable[T]]) -> T:
        """Raise `RowBroken` if it goes on after its time. Its connections are ended then, so that the row ends."""
        is_deaf = False

        async def end_deaf_call() -> None:
            nonlocal is_deaf
            await anyio.sleep(limit_ms / 1000 + DEAF_S)
            is_deaf = True
            await self.way.refuse()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_deaf_call)
            done = await work()
            tasks.cancel_scope.cancel()
        if is_deaf:
            raise RowBroken(f"it went on for {DEAF_S:.0f} s after its time was over: let the cancellation through")
        return done

    # The host's belief.

    async def ask(self, made: MadeCall, timeout_ms: int | None = None, *, waited_ms: int | None = None) -> Verdict:
        """Ask `reconcile` once, as if now were the first time; or so long after the deadline of the call."""
        if waited_ms is None:
            waited_ms = int((anyio.current_time() - made.deadline) * 1000)
        again, limit_ms, waited = _again(made.call), timeout_ms or self.ground.timeout_ms, waited_ms
        return await self.in_time(limit_ms, lambda: self.method.reconcile(again, limit_ms, waited))

    async def settled(self, made: MadeCall) -> SettledCall:
        """Find out as the runtime does, until it is known or a person would be asked."""
        match made.outcome:
            case Happened():
                return SettledCall(Belief.HAPPENED, "it answered", made.outcome.json_text)
            case DidNotHappen():
                return SettledCall(Belief.DID_NOT_HAPPEN, f"it says that nothing happened: {made.outcome.message}")
            case _:
                pass
        said = "it was cancelled" if made.outcome is None else f"the outcome is unknown: {made.outcome.message}"
        if not self.method.reconcilable:
            return SettledCall(Belief.ASKED, f"{said}; there is no `reconcile`")
        until = max(made.deadline, anyio.current_time()) + self.method.settle_ms / 1000 + _PATIENCE_S
        while True:
            pause_s = _PAUSE_S
            match await self.ask(made):
                case Applied(result=result):
                    return SettledCall(Belief.HAPPENED, f"{said}; `reconcile` says Applied", result)
                case NotApplied() if anyio.current_time() >= made.deadline:
                    return SettledCall(Belief.DID_NOT_HAPPEN, f"{said}; `reconcile` says NotApplied")
                case NotApplied():
                    pause_s = made.deadline - anyio.current_time()
                case Retry(message=message, retry_after_ms=after_ms):
                    pause_s = (after_ms or 0) / 1000
                    if anyio.current_time() > until:
                        return SettledCall(Belief.ASKED, f"{said}; `reconcile` cannot tell: {message}")
            await anyio.sleep(min(max(_PAUSE_S, pause_s), max(_PAUSE_S, until - anyio.current_time())))

    async def judged(self, made: MadeCall) -> str:
        """Compare the belief with the effects, and make the call again if it did not happen. Raises `RowBroken`."""
        wanted, settled = made.wanted, await self.settled(made)
        match settled.known:
            case Belief.HAPPENED:
                effects = await self.ground.effects_come(wanted)
                if effects != 1:
                    raise RowBroken(f"{settled.words}, and there are {effects} effects")
                return f"{settled.words}; 1 effect"
            case Belief.ASKED:
                effects = await self.ground.effects_at_rest(wanted)
                if effects > 1:
                    raise RowBroken(f"{settled.words}, and there are {effects} effects")
                return f"{settled.words}: a question, with {effects} effects"
            case Belief.DID_NOT_HAPPEN:
                effects = await self.ground.effects_at_rest(wanted)
                if effects:
                    raise RowBroken(f"{settled.words}, and there is an effect ({effects})")
                await self.happens(wanted)
                effects = await self.ground.effects_at_rest(wanted)
                if effects != 1:
                    raise RowBroken(f"{settled.words}; it was made again, and there are {effects} effects")
                return f"{settled.words}; made again, 1 effect"


def _again(call: MutationCall) -> MutationCall:
    """The call as a later process knows it: a note is all that is left."""
    return MutationCall(
        idempotency_key=call.idempotency_key,
        workflow_id=call.workflow_id,
        run_id=call.run_id,
        mutation_id=call.mutation_id,
        params=call.params,
        sent_at=call.sent_at,
        attempt=call.attempt,
        earlier_note=call.noted,
    )


def said(outcome: CallOutcome | None) -> str:
    """The outcome of a call, in words."""
    match outcome:
        case Happened():
            return "it happened"
        case DidNotHappen():
            return f"it says that nothing happened: {outcome.message}"
        case Unknown():
            return f"its outcome is unknown: {outcome.message}"
        case None:
            return "it was cancelled"


def same_result(one: Json | None, other: Json | None) -> bool:
    """Compare two results by their content."""
    if one is None or other is None:
        return one == other
    return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
