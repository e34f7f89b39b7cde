"""Typed access to workflows, scripts, handlers, topics, grants, sessions, runs and repairs. Decides nothing.

Only the operations call what writes here; anyone may call what reads.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from keep_storage.ids import Millis
from keep_storage.model import (
    Handler,
    HandlerKind,
    Json,
    MaintenanceTask,
    Run,
    ScriptVersion,
    Session,
    SessionResult,
    StoredGrant,
    Topic,
    Workflow,
    WorkflowStatus,
)
from keep_storage.records import as_params, decode, find, find_all, find_by_id, one_or_all
from keep_storage.transaction import Queries, Transaction

# Workflows, scripts, handlers, topics.


def workflow(q: Queries, workflow_id: str) -> Workflow | None:
    return find_by_id(q, Workflow, "workflow_by_id", workflow_id)


def insert_workflow(tx: Transaction, workflow: Workflow) -> None:
    tx.run("insert_workflow", as_params(workflow))


def save_workflow(tx: Transaction, workflow: Workflow) -> None:
    tx.run("save_workflow", as_params(workflow))
    tx.kept.keep(workflow)


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


def has_pending_events(q: Queries, workflow_id: str) -> bool:
    return q.one("pending_event_of_workflow", {"workflow_id": workflow_id}) is not None


def completed_open_sessions(q: Queries, workflow_id: str | None) -> list[Session]:
    return find_all(q, Session, "completed_open_sessions", one_or_all(workflow_id))


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
    return find_by_id(q, Run, "run_by_id", run_id)


def insert_run(tx: Transaction, run: Run) -> Run | None:
    """The run with its number; nothing if there is already one with this id."""
    row = tx.one("insert_run", as_params(run))
    if row is None:
        return None
    numbered = replace(run, number=row[0])
    tx.kept.keep(numbered)
    return numbered


def save_run(tx: Transaction, run: Run) -> None:
    tx.run("save_run", as_params(run))
    tx.kept.keep(run)


def set_phase(tx: Transaction, run: Run) -> None:
    """Write its phase. The rest of it is as it was."""
    tx.run("set_phase", {"id": run.id, "phase": run.phase})
    tx.kept.keep(run)


def set_prepared(tx: Transaction, run: Run) -> None:
    """Write its phase and what `prepare` returned. The rest of it is as it was."""
    tx.run(
        "set_prepared",
        {
            "id": run.id,
            "phase": run.phase,
            "title": run.title,
            "reserved_count": run.reserved_count,
            "prepare_result": run.prepare_result,
        },
    )
    tx.kept.keep(run)


def set_outcome(tx: Transaction, run: Run) -> None:
    """Write its phase and the outcome of its mutation. The rest of it is as it was."""
    settled = {
        "id": run.id,
        "phase": run.phase,
        "mutation_outcome": run.mutation_outcome,
        "mutation_result": run.mutation_result,
        "skip_reason": run.skip_reason,
    }
    tx.run("set_outcome", settled)
    tx.kept.keep(run)


def retry_of(q: Queries, run_id: str) -> str | None:
    """The run that carried on from this one."""
    row = q.one("retry_of", {"run_id": run_id})
    return None if row is None else str(row[0])


def unpark(tx: Transaction, run_id: str) -> None:
    tx.run("unpark", {"id": run_id})
    tx.kept.forget(Run, run_id)


def doubt_that_stops(q: Queries, workflow_id: str) -> Run | None:
    """The first run beside its workflow whose unknown outcome is to stop it."""
    return find(q, Run, "doubt_that_stops", {"workflow_id": workflow_id})


def parked_runs(q: Queries, workflow_id: str) -> list[Run]:
    return find_all(q, Run, "parked_runs", {"workflow_id": workflow_id})


def active_runs(q: Queries, workflow_id: str | None) -> list[Run]:
    return find_all(q, Run, "active_runs", one_or_all(workflow_id))


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
    return find_all(q, Workflow, "maintenance_without_task", one_or_all(workflow_id))
