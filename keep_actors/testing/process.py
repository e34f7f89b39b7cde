"""One process of a box: what `keep_actors.open` puts together, with every door in the hands of a test.

It ends in order, by an error of its own, or by dying at any moment; the database and the world outside outlive it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import anyio
from anyio.abc import TaskStatus

from keep_actors.api.keep import Keep
from keep_actors.connectors import Catalog
from keep_actors.host.fault_points import Faults, Point, no_faults
from keep_actors.host.host import Host
from keep_actors.host.reading_actor import ReadingActor
from keep_actors.host.run_slots import RunSlots
from keep_actors.host.storage_actor import StorageActor
from keep_actors.kernel import ActorError, Directory, Escalated, RestartPolicy, Supervisor, Time
from keep_actors.kernel.signal import Signal
from keep_actors.maintenance import Maintainer
from keep_actors.permissions import Accepted
from keep_actors.policy import Policy
from keep_actors.runtime.runtime import CoreActors, Runtime
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.testing.life import Died, Here, Life
from keep_actors.testing.pace import Pace
from keep_actors.workflow.actor import WorkflowActor
from keep_actors.workflow.messages import Message
from keep_storage.errors import StorageError
from keep_storage.operations import Operation, OperationOutcome
from keep_storage.transaction import Reader

OnCrash: TypeAlias = Callable[[str, Exception, int], None]
"""Told of every crash of a workflow's actor: whose, with what, after how many restarts."""


class Database(Protocol):
    """What a process needs of a store."""

    def commit(self, batch: Sequence[Operation[Any]], /) -> Sequence[OperationOutcome]: ...

    def reader(self) -> Reader: ...


class PacedRuntime(Runtime):
    """A runtime whose workflow actors can be held back, and which lets a test look into their mailboxes."""

    pace: Pace | None = None
    actors: dict[str, WorkflowActor]

    @property
    def workflows(self) -> Supervisor:
        """Who restarts the actors of workflows."""
        return self._workflows

    @property
    def directory(self) -> Directory[Message]:
        """Where messages for workflows go."""
        return self._directory

    def _make(self, workflow_id: str, restarts: int) -> WorkflowActor:
        actor = super()._make(workflow_id, restarts)
        if self.pace is not None:
            actor.pace = partial(self.pace, workflow_id)
        self.actors[workflow_id] = actor
        return actor

    def let_go(self, actor: WorkflowActor) -> bool:
        gone = super().let_go(actor)
        if gone and self.actors.get(actor.name) is actor:
            del self.actors[actor.name]
        return gone


class Process:
    """Made, run once, ended."""

    def __init__(
        self,
        store: Database,
        catalog: Catalog,
        pool: Callable[[Here], SandboxPool],
        *,
        time: Time,
        rng: random.Random,
        policy: Policy | None = None,
        policies: Mapping[str, Policy] | None = None,
        grants: Accepted = "all",
        maintainer: Maintainer | None = None,
        restart: RestartPolicy | None = None,
        runs_max: int = 64,
        faults: Faults = no_faults,
        pace: Pace | None = None,
        turns: Callable[[], int] = lambda: 1,
        takes_s: Callable[[], float] = lambda: 0,
        grace_ms: int = 10_000,
        on_crash: OnCrash | None = None,
    ) -> None:
        self.life = Life()
        self.error: BaseException | None = None
        """What it ended with, if it did not die and did not end in order."""
        self.ended = anyio.Event()
        self._faults = faults
        self._grace_ms = grace_ms
        self._leaving = anyio.Event()
        here, committed = Here(self.life, turns, takes_s), Signal()
        unbounded = 1 << 40
        storage = StorageActor(
            store, mailbox_capacity=unbounded, thread=here, on_commit=committed.fire, faults=self._reach
        )
        reading = ReadingActor(store.reader(), mailbox_capacity=unbounded, thread=here)
        self.host = Host(
            time=time,
            rng=rng,
            storage=storage.ref,
            reading=reading.ref,
            pool=pool(here),
            catalog=catalog,
            run_slots=RunSlots(runs_max),
            policy=policy or Policy(),
            policies=policies or {},
            automatic_repairs=maintainer is not None and maintainer.is_automatic,
            faults=self._reach,
        )
        services = CoreActors(storage, reading, time)
        self.runtime = PacedRuntime(self.host, services, committed, restart or RestartPolicy(), grants, maintainer)
        self.runtime.pace = pace
        self.runtime.workflows.on_crash = on_crash
        self.runtime.actors = {}

    async def run(self, *, task_status: TaskStatus[Keep | None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Live. Returns when it is over, however that came; `error` says what it ended with."""
        told = False
        try:
            with self.life.scope:
                async with self.runtime.running(self._grace_ms) as keep:
                    told = True
                    task_status.started(keep)
                    await self._leaving.wait()
        except (Escalated, ActorError, StorageError) as error:
            self.error = error
        except BaseExceptionGroup as group:
            _, rest = group.split(Died)
            self.error = rest
        finally:
            self.life.is_over = True
            self.ended.set()
        if self.error is not None and not isinstance(self.error, Exception):
            raise self.error
        if not told:
            task_status.started(None)

    @property
    def is_leaving(self) -> bool:
        """Whether it is ending in order, or has ended."""
        return self._leaving.is_set() or self.life.is_over

    async def leave(self) -> None:
        """End in order: runs come to their end, within the grace."""
        self._leaving.set()
        await self.ended.wait()

    def die(self) -> None:
        """End now, at the next moment that anything happens in it."""
        self.life.end()

    def _reach(self, point: Point, whose: str) -> None:
        self.life.go_on()
        self._faults(point, whose)
