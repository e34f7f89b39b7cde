"""Finding things by what a person types, and counting what is quick to count. Reads only, and never a whole table."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import Event, JournalEntry, Run
from keep_storage.records import decode, find_all
from keep_storage.transaction import Queries, Row

LookupKind = Literal["run", "mutation", "approval", "event", "workflow", "proposal"]

_BETWEEN: Final[Mapping[LookupKind, str]] = {
    "run": "runs_between",
    "mutation": "mutations_between",
    "approval": "approvals_between",
    "event": "events_between",
    "workflow": "workflows_between",
    "proposal": "proposals_between",
}
_LAST: Final = "\x7f"
"""Sorts after whatever may follow in an id."""
_LAST_SEQ: Final = 2**63 - 1


class EventAt(msgspec.Struct, frozen=True):
    """An event, and where it is."""

    workflow_id: str
    topic: str
    event: Event


def beginning_with(q: Queries, kind: LookupKind, text: str, *, limit: int = 2) -> list[str]:
    """Ids of this kind that begin so. One that is exactly so is the only one: ids have one length."""
    key = {"first": text, "last": f"{text}{_LAST}", "limit": limit}
    return [str(row[0]) for row in q.all(_BETWEEN[kind], key)]


def event(q: Queries, event_id: str) -> EventAt | None:
    row = q.one("event_by_id", {"id": event_id})
    return None if row is None else _event_at(row)


def events_named(q: Queries, message_id: str, *, limit: int = PEEK_DEFAULT) -> list[EventAt]:
    """Events of one message id, in every topic that has one."""
    return [_event_at(row) for row in q.all("events_named", {"message_id": message_id, "limit": limit})]


def pending(q: Queries, *, most: int) -> dict[str, dict[str, int]]:
    """How many events wait, by workflow and topic. Not counted any further than `most`."""
    found: dict[str, dict[str, int]] = {}
    for workflow_id, topic, count in q.all("pending_by_topic", {"limit": most}):
        found.setdefault(workflow_id, {})[topic] = count
    return found


def unsettled(q: Queries) -> dict[str, int]:
    """How many calls are not settled, by workflow; those that have none are left out."""
    return {str(workflow_id): int(count) for workflow_id, count in q.all("unsettled_by_workflow", {})}


def under_way(q: Queries) -> list[Run]:
    """Runs that are active: at work, or left behind by a process that died."""
    return find_all(q, Run, "active_runs", {"workflow_id": "", "everywhere": 1})


def newest_journal(
    q: Queries, *, workflow_id: str | None = None, limit: int = PEEK_DEFAULT, before: int = _LAST_SEQ
) -> list[JournalEntry]:
    """The end of the journal, oldest of it first: everywhere, or in one workflow."""
    if workflow_id is None:
        found = find_all(q, JournalEntry, "journal_newest", {"before": before, "limit": limit})
    else:
        key = {"workflow_id": workflow_id, "before": before, "limit": limit}
        found = find_all(q, JournalEntry, "journal_newest_of_workflow", key)
    return found[::-1]


def _event_at(row: Row) -> EventAt:
    return EventAt(row[0], row[1], decode(Event, row[2:]))
