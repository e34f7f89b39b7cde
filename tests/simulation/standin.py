"""A stand-in for the sandbox: it does what the script says without an engine, and its workers die when they are told.

The engine takes two milliseconds for each handler, which is most of what a simulated run would cost. A test holds the
two together: the same requests, the same results, the same story.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from keep_actors.sandbox_pool import Call, SandboxPool
from keep_actors.sandbox_pool.policy import PoolPolicy
from keep_actors.testing.life import Here
from keep_sandbox.declaration import Inspection, Use
from keep_sandbox.invocation import Invocation, MethodKind
from keep_sandbox.limits import TRUSTED_LIMITS, Limits
from keep_sandbox.outcomes import (
    EngineCrash,
    IssuedMutation,
    Kind,
    Outcome,
    Place,
    Refused,
    Request,
    ScriptError,
    Terminal,
    Value,
    WorkerLost,
)
from tests.simulation import scripts

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Ending = WorkerLost | EngineCrash
Strike = Callable[[str], Ending | None]
"""Called with a workflow's id whenever its worker has the word; what it returns ends the worker."""


class StandIn:
    """One invocation, as `ThreadCall` is one."""

    def __init__(self, invocation: Invocation, here: Here, strike: Callable[[], Ending | None]) -> None:
        self.logs: list[str] = []
        self.terminal: Terminal | None = None
        self._here = here
        self._strike = strike
        self._is_terminal = invocation.capabilities.mutation_is_terminal
        spec = scripts.spec_of(invocation.source)
        self._steps = scripts.handler(spec, invocation.address, _decode(invocation.args), invocation.now_ms)
        self._answer: Any = None
        self._last = 0

    async def next(self) -> Outcome:
        """The next request, or the end."""
        outcome = await self._here.run(self._go_on)
        if not isinstance(outcome, Request):
            self.terminal = outcome
        return outcome

    async def answer(self, _: int, value: str) -> None:
        """Give the request its answer."""
        self._answer = await self._here.run(lambda: _decode(value))

    async def refuse(self, reason: str) -> Refused:
        """End it."""
        self.terminal = Refused(reason=reason)
        return self.terminal

    def _go_on(self) -> Outcome:
        if (struck := self._strike()) is not None:
            return struck
        try:
            kind, name, params = self._steps.send(self._answer)
        except StopIteration as end:
            return Value(value=_encode(end.value).decode(), is_given=end.value is not None)
        except scripts.Poison:
            return ScriptError(phase="run", name="Error", message="poison")
        self._answer = None
        self._last += 1
        text = _encode(params).decode()
        if kind == "mutation" and self._is_terminal:
            return IssuedMutation(id=self._last, name=name, params=text)
        return Request(id=self._last, kind=Kind(kind), name=name, params=text)


class StandInPool(SandboxPool):
    """A pool of stand-ins."""

    def __init__(self, here: Here, strike: Strike) -> None:
        super().__init__("thread", TRUSTED_LIMITS, PoolPolicy(), here)
        self._here = here
        self._strike = strike

    @asynccontextmanager
    async def invoke(
        self,
        workflow_id: str,
        invocation: Invocation,
        limits: Limits | None = None,  # noqa: ARG002  # a stand-in has none
    ) -> AsyncIterator[Call]:
        """Run one handler."""
        async with self._slots:
            yield StandIn(invocation, self._here, lambda: self._strike(workflow_id))

    async def inspect(
        self,
        source: str,
        methods: Mapping[str, MethodKind] | None = None,  # noqa: ARG002  # they are known
    ) -> Inspection:
        """What the script declares."""
        return await self._here.run(inspection, source)


def inspection(source: str) -> Inspection:
    """As the real one finds it, but for the places."""
    spec = scripts.spec_of(source)
    uses = [Use(name=name, place=Place(1, 1), handler="") for name in scripts.uses(spec)]
    return Inspection(declaration=scripts.declaration(spec), problems=[], problem_count=0, uses=uses)
