"""Questions of a runtime, a console or a test. Reads only, on the writer's connection or any reader's."""

from collections.abc import Iterable
from typing import Final

import msgspec

from keep_storage.agenda import Due, HandlerView, Snapshot, TaskView, agenda, snapshot
from keep_storage.event_rows import claim
from keep_storage.ids import Millis
from keep_storage.limits import PEEK_DEFAULT, PEEK_MAX
from keep_storage.model import (
    Approval,
    Event,
    EventStatus,
    Handler,
    Item,
    JournalEntry,
    MaintenanceTask,
    Mutation,
    Reservation,
    Run,
    ScriptVersion,
    Session,
    StoredGrant,
    Topic,
    Workflow,
)
from keep_storage.mutation_rows import approval, item, mutation, mutation_by_identity, open_approval
from keep_storage.records import decode, find, find_all
from keep_storage.rows import (
    calls_on_day,
    handler,
    open_session,
    open_task,
    parked_runs,
    run,
    session,
    version,
    version_by_number,
    workflow,
    workflow_by_name,
)
from keep_storage.transaction import Queries

__all__ = [
    "Due",
    "HandlerView",
    "InputRow",
    "Snapshot",
    "TaskView",
    "agenda",
    "approval",
    "approvals_due",
    "approvals_of_mutation",
    "archived_by_name",
    "calls_on_day",
    "doubts",
    "event",
    "events",
    "events_caused_by",
    "events_of_run",
    "events_of_version",
    "grants",
    "handler",
    "handlers",
    "inputs",
    "item",
    "item_attempts",
    "items_of_version",
    "journal",
    "journal_end",
    "journal_of_run",
    "latest_version",
    "mutation",
    "mutation_by_identity",
    "mutations_due",
    "mutations_of_event",
    "mutations_of_run",
    "mutations_of_version",
    "mutations_to_reconcile",
    "open_approval",
    "open_approvals",
    "open_session",
    "open_task",
    "outputs",
    "parked_runs",
    "peek",
    "peek_one",
    "reservations_of_event",
    "roots_of_event",
    "run",
    "runs",
    "runs_of_version",
    "session",
    "sessions",
    "snapshot",
    "tasks",
    "topics",
    "unsettled_mutations",
    "version",
    "version_by_number",
    "versions",
    "workflow",
    "workflow_by_name",
    "workflows",
    "workflows_in_error",
    "workflows_needing_attention",
]

_LAST_ID: Final = "\x7f"
"""Sorts after every id."""
_LAST_SEQ: Final = 2**63 - 1
_NO_LIMIT: Final = 2**31 - 1


# Events.


def peek(q: Queries, workflow_id: str, topic: str, *, limit: int = PEEK_DEFAULT, after: int = 0) -> list[Event]:
    """Pending events of a topic, oldest first. `after` is the `seq` of the last one seen."""
    if not 1 <= limit <= PEEK_MAX:
        raise ValueError(f"peek takes a limit of 1 to {PEEK_MAX}, not {limit}")
    key = {"workflow_id": workflow_id, "topic": topic, "limit": limit, "after": after}
    return find_all(q, Event, "peek_events", key)


def peek_one(q: Queries, workflow_id: str, topic: str, message_id: str) -> Event | None:
    """The pending event with this message id, unless it waits for a parked run."""
    found = claim(q, workflow_id, topic, message_id)
    if found is None or found.status is not EventStatus.PENDING or found.held_back_by is not None:
        return None
    return event(q, workflow_id, topic, message_id)


def events_by_ids(q: Queries, workflow_id: str, topic: str, message_ids: Iterable[str]) -> list[Event]:
    """The events with these ids that exist, in this order, in any state. A pending one that waits for a parked run is
    left out, as `peek` leaves it out: it cannot be reserved now."""
    found = (event(q, workflow_id, topic, each) for each in dict.fromkeys(message_ids))
    return [
        each
        for each in found
        if each is not None
        and (each.status is not EventStatus.PENDING or peek_one(q, workflow_id, topic, each.message_id) is not None)
    ]


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
    """The first causes of an event; none if it came from outside."""
    return find_all(q, Event, "roots_of_event", {"event_id": event_id})


def events_caused_by(q: Queries, event_id: str) -> list[Event]:
    """All events that an event caused."""
    return find_all(q, Event, "events_caused_by", {"event_id": event_id})


class InputRow(msgspec.Struct, frozen=True):
    """An event that no other event caused, and the topic it came in by."""

    topic: str
    event: Event


def inputs(q: Queries, workflow_id: str, *, limit: int = PEEK_DEFAULT, before: int = _LAST_SEQ) -> list[InputRow]:
    """Inputs, newest first. `before` is the `seq` of the last one seen."""
    found = q.all("inputs_of_workflow", {"workflow_id": workflow_id, "limit": limit, "before": before})
    return [InputRow(row[0], decode(Event, row[1:])) for row in found]


# Workflows, scripts, sessions and runs.


def archived_by_name(q: Queries, name: str) -> Workflow | None:
    """The newest archived workflow of this name."""
    return find(q, Workflow, "archived_by_name", {"name": name})


def versions(q: Queries, workflow_id: str) -> list[ScriptVersion]:
    """The versions of a workflow's script, the highest number first."""
    return find_all(q, ScriptVersion, "versions_of_workflow", {"workflow_id": workflow_id, "limit": _NO_LIMIT})


def latest_version(q: Queries, workflow_id: str) -> ScriptVersion | None:
    """The version with the highest number, active or not."""
    return find(q, ScriptVersion, "versions_of_workflow", {"workflow_id": workflow_id, "limit": 1})


def workflows(q: Queries) -> list[Workflow]:
    return find_all(q, Workflow, "all_workflows", {})


def workflows_in_error(q: Queries) -> list[Workflow]:
    """Workflows that are stopped by an error, archived ones too."""
    return find_all(q, Workflow, "workflows_in_error", {})


def workflows_needing_attention(q: Queries) -> list[Workflow]:
    """Workflows in which something waits for a person."""
    return find_all(q, Workflow, "workflows_needing_attention", {})


def topics(q: Queries, workflow_id: str) -> list[Topic]:
    return find_all(q, Topic, "topics_of_workflow", {"workflow_id": workflow_id})


def handlers(q: Queries, workflow_id: str) -> list[Handler]:
    return find_all(q, Handler, "handlers_of_workflow", {"workflow_id": workflow_id})


def grants(q: Queries, workflow_id: str, major: int) -> list[StoredGrant]:
    return find_all(q, StoredGrant, "grants_of_version", {"workflow_id": workflow_id, "major": major})


def envelope(q: Queries, version_id: str) -> list[StoredGrant]:
    """The grants of a version: those of its major number."""
    return find_all(q, StoredGrant, "envelope_of_version", {"version_id": version_id})


def sessions(q: Queries, workflow_id: str, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[Session]:
    """The sessions of a workflow, newest first. `before` is the id of the last one seen."""
    return find_all(q, Session, "sessions_of_workflow", {"workflow_id": workflow_id, "limit": limit, "before": before})


def runs(q: Queries, workflow_id: str, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[Run]:
    """The runs of a workflow, newest first. `before` is the id of the last one seen."""
    key = {"workflow_id": workflow_id, "limit": limit, "before": before, "last": _LAST_SEQ}
    return find_all(q, Run, "runs_of_workflow", key)


def tasks(q: Queries, workflow_id: str, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[MaintenanceTask]:
    """The repairs of a workflow, newest first. `before` is the id of the last one seen."""
    key = {"workflow_id": workflow_id, "limit": limit, "before": before}
    return find_all(q, MaintenanceTask, "tasks_of_workflow", key)


# The work of a script version.


def runs_of_version(q: Queries, version_id: str, *, limit: int = PEEK_DEFAULT, after: str = "") -> list[Run]:
    """Runs of a version, oldest first. `after` is the id of the last one seen."""
    return find_all(q, Run, "runs_of_version", {"version_id": version_id, "limit": limit, "after": after})


def events_of_version(q: Queries, version_id: str, *, limit: int = PEEK_DEFAULT, after: int = 0) -> list[Event]:
    """Every event that a run of a version held, in append order. `after` is the `seq` of the last one seen."""
    return find_all(q, Event, "events_of_version", {"version_id": version_id, "limit": limit, "after": after})


def mutations_of_version(q: Queries, version_id: str, *, limit: int = PEEK_DEFAULT, after: str = "") -> list[Mutation]:
    """The calls that a version made or tried, oldest first. `after` is the id of the last one seen.

    A call in an item that failed and was tried again by a newer version counts as that one's.
    """
    return find_all(q, Mutation, "mutations_of_version", {"version_id": version_id, "limit": limit, "after": after})


def items_of_version(
    q: Queries, version_id: str, *, limit: int = PEEK_DEFAULT, after: tuple[str, int] = ("", 0)
) -> list[Item]:
    """The attempts at items that a version worked on, by item. `after` is the `item_id` and `attempt` of the last one
    seen. An item that was finished before it was entered is not worked on."""
    item_id, attempt = after
    key = {"version_id": version_id, "limit": limit, "item_id": item_id, "attempt": attempt}
    return find_all(q, Item, "items_of_version", key)


# Mutations, approvals, items and the journal.


def outputs(q: Queries, workflow_id: str, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[Mutation]:
    """The mutations of a workflow, newest first. `before` is the id of the last one seen."""
    key = {"workflow_id": workflow_id, "limit": limit, "before": before}
    return find_all(q, Mutation, "mutations_of_workflow", key)


def mutations_of_event(q: Queries, event_id: str) -> list[Mutation]:
    """Consequences of an event: the mutations of every run that ever held it, or held what it caused, oldest first."""
    return find_all(q, Mutation, "mutations_of_event", {"event_id": event_id})


def mutations_of_run(q: Queries, run_id: str) -> list[Mutation]:
    return find_all(q, Mutation, "mutations_of_run", {"run_id": run_id})


def unsettled_mutations(q: Queries, workflow_id: str) -> list[Mutation]:
    """The calls of a workflow that are in doubt, or not sent."""
    return find_all(q, Mutation, "unsettled_mutations", {"workflow_id": workflow_id})


def doubts(q: Queries) -> list[Mutation]:
    """The calls that may have happened, in all workflows."""
    return find_all(q, Mutation, "doubts", {})


def mutations_to_reconcile(q: Queries, now: Millis, *, limit: int = PEEK_DEFAULT) -> list[Mutation]:
    """Mutations whose next check is due, the longest due first."""
    return find_all(q, Mutation, "mutations_to_reconcile", {"now": now, "limit": limit})


def mutations_due(q: Queries, workflow_id: str, now: Millis) -> list[Mutation]:
    """Mutations of one workflow whose next check is due, the longest due first."""
    return find_all(q, Mutation, "mutations_due", {"workflow_id": workflow_id, "now": now})


def open_approvals(q: Queries, workflow_id: str | None = None) -> list[Approval]:
    """Questions that wait for a person, oldest first: everywhere, or in one workflow."""
    if workflow_id is None:
        return find_all(q, Approval, "open_approvals", {})
    return find_all(q, Approval, "open_approvals_of_workflow", {"workflow_id": workflow_id})


def approvals_due(q: Queries, workflow_id: str, now: Millis) -> list[Approval]:
    """Questions of a workflow that expired, the longest due first."""
    return find_all(q, Approval, "approvals_due", {"workflow_id": workflow_id, "now": now})


def approvals_of_mutation(q: Queries, mutation_id: str) -> list[Approval]:
    """Every question about a call, the last one last."""
    return find_all(q, Approval, "approvals_of_mutation", {"mutation_id": mutation_id})


def item_attempts(q: Queries, workflow_id: str, item_id: str) -> list[Item]:
    """Every attempt at an item, oldest first."""
    return find_all(q, Item, "item_attempts", {"workflow_id": workflow_id, "item_id": item_id})


def journal(q: Queries, *, workflow_id: str | None = None, after: int = 0, limit: int = PEEK_MAX) -> list[JournalEntry]:
    """Journal entries after a sequence number: everywhere, or in one workflow."""
    if workflow_id is None:
        return find_all(q, JournalEntry, "journal_after", {"after": after, "limit": limit})
    key = {"workflow_id": workflow_id, "after": after, "limit": limit}
    return find_all(q, JournalEntry, "journal_of_workflow", key)


def journal_end(q: Queries) -> int:
    """The last sequence number; 0 before anything has happened."""
    row = q.one("journal_end", {})
    assert row, "an aggregate has one row"
    return int(row[0])


def journal_of_run(q: Queries, run_id: str) -> list[JournalEntry]:
    return find_all(q, JournalEntry, "journal_of_run", {"run_id": run_id})
