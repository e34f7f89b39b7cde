"""The pending events of one moment, in memory: each simulated run sees what the ones before it left.

Events that were not pending are asked of the file, one by one, when a script names them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from keep_actors.authoring.dry_run.report import EventRef
from keep_actors.run.context import CannotGoOn
from keep_actors.run.failures import logic
from keep_storage import reads
from keep_storage.model import PEEK_MAX, Event, EventStatus
from keep_storage.operations import Reserve
from keep_storage.transaction import Queries

EVENTS_MAX: Final = 10_000
"""Of one topic: what lies behind them is not looked at."""
BYTES_MAX: Final = 64 * 1024 * 1024


ReadFinished: TypeAlias = Callable[[str, Sequence[str]], Awaitable[list[Event]]]
"""The events of a topic with these message ids that are not pending any more."""


class Pending(msgspec.Struct, frozen=True):
    """What one topic has, oldest first."""

    events: tuple[Event, ...]
    is_more: bool


def load(q: Queries, workflow_id: str, topics: Iterable[str]) -> dict[str, Pending]:
    """The pending events of these topics. To see one moment, call it inside a reader's snapshot."""
    return {topic: _pending(q, workflow_id, topic) for topic in topics}


def _pending(q: Queries, workflow_id: str, topic: str) -> Pending:
    found: list[Event] = []
    size = 0
    while len(found) < EVENTS_MAX and size < BYTES_MAX:
        after = found[-1].seq if found else 0
        page = reads.peek(q, workflow_id, topic, limit=PEEK_MAX, after=after)
        found += page
        size += sum(len(event.payload) for event in page)
        if len(page) < PEEK_MAX:
            return Pending(tuple(found), is_more=False)
    return Pending(tuple(found), is_more=True)


def finished(q: Queries, workflow_id: str, topic: str, message_ids: Sequence[str]) -> list[Event]:
    """What `ReadFinished` asks a file for. One that is pending there and was not loaded is of another moment."""
    found = (reads.event(q, workflow_id, topic, each) for each in message_ids)
    return [event for event in found if event is not None and event.status is not EventStatus.PENDING]


class Backlog:
    """What is still pending. `reserve` takes events out of it, as a run would."""

    def __init__(self, found: Mapping[str, Pending], look: ReadFinished) -> None:
        self._left = {topic: {each.message_id: each for each in pending.events} for topic, pending in found.items()}
        self._taken: dict[str, dict[str, Event]] = {}
        self._found = found
        self._look = look

    async def peek(self, topic: str, *, limit: int, after: int) -> list[Event]:
        """As `Topics.peek`."""
        later = (event for event in self._left.get(topic, {}).values() if event.seq > after)
        return [event for event, _ in zip(later, range(limit), strict=False)]

    async def by_ids(self, topic: str, message_ids: Sequence[str]) -> list[Event]:
        """As `Topics.by_ids`."""
        known = {**self._left.get(topic, {}), **self._taken.get(topic, {})}
        others = [each for each in dict.fromkeys(message_ids) if each not in known]
        known |= {event.message_id: event for event in (await self._look(topic, others) if others else ())}
        return [known[each] for each in dict.fromkeys(message_ids) if each in known]

    def count(self, topics: Iterable[str]) -> int:
        """How many are left in these topics."""
        return sum(len(self._left.get(topic, {})) for topic in topics)

    def is_more(self, topics: Iterable[str]) -> bool:
        """Whether the file has more of them than were looked at."""
        return any(topic in self._found and self._found[topic].is_more for topic in topics)

    def reserve(self, handler: str, reservations: Sequence[Reserve], subscribed: Sequence[str]) -> list[EventRef]:
        """Take what `prepare` chose. Refuses what the storage would refuse: `CannotGoOn`, and nothing is taken."""
        taken: dict[tuple[str, str], Event] = {}
        for reserve in reservations:
            for message_id in reserve.ids:
                where = f"`prepare` reserves {message_id!r} of {reserve.topic!r}, which"
                if reserve.topic not in subscribed:
                    raise CannotGoOn(logic(handler, f"{where} is in a topic it does not subscribe to"))
                if (reserve.topic, message_id) in taken:
                    raise CannotGoOn(logic(handler, f"{where} is reserved twice"))
                event = self._left.get(reserve.topic, {}).get(message_id)
                if event is None:
                    raise CannotGoOn(logic(handler, f"{where} is not pending"))
                taken[reserve.topic, message_id] = event
        for (topic, message_id), event in taken.items():
            del self._left[topic][message_id]
            consumed = msgspec.structs.replace(event, status=EventStatus.CONSUMED)
            self._taken.setdefault(topic, {})[message_id] = consumed
        return [EventRef(topic, event.message_id, event.title) for (topic, _), event in taken.items()]
