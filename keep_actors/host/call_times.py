"""How long ago a call to the outside was over, on a clock that cannot be set.

A request that was given up may still arrive: the wall clock, which is set, must not say that it has had its time. A
process counts the calls that it made itself from their own end, and all others from its own start.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from keep_actors.kernel import Time
from keep_storage.ids import Millis
from keep_storage.model import Mutation, MutationStatus


class CallTimes:
    """Of one process, from its start. Outlives the actors in it: a crash of one forgets nothing."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._started = time.elapsed()
        self._over: dict[str, Millis] = {}
        """When each call of this process was over: not before its deadline, even if it ended early."""

    def __len__(self) -> int:
        """How many calls are remembered: those of this process whose outcome is not in the database."""
        return len(self._over)

    @contextmanager
    def making(self, mutation_id: str, timeout_ms: Millis) -> Iterator[None]:
        """The call is made in the block. One that resists its deadline is over when the block is left."""
        deadline = self._over[mutation_id] = self._time.elapsed() + timeout_ms
        try:
            yield
        finally:
            self._over[mutation_id] = max(deadline, self._time.elapsed())

    def waited_ms(self, mutation_id: str, timeout_ms: Millis) -> Millis:
        """How long the call has been over. Less than nothing: its deadline is still to come."""
        over = self._over.get(mutation_id)
        return self._time.elapsed() - (over if over is not None else self._started + timeout_ms)

    def note(self, written: object) -> None:
        """Forget the calls that are settled in the database: it has answered with this. Never before that.

        What is forgotten counts from the start of the process, which is too early for a call that is still in doubt.
        """
        match written:
            case Mutation(status=MutationStatus.APPLIED | MutationStatus.FAILED):
                self._over.pop(written.id, None)
            case tuple():
                for each in written:
                    self.note(each)
            case _:
                pass
