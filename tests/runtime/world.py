"""A runtime in a box: virtual time, trusted scripts in threads, a database in memory unless a test wants a file."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import keep_actors
from keep_actors import Connector, Keep, Policy
from keep_actors.kernel import VirtualTime

START = 1_700_000_000_000
MINUTE = 60_000


class World:
    """A running runtime, its time, and short words for what tests do with it."""

    def __init__(self, keep: Keep, time: VirtualTime) -> None:
        self.keep = keep
        self.time = time

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        await self.keep.wait_idle()

    async def advance(self, ms: int) -> None:
        """Let time pass, in one step, and what is due happen."""
        self.time.advance(ms)
        await self.keep.wait_idle()

    async def publish(self, workflow: str, topic: str, *message_ids: str, payload: Any = None) -> None:
        """Events from outside, one for each message id."""
        for each in message_ids:
            await self.keep.publish(workflow, topic, message_id=each, title=f"Event {each}", payload=payload)

    async def statuses(self, workflow: str, topic: str) -> dict[str, str]:
        """What became of the events of a topic, by message id."""
        return {event.message_id: str(event.status) for event in await self.keep.events(workflow, topic)}


@asynccontextmanager
async def world(
    *connectors: Connector,
    path: str | Path = ":memory:",
    policy: Policy | None = None,
    policies: Mapping[str, Policy] | None = None,
    time: VirtualTime | None = None,
    **options: Any,
) -> AsyncIterator[World]:
    """A runtime for the block."""
    now = time or VirtualTime(START)
    options.setdefault("sandbox", "thread")
    async with keep_actors.open(
        path, connectors=connectors, policy=policy, policies=policies, time=now, rng=random.Random(7), **options
    ) as keep:
        yield World(keep, now)
