"""Run a script in the host's own process, for trusted scripts and for simulation.

WebAssembly is the only wall: a script that breaks through it is in the host. So this mode is never a fallback, but must
be chosen. It is deterministic: the same invocation and the same answers give the same trace.
"""

import logging
from collections import deque
from collections.abc import Callable

from keep_sandbox.engine import Engine, shared_engine
from keep_sandbox.guest import Guest
from keep_sandbox.invocation import Invocation
from keep_sandbox.limits import DEFAULT_LIMITS, Limits
from keep_sandbox.outcomes import (
    EngineCrash,
    InvocationEnd,
    IssuedMutation,
    Kind,
    Outcome,
    Refused,
    Request,
)
from keep_sandbox.shim import UnexpectedTrap

logger = logging.getLogger(__name__)


class TrustedCall:
    """One invocation, driven by its caller: `next`, then `answer` or `refuse`, until the end."""

    def __init__(self, invocation: Invocation, limits: Limits = DEFAULT_LIMITS, engine: Engine | None = None) -> None:
        self._engine = engine
        self.logs: list[str] = []
        self._invocation = invocation
        self._outcomes: deque[Outcome] = deque()
        self._limits = limits
        # Made in `next`, where the script runs: the first one takes too long for a caller on an event loop.
        self._guest: Guest | None = None

    def next(self) -> Outcome:
        """Return the next request of the script, or its end. Blocks while the script runs."""
        if self._guest is None:
            self._guest = guest = Guest(self._engine or shared_engine(), self._limits)
            self._guarded(lambda: guest.run(self._invocation, self))
        assert self._outcomes, "the script waits for an answer, or has ended"
        outcome = self._outcomes.popleft()
        if not isinstance(outcome, Request):
            self._guest.close()
        return outcome

    def answer(self, request_id: int, value: str) -> None:
        """Give a request its answer, as JSON text, and let the script go on."""
        guest = self._guest
        assert guest is not None, "a request comes before its answer"
        self._guarded(lambda: guest.answer(request_id, value))

    def refuse(self, reason: str) -> Refused:
        """End the invocation. The script is not told."""
        self._outcomes.clear()
        if self._guest is not None:
            self._guest.close()
        return Refused(reason=reason)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except UnexpectedTrap as trap:
            logger.error("sandbox: an unexpected trap in a script that counts as trusted: %s", trap)
            self._outcomes.append(EngineCrash(signal=0))

    # The sink of the guest.

    def request(self, request_id: int, kind: Kind, name: str, params: str) -> None:
        """The script asks for something."""
        if kind is Kind.MUTATION and self._invocation.capabilities.mutation_is_terminal:
            self._outcomes.append(IssuedMutation(id=request_id, name=name, params=params))
        else:
            self._outcomes.append(Request(id=request_id, kind=kind, name=name, params=params))

    def log(self, line: str) -> None:
        """The script wrote a line."""
        self.logs.append(line)

    def end(self, ending: InvocationEnd) -> None:
        """The script has ended."""
        self._outcomes.append(ending)
