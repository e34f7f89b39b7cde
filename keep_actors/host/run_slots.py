"""Run slots: a limited number of runs compute at a time, first come, first served.

A run that waits for the outside world does not count: a call that hangs holds up its own workflow and no other.
When the answer comes the run goes on at once; only those that have not begun wait. A workflow that has just had a turn
may go on before all others, a few times in a row: its script and its rows are still warm.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from keep_actors.kernel.waiter import Waiter


class RunSlots:
    """Lets `width` runs compute at a time."""

    def __init__(self, width: int) -> None:
        assert width > 0, "without a slot no run could start"
        self._width = width
        self._inside = 0
        self._waiting: deque[_Waiting] = deque()

    @asynccontextmanager
    async def turn(self, *, goes_on: bool = False) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the block. `goes_on`: before all others that wait."""
        if self._inside >= self._width or (self._waiting and not goes_on):
            await self._called(goes_on)
        else:
            self._inside += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Inside a turn: another run may have it while this block waits for the world."""
        self._leave()
        try:
            yield
        finally:
            self._inside += 1

    async def _called(self, goes_on: bool) -> None:
        """Wait to be called. The caller has counted this one in already."""
        waiting = _Waiting()
        if goes_on:
            self._waiting.appendleft(waiting)
        else:
            self._waiting.append(waiting)
        try:
            await waiting.waiter.wait()
        except BaseException:
            if waiting.is_called:
                self._leave()
            else:
                self._waiting.remove(waiting)
            raise

    def _leave(self) -> None:
        self._inside -= 1
        while self._waiting and self._inside < self._width:
            self._inside += 1
            called = self._waiting.popleft()
            called.is_called = True
            called.waiter.wake()


class _Waiting:
    """A run that waits for its turn."""

    __slots__ = ("is_called", "waiter")

    def __init__(self) -> None:
        self.is_called = False
        self.waiter = Waiter()
