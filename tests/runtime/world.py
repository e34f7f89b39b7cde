"""A runtime in a box: virtual time, trusted scripts in threads, a database in memory unless a test wants a file."""

import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

import keep_actors
from keep_actors import Connector, Keep, Policy
from keep_actors.kernel import VirtualTime
from keep_storage import ExecutionModelManager, Store
from keep_storage.model import Run
from keep_storage.transaction import Queries

START = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60_000
DAY = 86_400_000

TAKE = """
  const [first] = await c.peek("in");
  if (!first) return { reservations: [] };
  return { reservations: [{ topic: "in", ids: [first.messageId] }], data: { id: first.messageId } };
"""
"""A `prepare` that takes the oldest event of the topic `in`, and hands its id on."""


def script(
    *,
    name: str = "flow",
    topics: Sequence[str] = ("in", "out"),
    producer: str = "",
    prepare: str = "",
    mutate: str = "",
    next_: str = "",
    job: str = "",
    publishes: Sequence[str] | None = None,
    schedule: str = '{ interval: "1d" }',
) -> str:
    """A workflow from the bodies of its handlers: the producer `poll`, the consumer `file` of `in`, the job `sweep`.

    In each body `c` is `ctx` by a name that the inspection at deploy does not see through, so that what it would
    refuse is refused where it counts, when the script runs.
    """
    only = "" if publishes is None else f"publishes: {json.dumps(list(publishes))},"
    groups = {}
    if producer:
        groups["producers"] = f"poll: {{ schedule: {schedule}, {only} handler: {_function('state', producer)} }}"
    if prepare or mutate or next_:
        phases = f"prepare: {_function('state', prepare or TAKE)},"
        phases += f"mutate: {_function('prepared', mutate)}," if mutate else ""
        phases += f"next: {_function('prepared, result', next_)}," if next_ else ""
        groups["consumers"] = f'file: Keep.consumer({{ subscribe: ["in"], {only} {phases} }})'
    if job:
        groups["jobs"] = f"sweep: {{ schedule: {schedule}, {only} handler: {_function('state', job)} }}"
    handlers = ", ".join(f"{group}: {{ {handler} }}" for group, handler in groups.items())
    head = f"name: {json.dumps(name)}, topics: {json.dumps({topic: {} for topic in topics})}"
    return f"const hidden = (ctx) => ctx;\nexport default Keep.workflow({{ {head}, {handlers} }});"


def _function(given: str, body: str) -> str:
    return f"async (ctx, {given}) => {{ const c = hidden(ctx); {body} }}"


@contextmanager
def left_in(path: str | Path) -> Iterator[Queries]:
    """What a runtime that has ended left in its file."""
    with Store.open(path) as store:
        yield store.queries()


@contextmanager
def by_hand(path: str | Path) -> Iterator[ExecutionModelManager]:
    """The operations themselves, on a file that no runtime has open: what a person decides in between."""
    with Store.open(path) as store:
        yield ExecutionModelManager(store)


class World:
    """A running runtime, its time, and short words for what tests do with it."""

    def __init__(self, keep: Keep, time: VirtualTime) -> None:
        self.keep = keep
        self.time = time

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        await self.keep.wait_idle()

    async def quiet(self) -> None:
        """Return once nothing moves: all that has begun waits for a connector that hangs, or for nothing at all.

        For a database in memory, which does what it is asked in turn: a read comes after all that was asked before.
        """
        threads, calm = anyio.to_thread.current_default_thread_limiter(), 0
        # No work goes through the database more often than this between two steps of a script.
        while calm < 6:
            await anyio.wait_all_tasks_blocked()
            calm = 0 if threads.borrowed_tokens else calm + 1
            await self.keep.workflows()
        await anyio.wait_all_tasks_blocked()

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

    async def runs(self, workflow: str, handler: str) -> list[Run]:
        """The runs of one handler, oldest first."""
        return [run for run in reversed(await self.keep.runs(workflow)) if run.handler == handler]

    async def last_run(self, workflow: str, handler: str) -> Run:
        """The newest run of a handler."""
        return (await self.runs(workflow, handler))[-1]


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
    options.setdefault("grants", "all")
    async with keep_actors.open(
        path, connectors=connectors, policy=policy, policies=policies, time=now, rng=random.Random(7), **options
    ) as keep:
        yield World(keep, now)
