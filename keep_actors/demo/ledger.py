"""What the demo sees of the runtime: the database file, read-only, whoever has it and however it died."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from keep_actors.api import views
from keep_actors.api.overdue import Moment
from keep_actors.api.views import Attention
from keep_storage import reads
from keep_storage.ids import wall_clock
from keep_storage.model import EventStatus, JournalEntry, Mutation
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries


class Entry(msgspec.Struct, frozen=True):
    """An entry of the journal, with what it is about."""

    seq: int
    operation: str
    workflow: str
    changed: dict[str, Any]
    why: str
    mutation: Mutation | None


class Held(msgspec.Struct, frozen=True):
    """An event, and the calls of the runs that held it, oldest first."""

    workflow: str
    topic: str
    message_id: str
    status: EventStatus
    calls: list[Mutation]


class Facts(msgspec.Struct, frozen=True):
    """All that is in the file, as far as the demo makes claims about it."""

    events: list[Held]
    waiting: list[Attention]

    def of(self, topic: str) -> dict[str, Held]:
        return {each.message_id: each for each in self.events if each.topic == topic}


@contextmanager
def _reading(db: Path) -> Iterator[Queries]:
    reader = open_reader(str(db))
    try:
        with reader.snapshot():
            yield reader
    finally:
        reader.close()


def entries(db: Path, after: int) -> list[Entry]:
    """What was written after a sequence number."""
    with _reading(db) as q:
        return [_entry(q, each) for each in reads.journal(q, after=after)]


def _entry(q: Queries, entry: JournalEntry) -> Entry:
    workflow = reads.workflow(q, entry.workflow_id) if entry.workflow_id is not None else None
    changed = msgspec.json.decode(entry.changed)
    named = changed.get("mutation")
    mutation = reads.mutation(q, named) if named is not None else None
    return Entry(entry.seq, entry.operation, workflow.name if workflow else "", changed, entry.why, mutation)


def facts(db: Path) -> Facts:
    """What is so at this moment."""
    with _reading(db) as q:
        events = [
            Held(workflow.name, topic.name, event.message_id, event.status, _calls(q, event.id))
            for workflow in reads.workflows(q)
            for topic in reads.topics(q, workflow.id)
            for event in reads.events(q, workflow.id, topic.name)
        ]
        return Facts(events, views.attention(q, Moment(wall_clock())))


def _calls(q: Queries, event_id: str) -> list[Mutation]:
    runs = [each.run_id for each in reads.reservations_of_event(q, event_id)]
    return [each for run_id in dict.fromkeys(runs) for each in reads.mutations_of_run(q, run_id)]
