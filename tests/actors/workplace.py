"""A supervisor on a time that moves by hand, what its workers received, and what became of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from keep_actors.kernel import Escalated, Question, Supervisor, VirtualTime
from tests.actors.test_time import settle


class Boom(Exception):
    pass


class Do(Question[str]):
    """Answered with what it said, unless it says otherwise."""

    def __init__(self, what: str) -> None:
        self.what = what


class Workplace:
    """To be made inside the event loop."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.crashes: list[tuple[str, Exception, int]] = []
        self.made: list[tuple[str, int]] = []
        self.received: list[tuple[str, int, str]] = []
        self.freedom = anyio.Event()
        """Workers that hold wait for it."""
        self.supervisor = Supervisor("tests", self.time, on_crash=self.on_crash)
        self.escalated: Escalated | None = None
        self.scope = anyio.CancelScope()
        self.ended = False

    def on_crash(self, name: str, error: Exception, restarts: int) -> None:
        self.crashes.append((name, error, restarts))

    async def advance(self, ms: int) -> None:
        self.time.advance(ms)
        await settle()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TaskGroup]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.own)
            await settle()
            yield tasks
            self.scope.cancel()

    async def own(self) -> None:
        """Play the owner: run, and keep what came out of it."""
        try:
            with self.scope:
                await self.supervisor.run()
        except Escalated as error:
            self.escalated = error
        self.ended = True
