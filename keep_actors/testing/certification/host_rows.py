"""The rows in which the host does something: it calls, cancels, calls several times at once, or again with one key."""

import threading
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.from_thread
from anyio.lowlevel import EventLoopToken, current_token

from keep_actors.connectors import CallOutcome, DidNotHappen, Happened, MutationCall
from keep_actors.testing.certification.faults import Act, Fault
from keep_actors.testing.certification.faults import Way as On
from keep_actors.testing.certification.ground import ExampleCall, RowBroken, RowDoesNotApply
from keep_actors.testing.certification.network_rows import RowFunction
from keep_actors.testing.certification.rows import CertificationRow
from keep_actors.testing.certification.trial import DEAF_S, LONG_MS, MadeCall, Trial, said, same_result, tell_nobody

_AT_ONCE: Final = 4


async def plain(trial: Trial) -> str:
    """One call is one effect."""
    wanted = trial.ground.wanted()
    if trial.ground.wanted().example == wanted.example:
        raise RowBroken("two examples are the same: each number needs one of its own, with an effect of its own")
    if effects := await trial.ground.effects(wanted):
        raise RowBroken(f"there are {effects} effects before the call: no two examples may share an effect")
    await trial.happens(wanted)
    effects = await trial.ground.effects_come(wanted)
    if effects != 1:
        raise RowBroken(f"it happened, and there are {effects} effects")
    return "it happened; 1 effect"


async def cancelled(trial: Trial) -> str:
    """A cancelled call has no effect if it was not sent, and never two in the end."""
    began = anyio.current_time()
    await trial.happens(trial.ground.wanted())
    took_s = anyio.current_time() - began
    words = [
        f"at once: {await _cancelled(trial, 0)}",
        f"halfway: {await _cancelled(trial, took_s / 2)}",
        f"at `sending`: {await _cancelled(trial, LONG_MS / 1000, at_sending=True)}",
    ]
    if trial.ground.service.addresses:
        trial.way.inject(Fault(act=Act.SWALLOW, on=On.ANSWERS, pattern=trial.ground.decisive))
        words.append(f"when its request had arrived: {await _cancelled(trial, LONG_MS / 1000, on_arrival=True)}")
    return "; ".join(words)


class _Canceller:
    """Cancels a call when it is about to send, from whatever thread says so."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._thread = threading.get_ident()
        self._token: EventLoopToken = current_token()

    def __call__(self) -> None:
        if threading.get_ident() == self._thread:
            self._scope.cancel()
        else:
            anyio.from_thread.run_sync(self._scope.cancel, token=self._token)


async def _cancelled(trial: Trial, after_s: float, *, at_sending: bool = False, on_arrival: bool = False) -> str:
    wanted, ground = trial.ground.wanted(), trial.ground
    outcomes: list[CallOutcome] = []
    scope = anyio.CancelScope(deadline=anyio.current_time() + after_s)
    call = trial.call_of(wanted, on_sending=_Canceller(scope) if at_sending else tell_nobody)
    ended_late: list[float] = []

    async def make() -> None:
        # Kept at once: what waits around it may be cancelled, and the call has answered all the same.
        outcomes.append(await _mutate(trial, wanted, call))

    async def watch() -> None:
        if on_arrival:
            await trial.way.reached(after_s)
            trial.way.clear()
            scope.cancel()
        else:
            await anyio.sleep(after_s)
        await anyio.sleep(DEAF_S)
        ended_late.append(DEAF_S)
        await trial.way.refuse()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        with scope:
            await trial.in_time(LONG_MS, make)
        tasks.cancel_scope.cancel()
    if ended_late:
        raise RowBroken(f"it went on for more than {DEAF_S:.0f} s after it was cancelled")
    outcome = outcomes[0] if outcomes else None
    if outcome is None and trial.method.marks_sent and not call.is_sent and await ground.effects_at_rest(wanted):
        raise RowBroken("it was cancelled before `call.sending()`, and there is an effect")
    return await trial.judged(MadeCall(wanted, call, outcome, anyio.current_time()))


async def _mutate(trial: Trial, wanted: ExampleCall, call: MutationCall) -> CallOutcome:
    return await trial.method.mutate(wanted.params, call, LONG_MS)


async def too_late(trial: Trial) -> str:
    """A call whose host stops waiting before `call.sending()` has no effect."""
    if not trial.method.marks_sent:
        raise RowDoesNotApply("the method does not say when it sends: `marks_sent` is False")
    ground, wanted = trial.ground, trial.ground.wanted()
    call = trial.call_of(wanted)
    call.end()
    await _mutate(trial, wanted, call)
    if effects := await ground.effects_at_rest(wanted):
        raise RowBroken(f"`call.sending()` refused, or was not called, and there is an effect ({effects})")
    await trial.happens(wanted)
    return "`call.sending()` refused; no effect"


async def concurrent(trial: Trial) -> str:
    """Several calls at once are one effect each."""
    made: list[MadeCall] = []

    async def make() -> None:
        made.append(await trial.make(trial.ground.wanted(), timeout_ms=LONG_MS))

    async with anyio.create_task_group() as tasks:
        for _ in range(_AT_ONCE):
            tasks.start_soon(make)
    happened = sum(isinstance(each.outcome, Happened) for each in made)
    for each in made:
        await trial.judged(each)
    return f"{_AT_ONCE} calls at once, {happened} of them without a second try; 1 effect each"


async def repeated(trial: Trial) -> str:
    """Two calls with one key are one effect, with one result."""
    ground = trial.ground
    if not ground.certification.refuses_repetition:
        raise RowDoesNotApply("two calls are two effects here, says the subject: the runtime makes one")
    first = await trial.happens(ground.wanted())
    second = await trial.make(first.wanted, key=first.call.idempotency_key, timeout_ms=LONG_MS)
    effects = await ground.effects_at_rest(first.wanted)
    if effects != 1:
        raise RowBroken(f"two calls with one key, and there are {effects} effects")
    words = _compared(first, second)
    async with Trial.open(ground) as other:
        third = await other.make(first.wanted, key=first.call.idempotency_key, timeout_ms=LONG_MS)
    effects = await ground.effects_at_rest(first.wanted)
    if effects != 1:
        raise RowBroken(f"two calls with one key, the second by another connector, and there are {effects} effects")
    _compared(first, third)
    return words


def _compared(first: MadeCall, second: MadeCall) -> str:
    match second.outcome:
        case DidNotHappen(message=message):
            raise RowBroken(f"the second call says that nothing happened, and its effect is there: {message}")
        case Happened(json_text=again):
            assert isinstance(first.outcome, Happened), "else it would have been refused"
            if not same_result(first.outcome.json_text, again):
                raise RowBroken("the second call returns something else than the first")
            return "1 effect; the second call returns the result of the first"
        case _:
            return f"1 effect; the second call leaves it open: {said(second.outcome)}"


HOST_ROWS: Final[Mapping[CertificationRow, RowFunction]] = {
    CertificationRow.PLAIN: plain,
    CertificationRow.CANCELLED: cancelled,
    CertificationRow.TOO_LATE: too_late,
    CertificationRow.CONCURRENT: concurrent,
    CertificationRow.REPEATED: repeated,
}
