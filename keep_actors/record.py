"""What a run has to write down: kept back while it only computes, and durable before anything outside is asked.

Until a handler touches the outside world nothing has happened, so nothing needs to be in the file: a crash leaves no
trace, and the plan starts the run anew. What comes together is written together, in one transaction.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from keep_actors.kernel import Time
from keep_storage.errors import StorageUnavailable
from keep_storage.operations import Operation

T = TypeVar("T")

log = logging.getLogger("keep_actors")

Writes = tuple[Operation[Any], ...]
"""What has to be written, together and in this order."""

Advance = Callable[[Writes], Awaitable[tuple[Any, ...]]]

_RETRY_FIRST_MS = 250
_RETRY_CAP_MS = 30_000


async def patiently(work: Callable[[], Awaitable[T]], time: Time) -> T:
    """Write or read, and while the storage cannot, try again: a full disk is nobody's failure, and may pass."""
    wait_ms = _RETRY_FIRST_MS
    while True:
        try:
            return await work()
        except StorageUnavailable as error:
            log.warning("The storage cannot work; trying again in %d ms: %s", wait_ms, error)
        await time.sleep_until(time.now() + wait_ms)
        wait_ms = min(2 * wait_ms, _RETRY_CAP_MS)


class Record:
    """The operations of one run, in order. `opening` creates the run, in one piece with whatever is written first."""

    def __init__(self, opening: Writes, advance: Advance, time: Time) -> None:
        self._opening = opening
        self._unsaved: list[Operation[Any]] = []
        self._advance = advance
        self._time = time

    @property
    def is_open(self) -> bool:
        """Whether the run is in the file."""
        return not self._opening

    def note(self, *operations: Operation[Any]) -> None:
        """Write this with the next save."""
        self._unsaved.extend(operations)

    async def save(self, *operations: Operation[Any]) -> tuple[Any, ...]:
        """Make everything so far and this durable. Returns the answers to `operations`.

        Raises `Rejected`, and then nothing of it happened. While the storage cannot write, it tries again: what is
        known of the outside is known only here.
        """
        batch = (*self._opening, *self._unsaved, *operations)
        if not batch:
            return ()
        answers = await patiently(lambda: self._advance(batch), self._time)
        self._opening = ()
        self._unsaved.clear()
        return answers[len(answers) - len(operations) :]

    def abandon(self) -> None:
        """Drop everything that is not in the file, the run too if it is not."""
        self._opening = ()
        self._unsaved.clear()

    def forget(self) -> None:
        """Drop what was noted and not saved, but not the run itself."""
        self._unsaved.clear()
