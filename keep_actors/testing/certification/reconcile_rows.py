"""The rows about `reconcile`: what it says when nothing is wrong, and when it cannot look."""

from collections.abc import Mapping
from typing import Final

import anyio

from keep_actors.connectors import Applied, Happened, NotApplied, Retry, Unknown, Verdict
from keep_actors.testing.certification.faults import Act, Fault
from keep_actors.testing.certification.faults import Way as On
from keep_actors.testing.certification.ground import ExampleCall, RowBroken, RowDoesNotApply
from keep_actors.testing.certification.network_rows import RowFunction
from keep_actors.testing.certification.rows import CertificationRow
from keep_actors.testing.certification.trial import LONG_MS, Belief, MadeCall, Trial, same_result

_SHORT_MS: Final = 300
_MADE_IT: Final = (
    "`reconcile` made the call itself: set `reconcile_repeats` if the service promises one effect for one key"
)


async def found(trial: Trial) -> str:
    """A call that happened is found, with the result of the call."""
    _need_reconcile(trial)
    made = await trial.happens(trial.ground.wanted())
    assert isinstance(made.outcome, Happened), "else it would have been refused"
    settled = await trial.settled(_doubted(made))
    if settled.known is not Belief.HAPPENED:
        raise RowBroken(f"it happened, and was doubted: {settled.words}")
    if not same_result(settled.result, made.outcome.json_text):
        raise RowBroken(f"the call returned {_cut(made.outcome.json_text)}, and `reconcile` {_cut(settled.result)}")
    async with Trial.open(trial.ground) as other:
        restarted = await other.settled(_doubted(made))
    if restarted.known is not Belief.HAPPENED:
        raise RowBroken(f"it happened, and another connector was asked, as after a restart: {restarted.words}")
    return "Applied, with the result of the call"


async def never_made(trial: Trial) -> str:
    """A call that was never made is not found, also if another one was made whose key is nearly the same."""
    _need_reconcile(trial)
    first = await _never_found(trial, _never(trial, trial.ground.wanted()))
    made = await trial.happens(trial.ground.wanted())
    near = _never(trial, trial.ground.wanted(), near=made.call.idempotency_key)
    await _never_found(trial, near)
    return first


async def _never_found(trial: Trial, never: MadeCall) -> str:
    verdict = await trial.ask(never, LONG_MS)
    if not isinstance(verdict, Applied):
        return _in_words(verdict)
    if trial.ground.certification.reconcile_repeats:
        return await _made_by_reconcile(trial, never.wanted, 1)
    if await trial.ground.effects_at_rest(never.wanted):
        raise RowBroken(_MADE_IT)
    raise RowBroken("`reconcile` says Applied about a call that was never made")


async def anothers(trial: Trial) -> str:
    """An equal call with another key is not taken for this one, where both would be effects."""
    _need_reconcile(trial)
    ground, wanted = trial.ground, trial.ground.wanted()
    made = await trial.happens(wanted)
    other = _never(trial, wanted, near=made.call.idempotency_key)
    verdict = await trial.ask(other, LONG_MS)
    if not isinstance(verdict, Applied):
        return f"{_in_words(verdict)}, although an equal call was made"
    if ground.certification.reconcile_repeats:
        return await _made_by_reconcile(trial, wanted, 2)
    if await ground.effects_at_rest(wanted) > 1:
        raise RowBroken(_MADE_IT)
    again = await trial.make(wanted, key=other.call.idempotency_key, timeout_ms=LONG_MS)
    if isinstance(again.outcome, Happened) and await ground.effects_at_rest(wanted) > 1:
        raise RowBroken("`reconcile` takes the effect of another call for its own: it compares contents, not keys")
    raise RowDoesNotApply("two equal calls are one effect here, whatever their keys")


async def slow_reconcile(trial: Trial) -> str:
    """The service does not answer `reconcile`."""
    _need_reconcile(trial)
    trial.ground.need_network()
    return await _blind(trial, Fault(act=Act.SWALLOW, on=On.ANSWERS), trial.ground.patience_ms)


async def failing_reconcile(trial: Trial) -> str:
    """The connection of `reconcile` breaks, and then none can be made."""
    _need_reconcile(trial)
    trial.ground.need_network()
    await _blind(trial, Fault(act=Act.CUT), _SHORT_MS)
    happened, never = await _both(trial)
    await trial.way.refuse()
    await _asked_blindly(trial, happened, never, _SHORT_MS)
    await trial.way.accept()
    return await _sees_again(trial, happened)


async def _blind(trial: Trial, fault: Fault, timeout_ms: int) -> str:
    happened, never = await _both(trial)
    trial.way.inject(fault)
    await _asked_blindly(trial, happened, never, timeout_ms)
    trial.way.clear()
    return await _sees_again(trial, happened)


async def _both(trial: Trial) -> tuple[MadeCall, MadeCall]:
    """A call that happened, and one that was never made."""
    happened = _doubted(await trial.happens(trial.ground.wanted()))
    await anyio.sleep(trial.method.settle_ms / 1000)  # before that, no connector is believed
    return happened, _never(trial, trial.ground.wanted())


async def _asked_blindly(trial: Trial, happened: MadeCall, never: MadeCall, timeout_ms: int) -> None:
    said: dict[str, Verdict] = {}

    async def ask(made: MadeCall) -> None:
        said[made.call.idempotency_key] = await trial.ask(made, timeout_ms)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, happened)
        tasks.start_soon(ask, never)
    if isinstance(said[happened.call.idempotency_key], NotApplied):
        raise RowBroken("`reconcile` could not look, and says NotApplied about a call that happened")
    if isinstance(said[never.call.idempotency_key], Applied):
        raise RowBroken("`reconcile` could not look, and says Applied about a call that was never made")


async def _sees_again(trial: Trial, happened: MadeCall) -> str:
    settled = await trial.settled(happened)
    if settled.known is not Belief.HAPPENED:
        raise RowBroken(f"when it could look again: {settled.words}")
    return "no false word while it could not look; then Applied"


async def _made_by_reconcile(trial: Trial, wanted: ExampleCall, expected: int) -> str:
    effects = await trial.ground.effects_at_rest(wanted)
    if effects != expected:
        raise RowBroken(f"`reconcile` says Applied, and there are {effects} effects instead of {expected}")
    return f"`reconcile` made the call, as the subject says; effects: {effects}"


def _need_reconcile(trial: Trial) -> None:
    if not trial.method.reconcilable:
        raise RowDoesNotApply("there is no `reconcile`: a person is asked")


def _doubted(made: MadeCall) -> MadeCall:
    """The same call, as if its answer had been lost, and its deadline were now."""
    return MadeCall(made.wanted, made.call, Unknown("its answer is taken away"), anyio.current_time())


def _never(trial: Trial, wanted: ExampleCall, *, near: str | None = None) -> MadeCall:
    """A call that was never made, of which nothing can be on its way any more. `near`: with a key that begins alike."""
    key = trial.ground.next_key(near) if near else None
    return MadeCall(wanted, trial.call_of(wanted, key), None, anyio.current_time() - trial.method.settle_ms / 1000)


def _in_words(verdict: Applied | NotApplied | Retry) -> str:
    return type(verdict).__name__ if not isinstance(verdict, Retry) else f"cannot tell: {verdict.message}"


def _cut(json_text: str | None) -> str:
    text = str(json_text)
    return text if len(text) <= 200 else f"{text[:199]}…"


RECONCILE_ROWS: Final[Mapping[CertificationRow, RowFunction]] = {
    CertificationRow.FOUND: found,
    CertificationRow.NEVER_MADE: never_made,
    CertificationRow.ANOTHERS: anothers,
    CertificationRow.SLOW_RECONCILE: slow_reconcile,
    CertificationRow.FAILING_RECONCILE: failing_reconcile,
}
