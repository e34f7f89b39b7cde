"""Events of topics that a new script no longer declares. Only `activate_script` calls this.

A person says it topic by topic: the events are dropped, or moved to a topic that the script declares. A script that
would leave unfinished events behind is refused, since nothing would read them.
"""

from collections.abc import Mapping
from typing import Any

from keep_storage import event_rows, rows
from keep_storage.errors import EventsWouldWait, Reason, reject
from keep_storage.ids import Millis
from keep_storage.model import Event, Topic
from keep_storage.operations import ActivateScript
from keep_storage.transaction import Queries, Transaction


def check(q: Queries, workflow_id: str, op: ActivateScript) -> None:
    """Refuse the script before anything is written."""
    topics, held = rows.topics(q, workflow_id), event_rows.held_events(q, workflow_id)
    _check_names(topics, workflow_id, op)
    decided = {*op.topics, *op.drop, *dict(op.move)}
    left = [topic for name, topic in topics.items() if topic.declared and name not in decided]
    counts = {topic.name: event_rows.pending_count(q, topic.id) + len(_of(topic, held)) for topic in left}
    if waiting := {name: count for name, count in counts.items() if count}:
        raise EventsWouldWait(waiting, op.topics)
    _check_held(q, workflow_id, topics, held, op)


def _of(topic: Topic, events: list[Event]) -> list[Event]:
    return [event for event in events if event.topic_id == topic.id]


def _check_names(topics: Mapping[str, Topic], workflow_id: str, op: ActivateScript) -> None:
    seen: set[str] = set()
    for name in (*op.drop, *(old for old, _ in op.move)):
        if name not in topics:
            reject(Reason.TOPIC_NOT_FOUND, f"Workflow {workflow_id!r} never had a topic {name!r} to drop or to move.")
        if name in op.topics:
            reject(
                Reason.TOPIC_STILL_DECLARED,
                f"The script declares topic {name!r}; only the events of one that it does not declare are dropped or "
                "moved.",
            )
        if name in seen:
            reject(Reason.TOPIC_NAMED_TWICE, f"Topic {name!r} is dropped or moved twice; its events go one way.")
        seen.add(name)
    for old, new in op.move:
        if new not in op.topics:
            reject(
                Reason.TOPIC_NOT_DECLARED,
                f"The events of {old!r} are to move to topic {new!r}, which the script does not declare. Add it to "
                "`topics`, or move them to another one.",
            )


def _check_held(
    q: Queries, workflow_id: str, topics: Mapping[str, Topic], held: list[Event], op: ActivateScript
) -> None:
    """Refuse to skip an event that a run holds: by a drop, or as one that the other topic has already."""
    for name in op.drop:
        for event in _of(topics[name], held):
            reject(
                Reason.EVENT_ALREADY_RESERVED,
                f"Topic {name!r} cannot be dropped: run {event.reserved_by_run_id!r} holds its event "
                f"{event.message_id!r}. Settle that run first, or move the topic.",
            )
    arriving: set[tuple[str, str]] = set()
    for old, new in op.move:
        for event in _of(topics[old], held):
            place = (new, event.message_id)
            if place in arriving or event_rows.event(q, workflow_id, *place):
                reject(
                    Reason.EVENT_ALREADY_RESERVED,
                    f"Topic {old!r} cannot be moved to {new!r}: run {event.reserved_by_run_id!r} holds its event "
                    f"{event.message_id!r}, and {new!r} has an event with that message id. Settle that run first.",
                )
            arriving.add(place)


def settle(tx: Transaction, workflow_id: str, op: ActivateScript, now: Millis) -> dict[str, Any]:
    """Drop and move, once the topics of the new script are there. Returns what the journal says about it."""
    topics, held = rows.topics(tx, workflow_id), event_rows.held_events(tx, workflow_id)
    dropped: dict[str, int] = {}
    for name in op.drop:
        dropped[name] = event_rows.pending_count(tx, topics[name].id)
        event_rows.skip_events_of_topic(tx, topics[name].id, now)
    # Before any pending one: of two events with one message id, the one that a run holds is not skipped.
    for old, new in op.move:
        for event in _of(topics[old], held):
            event_rows.move_held_event(tx, event.id, topics[new].id, now)
    moved: dict[str, dict[str, Any]] = {}
    touched: set[int] = set()
    for old, new in op.move:
        pending = event_rows.pending_count(tx, topics[old].id)
        count = event_rows.move_pending_events(tx, topics[old].id, topics[new].id, now)
        moved[old] = {"to": new, "events": count + len(_of(topics[old], held)), "skipped": pending - count}
        touched |= {topics[new].id} if count else set()
        # Finished events go along: an event that is published again is known by its message id.
        event_rows.move_finished_events(tx, topics[old].id, topics[new].id)
    for topic_id in touched:
        event_rows.count_write(tx, topic_id)
    return {name: what for name, what in (("dropped", dropped), ("moved", moved)) if what}
