"""Run slots: a limited number of runs compute at a time, first come, first served.

A run that waits for the outside world does not count: a call that hangs holds up its own workflow and no other.
When the answer comes the run goes on at once; only those that have not begun wait.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio


class RunSlots:
    """Lets `width` runs compute at a time."""

    def __init__(self, width: int) -> None:
        assert width > 0, "without a slot no run could start"
        self._width = width
        self._inside = 0
        self._waiting: deque[anyio.Event] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the block."""
        if self._inside >= self._width or self._waiting:
            called = anyio.Event()
            self._waiting.append(called)
            try:
                # Whoever calls has counted us in already.
                await called.wait()
            except BaseException:
                self._give_up(called)
                raise
        else:
            self._inside += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Inside a turn: somebody else may have it while this block waits for the world."""
        self._leave()
        try:
            yield
        finally:
            self._inside += 1

    def _leave(self) -> None:
        self._inside -= 1
        while self._waiting and self._inside < self._width:
            self._inside += 1
            self._waiting.popleft().set()

    def _give_up(self, called: anyio.Event) -> None:
        if called.is_set():
            self._leave()
        else:
            self._waiting.remove(called)
