"""Typed access to the tables: named queries in, structs out. Decides nothing.

Only the operations call what writes here; anyone may call what reads.
"""

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

import msgspec

from keep_storage.ids import Millis
from keep_storage.model import (
    Approval,
    Delivery,
    Event,
    EventStatus,
    Handler,
    HandlerKind,
    Item,
    Json,
    MaintenanceTask,
    Mutation,
    MutationOutcome,
    NoticeKind,
    NoticeRow,
    Phase,
    Record,
    Run,
    Says,
    ScriptVersion,
    Session,
    SessionResult,
    StoredGrant,
    Topic,
    Workflow,
    WorkflowStatus,
)
from keep_storage.transaction import Queries, Row, SqlParams, Transaction

R = TypeVar("R", bound=Record)
A = TypeVar("A", bound=msgspec.Struct)

Convert = Callable[[Any], Any]

as_params: Callable[[msgspec.Struct], dict[str, Any]] = msgspec.structs.asdict


@cache
def converters(struct: type[msgspec.Struct]) -> tuple[tuple[int, Convert], ...]:
    """The columns of a struct that are not stored as they are: enums and truth values, by position."""
    found: list[tuple[int, Convert]] = []
    for position, hint in enumerate(typing.get_type_hints(struct).values()):
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for option in options:
            if option is bool:
                found.append((position, bool))
            elif isinstance(option, type) and issubclass(option, StrEnum):
                table: dict[str | None, StrEnum | None] = {state.value: state for state in option}
                if types.NoneType in options:
                    table[None] = None
                found.append((position, table.__getitem__))
    return tuple(found)


def decode(struct: type[A], row: Row) -> A:
    """A row as a struct: the columns are the fields, in order."""
    values = list(row)
    for position, convert in converters(struct):
        values[position] = convert(values[position])
    return struct(*values)


def find(q: Queries, struct: type[R], query: str, params: SqlParams) -> R | None:
    row = q.one(query, params)
    return None if row is None else decode(struct, row)


def find_all(q: Queries, struct: type[R], query: str, params: SqlParams) -> list[R]:
    return [decode(struct, row) for row in q.all(query, params)]


# Workflows, scripts, handlers, topics.


def workflow(q: Queries, workflow_id: str) -> Workflow | None:
    return find(q, Workflow, "workflow_by_id", {"id": workflow_id})


def insert_workflow(tx: Transaction, workflow: Workflow) -> None:
    tx.run("insert_workflow", as_params(workflow))


def save_workflow(tx: Transaction, workflow: Workflow) -> None:
    tx.run("save_workflow", as_params(workflow))


def workflow_by_name(q: Queries, name: str) -> Workflow | None:
    """The newest workflow of this name that is not archived."""
    return find(q, Workflow, "workflow_by_name", {"name": name})


def version(q: Queries, version_id: str) -> ScriptVersion | None:
    return find(q, ScriptVersion, "version_by_id", {"id": version_id})


def version_by_number(q: Queries, workflow_id: str, major: int, minor: int) -> ScriptVersion | None:
    numbers = {"workflow_id": workflow_id, "major": major, "minor": minor}
    return find(q, ScriptVersion, "version_by_number", numbers)


def version_of_major(q: Queries, workflow_id: str, major: int) -> ScriptVersion | None:
    """Some version of a major number: all of one are by the same author."""
    return find(q, ScriptVersion, "version_of_major", {"workflow_id": workflow_id, "major": major})


def insert_version(tx: Transaction, version: ScriptVersion) -> None:
    tx.run("insert_version", as_params(version))


def mark_version_activated(tx: Transaction, version_id: str, now: Millis) -> None:
    tx.run("mark_version_activated", {"id": version_id, "activated_at": now})


class Reading(msgspec.Struct, frozen=True):
    """The reader of a topic, and the place of the ordering key."""

    consumer: str | None = None
    ordering: str | None = None


def replace_topics(tx: Transaction, workflow_id: str, topics: Mapping[str, Reading]) -> None:
    tx.run("retire_topics", {"workflow_id": workflow_id})
    for name, reading in topics.items():
        tx.run("declare_topic", {"workflow_id": workflow_id, "name": name, **as_params(reading)})


def replace_handlers(
    tx: Transaction, workflow_id: str, handlers: Iterable[tuple[Handler, bool]], *, is_repair: bool
) -> None:
    """Each with a flag: its next run is planned again."""
    tx.run("retire_handlers", {"workflow_id": workflow_id, "is_repair": is_repair})
    for handler, plan_anew in handlers:
        tx.run("declare_handler", {**as_params(handler), "plan_anew": plan_anew})


def topics(q: Queries, workflow_id: str) -> dict[str, Topic]:
    """Every topic that the workflow ever had, by name."""
    return {topic.name: topic for topic in find_all(q, Topic, "topics_of_workflow", {"workflow_id": workflow_id})}


def declared_topics(q: Queries, workflow_id: str) -> dict[str, Topic]:
    return {name: topic for name, topic in topics(q, workflow_id).items() if topic.declared}


def handler(q: Queries, workflow_id: str, name: str) -> Handler | None:
    return find(q, Handler, "handler_by_name", {"workflow_id": workflow_id, "name": name})


def set_wake_at(tx: Transaction, run: Run, wake_at: Millis | None, now: Millis) -> None:
    tx.run("set_wake_at", _handler_key(run) | {"wake_at": wake_at, "updated_at": now})


def commit_handler(
    tx: Transaction, run: Run, state: Json | None, next_run_at: Millis | None, seen: int | None, now: Millis
) -> None:
    """Without a state the old one stays."""
    kept = {"state": state, "next_run_at": next_run_at, "seen": seen, "updated_at": now}
    tx.run("commit_handler", _handler_key(run) | kept)


def count_failure(
    tx: Transaction, run: Run, retry_at: Millis | None, failing_since: Millis | None, now: Millis
) -> None:
    times = {"retry_at": retry_at, "failing_since": failing_since, "updated_at": now}
    tx.run("count_failure", _handler_key(run) | times)


def forgive_handler(tx: Transaction, run: Run, now: Millis) -> None:
    tx.run("forgive_handler", _handler_key(run) | {"updated_at": now})


def stood_still(tx: Transaction, run: Run, now: Millis) -> None:
    """Since this run stopped its workflow."""
    ms = max(now - (run.ended_at or now), 0)
    tx.run("stood_still", {"workflow_id": run.workflow_id, "ms": ms, "updated_at": now})


def forgive_idle_consumer(tx: Transaction, workflow_id: str, topic: str, now: Millis) -> None:
    tx.run("forgive_idle_consumer", {"workflow_id": workflow_id, "topic": topic, "updated_at": now})


def fail_since_now(tx: Transaction, workflow_id: str, now: Millis) -> None:
    tx.run("fail_since_now", {"workflow_id": workflow_id, "updated_at": now})


def put_off(tx: Transaction, run: Run, until: Millis, now: Millis) -> None:
    tx.run("put_off", _handler_key(run) | {"until": until, "updated_at": now})


def look_again(tx: Transaction, run: Run, now: Millis) -> None:
    tx.run("look_again", _handler_key(run) | {"updated_at": now})


def look_again_everywhere(tx: Transaction, workflow_id: str, now: Millis) -> None:
    tx.run("look_again_everywhere", {"workflow_id": workflow_id, "updated_at": now})


def make_handlers_due(tx: Transaction, workflow_id: str, now: Millis) -> None:
    tx.run("make_handlers_due", {"workflow_id": workflow_id, "now": now})


def forgive_failures(tx: Transaction, workflow_id: str, now: Millis) -> None:
    tx.run("forgive_failures", {"workflow_id": workflow_id, "updated_at": now})


def count_repair(tx: Transaction, run: Run, now: Millis) -> None:
    tx.run("count_repair", _handler_key(run) | {"updated_at": now})


def forgive_repairs(tx: Transaction, workflow_id: str, now: Millis) -> None:
    tx.run("forgive_repairs", {"workflow_id": workflow_id, "updated_at": now})


def _handler_key(run: Run) -> dict[str, Any]:
    return {"workflow_id": run.workflow_id, "name": run.handler}


def save_grant(tx: Transaction, grant: StoredGrant) -> None:
    tx.run("save_grant", as_params(grant))


def delete_grant(tx: Transaction, workflow_id: str, major: int, permission: str) -> StoredGrant | None:
    """The one that was there."""
    key = {"workflow_id": workflow_id, "major": major, "permission": permission}
    return find(tx, StoredGrant, "delete_grant", key)


def grant_of_run(q: Queries, run_id: str, permission: str) -> StoredGrant | None:
    """The grant under which a run may use a permission now."""
    return find(q, StoredGrant, "grant_of_run", {"run_id": run_id, "permission": permission})


def calls_on_day(q: Queries, workflow_id: str, permission: str, day: int) -> int:
    row = q.one("calls_on_day", {"workflow_id": workflow_id, "permission": permission, "day": day})
    return 0 if row is None else int(row[0])


def count_call(tx: Transaction, workflow_id: str, permission: str, day: int) -> None:
    tx.run("count_call", {"workflow_id": workflow_id, "permission": permission, "day": day})


# Sessions.


def session(q: Queries, session_id: str) -> Session | None:
    return find(q, Session, "session_by_id", {"id": session_id})


def open_session(q: Queries, workflow_id: str) -> Session | None:
    return find(q, Session, "open_session", {"workflow_id": workflow_id})


def insert_session(tx: Transaction, session: Session) -> None:
    tx.run("insert_session", as_params(session))


def end_session(tx: Transaction, session_id: str, result: SessionResult, error: str, now: Millis) -> None:
    """The first end of a session stands; only its cost is summed again."""
    tx.run("end_session", {"id": session_id, "result": result, "error": error, "ended_at": now})


def sum_cost(tx: Transaction, session_id: str) -> None:
    tx.run("sum_cost", {"id": session_id})


def count_committed_run(tx: Transaction, session_id: str) -> None:
    tx.run("count_committed_run", {"id": session_id})


def uncommitted_run(q: Queries, session_id: str) -> str | None:
    row = q.one("uncommitted_run_of_session", {"session_id": session_id})
    return None if row is None else row[0]


def completed_open_sessions(q: Queries, workflow_id: str | None) -> list[Session]:
    return find_all(q, Session, "completed_open_sessions", _one_or_all(workflow_id))


# Runs.


class Admission(msgspec.Struct, frozen=True):
    """All that decides whether a run may start in a session."""

    workflow_id: str
    status: WorkflowStatus
    error: str
    maintenance: bool
    pending_retry_run_id: str | None
    version_id: str
    session_ended_at: Millis | None
    handler_kind: HandlerKind | None
    seen: int | None
    """All that a consumer can see: the `writes` of its topics."""
    active_run_id: str | None
    held_run_id: str | None
    """The parked run of this job."""


def admission(q: Queries, session_id: str, handler: str) -> Admission | None:
    row = q.one("admission", {"session_id": session_id, "handler": handler})
    return None if row is None else decode(Admission, row)


def run(q: Queries, run_id: str) -> Run | None:
    return find(q, Run, "run_by_id", {"id": run_id})


def insert_run(tx: Transaction, run: Run) -> bool:
    """False if there is already a run with this id."""
    return tx.one("insert_run", as_params(run)) is not None


def save_run(tx: Transaction, run: Run) -> None:
    tx.run("save_run", as_params(run))


def set_phase(tx: Transaction, run_id: str, phase: Phase) -> None:
    tx.run("set_phase", {"id": run_id, "phase": phase})


def set_prepared(tx: Transaction, run: Run) -> None:
    tx.run("set_prepared", as_params(run))


def set_outcome(
    tx: Transaction, run_id: str, phase: Phase, outcome: MutationOutcome, result: Json | None, skip_reason: str
) -> None:
    settled = {
        "id": run_id,
        "phase": phase,
        "mutation_outcome": outcome,
        "mutation_result": result,
        "skip_reason": skip_reason,
    }
    tx.run("set_outcome", settled)


def retry_of(q: Queries, run_id: str) -> str | None:
    """The run that carried on from this one."""
    row = q.one("retry_of", {"run_id": run_id})
    return None if row is None else str(row[0])


def unpark(tx: Transaction, run_id: str) -> None:
    tx.run("unpark", {"id": run_id})


def doubt_that_stops(q: Queries, workflow_id: str) -> Run | None:
    """The first run beside its workflow whose unknown outcome is to stop it."""
    return find(q, Run, "doubt_that_stops", {"workflow_id": workflow_id})


def parked_runs(q: Queries, workflow_id: str) -> list[Run]:
    return find_all(q, Run, "parked_runs", {"workflow_id": workflow_id})


def active_runs(q: Queries, workflow_id: str | None) -> list[Run]:
    return find_all(q, Run, "active_runs", _one_or_all(workflow_id))


# Events.


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


# Mutations and approvals.


def mutation(q: Queries, mutation_id: str) -> Mutation | None:
    return find(q, Mutation, "mutation_by_id", {"id": mutation_id})


def mutation_by_identity(q: Queries, identity_key: str) -> Mutation | None:
    return find(q, Mutation, "mutation_by_identity", {"identity_key": identity_key})


def mutation_of_older_identity(q: Queries, item: Item, connector: str, method: str, params: Json) -> Mutation | None:
    """A call of this method in this attempt at the item, from before subkeys were kept; the same words first."""
    key = as_params(item) | {"connector": connector, "method": method, "params": params}
    return find(q, Mutation, "mutation_of_older_identity", key)


def insert_mutation(tx: Transaction, mutation: Mutation) -> bool:
    """False if there is already a mutation with this id."""
    return tx.one("insert_mutation", as_params(mutation)) is not None


def save_mutation(tx: Transaction, mutation: Mutation) -> None:
    tx.run("save_mutation", as_params(mutation))


def unsettled_mutation_of_run(q: Queries, run_id: str) -> Mutation | None:
    return find(q, Mutation, "unsettled_mutation_of_run", {"run_id": run_id})


def unsettled_mutation_of_item(q: Queries, item: Item) -> Mutation | None:
    return find(q, Mutation, "unsettled_mutation_of_item", as_params(item))


def calls_left_in_doubt(q: Queries, workflow_id: str | None) -> list[Mutation]:
    return find_all(q, Mutation, "calls_left_in_doubt", _one_or_all(workflow_id))


def approval(q: Queries, approval_id: str) -> Approval | None:
    return find(q, Approval, "approval_by_id", {"id": approval_id})


def open_approval(q: Queries, mutation_id: str) -> Approval | None:
    return find(q, Approval, "open_approval", {"mutation_id": mutation_id})


def open_approvals(q: Queries, workflow_id: str) -> list[Approval]:
    return find_all(q, Approval, "open_approvals_of_workflow", {"workflow_id": workflow_id})


def insert_approval(tx: Transaction, approval: Approval) -> bool:
    """False if there is already an approval with this id."""
    return tx.one("insert_approval", as_params(approval)) is not None


def decide_approval(tx: Transaction, approval: Approval) -> None:
    tx.run("decide_approval", as_params(approval))


# Items.


def item(q: Queries, workflow_id: str, item_id: str) -> Item | None:
    """The current attempt."""
    return find(q, Item, "latest_item", {"workflow_id": workflow_id, "item_id": item_id})


def open_item(q: Queries, run_id: str) -> Item | None:
    return find(q, Item, "open_item_of_run", {"run_id": run_id})


def save_item(tx: Transaction, item: Item) -> None:
    tx.run("save_item", as_params(item))


def record_item_run(tx: Transaction, item: Item) -> None:
    tx.run("record_item_run", as_params(item))


# Maintenance.


def open_task(q: Queries, workflow_id: str) -> MaintenanceTask | None:
    return find(q, MaintenanceTask, "open_task", {"workflow_id": workflow_id})


def insert_task(tx: Transaction, task: MaintenanceTask) -> None:
    tx.run("insert_task", as_params(task))


def save_task(tx: Transaction, task: MaintenanceTask) -> None:
    tx.run("save_task", as_params(task))


def end_task(tx: Transaction, workflow_id: str, now: Millis) -> None:
    tx.run("end_task", {"workflow_id": workflow_id, "ended_at": now})


def maintenance_without_task(q: Queries, workflow_id: str | None) -> list[Workflow]:
    return find_all(q, Workflow, "maintenance_without_task", _one_or_all(workflow_id))


# Notices.


def notice(q: Queries, notice_id: str) -> NoticeRow | None:
    return find(q, NoticeRow, "notice_by_id", {"id": notice_id})


def open_notice(q: Queries, workflow_id: str, kind: NoticeKind, about: str) -> NoticeRow | None:
    return find(q, NoticeRow, "open_notice", {"workflow_id": workflow_id, "kind": kind, "about": about})


def insert_notice(tx: Transaction, notice: NoticeRow) -> bool:
    """False if there is already a notice with this id."""
    return tx.one("insert_notice", as_params(notice)) is not None


def settle_notice(tx: Transaction, notice: NoticeRow) -> None:
    """Sinks that are told of it are to be told of its end."""
    tx.run("settle_notice", as_params(notice))
    tx.run("insert_settled_deliveries", {"notice_id": notice.id, "now": notice.settled_at})


def delivery(q: Queries, notice_id: str, sink: str, says: Says) -> Delivery | None:
    return find(q, Delivery, "delivery", {"notice_id": notice_id, "sink": sink, "says": says})


def insert_delivery(tx: Transaction, notice_id: str, sink: str, now: Millis) -> None:
    tx.run("insert_delivery", {"notice_id": notice_id, "sink": sink, "now": now})


def save_delivery(tx: Transaction, delivery: Delivery) -> None:
    tx.run("save_delivery", as_params(delivery))


def release_settled_delivery(tx: Transaction, opening: Delivery, now: Millis) -> None:
    tx.run("release_settled_delivery", as_params(opening) | {"now": now})


def _one_or_all(workflow_id: str | None) -> dict[str, Any]:
    return {"workflow_id": workflow_id, "everywhere": int(workflow_id is None)}
