"""Sortable text ids with a type prefix: `run_1k7s2q…`. Ids of one source never repeat and never go back.

The time in milliseconds and a random number, in digits to the base 32. Ids of earlier versions are longer, and sort
before these: they begin with a zero, and no time since 2004 does here.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Literal

Millis = int
"""A point in time, or a span of it, in whole milliseconds (since the Unix epoch, for a point)."""

Now = Callable[[], Millis]


def wall_clock() -> Millis:
    """The time of this machine."""
    return time.time_ns() // 1_000_000


IdKind = Literal["wf", "ver", "ses", "run", "evt", "mut", "apr", "prp", "ntc"]

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = tuple(first + second for first in _DIGITS for second in _DIGITS)
_TIME_BITS = 45
_COUNTER_BITS = 50
_SPREAD = 1 << 20
"""Ids of one millisecond are this far apart at most, at random: those of two processes do not meet."""


class Ids:
    """Makes ids from the time and a random number. Safe to share between threads."""

    def __init__(self, clock: Now, rng: random.Random | None = None) -> None:
        self._clock = clock
        # Names, not secrets: a generator seeded by the system is enough, and takes half the time.
        self._rng = rng or random.Random()  # noqa: S311
        self._lock = threading.Lock()
        self._last = 0

    def new(self, kind: IdKind) -> str:
        """A new id, larger than every id this source gave before, even if the clock went back."""
        with self._lock:
            fresh = (self._clock() << _COUNTER_BITS) | self._rng.getrandbits(_COUNTER_BITS - 1)
            if fresh <= self._last:
                fresh = self._last + 1 + self._rng.randrange(_SPREAD)
            self._last = fresh
        return f"{kind}_{_in_digits(fresh)}"


def _in_digits(number: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(_TIME_BITS + _COUNTER_BITS - 5, -1, -10)])[1:]
