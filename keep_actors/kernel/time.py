"""Time in milliseconds: the time now, waiting for a moment, and elapsed time.

The time now can be set, by a person or a machine, forward and back. Elapsed time cannot. Code that needs the time is
given a `Time` when it is made: the wall clock in production, one that moves by hand in tests and simulations.
"""

import time
from collections import deque
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import checkpoint

K = TypeVar("K", bound=Hashable)

STEP_MS_MAX: Final = 30_000
STALE_MAX: Final = 64


class Time(Protocol):
    """The time now, waiting for a moment, and elapsed time."""

    def now(self) -> int:
        """The milliseconds since the epoch."""
        ...

    def elapsed(self) -> int:
        """The milliseconds since an earlier moment, on a clock that only goes forward and cannot be set."""
        ...

    async def sleep_until(self, at: int) -> None:
        """Return once `now() >= at`. Can be cancelled, and is a checkpoint even if the moment has passed."""
        ...


class WallTime:
    """The time of the machine."""

    def now(self) -> int:
        """The milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def elapsed(self) -> int:
        """The milliseconds since the machine started. Where this stands still while it sleeps, waits last longer."""
        return time.monotonic_ns() // 1_000_000

    async def sleep_until(self, at: int) -> None:
        """Return once `now() >= at`."""
        await checkpoint()
        left_ms = at - self.now()
        while left_ms > 0:
            # The event loop's clock stands still while the machine sleeps and does not notice a clock that
            # was set: so the wall clock is read again every half minute.
            await anyio.sleep(min(left_ms, STEP_MS_MAX) / 1000)
            left_ms = at - self.now()


class VirtualTime:
    """A time that moves only by `advance`, `advance_to` and `jump`."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start
        self._elapsed = 0
        self._sleepers: Agenda[anyio.Event] = Agenda()
        self._due: deque[anyio.Event] = deque()
        self._waking = False

    @property
    def next_due(self) -> int | None:
        """The time at which the earliest sleeper wakes; None without sleepers."""
        return self._sleepers.next_at

    def now(self) -> int:
        """The milliseconds since the epoch, so far."""
        return self._now

    def elapsed(self) -> int:
        """The milliseconds by which it was advanced; `jump` does not count."""
        return self._elapsed

    def advance(self, ms: int) -> None:
        """Move the time on and wake due sleepers."""
        self.advance_to(self._now + ms)

    def advance_to(self, at: int) -> None:
        """Move the time to `at` and wake due sleepers, earliest first: each runs before the next is woken."""
        assert at >= self._now, "time does not go back"
        self._elapsed += at - self._now
        self._set(at)

    def jump(self, ms: int) -> None:
        """Set the clock forward or back: no time has elapsed, and sleepers due by the new time wake."""
        self._set(self._now + ms)

    async def sleep_until(self, at: int) -> None:
        """Return once the time was moved to `at` or beyond."""
        if at <= self._now:
            await checkpoint()
            return
        wake = anyio.Event()
        self._sleepers.set(wake, at)
        try:
            await wake.wait()
        finally:
            if wake.is_set():
                self._wake_next()
            elif wake in self._due:
                self._due.remove(wake)
            else:
                self._sleepers.clear(wake)

    def _set(self, at: int) -> None:
        self._now = at
        while (sleeper := self._sleepers.take_due(at)) is not None:
            self._due.append(sleeper)
        if not self._waking:
            self._wake_next()

    def _wake_next(self) -> None:
        # One wakes the next, because trio runs tasks that are woken together in any order.
        self._waking = bool(self._due)
        if self._due:
            self._due.popleft().set()


class Agenda(Generic[K]):
    """A heap in which each key has one due time, which can be changed and cleared.

    A replaced or cleared entry stays in the heap until it comes up, or until such entries are the majority: then they
    are swept out. So every call costs O(log n), amortised.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, K]] = []
        self._entries: dict[K, tuple[int, int, K]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next_at(self) -> int | None:
        """The earliest due time; None without keys."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def set(self, key: K, at: int) -> None:
        """Make the key due at that time, and at no other."""
        # The count makes keys of one moment due in the order they were set, and keeps keys from being compared.
        self._count += 1
        entry = self._entries[key] = (at, self._count, key)
        heappush(self._heap, entry)
        self._sweep()

    def clear(self, key: K) -> None:
        """Forget the key, if it is there."""
        if self._entries.pop(key, None) is not None:
            self._sweep()

    def take_due(self, now: int) -> K | None:
        """Remove and return the key that has been due for longest; None if none is due."""
        at = self.next_at
        if at is None or at > now:
            return None
        key = heappop(self._heap)[2]
        del self._entries[key]
        return key

    def _sweep(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + STALE_MAX:
            self._heap = list(self._entries.values())
            heapify(self._heap)
