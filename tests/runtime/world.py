"""Scripts from the bodies of their handlers, a box to run them in, and a look at what a runtime left in its file."""

import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import keep_actors
from keep_actors import Connector, Keep
from keep_actors.host.fault_points import no_faults
from keep_actors.kernel import VirtualTime
from keep_actors.sandbox_pool.pool import PoolMode
from keep_actors.testing import Box
from keep_storage import ExecutionModelManager, Store
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


class TimedBox(Box):
    """A box whose time a test moves."""

    time: VirtualTime

    async def leap(self, ms: int) -> None:
        """Let time pass in one step: what it leaps over is late, and not made up for."""
        self.time.advance(ms)
        await self.settle()


@asynccontextmanager
async def world(
    *connectors: Connector, path: str | Path | None = None, time: VirtualTime | None = None, **options: Any
) -> AsyncIterator[TimedBox]:
    """A runtime for the block."""
    async with TimedBox.open(*connectors, path=path, time=time, **options) as box:
        yield box


class Opened(TimedBox):
    """The words of a box, for a runtime that was made elsewhere."""

    def __init__(self, keep: Keep, time: VirtualTime) -> None:
        super().__init__((), None, time, {"faults": no_faults})
        self._opened = keep

    @property
    def keep(self) -> Keep:
        return self._opened

    async def advance(self, ms: float = 0, **_: float) -> None:
        """Leap. Its threads are real: only the runtime knows when they are done."""
        await self.leap(round(ms))


@asynccontextmanager
async def opened(
    *connectors: Connector, path: str | Path = ":memory:", sandbox: PoolMode = "thread", **options: Any
) -> AsyncIterator[Opened]:
    """A runtime by `keep_actors.open`: with real threads, and a jail if a test wants one."""
    time = VirtualTime(START)
    how = {"grants": "all", "time": time, "rng": random.Random(7), **options}
    async with keep_actors.open(path, connectors=connectors, sandbox=sandbox, **how) as keep:
        yield Opened(keep, time)
