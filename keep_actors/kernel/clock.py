"""The clock: one alarm per key, one heap and one sleep for any number of alarms.

It only calls `ring`, from the task that runs it. An error of `ring` leaves `run`; the other alarms are kept, and `run`
may be called again.
"""

import math
from collections.abc import Callable

import anyio
from anyio.lowlevel import checkpoint

from keep_actors.kernel.time import Agenda, Time


class Clock:
    """Ring once for each alarm, when it is due. An alarm in the past is due at once."""

    def __init__(self, time: Time, ring: Callable[[str], None]) -> None:
        self._time = time
        self._ring = ring
        self._alarms: Agenda[str] = Agenda()
        self._running = False
        self._nap: anyio.CancelScope | None = None
        self._nap_until: float = -math.inf

    def __len__(self) -> int:
        """The number of alarms that are set."""
        return len(self._alarms)

    @property
    def next_at(self) -> int | None:
        """The time of the earliest alarm that is set; None if there is none."""
        return self._alarms.next_at

    def set(self, key: str, at: int) -> None:
        """Ring for this key at that time, which replaces its earlier one."""
        self._alarms.set(key, at)
        if at < self._nap_until:
            self._wake()

    def clear(self, key: str) -> None:
        """Do not ring for this key."""
        self._alarms.clear(key)

    async def run(self) -> None:
        """Ring due alarms for ever, earliest first. An alarm is removed before it rings."""
        assert not self._running, "a clock rings in one task"
        self._running = True
        try:
            while True:
                key = self._alarms.take_due(self._time.now())
                if key is None:
                    await self._sleep()
                else:
                    self._ring(key)
                    # After a long pause many alarms are due: let the woken tasks run in between.
                    await checkpoint()
        finally:
            self._running = False

    async def _sleep(self) -> None:
        at = self._alarms.next_at
        with anyio.CancelScope() as self._nap:
            self._nap_until = math.inf if at is None else at
            try:
                if at is None:
                    await anyio.sleep_forever()
                else:
                    await self._time.sleep_until(at)
            finally:
                self._nap_until = -math.inf

    def _wake(self) -> None:
        assert self._nap is not None, "it is asleep"
        self._nap_until = -math.inf
        self._nap.cancel()
