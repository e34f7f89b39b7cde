"""The cheapest way for one task to wait for another, the same on asyncio and trio.

`anyio.Event` looks up its backend at every use and makes an object of it; in a crowd that is most of the cost of a
wait. A `Waiter` is for the paths that every run takes: one task waits, and whoever has news wakes it.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import trio


class Waiter:
    """One task at a time waits here. Waking is for the thread of the event loop, and costs nothing without a task."""

    __slots__ = ("_future", "_task")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._task: trio.lowlevel.Task | None = None

    def wait(self) -> Awaitable[None]:
        """Wait for the next `wake`: await this at once. A wake that came before does not count: look first, then wait.

        A task that is cancelled while it is woken gets the cancellation: look again, if the news must not be lost.
        """
        assert self._task is None, "one task waits at a time"
        assert self._future is None or self._future.done(), "one task waits at a time"
        if (trio := _running_trio()) is not None:
            return self._wait_on_trio(trio)
        # The future itself: a coroutine around it would be entered again at every wake-up.
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def wake(self) -> None:
        """Wake the waiting task. Waking it again before it runs changes nothing."""
        if self._future is not None:
            if not self._future.done():
                self._future.set_result(None)
            self._future = None
        elif self._task is not None:
            task, self._task = self._task, None
            sys.modules["trio"].lowlevel.reschedule(task)

    async def _wait_on_trio(self, trio: Any) -> None:
        self._task = trio.lowlevel.current_task()

        def abort(_: object) -> "trio.lowlevel.Abort":
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


def wake_up_caller() -> Callable[[Callable[[], None]], None]:
    """Return a function for other threads: it lets the event loop that is running now call a function soon.

    It raises `RuntimeError` once that loop has ended.
    """
    if (trio := _running_trio()) is not None:
        return trio.lowlevel.current_trio_token().run_sync_soon  # type: ignore[no-any-return]
    loop = asyncio.get_running_loop()

    def call_soon(function: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(function)

    return call_soon


def is_on_trio() -> bool:
    """Return True if this task is one of trio's."""
    return _running_trio() is not None


def _running_trio() -> Any:
    """Return the module if this task is one of trio's. Without trio this is one look into a dictionary."""
    trio = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None
