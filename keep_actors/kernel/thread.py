"""The door to threads: where blocking work runs.

An actor with blocking work is given a `Thread` when it is made, so that a simulation can hand in its own.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

A = TypeVarTuple("A")
R = TypeVar("R")


class Thread(Protocol):
    """Runs one blocking call at a time, away from the event loop."""

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function and return what it returns. A cancelled caller still gets it."""
        ...


class WorkerThread:
    """The real one. A caller that is cancelled still waits for the end of the call and gets its result."""

    def __init__(self) -> None:
        # A limiter of its own: the call never queues behind other users of the process-wide pool.
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function in a worker thread and return what it returns."""
        # The shield also covers the checkpoint before the thread starts: past this line the call happens.
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        raise AssertionError("nobody cancels this scope, so it swallows nothing")
