"""The rows in which the network fails during a call. Each returns what was seen, or raises."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from keep_actors.connectors import DidNotHappen, Happened, NotApplied, Unknown
from keep_actors.testing.certification.faults import Act, Fault
from keep_actors.testing.certification.faults import Way as On
from keep_actors.testing.certification.ground import RowBroken, RowDoesNotApply, RowMoot
from keep_actors.testing.certification.rows import CertificationRow
from keep_actors.testing.certification.trial import LATE_MS, LONG_MS, MadeCall, Trial

RowFunction: TypeAlias = Callable[[Trial], Awaitable[str]]

_LATE_S: Final = 1.0
"""A request that was let go has arrived by then."""


async def refused(trial: Trial) -> str:
    """The service refuses connections."""
    wanted = trial.ground.wanted()
    await trial.way.refuse()
    made = await trial.make(wanted)
    await trial.way.accept()
    seen = await trial.judged(made)
    await trial.happens(trial.ground.wanted())
    return seen


async def lost_request(trial: Trial) -> str:
    """The decisive bytes never arrive."""
    made = await _made(trial, Fault(act=Act.CUT, pattern=trial.ground.decisive))
    if isinstance(made.outcome, Unknown | DidNotHappen) and await trial.ground.effects_at_rest(made.wanted):
        raise RowBroken(f"there is an effect although {_decisive(trial)} were lost: correct `decisive`")
    return await trial.judged(made)


async def cut_in_the_middle(trial: Trial) -> str:
    """A part of the decisive bytes arrives."""
    passing = max(1, len(trial.ground.decisive) // 2)
    return await trial.judged(await _made(trial, Fault(act=Act.RESET, pattern=trial.ground.decisive, passing=passing)))


async def lost_answer(trial: Trial) -> str:
    """The request arrives, and the connection breaks before its answer does."""
    return await trial.judged(await _made(trial, Fault(act=Act.CUT, on=On.ANSWERS, pattern=trial.ground.decisive)))


async def no_answer(trial: Trial) -> str:
    """The request arrives, and nothing comes back."""
    return await trial.judged(await _made(trial, Fault(act=Act.SWALLOW, on=On.ANSWERS, pattern=trial.ground.decisive)))


async def half_answer(trial: Trial) -> str:
    """The request arrives, and the connection breaks in the middle of its answer."""
    fault = Fault(act=Act.CUT, on=On.ANSWERS, pattern=trial.ground.decisive, half=True)
    return await trial.judged(await _made(trial, fault))


async def own_timeout(trial: Trial) -> str:
    """The request arrives, nothing comes back, and the host waits longer than the connector does."""
    fault = Fault(act=Act.SWALLOW, on=On.ANSWERS, pattern=trial.ground.decisive)
    return await trial.judged(await _made(trial, fault, timeout_ms=trial.ground.patience_ms))


async def slow_answer(trial: Trial) -> str:
    """The answer comes late, but in time."""
    fault = Fault(act=Act.DELAY, on=On.ANSWERS, pattern=trial.ground.decisive)
    return await trial.judged(await _made(trial, fault, timeout_ms=LONG_MS))


async def late_commit(trial: Trial) -> str:
    """The request arrives after the host has stopped waiting, and after its first look."""
    ground = trial.ground
    made = await _made(trial, Fault(act=Act.HOLD, pattern=ground.decisive))
    if isinstance(made.outcome, Happened):
        raise RowBroken("it answered before the service had its request")
    asked = isinstance(made.outcome, Unknown) and trial.method.reconcilable
    # Where `reconcile` repeats the call, it is held as well.
    patience_ms = ground.timeout_ms if ground.certification.reconcile_repeats else LONG_MS
    first = await trial.ask(made, patience_ms, waited_ms=LATE_MS) if asked else None
    trial.way.release()
    effects = await ground.effects_come(made.wanted, _LATE_S)
    if effects and isinstance(first, NotApplied):
        raise RowBroken("`reconcile` said NotApplied when the time was over, and the request arrived after that")
    if not effects and isinstance(first, NotApplied):
        return "`reconcile` said NotApplied when the time was over, and the request had no effect later"
    return f"it came late; {await trial.judged(made)}"


async def duplicate(trial: Trial) -> str:
    """The network delivers the same bytes twice."""
    ground = trial.ground
    if not ground.certification.refuses_repetition:
        raise RowDoesNotApply("two deliveries are two effects here, says the subject")
    made = await trial.happens(ground.wanted())
    if not await trial.way.repeat(ground.decisive):
        raise RowBroken(f"no connection had {_decisive(trial)}: correct `decisive`")
    effects = await ground.effects_at_rest(made.wanted)
    if effects != 1:
        raise RowBroken(f"its bytes were delivered twice, and there are {effects} effects")
    return "its bytes were delivered twice; 1 effect"


async def _made(trial: Trial, fault: Fault, timeout_ms: int | None = None) -> MadeCall:
    """Make a call under a fault, which ends with the call; what is held stays so."""
    wanted = trial.ground.wanted()
    trial.way.inject(fault)
    made = await trial.make(wanted, timeout_ms=timeout_ms)
    moments = trial.way.moments
    trial.way.clear()
    if not moments and isinstance(made.outcome, Happened):
        raise RowBroken(f"it happened without {_decisive(trial)}: correct `decisive`")
    if not moments:
        raise RowMoot(f"{_decisive(trial)} were not sent: {made.outcome}")
    return made


def _decisive(trial: Trial) -> str:
    return f"the decisive bytes {trial.ground.decisive!r}" if trial.ground.decisive else "the first bytes"


NETWORK_ROWS: Final[Mapping[CertificationRow, RowFunction]] = {
    CertificationRow.REFUSED: refused,
    CertificationRow.LOST_REQUEST: lost_request,
    CertificationRow.CUT_IN_THE_MIDDLE: cut_in_the_middle,
    CertificationRow.LOST_ANSWER: lost_answer,
    CertificationRow.NO_ANSWER: no_answer,
    CertificationRow.OWN_TIMEOUT: own_timeout,
    CertificationRow.HALF_ANSWER: half_answer,
    CertificationRow.SLOW_ANSWER: slow_answer,
    CertificationRow.LATE_COMMIT: late_commit,
    CertificationRow.DUPLICATE: duplicate,
}
