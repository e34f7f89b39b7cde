"""The events of one workflow, as a run sees them."""

from collections.abc import Sequence
from typing import Protocol

from keep_actors.host.host import Host
from keep_storage import reads
from keep_storage.events import check_reservations
from keep_storage.model import Event, EventStatus
from keep_storage.operations import Reserve
from keep_storage.transaction import Queries


class Topics(Protocol):
    """Where `ctx.peek` and `ctx.getByIds` look."""

    async def peek(self, topic: str, *, limit: int, after: int) -> list[Event]:
        """Pending events, oldest first. `after` is the `seq` of the last one seen."""
        ...

    async def by_ids(self, topic: str, message_ids: Sequence[str]) -> list[Event]:
        """Those of these that there are, in this order, whatever became of them.

        A pending one that waits for a parked run is left out, as `peek` leaves it out: nobody can reserve it now.
        """
        ...


class StoredTopics:
    """As they are in the file at this moment."""

    def __init__(self, host: Host, workflow_id: str) -> None:
        self._host = host
        self._workflow_id = workflow_id

    async def peek(self, topic: str, *, limit: int, after: int) -> list[Event]:
        def read(q: Queries) -> list[Event]:
            return reads.peek(q, self._workflow_id, topic, limit=limit, after=after)

        return await self._host.read(read)

    async def check(self, handler: str, reservations: Sequence[Reserve]) -> None:
        """Raise `Rejected` if this consumer cannot have these events."""
        await self._host.read(lambda q: check_reservations(q, self._workflow_id, handler, tuple(reservations)))

    async def by_ids(self, topic: str, message_ids: Sequence[str]) -> list[Event]:
        def read(q: Queries) -> list[Event]:
            found = (_by_id(q, self._workflow_id, topic, each) for each in dict.fromkeys(message_ids))
            return [event for event in found if event is not None]

        return await self._host.read(read)


def _by_id(q: Queries, workflow_id: str, topic: str, message_id: str) -> Event | None:
    event = reads.event(q, workflow_id, topic, message_id)
    if event is None or event.status is not EventStatus.PENDING:
        return event
    return reads.peek_one(q, workflow_id, topic, message_id)
