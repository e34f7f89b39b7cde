"""Exponential backoff: the one formula for every wait after a failure."""

import random
from typing import Final

import msgspec

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_DOUBLINGS_MAX: Final = 40
"""Past this many doublings every cap is reached, and the number only grows."""


def doubled_ms(first_ms: int, cap_ms: int, failures: int) -> int:
    """Return the wait after this many failures in a row: doubling from `first_ms`, at most `cap_ms`."""
    assert failures >= 1, "there is nothing to wait for before the first failure"
    return min(first_ms << min(failures - 1, _DOUBLINGS_MAX), cap_ms)


class Backoff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait after a failure that may pass by itself, and how often to try."""

    first_ms: int = 10 * _SECOND
    cap_ms: int = 10 * _MINUTE
    attempts_max: int | None = None
    """After this many failures in a row a person is asked. None: there is no limit."""
    jitter: float = 0.1
    """Lengthen the wait by up to this share, at random, so that many callers do not return at once."""

    def __post_init__(self) -> None:
        attempts = self.attempts_max is None or self.attempts_max >= 1
        if not (0 < self.first_ms <= self.cap_ms and attempts and 0 <= self.jitter <= 1):
            raise ValueError("a backoff must wait: 0 < first_ms <= cap_ms, attempts_max >= 1, jitter from 0 to 1")

    def is_used_up(self, failures: int) -> bool:
        """Return True if this many failures are enough."""
        return self.attempts_max is not None and failures >= self.attempts_max

    def delay_ms(self, failures: int, rng: random.Random | None = None) -> int:
        """Return the wait after this many failures in a row. Without `rng` there is no jitter."""
        plain = doubled_ms(self.first_ms, self.cap_ms, failures)
        return plain if rng is None else plain + int(plain * self.jitter * rng.random())
