"""One process of a box: a runtime as `keep_actors.open` assembles it, with every door in the hands of a test.

It finishes in order, with an error of its own, or by dying at any moment; the database and the world outside outlive
it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import anyio
from anyio.abc import TaskStatus

from keep_actors.api.keep import Keep
from keep_actors.connectors import Catalog
from keep_actors.host.fault_points import Faults, Point, no_faults
from keep_actors.kernel import ActorError, Escalated
from keep_actors.runtime.assembly import assemble
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.testing.life import Died, Here, Life
from keep_storage.errors import StorageError
from keep_storage.operations import Operation, OperationOutcome
from keep_storage.transaction import Reader

OnCrash: TypeAlias = Callable[[str, Exception, int], None]
"""Called at every crash of a workflow's actor: its workflow, the error, the restarts so far."""


class ProcessStore(Protocol):
    """The part of a store that a process needs."""

    def commit(self, batch: Sequence[Operation[Any]], /) -> Sequence[OperationOutcome]: ...

    def reader(self) -> Reader: ...


class Process:
    """Made, run once, ended."""

    def __init__(
        self,
        store: ProcessStore,
        catalog: Catalog,
        pool: Callable[[Here], SandboxPool],
        *,
        faults: Faults = no_faults,
        turns: Callable[[], int] = lambda: 1,
        takes_s: Callable[[], float] = lambda: 0,
        grace_ms: int = 10_000,
        on_crash: OnCrash | None = None,
        **parts: Any,
    ) -> None:
        """`parts` are for `assemble`."""
        self.life = Life()
        self.error: BaseException | None = None
        """The error that ended it, unless it died or finished in order."""
        self.ended = anyio.Event()
        self._faults = faults
        self._grace_ms = grace_ms
        self._leaving = anyio.Event()
        here = Here(self.life, turns, takes_s)
        self.runtime = assemble(
            store, store.reader(), pool(here), catalog, thread=here, reading_thread=here, faults=self._reach, **parts
        )
        self.runtime.workflows.on_crash = on_crash

    async def run(self, *, task_status: TaskStatus[Keep | None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Live. Returns when it is over, for whatever reason; `error` says why."""
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
        """True when it is finishing in order, or has ended."""
        return self._leaving.is_set() or self.life.is_over

    async def leave(self) -> None:
        """Finish in order: active runs have the grace to finish."""
        self._leaving.set()
        await self.ended.wait()

    def die(self) -> None:
        """End now: it does nothing more."""
        self.life.end()

    def _reach(self, point: Point, whose: str) -> None:
        self.life.go_on()
        self._faults(point, whose)
