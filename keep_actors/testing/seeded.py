"""The same seed, the same story: an event loop whose order is decided by a seed and whose time costs nothing.

Needs trio. Sleeps and timeouts pass at once when nothing else can happen; what could run in any order runs in an order
that the seed chooses.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from keep_storage.ids import Millis

T = TypeVar("T")

START: Millis = 1_700_000_000_000


def run_seeded(main: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run an async function to its end, in an order that depends on the seed alone."""
    trio, testing = import_module("trio"), import_module("trio.testing")
    scheduler: Any = import_module("trio._core._run")
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    try:
        answer: T = trio.run(main, clock=testing.MockClock(autojump_threshold=0))
        return answer
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        scheduler._r.setstate(before[1])


class LoopTime:
    """The event loop's clock as the time of a runtime: backoffs and timeouts are on one clock. It can be set."""

    def __init__(self, start: Millis = START) -> None:
        self._start = start
        self._ahead_ms = 0
        self._was_set = anyio.Event()

    def now(self) -> Millis:
        """The milliseconds since the epoch."""
        return self._start + self._ahead_ms + self.elapsed()

    def elapsed(self) -> Millis:
        """The milliseconds on the event loop's clock, which `jump` does not set."""
        return round(anyio.current_time() * 1000)

    def jump(self, ms: Millis) -> None:
        """Set the clock forward, or back."""
        self._ahead_ms += ms
        self._was_set.set()
        self._was_set = anyio.Event()

    async def sleep_until(self, at: Millis) -> None:
        """Return once `now() >= at`."""
        await checkpoint()
        while (left_ms := at - self.now()) > 0:
            with anyio.move_on_after(left_ms / 1000):
                await self._was_set.wait()
