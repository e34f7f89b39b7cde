"""Threads for blocking work.

An actor with blocking work is given a `Thread` when it is made, so that a simulation can pass its own.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

A = TypeVarTuple("A")
R = TypeVar("R")


class Thread(Protocol):
    """Run one blocking call at a time, away from the event loop."""

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function and return its result. A cancelled caller still gets it."""
        ...


class WorkerThread:
    """A real thread. A cancelled caller still waits for the end of the call and gets its result."""

    def __init__(self) -> None:
        # A limiter of its own: the call never queues behind other users of the process-wide pool.
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function in a worker thread and return its result."""
        # The shield also covers the checkpoint before the thread starts: past this line the call happens.
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        raise AssertionError("this scope is never cancelled, so it swallows nothing")
