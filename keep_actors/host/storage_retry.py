"""Retry with backoff while storage is unavailable."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from keep_actors.backoff import Backoff
from keep_actors.kernel import Time
from keep_storage.errors import StorageUnavailable

T = TypeVar("T")

log = logging.getLogger("keep_actors")

_BACKOFF: Final = Backoff(first_ms=250, cap_ms=30_000, jitter=0)


async def retry_while_unavailable(work: Callable[[], Awaitable[T]], time: Time) -> T:
    """Write or read; retry with backoff while storage is unavailable: a full disk may pass, and is no run's failure."""
    failures = 0
    while True:
        try:
            return await work()
        except StorageUnavailable as error:
            failures += 1
            wait_ms = _BACKOFF.delay_ms(failures)
            log.warning("The storage cannot work; trying again in %d ms: %s", wait_ms, error)
        await time.sleep_until(time.now() + wait_ms)
