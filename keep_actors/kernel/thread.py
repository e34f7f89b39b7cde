"""Threads for blocking work.

An actor with blocking work is given a `Thread` when it is made, so that a simulation can pass its own.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, cast

import anyio

from keep_actors.kernel.waiter import Waiter, wake_up_caller

A = TypeVarTuple("A")
R = TypeVar("R")

_IDLE_S: Final = 5.0
"""A thread without work for this long ends; the next call starts another."""


class Thread(Protocol):
    """Run one blocking call at a time, away from the event loop."""

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function and return its result. A cancelled caller still gets it."""
        ...


class WorkerThread:
    """A real thread of its own. A cancelled caller still waits for the end of the call and gets its result.

    AnyIO's threads take four times as long for a call: each has a limiter, a cancel scope and a context to copy. Calls
    here go through a queue, one wake-up each way, in the order in which they were made.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_ThreadCall] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_alive = False

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function in a worker thread and return its result."""
        call = _ThreadCall(function, arguments)
        with self._lock:
            self._calls.put(call)
            if not self._is_alive:
                # A daemon: it must not keep a process alive whose loop is gone. Whoever awaits a call waits for it.
                threading.Thread(target=self._work, name="keep-worker", daemon=True).start()
                self._is_alive = True
        # Past this line the call happens, so a cancelled caller waits for its end all the same.
        with anyio.CancelScope(shield=True):
            await call.ended()
        return cast("R", call.result())

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._calls.empty():
                        self._is_alive = False
                        return
                continue
            call.carry_out()
            del call


class _ThreadCall:
    """One call on its way to the thread and back."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._call_soon = wake_up_caller()
        self._caller = Waiter()
        self._has_ended = False
        self._result: Any = None
        self._error: BaseException | None = None

    async def ended(self) -> None:
        """Wait for the end of the call."""
        while not self._has_ended:
            await self._caller.wait()

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        if self._error is None:
            return self._result
        # Its traceback holds this frame: without this, each error is a cycle.
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error

    def carry_out(self) -> None:
        """Call the function, in the thread, and let the caller know."""
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:  # raised again in the caller; the thread goes on
            self._error = error
        with suppress(RuntimeError):  # the loop is gone, and with it the caller
            self._call_soon(self._end)

    def _end(self) -> None:
        self._has_ended = True
        self._caller.wake()
