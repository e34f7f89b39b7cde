"""A person inside the service who stops, pauses and archives workflows at random moments, and brings them back."""

import random

import anyio

from keep_actors import Keep
from keep_storage.errors import Rejected
from keep_storage.model import Workflow, WorkflowStatus
from tests.torture.records import Effects, Halts
from tests.torture.stories import asks, name_of

BY = "boss"
HANDS = 3
MOMENT_S = 0.6
"""Long enough for a run that did not stop to make some more calls."""


class Boss:
    """One life of meddling. What an earlier life left stopped goes on first."""

    def __init__(self, keep: Keep, outside: Effects, halts: Halts, rng: random.Random) -> None:
        self._keep = keep
        self._outside = outside
        self._halts = halts
        self._rng = rng
        self._in_hand: set[str] = set()
        """Workflows that are being meddled with."""

    async def meddle(self) -> None:
        """Stop several workflows at a time for a moment, again and again."""
        await self.let_all_go_on()
        async with anyio.create_task_group() as tasks:
            for _ in range(HANDS):
                tasks.start_soon(self._meddle)

    async def _meddle(self) -> None:
        while True:
            await anyio.sleep(self._rng.uniform(0.01, 0.2))
            name = await self._victim()
            if name in self._in_hand:
                continue
            self._in_hand.add(name)
            match self._rng.choice(("stop", "pause", "archive")):
                case "stop":
                    await self._stop(name)
                case "pause":
                    await self._keep.pause(name, by=BY)
                    await self._for_a_moment(name)
                case "archive":
                    await self._keep.archive(name, by=BY)
                    self._halts.note("archived", name)
                    await self._for_a_moment(name)
            self._in_hand.remove(name)

    async def _victim(self) -> str:
        """Any workflow, or the next one that does something: it may be about to do more."""
        there = [each.name for each in await self._keep.workflows()]
        if there and self._rng.random() < 0.5:
            return self._rng.choice(there)
        await self._outside.something_happened.wait()
        return name_of(self._outside.last)

    async def let_all_go_on(self) -> None:
        for workflow in await self._keep.workflows():
            await self._let_go_on(workflow)

    async def _stop(self, name: str) -> None:
        try:
            await self._keep.stop_run(name, by=BY, why="a whim")
        except Rejected:  # nothing is under way
            return
        self._halts.note("stopped", name)

    async def _for_a_moment(self, name: str) -> None:
        # A call that a person approves is made, also while the workflow is paused.
        if not asks(name):
            self._halts.note("halted", name)
        await anyio.sleep(self._rng.uniform(0, MOMENT_S))
        await self._let_go_on(await self._keep.workflow(name))

    async def _let_go_on(self, workflow: Workflow) -> None:
        if workflow.status is WorkflowStatus.ARCHIVED:
            await self._keep.unarchive(workflow.id, by=BY)
        if workflow.status in (WorkflowStatus.ARCHIVED, WorkflowStatus.PAUSED):
            self._halts.note("going", workflow.name)
            await self._keep.resume(workflow.id, by=BY)
