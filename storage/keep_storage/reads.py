"""What a runtime, a console or a test wants to know. Reads only, on the writer's connection or any reader's."""

from keep_storage.ids import Millis
from keep_storage.model import (
    PEEK_DEFAULT,
    PEEK_MAX,
    Event,
    Grant,
    Handler,
    Item,
    JournalEntry,
    Mutation,
    Reservation,
    Run,
    Topic,
    Workflow,
)
from keep_storage.rows import (
    approval,
    find,
    find_all,
    handler,
    item,
    mutation,
    mutation_by_identity,
    open_approval,
    open_session,
    open_task,
    run,
    session,
    version,
    workflow,
)
from keep_storage.transaction import Queries

__all__ = [
    "approval",
    "event",
    "events",
    "events_caused_by",
    "events_of_run",
    "grants",
    "handler",
    "handlers",
    "item",
    "item_attempts",
    "journal",
    "journal_of_run",
    "mutation",
    "mutation_by_identity",
    "mutations_of_run",
    "mutations_to_reconcile",
    "open_approval",
    "open_session",
    "open_task",
    "peek",
    "reservations_of_event",
    "roots_of_event",
    "run",
    "runs",
    "session",
    "topics",
    "unsettled_mutations",
    "version",
    "workflow",
    "workflows",
]

_LAST_ID = "\x7f"
"""Sorts after every id."""


def peek(q: Queries, workflow_id: str, topic: str, *, limit: int = PEEK_DEFAULT, after: int = 0) -> list[Event]:
    """Pending events of a topic, oldest first. `after` is the `seq` of the last one seen."""
    if not 1 <= limit <= PEEK_MAX:
        raise ValueError(f"peek takes a limit of 1 to {PEEK_MAX}, not {limit}")
    key = {"workflow_id": workflow_id, "topic": topic, "limit": limit, "after": after}
    return find_all(q, Event, "peek_events", key)


def events(q: Queries, workflow_id: str, topic: str, *, limit: int = PEEK_DEFAULT, after: int = 0) -> list[Event]:
    """All events of a topic in append order, whatever became of them."""
    key = {"workflow_id": workflow_id, "topic": topic, "limit": limit, "after": after}
    return find_all(q, Event, "events_of_topic", key)


def event(q: Queries, workflow_id: str, topic: str, message_id: str) -> Event | None:
    key = {"workflow_id": workflow_id, "topic": topic, "message_id": message_id}
    return find(q, Event, "event_in_topic", key)


def events_of_run(q: Queries, run_id: str) -> list[Event]:
    """The events a run held."""
    return find_all(q, Event, "events_of_run", {"run_id": run_id})


def reservations_of_event(q: Queries, event_id: str) -> list[Reservation]:
    """Every run that ever held an event."""
    return find_all(q, Reservation, "runs_of_event", {"event_id": event_id})


def roots_of_event(q: Queries, event_id: str) -> list[Event]:
    """What first caused an event; nothing if it came from outside."""
    return find_all(q, Event, "roots_of_event", {"event_id": event_id})


def events_caused_by(q: Queries, event_id: str) -> list[Event]:
    """All that came of an event."""
    return find_all(q, Event, "events_caused_by", {"event_id": event_id})


def workflows(q: Queries) -> list[Workflow]:
    return find_all(q, Workflow, "all_workflows", {})


def topics(q: Queries, workflow_id: str) -> list[Topic]:
    return find_all(q, Topic, "topics_of_workflow", {"workflow_id": workflow_id})


def handlers(q: Queries, workflow_id: str) -> list[Handler]:
    return find_all(q, Handler, "handlers_of_workflow", {"workflow_id": workflow_id})


def grants(q: Queries, workflow_id: str, major: int) -> list[Grant]:
    return find_all(q, Grant, "grants_of_version", {"workflow_id": workflow_id, "major": major})


def runs(q: Queries, workflow_id: str, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[Run]:
    """The runs of a workflow, newest first. `before` is the id of the last one seen."""
    return find_all(q, Run, "runs_of_workflow", {"workflow_id": workflow_id, "limit": limit, "before": before})


def mutations_of_run(q: Queries, run_id: str) -> list[Mutation]:
    return find_all(q, Mutation, "mutations_of_run", {"run_id": run_id})


def unsettled_mutations(q: Queries, workflow_id: str) -> list[Mutation]:
    """What a workflow does not know, or has not sent."""
    return find_all(q, Mutation, "unsettled_mutations", {"workflow_id": workflow_id})


def mutations_to_reconcile(q: Queries, now: Millis, *, limit: int = PEEK_DEFAULT) -> list[Mutation]:
    """Mutations whose next check is due, the longest due first."""
    return find_all(q, Mutation, "mutations_to_reconcile", {"now": now, "limit": limit})


def item_attempts(q: Queries, workflow_id: str, item_id: str) -> list[Item]:
    """Every attempt at an item, oldest first."""
    return find_all(q, Item, "item_attempts", {"workflow_id": workflow_id, "item_id": item_id})


def journal(q: Queries, *, workflow_id: str | None = None, after: int = 0, limit: int = PEEK_MAX) -> list[JournalEntry]:
    """What happened after a sequence number: everywhere, or in one workflow."""
    if workflow_id is None:
        return find_all(q, JournalEntry, "journal_after", {"after": after, "limit": limit})
    key = {"workflow_id": workflow_id, "after": after, "limit": limit}
    return find_all(q, JournalEntry, "journal_of_workflow", key)


def journal_of_run(q: Queries, run_id: str) -> list[JournalEntry]:
    return find_all(q, JournalEntry, "journal_of_run", {"run_id": run_id})
