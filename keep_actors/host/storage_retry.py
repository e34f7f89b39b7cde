"""Waiting for storage that cannot work now."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from keep_actors.kernel import Time
from keep_storage.errors import StorageUnavailable

T = TypeVar("T")

log = logging.getLogger("keep_actors")

_RETRY_FIRST_MS = 250


_RETRY_CAP_MS = 30_000


async def retry_while_unavailable(work: Callable[[], Awaitable[T]], time: Time) -> T:
    """Write or read, and while the storage cannot, try again: a full disk is nobody's failure, and may pass."""
    wait_ms = _RETRY_FIRST_MS
    while True:
        try:
            return await work()
        except StorageUnavailable as error:
            log.warning("The storage cannot work; trying again in %d ms: %s", wait_ms, error)
        await time.sleep_until(time.now() + wait_ms)
        wait_ms = min(2 * wait_ms, _RETRY_CAP_MS)
