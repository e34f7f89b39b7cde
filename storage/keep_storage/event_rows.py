"""Typed access to events and reservations. Decides nothing; only the operations call what writes."""

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import Event, EventStatus, Json, Run
from keep_storage.records import decode, find, find_all
from keep_storage.transaction import Queries, Row, Transaction


class Claim(msgspec.Struct, frozen=True):
    """The facts by which a run may reserve an event. Without an id, the topic has no such event."""

    consumer: str | None
    event_id: str | None
    status: EventStatus | None
    attempt: int | None
    held_back_by: str | None
    """The parked run that it waits for, because of its ordering key."""


def claim(q: Queries, workflow_id: str, topic: str, message_id: str) -> Claim | None:
    """None if the topic is not declared."""
    key = {"workflow_id": workflow_id, "topic": topic, "message_id": message_id}
    row = q.one("claimable_event", key)
    return None if row is None else decode(Claim, row)


def event(q: Queries, workflow_id: str, topic: str, message_id: str) -> Event | None:
    key = {"workflow_id": workflow_id, "topic": topic, "message_id": message_id}
    return find(q, Event, "event_in_topic", key)


def place_of_event(q: Queries, event_id: str) -> Row | None:
    """The topic and message id of the event with this id."""
    return q.one("place_of_event", {"id": event_id})


def publish_event(
    tx: Transaction,
    *,
    event_id: str,
    topic_id: int,
    message_id: str,
    title: str,
    payload: Json,
    ordering_key: str | None,
    created_by_run_id: str | None,
    has_cause: bool,
    now: Millis,
) -> str | None:
    """The id of the event that was appended or updated; nothing if it is pinned, or the same without a new cause."""
    row = tx.one(
        "publish_event",
        {
            "id": event_id,
            "topic_id": topic_id,
            "message_id": message_id,
            "title": title,
            "payload": payload,
            "ordering_key": ordering_key,
            "created_by_run_id": created_by_run_id,
            "has_cause": has_cause,
            "now": now,
        },
    )
    return None if row is None else row[0]


def unfinished_events(q: Queries, topic_id: int, after: int, limit: int) -> list[Event]:
    return find_all(q, Event, "unfinished_events_of_topic", {"topic_id": topic_id, "after": after, "limit": limit})


def set_ordering_key(tx: Transaction, event_id: str, ordering_key: str | None) -> None:
    tx.run("set_ordering_key", {"id": event_id, "ordering_key": ordering_key})


def count_write(tx: Transaction, topic_id: int) -> None:
    tx.run("count_write", {"id": topic_id})


def count_write_for_consumer(tx: Transaction, run: Run) -> None:
    tx.run("count_write_for_consumer", {"workflow_id": run.workflow_id, "consumer": run.handler})


def inherit_roots(tx: Transaction, event_id: str, run_id: str) -> None:
    tx.run("inherit_roots", {"event_id": event_id, "run_id": run_id})


def reserve_event(tx: Transaction, run_id: str, event_id: str, attempt: int, now: Millis) -> None:
    held = {"run_id": run_id, "event_id": event_id, "attempt": attempt, "now": now}
    tx.run("reserve_event", held)
    tx.run("record_reservation", held)


def consume_events(tx: Transaction, run_id: str, now: Millis) -> None:
    tx.run("consume_events", {"run_id": run_id, "now": now})


def release_events(tx: Transaction, run_id: str, now: Millis) -> None:
    tx.run("release_events", {"run_id": run_id, "now": now})


def skip_events(tx: Transaction, run_id: str, now: Millis) -> None:
    tx.run("skip_events", {"run_id": run_id, "now": now})


def skip_pending_event(tx: Transaction, event_id: str, now: Millis) -> None:
    tx.run("skip_pending_event", {"event_id": event_id, "now": now})


def pending_count(q: Queries, topic_id: int) -> int:
    found = q.one("count_pending_events_of_topic", {"topic_id": topic_id})
    assert found, "a count has a row"
    return int(found[0])


def held_events(q: Queries, workflow_id: str) -> list[Event]:
    """The events that waiting runs hold while none is active, in append order."""
    return find_all(q, Event, "held_events_of_workflow", {"workflow_id": workflow_id})


def skip_events_of_topic(tx: Transaction, topic_id: int, now: Millis) -> None:
    tx.run("skip_events_of_topic", {"topic_id": topic_id, "now": now})


def move_held_event(tx: Transaction, event_id: str, to_topic_id: int, now: Millis) -> None:
    tx.run("move_held_event", {"event_id": event_id, "to_topic_id": to_topic_id, "now": now})


def move_finished_events(tx: Transaction, from_topic_id: int, to_topic_id: int) -> None:
    """All but those whose message id is in the other topic already."""
    tx.run("move_finished_events", {"from_topic_id": from_topic_id, "to_topic_id": to_topic_id})


def move_pending_events(tx: Transaction, from_topic_id: int, to_topic_id: int, now: Millis) -> int:
    """Skip those whose message id is in the other topic already, and move the rest. Returns how many were moved."""
    both = {"from_topic_id": from_topic_id, "to_topic_id": to_topic_id, "now": now}
    tx.run("skip_events_of_both_topics", both)
    count = pending_count(tx, from_topic_id)
    tx.run("move_pending_events", both)
    return count


def transfer_reservations(tx: Transaction, from_run_id: str, to_run_id: str, now: Millis) -> None:
    both = {"from_run_id": from_run_id, "to_run_id": to_run_id, "now": now}
    tx.run("inherit_reservations", both)
    tx.run("transfer_reservations", both)
