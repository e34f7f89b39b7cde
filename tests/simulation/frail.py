"""A sandbox for a simulation: the real engine, without threads, and workers that die when they are told."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache

from keep_actors.sandbox_pool import Call, SandboxPool
from keep_actors.sandbox_pool.policy import PoolPolicy
from keep_actors.testing.life import Here
from keep_sandbox.declaration import Inspection
from keep_sandbox.inspect import inspect
from keep_sandbox.invocation import Invocation, MethodKind
from keep_sandbox.limits import DEFAULT_LIMITS, Limits
from keep_sandbox.outcomes import EngineCrash, Outcome, Refused, Terminal, WorkerLost

Ending = WorkerLost | EngineCrash
Strike = Callable[[str], Ending | None]
"""Called with a workflow's id whenever its worker has the word; what it returns ends the worker."""


class FrailCall:
    """A call whose worker may die before each of its turns."""

    def __init__(self, call: Call, strike: Callable[[], Ending | None]) -> None:
        self._call = call
        self._strike = strike
        self._struck: Ending | None = None

    @property
    def logs(self) -> list[str]:
        """The log lines so far."""
        return self._call.logs

    @property
    def terminal(self) -> Terminal | None:
        """The end, once it was reached."""
        return self._struck or self._call.terminal

    async def next(self) -> Outcome:
        """The next request, or the end."""
        self._struck = self._strike()
        return self._struck or await self._call.next()

    async def answer(self, request_id: int, value: str) -> None:
        """Give a request its answer."""
        await self._call.answer(request_id, value)

    async def refuse(self, reason: str) -> Refused:
        """End the invocation."""
        return await self._call.refuse(reason)


class FrailPool(SandboxPool):
    """A pool of such calls."""

    def __init__(self, here: Here, strike: Strike) -> None:
        super().__init__("thread", DEFAULT_LIMITS, PoolPolicy(), here)
        self._here = here
        self._strike = strike

    @asynccontextmanager
    async def invoke(
        self, workflow_id: str, invocation: Invocation, limits: Limits | None = None, *, owner: str = ""
    ) -> AsyncIterator[Call]:
        """Run one handler."""
        async with super().invoke(workflow_id, invocation, limits, owner=owner) as call:
            yield FrailCall(call, lambda: self._strike(workflow_id))

    async def inspect(self, source: str, methods: Mapping[str, MethodKind] | None = None) -> Inspection:
        """Inspect a script; once for all seeds, since it depends on nothing else."""
        known = None if methods is None else tuple(sorted(methods.items()))
        return await self._here.run(_inspected, source, known)


@cache
def _inspected(source: str, methods: tuple[tuple[str, MethodKind], ...] | None) -> Inspection:
    return inspect(source, None if methods is None else dict(methods))
