"""A runtime in a box: virtual time, fakes for the outside, a database in memory or in a file, and a hand on everything.

A box outlives the processes in it. `crash` ends one as a power cut would; `reopen` starts the next on what was durable.
"""

import math
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from keep_actors.api.commands import Deployed
from keep_actors.api.keep import Keep
from keep_actors.connectors import Catalog, Connector
from keep_actors.host.fault_points import Faults, Point, no_faults
from keep_actors.kernel import Question, RestartPolicy, Time, VirtualTime
from keep_actors.maintenance import Maintainer
from keep_actors.notices import Sinks
from keep_actors.notices.sink import chosen as chosen_sinks
from keep_actors.permissions import Accepted
from keep_actors.policy import Policy
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_actors.sandbox_pool.policy import PoolPolicy
from keep_actors.telemetry import Wanted, chosen
from keep_actors.testing.fake import Fake
from keep_actors.testing.ledger import Journal, Ledger
from keep_actors.testing.life import Died, Here
from keep_actors.testing.outside import Outside
from keep_actors.testing.pace import Pace
from keep_actors.testing.process import Process
from keep_actors.workflow.messages import Message
from keep_storage import Store, invariants
from keep_storage.ids import Millis
from keep_storage.model import Run
from keep_storage.transaction import Queries

T = TypeVar("T")

_MS = {"seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
_LOOKS_AGAIN_S = 0.1
"""How long AnyIO waits on asyncio before it looks again whether all tasks wait."""
_TURNS = 100
"""Turns of the event loop that are given before it is looked whether all tasks wait."""


class Box:
    """Made by `Box.open`. `keep` is the runtime that runs in it now."""

    def __init__(self, connectors: tuple[Connector, ...], path: str | None, time: Time, options: Mapping[str, Any]):
        self.time = time
        fakes = [each for each in connectors if isinstance(each, Fake)]
        self.world = next((each.world for each in fakes if each.world.asked), Outside())
        """The world outside, over all processes so far. Fakes that were in another box bring theirs along."""
        self.world.now, self.world.elapsed = time.now, time.elapsed
        for fake in fakes:
            fake.world = self.world
        self.processes = 0
        """How many there have been."""
        self._catalog = Catalog(connectors)
        self._path = path
        self._store: Store | None = None
        self._options = options
        self._faults: Faults = options["faults"]
        self._pace = Pace()
        self._process: Process | None = None
        self._keep: Keep | None = None
        self._crash_at: tuple[Point, str | None] | None = None
        self._tasks: TaskGroup | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *connectors: Connector,
        path: str | os.PathLike[str] | None = None,
        time: Time | None = None,
        seed: int = 7,
        policy: Policy | None = None,
        policies: Mapping[str, Policy] | None = None,
        grants: Accepted = "all",
        maintainer: Maintainer | None = None,
        notices: Sinks = (),
        restart: RestartPolicy | None = None,
        runs_max: int = 256,
        telemetry: Wanted = None,
        shutdown_grace_ms: Millis = 10_000,
        faults: Faults = no_faults,
    ) -> AsyncIterator[Self]:
        """A box for the block, with a process in it. Without a `path` the database is in memory, and outlives crashes.

        Everything is granted unless `grants` says otherwise; the rest is as in `keep_actors.open`.
        """
        options = {
            "policy": policy,
            "policies": policies,
            "grants": grants,
            "maintainer": maintainer,
            "sinks": chosen_sinks(notices),
            "restart": restart,
            "runs_max": runs_max,
            "telemetry": chosen(telemetry),
            "grace_ms": shutdown_grace_ms,
            "faults": faults,
            "rng": random.Random(seed),  # noqa: S311  # a test wants the same numbers each time
        }
        box = cls(connectors, None if path is None else os.fspath(path), time or VirtualTime(), options)
        try:
            async with anyio.create_task_group() as box._tasks:
                await box.reopen()
                yield box
                await box.close()
        except ExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            # The test's own: it leaves this block as it came, not in a group of ours.
            raise group.exceptions[0] from group.exceptions[0].__cause__
        finally:
            if box._store is not None:
                box._store.close()

    @property
    def keep(self) -> Keep:
        """The runtime, as an embedding service has it."""
        assert self._keep is not None, "the process has ended; `await box.reopen()`"
        return self._keep

    # Short words for the steps of most tests.

    async def deploy(self, source: str, **options: Any) -> Deployed:
        """`keep.deploy`."""
        return await self.keep.deploy(source, **options)

    async def publish(self, workflow: str, topic: str, *message_ids: str, payload: Any = None) -> None:
        """Events from outside, one for each message id."""
        for each in message_ids:
            await self.keep.publish(workflow, topic, message_id=each, title=f"Event {each}", payload=payload)

    async def until_idle(self) -> None:
        """Return once nothing can happen before time moves, a call that hangs is released, or an actor is thawed."""
        # On asyncio AnyIO looks, and looks again a tenth of a second later: mostly the work is done before that.
        for _ in range(_TURNS):
            await checkpoint()
        # On asyncio, who waits for a task learns a turn of the loop after its end that it may go on, and until then all
        # seem to wait. So a look counts only if a second one sees the same at once.
        looked_at = -math.inf
        while anyio.current_time() - looked_at >= _LOOKS_AGAIN_S:
            await anyio.wait_all_tasks_blocked()
            looked_at = anyio.current_time()
            await anyio.wait_all_tasks_blocked()

    async def settle(self) -> None:
        """Let everything finish that is due now. With a call that hangs this waits; `until_idle` does not."""
        await self.keep.wait_idle()

    async def advance(self, ms: float = 0, **spans: float) -> None:
        """Let time pass (`hours=1`, `ms=500`), moment by moment, and let happen what is due on the way."""
        assert isinstance(self.time, VirtualTime), "this box is on another clock; wait for that"
        await self.until_idle()
        target = self.time.now() + round(ms + sum(_MS[unit] * amount for unit, amount in spans.items()))
        while (due := self.time.next_due) is not None and due <= target:
            self.time.advance_to(max(due, self.time.now()))
            await self.until_idle()
        self.time.advance_to(target)
        await self.until_idle()

    async def runs(self, workflow: str, handler: str) -> list[Run]:
        """The runs of one handler, oldest first."""
        return [run for run in reversed(await self.keep.runs(workflow)) if run.handler == handler]

    async def last_run(self, workflow: str, handler: str) -> Run:
        """The newest run of a handler."""
        return (await self.runs(workflow, handler))[-1]

    async def statuses(self, workflow: str, topic: str) -> dict[str, str]:
        """The statuses of a topic's events, by message id."""
        return {event.message_id: str(event.status) for event in await self.keep.events(workflow, topic)}

    # Processes.

    async def crash(self) -> None:
        """End the process now, as a power cut would. What was not durable is gone."""
        process = self._running()
        process.die()
        await self._gone(process)

    def crash_at(self, point: Point, whose: str | None = None) -> None:
        """End the process when it comes to this point the next time; `whose` is a workflow's id or `bank.pay`."""
        self._crash_at = (point, whose)

    async def crashed(self) -> None:
        """Return when the process has ended. Fails if nothing can happen any more and it lives."""
        process = self._running()
        await self.until_idle()
        if not process.ended.is_set():
            raise AssertionError(f"nothing happens any more, and the process has not come to {self._crash_at}")
        await self._gone(process)

    async def close(self) -> None:
        """End the process in order, if there is one."""
        if self._process is not None and not self._process.ended.is_set():
            self._pace.thaw()
            await self._process.leave()
        if self._process is not None:
            await self._gone(self._process)

    async def reopen(self) -> Keep:
        """Start a process on the durable state. Raises the error if it cannot start."""
        assert self._tasks is not None, "a box is opened with `async with Box.open(...)`"
        assert self._process is None, "a process is running; crash or close it first"
        if self._store is None:
            now = self.time.now
            self._store = Store.in_memory(now) if self._path is None else Store.open(self._path, now)
        options = {**self._options, "faults": self._reach, "pace": self._pace}
        self._process = Process(self._store, self._catalog, _in_thread_mode, time=self.time, **options)
        self.processes += 1
        for connector in self._catalog.connectors:
            await connector.open()
        self._keep = await self._tasks.start(self._process.run)
        if self._keep is None:
            error = self._process.error
            await self._gone(self._process)
            raise error or AssertionError("the process died while it started")
        return self._keep

    # Actors and their messages.

    async def freeze(self, workflow: str | None = None) -> None:
        """Freeze the actor of a workflow: it takes nothing from its mailbox. Without a name: all actors."""
        self._pace.freeze(None if workflow is None else await self.id_of(workflow))

    async def thaw(self) -> None:
        """Let all actors continue."""
        self._pace.thaw()
        await self.until_idle()

    async def step(self, workflow: str) -> Message | None:
        """Let a frozen workflow take one message, and happen what follows from it. Returns it; None if none waits."""
        workflow_id = await self.id_of(workflow)
        assert self._pace.is_frozen(workflow_id), "freeze it first"
        await self.until_idle()
        waiting = self._running().runtime.directory.waiting(workflow_id)
        if not waiting:
            return None
        self._pace.step(workflow_id)
        await self.until_idle()
        return waiting[0]

    async def mailbox(self, workflow: str) -> list[Message]:
        """The messages that wait for a workflow's actor, the next one first."""
        workflow_id = await self.id_of(workflow)
        await self.until_idle()
        return self._running().runtime.directory.waiting(workflow_id)

    async def tell(self, workflow: str, message: Message) -> None:
        """Put any message into a workflow's mailbox."""
        self._running().runtime.directory.tell(await self.id_of(workflow), message)

    async def ask(self, workflow: str, question: Question[T]) -> T:
        """The same, and wait for its answer."""
        return await self._running().runtime.directory.ask(await self.id_of(workflow), question)

    async def id_of(self, workflow: str) -> str:
        """The id of a workflow, by its name."""
        return (await self.keep.workflow(workflow)).id

    # What is in the database.

    def read(self, function: Callable[[Queries], T]) -> T:
        """Look into the database, whether a process runs or not."""
        assert self._store is not None, "the file is closed; reopen the box"
        return function(self._store.queries())

    @property
    def ledger(self) -> Ledger:
        """Every external call, as the database has it, and what can be said about it."""
        return self.read(Ledger.of)

    @property
    def journal(self) -> Journal:
        """Every operation that happened, oldest first."""
        return self.read(Journal.of)

    def check_invariants(self) -> None:
        """Fails if one is broken."""
        broken = self.read(lambda q: invariants.check(q, deep=True))
        if broken:
            raise AssertionError("\n".join(str(each) for each in broken))

    # How.

    def _running(self) -> Process:
        assert self._process is not None, "the process has ended; `await box.reopen()`"
        return self._process

    async def _gone(self, process: Process) -> None:
        await process.ended.wait()
        for connector in reversed(self._catalog.connectors):
            await connector.close()
        self._process = self._keep = None
        if self._path is not None and self._store is not None:
            self._store.close()
            self._store = None

    def _reach(self, point: Point, whose: str) -> None:
        if self._crash_at is not None and self._crash_at[0] is point and self._crash_at[1] in (None, whose):
            self._crash_at = None
            self._running().die()
            raise Died
        self._faults(point, whose)


def _in_thread_mode(here: Here) -> SandboxPool:
    """Scripts run where everything runs, by the same rules as in a process of their own."""
    return SandboxPool("thread", RUN_LIMITS, PoolPolicy(), here)
