"""Events: published inside commits, reserved by runs, and at the end consumed or skipped.

Reserving, consuming, releasing and transferring happen only as part of what becomes of a run; no caller asks for them
by themselves.
"""

from collections.abc import Mapping
from typing import NoReturn

from keep_storage import event_rows, rows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.limits import MESSAGE_ID_CHARS_MAX, TITLE_CHARS_MAX
from keep_storage.model import Event, EventStatus, Run, Topic
from keep_storage.operations import Publish, PublishEvents, Reserve, SkipEvent
from keep_storage.ordering import ordering_key
from keep_storage.transaction import Queries, Row, Transaction
from keep_storage.transitions import EVENT_NEXT
from keep_storage.workflows import living as living_workflow


def publish_events(tx: Transaction, op: PublishEvents, now: Millis) -> Change[tuple[Event, ...]]:
    living_workflow(tx, op.workflow_id)
    topics = check_publishes(tx, op.workflow_id, op.publishes)
    written = append(tx, op.publishes, topics, None, now)
    found = (event_rows.event(tx, op.workflow_id, event.topic, event.message_id) for event in op.publishes)
    events = tuple(event for event in found if event)
    return changed(events, op.workflow_id, None, published=written)


def skip_event(tx: Transaction, op: SkipEvent, now: Millis) -> Change[Event]:
    event = event_rows.event(tx, op.workflow_id, op.topic, op.message_id) or reject(
        Reason.EVENT_NOT_FOUND,
        f"Workflow {op.workflow_id!r} has no event {op.message_id!r} in topic {op.topic!r}.",
    )
    if event.status is EventStatus.RESERVED:
        reject(
            Reason.EVENT_ALREADY_RESERVED,
            f"Event {op.message_id!r} is held by run {event.reserved_by_run_id!r}. "
            "Resolve that run's mutation instead, or wait for the run.",
        )
    if EventStatus.SKIPPED not in EVENT_NEXT[event.status]:
        reject(Reason.EVENT_ALREADY_FINISHED, f"Event {op.message_id!r} is already {event.status}.")
    event_rows.skip_pending_event(tx, event.id, now)
    rows.forgive_idle_consumer(tx, op.workflow_id, op.topic, now)
    skipped = event_rows.event(tx, op.workflow_id, op.topic, op.message_id)
    assert skipped, "an event that was skipped is still there"
    return changed(
        skipped, op.workflow_id, None, op.why, event=event.id, status=[event.status, skipped.status], by=op.by
    )


def check_publishes(q: Queries, workflow_id: str, publishes: tuple[Publish, ...]) -> Mapping[str, Topic]:
    """The topics to publish to. Refuses before anything is written."""
    if not publishes:
        return {}
    topics = rows.declared_topics(q, workflow_id)
    places: dict[str, Row | None] = {}
    for event in publishes:
        if event.topic not in topics:
            reject(
                Reason.TOPIC_NOT_DECLARED,
                f"Event {event.message_id!r} is published to {event.topic!r}, which the script does not declare.",
            )
        if not 1 <= len(event.message_id) <= MESSAGE_ID_CHARS_MAX or "\0" in event.message_id:
            reject(
                Reason.MESSAGE_ID_INVALID,
                f"An event for topic {event.topic!r} has a messageId of {len(event.message_id)} characters; "
                f"1 to {MESSAGE_ID_CHARS_MAX} are allowed, without NUL.",
            )
        if not 1 <= len(event.title) <= TITLE_CHARS_MAX or not event.title.strip() or "\0" in event.title:
            reject(
                Reason.TITLE_INVALID,
                f"Event {event.message_id!r} for topic {event.topic!r} needs a title of 1 to {TITLE_CHARS_MAX} "
                f"characters that a person can read; it has {len(event.title)}.",
            )
        place = (topics[event.topic].id, event.message_id)
        if (places.setdefault(event.id, event_rows.place_of_event(q, event.id)) or place) != place:
            reject(Reason.ID_TAKEN, f"There is already an event {event.id!r}, and it is not {event.message_id!r}.")
        places[event.id] = place
    return topics


def append(
    tx: Transaction,
    publishes: tuple[Publish, ...],
    topics: Mapping[str, Topic],
    run: Run | None,
    now: Millis,
) -> int:
    """Append events, or update those still pending. Returns how many rows that wrote."""
    written = 0
    touched: set[int] = set()
    has_cause = run is not None and run.reserved_count > 0
    for event in publishes:
        topic_id = topics[event.topic].id
        event_id = event_rows.publish_event(
            tx,
            event_id=event.id,
            topic_id=topic_id,
            message_id=event.message_id,
            title=event.title,
            payload=event.payload,
            ordering_key=ordering_key(event.payload, topics[event.topic].ordering),
            created_by_run_id=run.id if run else None,
            has_cause=has_cause,
            now=now,
        )
        if event_id is None:
            continue
        written += 1
        touched.add(topic_id)
        if run and has_cause:
            event_rows.inherit_roots(tx, event_id, run.id)
    for topic_id in touched:
        event_rows.count_write(tx, topic_id)
    return written


def check_reservations(
    q: Queries, workflow_id: str, handler: str, reservations: tuple[Reserve, ...]
) -> list[event_rows.Claim]:
    """The events a PrepareResult names. One that cannot be had refuses them all, by name."""
    claims: list[event_rows.Claim] = []
    seen: set[tuple[str, str]] = set()
    for reserve in reservations:
        for message_id in reserve.ids:
            if (reserve.topic, message_id) in seen:
                _refuse(Reason.RESERVATION_REPEATED, handler, reserve.topic, message_id, "is reserved twice")
            seen.add((reserve.topic, message_id))
            claims.append(_claimable(q, workflow_id, handler, reserve.topic, message_id))
    return claims


def _claimable(q: Queries, workflow_id: str, handler: str, topic: str, message_id: str) -> event_rows.Claim:
    claim = event_rows.claim(q, workflow_id, topic, message_id)
    if claim is None:
        _refuse(
            Reason.TOPIC_NOT_DECLARED,
            handler,
            topic,
            message_id,
            "is in a topic that the script does not declare",
        )
    if claim.consumer != handler:
        _refuse(Reason.TOPIC_NOT_SUBSCRIBED, handler, topic, message_id, "is in a topic it does not subscribe to")
    if claim.event_id is None:
        _refuse(Reason.EVENT_NOT_FOUND, handler, topic, message_id, "does not exist in this workflow")
    if claim.status is EventStatus.RESERVED:
        _refuse(Reason.EVENT_ALREADY_RESERVED, handler, topic, message_id, "is already reserved by another run")
    if claim.status is not EventStatus.PENDING:
        _refuse(Reason.EVENT_ALREADY_FINISHED, handler, topic, message_id, f"is already {claim.status}")
    if claim.held_back_by is not None:
        what = f"has the ordering key of an event that run {claim.held_back_by!r} holds while its outcome is unknown"
        _refuse(Reason.EVENT_HELD_BACK, handler, topic, message_id, what)
    return claim


def _refuse(reason: Reason, handler: str, topic: str, message_id: str, what: str) -> NoReturn:
    reject(
        reason,
        f"`prepare` of {handler!r} reserves event {message_id!r} of topic {topic!r}, which {what}. "
        "Nothing was reserved. Reserve only what `peek` returned.",
    )


def reserve(tx: Transaction, run: Run, claims: list[event_rows.Claim], now: Millis) -> None:
    for claim in claims:
        assert claim.event_id, "a checked claim has its event"
        assert claim.attempt, "an event has an attempt"
        event_rows.reserve_event(tx, run.id, claim.event_id, claim.attempt, now)
