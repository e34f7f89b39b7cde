"""The rows in which the host does something: it calls, cancels, calls several times at once, or again with one key."""

import threading
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.from_thread
from anyio.lowlevel import EventLoopToken, current_token

from keep_actors.connectors import CallOutcome, DidNotHappen, Happened, MutationCall, Unknown
from keep_actors.testing.certification.ground import ExampleCall, RowBroken, RowDoesNotApply
from keep_actors.testing.certification.network_rows import RowFunction
from keep_actors.testing.certification.rows import CertificationRow
from keep_actors.testing.certification.trial import LONG_MS, MadeCall, Trial, same_result, tell_nobody

_AT_ONCE: Final = 4
_DEAF_S: Final = 2.0


async def plain(trial: Trial) -> str:
    """One call is one effect."""
    wanted = trial.ground.wanted()
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
        await _cancelled(trial, after_s=0),
        await _cancelled(trial, after_s=took_s / 2),
        await _cancelled(trial, after_s=LONG_MS / 1000, at_sending=True),
    ]
    return f"at once: {words[0]}; halfway: {words[1]}; at `sending`: {words[2]}"


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


async def _cancelled(trial: Trial, *, after_s: float, at_sending: bool = False) -> str:
    wanted, outcome, ground = trial.ground.wanted(), None, trial.ground
    with anyio.CancelScope(deadline=anyio.current_time() + after_s) as scope:
        call = trial.call_of(wanted, on_sending=_Canceller(scope) if at_sending else tell_nobody)
        outcome = await _mutate(trial, wanted, call)
    late_s = anyio.current_time() - scope.deadline
    if scope.cancelled_caught and not at_sending and late_s > _DEAF_S:
        raise RowBroken(f"it went on for {late_s:.1f} s after it was cancelled")
    if outcome is None and trial.method.marks_sent and not call.is_sent and await ground.effects_at_rest(wanted):
        raise RowBroken("it was cancelled before `call.sending()`, and there is an effect")
    return await trial.judged(MadeCall(wanted, call, outcome, anyio.current_time()))


async def _mutate(trial: Trial, wanted: ExampleCall, call: MutationCall) -> CallOutcome:
    return await trial.method.mutate(wanted.params, call, LONG_MS)


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
    match second.outcome:
        case DidNotHappen(message=message):
            raise RowBroken(f"the second call says that nothing happened, and its effect is there: {message}")
        case Unknown(message=message):
            return f"1 effect; the second call leaves it open: {message}"
        case Happened(json_text=again):
            assert isinstance(first.outcome, Happened), "else it would have been refused"
            if not same_result(first.outcome.json_text, again):
                raise RowBroken("the second call returns something else than the first")
    return "1 effect; the second call returns the result of the first"


HOST_ROWS: Final[Mapping[CertificationRow, RowFunction]] = {
    CertificationRow.PLAIN: plain,
    CertificationRow.CANCELLED: cancelled,
    CertificationRow.CONCURRENT: concurrent,
    CertificationRow.REPEATED: repeated,
}
