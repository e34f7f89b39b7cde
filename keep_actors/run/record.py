"""What a run has to write down: kept back while it only computes, and durable before anything outside is asked.

Until a handler touches the outside world nothing has happened, so nothing needs to be in the file: a crash leaves no
trace, and the plan starts the run anew. What comes together is written together, in one transaction.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import Time
from keep_storage.operations import Operation

T = TypeVar("T")

log = logging.getLogger("keep_actors")

Writes = tuple[Operation[Any], ...]
"""What has to be written, together and in this order."""

Advance = Callable[[Writes], Awaitable[tuple[Any, ...]]]


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
        answers = await retry_while_unavailable(lambda: self._advance(batch), self._time)
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
