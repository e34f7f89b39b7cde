"""The pending events of one moment, in memory: each simulated run sees what the ones before it left.

Events that were not pending are asked of the file, one by one, when a script names them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from keep_actors.authoring.dry_run.report import EventRef
from keep_actors.run.drive import Answers
from keep_actors.run.earlier_calls import Earlier
from keep_actors.run.effects import Writes
from keep_actors.text.counted import counted
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.limits import PEEK_MAX
from keep_storage.model import Event, EventStatus, Item
from keep_storage.operations import Reserve, UseGrant
from keep_storage.transaction import Queries

EVENTS_MAX: Final = 10_000
"""Of one topic: later events are not looked at."""
BYTES_MAX: Final = 64 * 1024 * 1024


ReadFinished: TypeAlias = Callable[[str, Sequence[str]], Awaitable[list[Event]]]
"""The events of a topic with these message ids that are not pending any more."""


class Pending(msgspec.Struct, frozen=True):
    """The pending events of one topic, oldest first."""

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
    """For `ReadFinished`, from a file. An event that is pending there and was not loaded is of another moment."""
    found = (reads.event(q, workflow_id, topic, each) for each in message_ids)
    return [event for event in found if event is not None and event.status is not EventStatus.PENDING]


class Backlog:
    """The storage of a dry run: events that are still pending, and the calls that grants count. Keeps nothing.

    The `RunStorage` of the driver. `reserve` takes events out of it, as a run would.
    """

    def __init__(self, found: Mapping[str, Pending], read_finished: ReadFinished, used: Mapping[str, int]) -> None:
        self._left = {topic: {each.message_id: each for each in pending.events} for topic, pending in found.items()}
        self._taken: dict[str, dict[str, Event]] = {}
        self._found = found
        self._read_finished = read_finished
        self._used = Counter(used)
        self._subscribed: Sequence[str] = ()

    def begin(self, subscribed: Sequence[str]) -> None:
        """Begin a run that subscribes to these topics."""
        self._subscribed = subscribed

    def save(self, operations: Writes) -> Answers:
        """Count the calls that grants limit. Writes nothing."""

        async def answers() -> tuple[Any, ...]:
            self.count(operations)
            return (None,) * len(operations)

        return answers

    def count(self, operations: Writes) -> None:
        """The same, for operations that a run would write next."""
        for use in (each for each in operations if isinstance(each, UseGrant)):
            if self._used[use.permission] >= use.per_day:
                words = f"The permission {use.permission!r} is for {counted(use.per_day, 'call')} a day."
                raise Rejected(Reason.GRANT_USED_UP, words)
            self._used[use.permission] += 1

    async def peek(self, topic: str, limit: int, after: int) -> list[Event]:
        """Pending events, oldest first."""
        later = (event for event in self._left.get(topic, {}).values() if event.seq > after)
        return list(islice(later, limit))

    async def by_ids(self, topic: str, message_ids: Sequence[str]) -> list[Event]:
        """Events by id, in any state."""
        known = {**self._left.get(topic, {}), **self._taken.get(topic, {})}
        others = [each for each in dict.fromkeys(message_ids) if each not in known]
        known |= {event.message_id: event for event in (await self._read_finished(topic, others) if others else ())}
        return [known[each] for each in dict.fromkeys(message_ids) if each in known]

    async def check(self, reservations: Sequence[Reserve]) -> None:
        """Refuse what the storage would refuse. Raises `Rejected`."""
        seen: set[tuple[str, str]] = set()
        for reserve in reservations:
            for message_id in reserve.ids:
                where = f"`prepare` reserves {message_id!r} of {reserve.topic!r}, which"
                if reserve.topic not in self._subscribed:
                    raise Rejected(Reason.TOPIC_NOT_SUBSCRIBED, f"{where} is in a topic it does not subscribe to")
                if (reserve.topic, message_id) in seen:
                    raise Rejected(Reason.RESERVATION_REPEATED, f"{where} is reserved twice")
                if message_id not in self._left.get(reserve.topic, {}):
                    raise Rejected(Reason.EVENT_NOT_FOUND, f"{where} is not pending")
                seen.add((reserve.topic, message_id))

    async def earlier_calls(self, item: Item) -> list[Earlier]:
        """Jobs are not dry-run, so there are no items."""
        raise AssertionError(f"a dry run has no item {item.item_id!r}")

    def reserve(self, reservations: Sequence[Reserve]) -> list[EventRef]:
        """Take the events that `prepare` chose."""
        taken: list[EventRef] = []
        for topic, message_id in [(each.topic, message_id) for each in reservations for message_id in each.ids]:
            event = self._left[topic].pop(message_id)
            consumed = msgspec.structs.replace(event, status=EventStatus.CONSUMED)
            self._taken.setdefault(topic, {})[message_id] = consumed
            taken.append(EventRef(topic, event.message_id, event.title))
        return taken

    def left(self, topics: Iterable[str]) -> int:
        """How many are left in these topics."""
        return sum(len(self._left.get(topic, {})) for topic in topics)

    def is_more(self, topics: Iterable[str]) -> bool:
        """Return True if the file has more of them than were looked at."""
        return any(topic in self._found and self._found[topic].is_more for topic in topics)
