"""A way to make a thread leave a database while it waits there, and a limit for threads that nobody waits for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync

from keep_actors.kernel.blocking import Blocking

R = TypeVar("R")


class Left(Exception):
    """The caller has left: there is nothing to work for."""


class Leaving:
    """Shared by the thread that works and the one that waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_left = False
        self._interrupt: Callable[[], None] | None = None

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Let the block be interrupted by another thread. Raises `Left` if that has happened before."""
        with self._lock:
            if self._has_left:
                raise Left
            self._interrupt = interrupt
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None

    def leave(self) -> None:
        """Interrupt the work now, or before it begins."""
        with self._lock:
            self._has_left = True
            if self._interrupt is not None:
                self._interrupt()


class DatabaseThreads:
    """Threads that work in a database. One that is left behind is interrupted, and ends soon after."""

    def __init__(self, at_once: int, limit_ms: int) -> None:
        self._blocking = Blocking(at_once)
        self._limit_s = limit_ms / 1000

    async def run(self, work: Callable[[Leaving], R]) -> R:
        """Work in a thread. Raises `TimeoutError` if it takes longer than every limit of the database."""
        leaving = Leaving()
        is_over = False
        try:
            with anyio.fail_after(self._limit_s):
                result = await self._blocking.run(work, leaving)
            is_over = True
            return result
        finally:
            if not is_over:
                with anyio.CancelScope(shield=True):
                    await run_sync(leaving.leave)
