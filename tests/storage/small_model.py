"""The execution model said a second time: dicts and rules, from the specification and not from the library.

`after(state, operation, now)` gives the state that follows, or nothing if the operation is refused. It knows no
reasons, hardly a text, and of the times only those that decide something; what it does know is compared with the
database, key by key, after every step.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keep_storage import operations as ops

Key = Any
Row = dict[str, Any]
State = dict[str, dict[Key, Row]]

TABLES = (
    "workflows versions topics handlers grants uses sessions runs events reservations roots mutations approvals items "
    "item_runs tasks notices deliveries proposals"
)

DOUBT = ("in_flight", "needs_reconcile", "indeterminate")
SETTLED = ("applied", "failed")
FOR_GOOD = ("success", "skipped")
NEEDS_A_PERSON = ("paused:approval", "paused:reconciliation", "failed:internal")

PHASES = {
    "pending": ("preparing",),
    "preparing": ("prepared",),
    "prepared": ("mutating", "emitting"),
    "mutating": ("mutated",),
    "mutated": ("emitting",),
    "emitting": (),
    "committed": (),
}

LABELS = {
    "pending": ("in_flight",),
    "in_flight": ("needs_reconcile", "indeterminate"),
    "needs_reconcile": ("needs_reconcile", "indeterminate"),
    "indeterminate": ("needs_reconcile",),
}

MACHINES = ("connector", "reconciliation")

MAY_SAY = {
    ("applied", "in_flight"): MACHINES,
    ("applied", "needs_reconcile"): (*MACHINES, "user_assert_applied"),
    ("applied", "indeterminate"): ("user_assert_applied",),
    ("failed", "pending"): ("connector", "recovery"),
    ("failed", "in_flight"): MACHINES,
    ("failed", "needs_reconcile"): (*MACHINES, "user_assert_failed"),
    ("failed", "indeterminate"): ("user_assert_failed",),
}
"""Who may say that a mutation was applied or failed, by where it stands."""

NO_ERROR: Row = {"has_error": False, "error_run_id": None}
NO_FAILURES: Row = {"failures": 0, "failing_since": None, "retry_at": None}
UNTRIED: Row = {"seen": None, **NO_FAILURES}
NOT_WAITING: Row = {"next_attempt_at": None, "held_version_id": None}

STATUS_BEFORE = {
    "paused": ("active",),
    "active": ("ready", "paused"),
    "archived": ("draft", "ready", "active", "paused"),
}


class _Refused(Exception):
    """The operation does not happen."""


def must(condition: object) -> None:
    if not condition:
        raise _Refused


def empty() -> State:
    return {table: {} for table in TABLES.split()}


def after(state: State, operation: ops.Operation[Any], now: int) -> State | None:
    """The state once the operation has happened, or nothing if it is refused. `state` itself stays as it is."""
    following = {table: {key: dict(row) for key, row in rows.items()} for table, rows in state.items()}
    try:
        carry_out(following, operation, now)
    except _Refused:
        return None
    return following


def carry_out(s: State, operation: ops.Operation[Any], now: int) -> None:
    if isinstance(operation, ops.Together):
        for each in operation.operations:
            carry_out(s, each, now)
    else:
        RULES[type(operation)](s, operation, now)


# Looking.


def get(s: State, table: str, key: Key) -> Row:
    must(key in s[table])
    return s[table][key]


def where(s: State, table: str, **wanted: Any) -> list[Key]:
    """The keys of all rows that look like this, oldest first."""
    return [key for key, row in s[table].items() if all(row[name] == value for name, value in wanted.items())]


def active_run(s: State, workflow_id: str) -> str | None:
    return next(iter(where(s, "runs", workflow_id=workflow_id, status="active")), None)


def open_session(s: State, workflow_id: str) -> str | None:
    return next(iter(where(s, "sessions", workflow_id=workflow_id, result=None)), None)


def unsettled(s: State, run_id: str) -> str | None:
    """The mutation of a run that is not settled. There is one at most."""
    return next((key for key in where(s, "mutations", run_id=run_id) if not is_settled(s, key)), None)


def is_settled(s: State, mutation_id: str) -> bool:
    return s["mutations"][mutation_id]["status"] in SETTLED


def open_approval(s: State, mutation_id: str) -> str | None:
    return next(iter(where(s, "approvals", mutation_id=mutation_id, status="open")), None)


def open_item(s: State, run_id: str) -> Key | None:
    return next(iter(where(s, "items", run_id=run_id, is_open=True)), None)


def latest_item(s: State, workflow_id: str, item_id: str) -> Key | None:
    attempts = [key for key in s["items"] if key[:2] == (workflow_id, item_id)]
    return max(attempts, default=None)


# Workflows.


def create_workflow(s: State, op: ops.CreateWorkflow, now: int) -> None:
    must(op.id not in s["workflows"])
    s["workflows"][op.id] = {
        "name": op.name,
        "status": "draft",
        "has_error": False,
        "error_run_id": None,
        "maintenance": False,
        "pending_retry_run_id": None,
        "active_version_id": None,
        "owner": op.owner,
    }


def living(s: State, workflow_id: str) -> Row:
    """A workflow to which something may be added."""
    workflow = get(s, "workflows", workflow_id)
    must(workflow["status"] != "archived")
    return workflow


def add_script_version(s: State, op: ops.AddScriptVersion, now: int) -> None:
    living(s, op.workflow_id)
    must(op.id not in s["versions"])
    number = {"workflow_id": op.workflow_id, "major": op.major, "minor": op.minor}
    must(not where(s, "versions", **number))
    of_major = where(s, "versions", workflow_id=op.workflow_id, major=op.major)
    must(all(s["versions"][each]["author"] == op.author for each in of_major))
    s["versions"][op.id] = number | {"author": op.author, "source": op.source}


def activate_script(s: State, op: ops.ActivateScript, now: int) -> None:
    workflow_id = get(s, "versions", op.version_id)["workflow_id"]
    workflow = s["workflows"][workflow_id]
    must(workflow["status"] != "archived")
    must(not active_run(s, workflow_id))
    must(len({handler.name for handler in op.handlers}) == len(op.handlers))
    readers, orders = subscriptions(op)
    consumers = [handler.name for handler in op.handlers if handler.kind == "consumer"]
    waiting = [each for each in (workflow["pending_retry_run_id"], *parked(s, workflow_id, kind="consumer")) if each]
    must(all(s["runs"][each]["handler"] in consumers for each in waiting))
    receiving = retire_topics(s, workflow_id, op)

    for table in ("topics", "handlers"):
        for key, row in s[table].items():
            if key[0] == workflow_id:
                if table == "handlers" and not row["declared"]:
                    row["next_run_at"] = None
                row["declared"] = False
                kept = {
                    name: row[name] for name in ("failures", "failing_since") if table == "handlers" and op.is_repair
                }
                row.update({"consumer": None, "ordering": None} if table == "topics" else UNTRIED | kept)
    for topic, reader in readers.items():
        known = s["topics"].get((workflow_id, topic), {"writes": 0})
        s["topics"][workflow_id, topic] = known | {
            "declared": True,
            "consumer": reader,
            "ordering": orders.get(topic),
        }
    for topic in receiving:
        s["topics"][workflow_id, topic]["writes"] += 1
    for handler in op.handlers:
        declare_handler(s, workflow_id, handler)
    workflow["active_version_id"] = op.version_id
    workflow["owner"] = workflow["owner"] if op.owner is None else op.owner
    if workflow["status"] == "draft":
        workflow["status"] = "ready"


def subscriptions(op: ops.ActivateScript) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The consumer of every declared topic, and the ordering key of those that are read."""
    readers: dict[str, str | None] = dict.fromkeys(op.topics)
    orders: dict[str, str | None] = {}
    for handler in op.handlers:
        must(handler.kind == "consumer" or not handler.subscribe)
        must(handler.ordering is None or (handler.kind == "consumer" and handler.ordering != ""))
        for topic in handler.subscribe:
            must(topic in readers and readers[topic] in (None, handler.name))
            readers[topic] = handler.name
            orders[topic] = handler.ordering
    return readers, orders


def retire_topics(s: State, workflow_id: str, op: ops.ActivateScript) -> set[str]:
    """Somebody says what becomes of every event that would be left behind. Returns where events were added."""
    known = {key[1]: row for key, row in s["topics"].items() if key[0] == workflow_id}
    named = [*op.drop, *(old for old, _ in op.move)]
    must(len(set(named)) == len(named))
    must(all(name in known and name not in op.topics for name in named))
    must(all(new in op.topics for _, new in op.move))
    for (whose, topic, _), row in s["events"].items():
        if whose == workflow_id and row["status"] in ("pending", "reserved"):
            must(topic in op.topics or topic in named or not known[topic]["declared"])
            must(topic not in op.drop or row["status"] == "pending")
            row["status"] = "skipped" if topic in op.drop else row["status"]
    places: dict[Key, Key] = {key: key for key in s["events"]}
    receiving: set[str] = set()
    # What a run holds goes first. Then topic by topic: what is pending, and after it what is finished.
    steps = [(each, "reserved") for each in op.move]
    steps += [(each, status) for each in op.move for status in ("pending", "finished")]
    for (old, new), status in steps:
        statuses = ("consumed", "skipped") if status == "finished" else (status,)
        for key in [key for key, row in s["events"].items() if row["status"] in statuses]:
            if key[:2] != (workflow_id, old):
                continue
            place = (workflow_id, new, key[2])
            if place not in places.values():
                places[key] = place
                receiving |= {new} if status == "pending" else set()
                continue
            must(status != "reserved")
            s["events"][key]["status"] = "skipped" if status == "pending" else s["events"][key]["status"]
    s["events"] = {places[key]: row for key, row in s["events"].items()}
    s["reservations"] = {(run, places[key]): row for (run, key), row in s["reservations"].items()}
    s["roots"] = {(places[key], places[root]): row for (key, root), row in s["roots"].items()}
    return receiving


def declare_handler(s: State, workflow_id: str, spec: ops.HandlerSpec) -> None:
    """Its state stays. So does the time of its next run, while kind and schedule stay and nothing else is wanted."""
    new = {"kind": str(spec.kind), "declared": True, "schedule": None, "next_run_at": None, "wake_at": None}
    old = s["handlers"].get((workflow_id, spec.name), {"state": None, "repairs": 0, **UNTRIED, **new})
    if spec.kind == "consumer":
        new["wake_at"] = old["wake_at"]
    else:
        new["schedule"] = spec.schedule
        same = not spec.plan_anew and old["kind"] == new["kind"] and old["schedule"] == spec.schedule is not None
        new["next_run_at"] = old["next_run_at"] if same and old["next_run_at"] is not None else spec.first_run_at
    s["handlers"][workflow_id, spec.name] = old | new


def grant_permission(s: State, op: ops.GrantPermission, now: int) -> None:
    living(s, op.workflow_id)
    must(op.permission.strip())
    must(is_object(op.limits))
    s["grants"][op.workflow_id, op.major, op.permission] = {"policy": op.policy, "limits": op.limits}


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def revoke_permission(s: State, op: ops.RevokePermission, now: int) -> None:
    key = (op.workflow_id, op.major, op.permission)
    get(s, "grants", key)
    del s["grants"][key]


def use_grant(s: State, op: ops.UseGrant, now: int) -> None:
    run = get(s, "runs", op.run_id)
    must(run["status"] == "active")
    count_use(s, run["workflow_id"], op)


def count_use(s: State, workflow_id: str, use: ops.UseGrant | ops.GrantUse) -> None:
    must(use.permission.strip())
    key = (workflow_id, use.permission, use.day)
    used = s["uses"].get(key, {"calls": 0})["calls"]
    must(used < use.per_day)
    s["uses"][key] = {"calls": used + 1}


def set_status(status: str) -> Callable[[State, Any, int], None]:
    def rule(s: State, op: Any, now: int) -> None:
        workflow = get(s, "workflows", op.workflow_id)
        must(workflow["status"] in STATUS_BEFORE[status])
        workflow["status"] = status

    return rule


def archive_workflow(s: State, op: ops.ArchiveWorkflow, now: int) -> None:
    """No question is left behind: what waits for a person is refused, and a doubt stays a doubt."""
    set_status("archived")(s, op, now)
    for approval_id, mutation_id in asked(s, op.workflow_id):
        s["approvals"][approval_id]["status"] = "rejected"
        settle(s, mutation_id, "failure", "approval_rejected", now)


def asked(s: State, workflow_id: str) -> list[tuple[str, str]]:
    """The open questions of a workflow, each with the call that it is about."""
    found = [(key, str(s["approvals"][key]["mutation_id"])) for key in where(s, "approvals", status="open")]
    return [each for each in found if s["mutations"][each[1]]["workflow_id"] == workflow_id]


def doubts(s: State, workflow_id: str) -> list[str]:
    """Calls of stopped runs that may have happened."""
    found = [key for key in where(s, "mutations", workflow_id=workflow_id) if s["mutations"][key]["status"] in DOUBT]
    return [key for key in found if s["runs"][s["mutations"][key]["run_id"]]["status"] != "active"]


def unarchive_workflow(s: State, op: ops.UnarchiveWorkflow, now: int) -> None:
    workflow = get(s, "workflows", op.workflow_id)
    must(workflow["status"] == "archived")
    others = where(s, "workflows", name=workflow["name"])
    must(all(s["workflows"][each]["status"] == "archived" for each in others))
    workflow["status"] = "paused" if workflow["active_version_id"] else "draft"


def resume_workflow(s: State, op: ops.ResumeWorkflow, now: int) -> None:
    """While it was paused nothing was tried, so nothing failed."""
    set_status("active")(s, op, now)
    for handler in handlers_of(s, op.workflow_id):
        handler["failing_since"] = now if handler["failures"] else None


def run_now(s: State, op: ops.RunNow, now: int) -> None:
    must(is_free(s, get(s, "workflows", op.workflow_id), op.workflow_id))
    for handler in handlers_of(s, op.workflow_id):
        if handler["kind"] != "consumer" and handler["declared"]:
            handler |= {"next_run_at": now, "retry_at": None}


def handlers_of(s: State, workflow_id: str) -> list[Row]:
    return [row for key, row in s["handlers"].items() if key[0] == workflow_id]


def halt_workflow(s: State, op: ops.HaltWorkflow, now: int) -> None:
    workflow = get(s, "workflows", op.workflow_id)
    must(workflow["status"] != "archived")
    must(op.error.strip())
    workflow["has_error"] = True


def clear_workflow_error(s: State, op: ops.ClearWorkflowError, now: int) -> None:
    workflow = get(s, "workflows", op.workflow_id)
    must(workflow["has_error"])
    must(not unsettled(s, workflow["error_run_id"]))
    end_error(s, op.workflow_id)
    for handler in handlers_of(s, op.workflow_id):
        handler |= UNTRIED


def end_error(s: State, workflow_id: str) -> None:
    """What stopped the workflow is seen to; the next doubt beside it stops it, if there is one that is to."""
    doubts = [each for each in parked(s, workflow_id) if is_to_stop(s, each)]
    first = min(doubts, default=None)
    s["workflows"][workflow_id] |= {"has_error": True, "error_run_id": first} if first else NO_ERROR


def is_to_stop(s: State, run_id: str) -> bool:
    """The call of this run may have happened, and its workflow is to stand still meanwhile."""
    run, mutation = s["runs"][run_id], unsettled(s, run_id)
    return bool(mutation) and run["on_unknown"] == "pause" and run["status"] == "paused:reconciliation"


def create_maintenance_task(s: State, op: ops.CreateMaintenanceTask, now: int) -> None:
    must(get(s, "workflows", op.workflow_id)["maintenance"])
    must(not open_task(s, op.workflow_id))
    order_repair(s, op.workflow_id)


def order_repair(s: State, workflow_id: str) -> None:
    failed = where(s, "runs", workflow_id=workflow_id, status="failed:logic")[-1]
    s["tasks"][failed] = {"workflow_id": workflow_id, "status": "open", "attempts": 0, "problem": "", **NOT_WAITING}


def open_task(s: State, workflow_id: str) -> str | None:
    return next(iter(where(s, "tasks", workflow_id=workflow_id, status="open")), None)


def failed_handler(s: State, workflow_id: str) -> Row:
    """The handler that the repair is about: that of the last run that failed by its logic."""
    failed = where(s, "runs", workflow_id=workflow_id, status="failed:logic")[-1]
    return s["handlers"][workflow_id, s["runs"][failed]["handler"]]


def note_repair_attempt(s: State, op: ops.NoteRepairAttempt, now: int) -> None:
    task = get(s, "tasks", open_task(s, op.workflow_id))
    task |= NOT_WAITING
    task |= {"attempts": task["attempts"] + 1, "problem": op.problem, "next_attempt_at": op.next_attempt_at}
    failed_handler(s, op.workflow_id)["repairs"] += 1


def hold_proposal(s: State, op: ops.HoldProposal, now: int) -> None:
    task = get(s, "tasks", open_task(s, op.workflow_id))
    must(get(s, "versions", op.version_id)["workflow_id"] == op.workflow_id)
    must(op.version_id != s["workflows"][op.workflow_id]["active_version_id"])
    must(task["held_version_id"] is None)
    task |= {"held_version_id": op.version_id, "next_attempt_at": None, "problem": op.problem}


def exit_maintenance_mode(s: State, op: ops.ExitMaintenanceMode, now: int) -> None:
    workflow = get(s, "workflows", op.workflow_id)
    must(workflow["maintenance"])
    workflow["maintenance"] = False
    for handler in handlers_of(s, op.workflow_id) if op.by_person else ():
        handler |= {"repairs": 0, **NO_FAILURES}
    if not op.by_person:
        failed_handler(s, op.workflow_id)["repairs"] += 1
    if task := open_task(s, op.workflow_id):
        s["tasks"][task] |= {"status": "done", **NOT_WAITING}


# Sessions.


def create_session(s: State, op: ops.CreateSession, now: int) -> None:
    get(s, "workflows", op.workflow_id)
    must(op.id not in s["sessions"])
    must(not open_session(s, op.workflow_id))
    s["sessions"][op.id] = {
        "workflow_id": op.workflow_id,
        "result": None,
        "handler_run_count": 0,
        "cost_micros": 0,
    }


def finish_session(s: State, op: ops.FinishSession, now: int) -> None:
    session = get(s, "sessions", op.session_id)
    has_more = session["result"] is not None or not all_committed(s, op.session_id)
    waits = any(key[0] == session["workflow_id"] and row["status"] == "pending" for key, row in s["events"].items())
    if op.if_idle and (has_more or waits):
        return
    must(session["result"] is None)
    must(all_committed(s, op.session_id))
    end_session(s, op.session_id, "completed")


def all_committed(s: State, session_id: str) -> bool:
    return all(s["runs"][run]["status"] == "committed" for run in where(s, "runs", session_id=session_id))


def end_session(s: State, session_id: str, result: str) -> None:
    session = s["sessions"][session_id]
    session["result"] = session["result"] or result
    session["cost_micros"] = sum(s["runs"][run]["cost_micros"] for run in where(s, "runs", session_id=session_id))


# Runs.


def admit(s: State, run_id: str, session_id: str) -> str:
    """The workflow, if something may run in it now."""
    session = get(s, "sessions", session_id)
    must(session["result"] is None)
    workflow = s["workflows"][session["workflow_id"]]
    must(is_free(s, workflow, session["workflow_id"]))
    must(run_id not in s["runs"])
    return str(session["workflow_id"])


def is_free(s: State, workflow: Row, workflow_id: str) -> bool:
    waits = workflow["status"] == "active" and not workflow["has_error"] and not workflow["maintenance"]
    return waits and not active_run(s, workflow_id)


def create_run(s: State, op: ops.CreateRun, now: int) -> None:
    workflow_id = admit(s, op.id, op.session_id)
    must(not s["workflows"][workflow_id]["pending_retry_run_id"])
    handler = get(s, "handlers", (workflow_id, op.handler))
    must(handler["declared"])
    must(op.phase == "pending" or (op.phase == "preparing" and handler["kind"] == "consumer"))
    must(op.on_unknown == "pause" or handler["kind"] == "consumer")
    must(not is_held(s, workflow_id, op.handler))
    s["runs"][op.id] = {
        "workflow_id": workflow_id,
        "session_id": op.session_id,
        "handler": op.handler,
        "kind": handler["kind"],
        "phase": op.phase,
        "status": "active",
        "mutation_outcome": "",
        "retry_of": None,
        "on_unknown": op.on_unknown,
        "parked": False,
        "stop_until": None,
        "ended_at": None,
        "skip_reason": "",
        "reserved_count": 0,
        "seen": seen_at_start(writes(s, workflow_id, op.handler), op.seen) if handler["kind"] == "consumer" else None,
        "prepare_result": None,
        "mutation_result": None,
        "cost_micros": 0,
    }
    s["runs"][op.id]["version_id"] = s["workflows"][workflow_id]["active_version_id"]


def writes(s: State, workflow_id: str, consumer: str) -> int:
    """All that was ever written to what it subscribes to."""
    mine = (row for key, row in s["topics"].items() if key[0] == workflow_id and row["consumer"] == consumer)
    return sum(row["writes"] for row in mine)


def seen_at_start(now: int, before: int | None) -> int:
    return now if before is None else min(before, now)


def has_news(s: State, workflow_id: str, handler: str) -> bool:
    """Something is pending for it, and something was written since it last looked in vain."""
    mine = [key for key, row in s["topics"].items() if key[0] == workflow_id and row["consumer"] == handler]
    pending = any(key[:2] in mine for key in where(s, "events", status="pending"))
    return pending and s["handlers"][workflow_id, handler]["seen"] != writes(s, workflow_id, handler)


def create_retry_run(s: State, op: ops.CreateRetryRun, now: int) -> None:
    failed = get(s, "runs", op.failed_run_id)
    must(failed["mutation_outcome"] in FOR_GOOD)
    must(admit(s, op.id, op.session_id) == failed["workflow_id"])
    workflow = s["workflows"][failed["workflow_id"]]
    must(workflow["pending_retry_run_id"] == (None if failed["parked"] else op.failed_run_id))
    workflow["pending_retry_run_id"] = None
    failed["parked"] = False
    again = {"session_id": op.session_id, "phase": "emitting", "status": "active", "retry_of": op.failed_run_id}
    anew = {"cost_micros": 0, "stop_until": None, "ended_at": None, "version_id": workflow["active_version_id"]}
    s["runs"][op.id] = failed | again | anew
    for event in held(s, op.failed_run_id):
        s["reservations"][op.id, event] = {}
        if s["events"][event]["reserved_by_run_id"] == op.failed_run_id:
            s["events"][event]["reserved_by_run_id"] = op.id


def parked(s: State, workflow_id: str, **wanted: Any) -> list[str]:
    """The runs that wait beside their workflow."""
    return where(s, "runs", workflow_id=workflow_id, parked=True, **wanted)


def is_held(s: State, workflow_id: str, handler: str) -> bool:
    """Whether a call of this job waits for a person, or is on its way since one said yes."""
    is_job = s["handlers"][workflow_id, handler]["kind"] == "job"
    return is_job and bool(parked(s, workflow_id, handler=handler))


def goes_on_next(s: State, workflow_id: str) -> str | None:
    """The run whose `next` is to run before anything else."""
    known = [each for each in parked(s, workflow_id) if s["runs"][each]["mutation_outcome"]]
    pending: str | None = s["workflows"][workflow_id]["pending_retry_run_id"]
    return pending or min(known, default=None)


def order_of(s: State, event: Key) -> str | None:
    """The ordering key of an event, as the topic's consumer declares it."""
    where_it_is = s["topics"][event[:2]]["ordering"]
    payload = json.loads(s["events"][event]["payload"])
    key = payload.get(where_it_is) if isinstance(payload, dict) else None
    return json.dumps(key) if isinstance(key, str | int) else None


def waits_for(s: State, event: Key) -> str | None:
    """The parked run that an event has to wait for, because both have to do with the same thing."""
    key, reader = order_of(s, event), s["topics"][event[:2]]["consumer"]
    for run_id in parked(s, event[0]) if key is not None else ():
        same = s["runs"][run_id]["handler"] == reader
        if same and any(order_of(s, each) == key for each in where(s, "events", reserved_by_run_id=run_id)):
            return run_id
    return None


def held(s: State, run_id: str) -> list[Key]:
    """Every event the run has ever reserved."""
    return [event for run, event in s["reservations"] if run == run_id]


def let_go(s: State, run_id: str, status: str) -> None:
    for event in where(s, "events", reserved_by_run_id=run_id):
        s["events"][event] |= {"status": status, "reserved_by_run_id": None}
        s["events"][event]["attempt"] += 1 if status == "pending" else 0


def active(s: State, run_id: str, kind: str) -> Row:
    run = get(s, "runs", run_id)
    must(run["kind"] == kind and run["status"] == "active")
    return run


def update_consumer_phase(s: State, op: ops.UpdateConsumerPhase, now: int) -> None:
    run = active(s, op.run_id, "consumer")
    must(op.phase in PHASES[run["phase"]])
    must((op.prepare_result is not None) == (op.phase == "prepared"))
    must(op.phase == "prepared" or not (op.reservations or op.title or op.wake_at))
    must(op.phase != "mutating" or run["reserved_count"])
    must(op.phase != "mutated" or not where(s, "mutations", identity_key=op.run_id))
    must(op.phase != "emitting" or run["mutation_outcome"] != "failure")
    if op.phase == "prepared":
        reserve(s, op, run)
    run["phase"] = op.phase


def reserve(s: State, op: ops.UpdateConsumerPhase, run: Row) -> None:
    named = [(run["workflow_id"], claim.topic, message) for claim in op.reservations for message in claim.ids]
    must(len(set(named)) == len(named))
    for key in named:
        must(get(s, "topics", key[:2])["consumer"] == run["handler"])
        must(get(s, "events", key)["status"] == "pending" and not waits_for(s, key))
        s["events"][key] |= {"status": "reserved", "reserved_by_run_id": op.run_id}
        s["reservations"][op.run_id, key] = {}
    run |= {"reserved_count": len(named), "prepare_result": op.prepare_result}
    s["handlers"][run["workflow_id"], run["handler"]]["wake_at"] = op.wake_at


def update_handler_run_status(s: State, op: ops.UpdateHandlerRunStatus, now: int) -> None:
    before = get(s, "runs", op.run_id)["status"]
    approved_and_unknown = before == "paused:approval" and op.status == "paused:reconciliation"
    must(before == "active" or approved_and_unknown)
    must(op.status not in ("active", "committed"))
    stop(s, op.run_id, op.status, now, op.retry_at, op.failing_since, is_fault=op.is_fault, parks=op.parks)
    s["runs"][op.run_id]["cost_micros"] += op.cost_micros
    end_session(s, s["runs"][op.run_id]["session_id"], "failed")


def stop_run(s: State, op: ops.StopRun, now: int) -> None:
    run = get(s, "runs", op.run_id)
    must(run["status"] == "active")
    run["stop_until"] = op.until


def count_cost(s: State, op: ops.CountCost, now: int) -> None:
    run = get(s, "runs", op.run_id)
    run["cost_micros"] += op.cost_micros
    if s["sessions"][run["session_id"]]["result"]:
        end_session(s, run["session_id"], "")


def stop(
    s: State,
    run_id: str,
    status: str,
    now: int,
    retry_at: int | None = None,
    failing_since: int | None = None,
    *,
    is_fault: bool = True,
    parks: bool = True,
) -> None:
    run = s["runs"][run_id]
    workflow = s["workflows"][run["workflow_id"]]
    mutation = unsettled(s, run_id)
    in_doubt = mutation is not None and s["mutations"][mutation]["status"] in DOUBT
    waits = mutation is not None and not in_doubt
    must(not (in_doubt and status == "failed:logic"))
    must(in_doubt or status != "paused:reconciliation")
    must(not waits or (status == "paused:approval" and open_approval(s, str(mutation))))

    # A question holds its own events only, if it may. What is beside its workflow stays there.
    stops_now = run["status"] == "active"
    run["parked"] = (waits and parks) or (in_doubt and (run["parked"] or run["on_unknown"] == "park"))
    run |= {"status": status, "ended_at": now if run["ended_at"] is None else run["ended_at"]}
    is_fault = is_fault and status != "crashed" and not run["parked"]
    end_session(s, run["session_id"], "failed")
    if item := open_item(s, run_id):
        has_failed = s["items"][item]["state"] == "processing" and (is_fault or status == "crashed")
        s["items"][item] |= {"is_open": False, **({"state": "failed"} if has_failed else {})}
    if run["kind"] == "consumer" and not (in_doubt or waits or run["mutation_outcome"] in FOR_GOOD):
        let_go(s, run_id, "pending")
    elif run["kind"] == "consumer" and not run["parked"]:
        workflow["pending_retry_run_id"] = run_id
    handler = s["handlers"][run["workflow_id"], run["handler"]]
    if is_fault:
        since = next(at for at in (failing_since, handler["failing_since"], now) if at is not None)
        handler |= {"failures": handler["failures"] + 1, "failing_since": since, "retry_at": retry_at}
    elif run["parked"] and stops_now:
        handler |= NO_FAILURES
    put_handler_back(s, run, now, stops_now=stops_now)
    if run["parked"]:
        go_on_without(s, run_id)
        return
    if status == "failed:logic":
        workflow["maintenance"] = True
    if in_doubt or (status in NEEDS_A_PERSON and workflow["status"] != "archived"):
        workflow |= {"has_error": True, "error_run_id": run_id}


def put_handler_back(s: State, run: Row, now: int, *, stops_now: bool) -> None:
    """What the run saw is news again, unless a person has put its handler off."""
    handler = s["handlers"][run["workflow_id"], run["handler"]]
    handler["seen"] = None
    is_consumer = run["kind"] == "consumer"
    if is_consumer and not run["reserved_count"] and run["phase"] not in ("pending", "preparing"):
        handler["wake_at"] = now
    if run["stop_until"] is None or not stops_now:
        return
    if is_consumer:
        handler |= {"wake_at": run["stop_until"], "seen": writes(s, run["workflow_id"], run["handler"])}
    elif handler["next_run_at"] is not None:
        handler["next_run_at"] = run["stop_until"]


def fails_in_vain(s: State, key: Key) -> bool:
    """A declared handler of a workflow that runs has failed since it last committed, and has something to do."""
    handler, workflow = s["handlers"][key], s["workflows"][key[0]]
    runs = workflow["status"] == "active" and not workflow["has_error"] and not workflow["maintenance"]
    waits = workflow["pending_retry_run_id"] or active_run(s, key[0]) or handler["wake_at"] is not None
    mine = [topic for topic, row in s["topics"].items() if topic[0] == key[0] and row["consumer"] == key[1]]
    pending = any(event[:2] in mine for event in where(s, "events", status="pending"))
    has_work = handler["kind"] != "consumer" or waits or pending
    return bool(runs and handler["declared"] and handler["retry_at"] is not None and has_work)


def matters(s: State) -> Iterator[tuple[str, str, str | None, str]]:
    """All that needs attention: workflow, kind, what it is about (of an event its topic), and what it waits on."""
    for workflow_id in s["workflows"]:
        for approval_id, _ in asked(s, workflow_id):
            yield workflow_id, "approval", approval_id, "person"
        for mutation_id in where(s, "mutations", workflow_id=workflow_id):
            yield from _doubt(s, workflow_id, mutation_id)
        if s["workflows"][workflow_id]["status"] != "archived":
            yield from _of_the_living(s, workflow_id)


def _doubt(s: State, workflow_id: str, mutation_id: str) -> Iterator[tuple[str, str, str | None, str]]:
    mutation, is_archived = s["mutations"][mutation_id], s["workflows"][workflow_id]["status"] == "archived"
    if mutation["status"] in DOUBT and (is_archived or s["runs"][mutation["run_id"]]["status"] != "active"):
        who = {"indeterminate": "person", "needs_reconcile": "connector"}
        yield (
            workflow_id,
            "unknown",
            mutation_id,
            who.get(mutation["status"], "call" if is_archived else "approved_call"),
        )


def _of_the_living(s: State, workflow_id: str) -> Iterator[tuple[str, str, str | None, str]]:
    workflow, failed = s["workflows"][workflow_id], open_task(s, workflow_id)
    held = s["tasks"][failed]["held_version_id"] if failed else None
    if held:
        yield workflow_id, "repair", held, "person"
    elif workflow["maintenance"]:
        yield workflow_id, "maintenance", None, "person" if workflow["has_error"] else "maintainer"
    elif workflow["has_error"] and not (workflow["error_run_id"] and unsettled(s, workflow["error_run_id"])):
        yield workflow_id, "error", None, "person"
    for key in s["handlers"]:
        if key[0] == workflow_id and fails_in_vain(s, key):
            yield workflow_id, "failing", key[1], "retry"
    for topic in {event[:2] for event in where(s, "events", status="pending") if event[0] == workflow_id}:
        if s["topics"][topic]["consumer"]:
            yield workflow_id, "stale", topic[1], "look"
    for mutation_id in where(s, "mutations", workflow_id=workflow_id, resolved_by="approval_expired"):
        yield workflow_id, "expired", mutation_id, "look"


def go_on_without(s: State, run_id: str) -> None:
    """A parked run stops nothing, also if its call had waited for a person before; but a doubt may be meant to."""
    workflow = s["workflows"][s["runs"][run_id]["workflow_id"]]
    if workflow["pending_retry_run_id"] == run_id:
        workflow["pending_retry_run_id"] = None
    if workflow["error_run_id"] == run_id:
        end_error(s, s["runs"][run_id]["workflow_id"])
    if is_to_stop(s, run_id) and not workflow["has_error"]:
        workflow |= {"has_error": True, "error_run_id": run_id}


def commit_consumer(s: State, op: ops.CommitConsumer, now: int) -> None:
    run = active(s, op.run_id, "consumer")
    must(run["phase"] == "emitting")
    let_go(s, op.run_id, "consumed")
    publish(s, run["workflow_id"], op.publishes, causes(s, op.run_id))
    commit(s, run, op, now)
    s["handlers"][run["workflow_id"], run["handler"]]["seen"] = None if run["reserved_count"] else run["seen"]


def commit_producer(s: State, op: ops.CommitProducer, now: int) -> None:
    run = active(s, op.run_id, "producer")
    publish(s, run["workflow_id"], op.publishes, ())
    s["handlers"][run["workflow_id"], run["handler"]]["next_run_at"] = op.next_run_at
    commit(s, run, op, now)


def commit_job(s: State, op: ops.CommitJob, now: int) -> None:
    run = active(s, op.run_id, "job")
    must(not open_item(s, op.run_id))
    must(not unsettled(s, op.run_id))
    publish(s, run["workflow_id"], op.publishes, ())
    s["handlers"][run["workflow_id"], run["handler"]]["next_run_at"] = op.next_run_at
    commit(s, run, op, now)


def commit(s: State, run: Row, op: ops.CommitConsumer | ops.CommitProducer | ops.CommitJob, now: int) -> None:
    run |= {
        "phase": "committed",
        "status": "committed",
        "ended_at": now,
        "cost_micros": run["cost_micros"] + op.cost_micros,
    }
    s["sessions"][run["session_id"]]["handler_run_count"] += 1
    handler = s["handlers"][run["workflow_id"], run["handler"]]
    handler |= NO_FAILURES
    handler["repairs"] = 0
    if op.state is not None:
        handler["state"] = op.state


# Events.


def publish_events(s: State, op: ops.PublishEvents, now: int) -> None:
    living(s, op.workflow_id)
    publish(s, op.workflow_id, op.publishes, ())


def causes(s: State, run_id: str) -> list[Key]:
    """What first caused the events a run holds: their roots, or they themselves."""
    events = held(s, run_id)
    return [root for event in events for root in (roots_of(s, event) or [event])]


def roots_of(s: State, event: Key) -> list[Key]:
    return [root for caused, root in s["roots"] if caused == event]


def publish(s: State, workflow_id: str, publishes: Iterable[ops.Publish], roots: Sequence[Key]) -> None:
    touched = set()
    for event in publishes:
        must((workflow_id, event.topic) in s["topics"] and s["topics"][workflow_id, event.topic]["declared"])
        must(1 <= len(event.message_id) <= 512)
        must(event.title.strip() and len(event.title) <= 500)
        key = (workflow_id, event.topic, event.message_id)
        must(where(s, "events", id=event.id) in ([], [key]))
        if key not in s["events"]:
            s["events"][key] = {"id": event.id, "status": "pending", "attempt": 1, "reserved_by_run_id": None}
        words = {"title": event.title, "payload": event.payload}
        known = s["events"][key]
        if known["status"] == "pending":
            if roots or any(known.get(name) != value for name, value in words.items()):
                touched.add(key[:2])
            known |= words
            s["roots"].update({(key, root): {} for root in roots})
    for topic in touched:
        s["topics"][topic]["writes"] += 1


def skip_event(s: State, op: ops.SkipEvent, now: int) -> None:
    event = get(s, "events", (op.workflow_id, op.topic, op.message_id))
    must(event["status"] == "pending")
    event["status"] = "skipped"
    name = s["topics"][op.workflow_id, op.topic]["consumer"]
    read = [key for key, topic in s["topics"].items() if key[0] == op.workflow_id and topic["consumer"] == name]
    waits = any(key[:2] in read and each["status"] == "pending" for key, each in s["events"].items())
    handler = s["handlers"].get((op.workflow_id, name))
    retries = s["workflows"][op.workflow_id]["pending_retry_run_id"] is not None
    if handler and handler["failures"] and handler["wake_at"] is None and not waits and not retries:
        # There is nothing left to fail on.
        handler |= {"failures": 0, "failing_since": None, "retry_at": None}


# Mutations.


def create_mutation(s: State, op: ops.CreateMutation, now: int) -> None:
    run = get(s, "runs", op.run_id)
    must(run["status"] == "active")
    must(not (op.send and op.ask_first))
    nobody_has_stopped_it(s, run, op)
    must(not unsettled(s, op.run_id))
    row = {"run_id": op.run_id, "status": "in_flight" if op.send else "pending", "resolved_by": None, "version": 1}
    row |= {"next_reconcile_at": None, "reconcile_attempts": 0, "doubted_at": None, "has_words": False}
    row |= {"attempts": int(op.send), "note": ""}
    if run["kind"] == "consumer":
        must(op.item is None and run["phase"] == "mutating")
        must(not where(s, "mutations", identity_key=op.run_id))
        about = {"identity_key": op.run_id, "item_id": None, "item_attempt": None}
    else:
        must(run["kind"] == "job" and op.item)
        item = open_item(s, op.run_id)
        assert op.item
        must(op.item.identity_key not in ("", op.run_id))
        must(item and item[1] == op.item.item_id)
        assert item
        must(s["items"][item]["state"] not in ("done", "skipped"))
        about = {"identity_key": op.item.identity_key, "item_id": item[1], "item_attempt": item[2]}
    about["workflow_id"] = run["workflow_id"]
    mutation_id = op.id
    if known := next(iter(where(s, "mutations", identity_key=about["identity_key"])), None):
        mutation_id = known
        old = s["mutations"][known]
        must(all(old[name] == value for name, value in about.items()))
        if old["status"] == "applied":
            return
        must(old["status"] == "failed")
        attempts = old["attempts"] + int(op.send)
        s["mutations"][known] = old | row | {"version": old["version"] + 1, "attempts": attempts}
    else:
        must(op.id not in s["mutations"])
        s["mutations"][op.id] = row | about | {"reconcilable": op.reconcilable, "result": None}
    if op.ask_first:
        must(op.ask_first.approval_id not in s["approvals"])
        question = {"mutation_id": mutation_id, "status": "open", "expires_at": op.ask_first.expires_at}
        s["approvals"][op.ask_first.approval_id] = question


def nobody_has_stopped_it(s: State, run: Row, op: ops.CreateMutation) -> None:
    """What people have said since the run began, as it is now."""
    must(s["workflows"][run["workflow_id"]]["status"] == "active")
    must(run["stop_until"] is None)
    if op.permission:
        major = s["versions"][run["version_id"]]["major"]
        grant = get(s, "grants", (run["workflow_id"], major, op.permission))
        must(grant["policy"] == "allow" or op.ask_first)


def relabel(s: State, mutation_id: str, status: str, next_reconcile_at: int | None = None) -> None:
    mutation = s["mutations"][mutation_id]
    mutation |= {"status": status, "version": mutation["version"] + 1, "next_reconcile_at": next_reconcile_at}
    if status == "in_flight":
        mutation |= {"attempts": mutation["attempts"] + 1, "note": ""}


def doubt(s: State, mutation_id: str, status: str, next_reconcile_at: int | None, now: int) -> None:
    """What must be reconciled always has a time. The checks are counted from when it is first looked into, or anew."""
    at = (now if next_reconcile_at is None else next_reconcile_at) if status == "needs_reconcile" else None
    mutation = s["mutations"][mutation_id]
    if status == "needs_reconcile":
        again = mutation["status"] == status
        mutation["reconcile_attempts"] = mutation["reconcile_attempts"] + 1 if again else 0
        mutation["doubted_at"] = mutation["doubted_at"] if again else now
    relabel(s, mutation_id, status, at)


def judged(s: State, op: Any) -> Row:
    """The unsettled mutation an operation is about, as whoever judges it last saw it."""
    mutation = get(s, "mutations", op.mutation_id)
    must(mutation["status"] not in SETTLED)
    must(op.expected_version in (None, mutation["version"]))
    return mutation


def update_mutation_status(s: State, op: ops.UpdateMutationStatus, now: int) -> None:
    mutation = judged(s, op)
    must(op.status in LABELS[mutation["status"]])
    must(not open_approval(s, op.mutation_id))
    must(op.status != "needs_reconcile" or mutation["reconcilable"])
    doubt(s, op.mutation_id, op.status, op.next_reconcile_at, now)
    mutation["has_words"] |= op.error != ""


def apply_mutation(s: State, op: ops.ApplyMutation, now: int) -> None:
    may_say(s, "applied", judged(s, op), op.resolved_by)
    settle(s, op.mutation_id, "success", op.resolved_by, now, op.result)


def fail_mutation(s: State, op: ops.FailMutation, now: int) -> None:
    may_say(s, "failed", judged(s, op), op.resolved_by)
    must(not open_approval(s, op.mutation_id))
    settle(s, op.mutation_id, "failure", op.resolved_by, now)
    s["mutations"][op.mutation_id]["has_words"] = op.error != ""


def may_say(s: State, what: str, mutation: Row, who: str) -> None:
    must(who in MAY_SAY.get((what, mutation["status"]), ()))
    must(not who.startswith("user") or s["runs"][mutation["run_id"]]["status"] != "active")


def skip_mutation(s: State, op: ops.SkipMutation, now: int) -> None:
    mutation = judged(s, op)
    must(mutation["status"] in ("needs_reconcile", "indeterminate"))
    must(s["runs"][mutation["run_id"]]["status"] != "active")
    settle(s, op.mutation_id, "skipped", "user_skip", now, why=op.why)


def note_mutation(s: State, op: ops.NoteMutation, now: int) -> None:
    """Only the attempt that is being made has something to note."""
    mutation = get(s, "mutations", op.mutation_id)
    must(mutation["status"] == "in_flight" and mutation["attempts"] == op.attempt)
    mutation["note"] = op.note


def amend_result(s: State, op: ops.AmendResult, now: int) -> None:
    """Until `next`, or another run inside the item, has seen it."""
    mutation = get(s, "mutations", op.mutation_id)
    must(mutation["resolved_by"] == "user_assert_applied")
    must(op.expected_version in (None, mutation["version"]))
    run = s["runs"][mutation["run_id"]]
    if run["kind"] == "job":
        key = latest_item(s, run["workflow_id"], mutation["item_id"])
        must(key and key[2] == mutation["item_attempt"])
        must(s["items"][key]["run_id"] == mutation["run_id"] and not s["items"][key]["is_open"])
    else:
        must(not where(s, "runs", retry_of=mutation["run_id"]))
        run["mutation_result"] = op.result
    mutation |= {"result": op.result, "version": mutation["version"] + 1}


def settle(
    s: State, mutation_id: str, outcome: str, who: str, now: int, result: str | None = None, why: str = ""
) -> None:
    """The run, its events and its workflow follow. The run's status does not."""
    relabel(s, mutation_id, "applied" if outcome == "success" else "failed")
    mutation = s["mutations"][mutation_id]
    # Why nobody knew is true no more.
    mutation |= {"resolved_by": who, "result": result, "has_words": False}
    run_id = mutation["run_id"]
    run = s["runs"][run_id]
    workflow = s["workflows"][run["workflow_id"]]
    stopped = run["status"] != "active"
    if stopped and workflow["error_run_id"] == run_id:
        stood_still(s, run, now)
        end_error(s, run["workflow_id"])
    if run["kind"] == "job":
        run["parked"] = False
        item = latest_item(s, run["workflow_id"], mutation["item_id"])
        if outcome == "skipped" and item and item[2] == mutation["item_attempt"]:
            s["items"][item]["state"] = "skipped"
        return
    run |= {"phase": "mutated", "mutation_outcome": outcome, "mutation_result": result}
    run["skip_reason"] = why if outcome == "skipped" else ""
    if outcome == "failure":
        let_go(s, run_id, "pending")
        s["handlers"][run["workflow_id"], run["handler"]]["seen"] = None
    if outcome == "skipped":
        let_go(s, run_id, "skipped")
    if stopped:
        wait_for_next(s, run_id, outcome)


def stood_still(s: State, run: Row, now: int) -> None:
    """Nothing was tried since this run stopped its workflow: that was no time of failing."""
    for (workflow_id, _), handler in s["handlers"].items():
        if workflow_id == run["workflow_id"] and handler["failures"]:
            handler["failing_since"] = min(handler["failing_since"] + now - run["ended_at"], now)


def wait_for_next(s: State, run_id: str, outcome: str) -> None:
    """A stopped run whose outcome is known waits for its `next`, beside its workflow or before all else; or it ends."""
    run = s["runs"][run_id]
    workflow = s["workflows"][run["workflow_id"]]
    if run["parked"]:
        run["parked"] = outcome in FOR_GOOD
        for key, topic in s["topics"].items() if outcome == "failure" else ():
            if key[0] == run["workflow_id"] and topic["consumer"] == run["handler"]:
                topic["writes"] += 1
    elif outcome in FOR_GOOD:
        workflow["pending_retry_run_id"] = run_id
    elif workflow["pending_retry_run_id"] == run_id:
        workflow["pending_retry_run_id"] = None


def question(s: State, approval_id: str) -> str:
    """The mutation an open question is about; its run has stopped to wait."""
    approval = get(s, "approvals", approval_id)
    must(approval["status"] == "open")
    mutation_id = str(approval["mutation_id"])
    must(s["runs"][s["mutations"][mutation_id]["run_id"]]["status"] != "active")
    return mutation_id


def approve_mutation(s: State, op: ops.ApproveMutation, now: int) -> None:
    mutation_id = question(s, op.approval_id)
    approval = s["approvals"][op.approval_id]
    must(approval["expires_at"] is None or now < approval["expires_at"])
    workflow_id = s["mutations"][mutation_id]["workflow_id"]
    living(s, workflow_id)
    if op.use:
        count_use(s, workflow_id, op.use)
    approval["status"] = "approved"
    relabel(s, mutation_id, "in_flight")


def reject_mutation(s: State, op: ops.RejectMutation, now: int) -> None:
    mutation_id = question(s, op.approval_id)
    s["approvals"][op.approval_id]["status"] = "expired" if op.expired else "rejected"
    who = "approval_expired" if op.expired else "approval_rejected"
    settle(s, mutation_id, "failure" if op.retry else "skipped", who, now, why=op.why)


def ask_again(s: State, op: ops.AskAgain, now: int) -> None:
    mutation_id = question(s, op.approval_id)
    must(op.new_id not in s["approvals"])
    s["approvals"][op.approval_id]["status"] = "expired"
    s["approvals"][op.new_id] = {"mutation_id": mutation_id, "status": "open", "expires_at": op.expires_at}


# Items.


def open_the_item(s: State, op: ops.OpenItem, now: int) -> None:
    run = active(s, op.run_id, "job")
    must(not open_item(s, op.run_id))
    must(op.item_id and op.title.strip())
    key = latest_item(s, run["workflow_id"], op.item_id) or (run["workflow_id"], op.item_id, 1)
    s["items"].setdefault(key, {"state": "processing"})
    s["items"][key] |= {"run_id": op.run_id, "is_open": True}
    if s["items"][key]["state"] not in ("done", "skipped"):
        s["item_runs"][op.run_id, key] = {}


def close_item(s: State, op: ops.CloseItem, now: int) -> None:
    run = get(s, "runs", op.run_id)
    key = open_item(s, op.run_id)
    must(key and key[1] == op.item_id)
    must(op.state not in ("processing", "skipped"))
    must(op.state != "done" or not unsettled_of_item(s, key))
    item = s["items"][key]
    item["is_open"] = False
    if item["state"] not in ("done", "skipped"):
        item["state"] = op.state
    publish(s, run["workflow_id"], op.publishes, ())


def unsettled_of_item(s: State, key: Key) -> bool:
    found = where(s, "mutations", workflow_id=key[0], item_id=key[1], item_attempt=key[2])
    return any(not is_settled(s, mutation) for mutation in found)


def at_rest(s: State, op: ops.SkipItem | ops.ReprocessItem) -> Key:
    key = latest_item(s, op.workflow_id, op.item_id)
    must(key and not s["items"][key]["is_open"] and not unsettled_of_item(s, key))
    must(op.state is None or s["items"][key]["state"] == op.state)
    return key


def skip_item(s: State, op: ops.SkipItem, now: int) -> None:
    item = s["items"][at_rest(s, op)]
    must(item["state"] != "done")
    item["state"] = "skipped"


def reprocess_item(s: State, op: ops.ReprocessItem, now: int) -> None:
    key = at_rest(s, op)
    must(s["items"][key]["state"] != "processing")
    s["items"][(*key[:2], key[2] + 1)] = s["items"][key] | {"state": "processing"}


# Proposals from outside.


def propose_script(s: State, op: ops.ProposeScript, now: int) -> None:
    active = None
    if op.workflow_id is not None:
        living(s, op.workflow_id)
        must(op.name == s["workflows"][op.workflow_id]["name"])
        active = s["workflows"][op.workflow_id]["active_version_id"]
    must(active == op.base_version_id)
    must(active is None or s["versions"][active]["source"] != op.source)
    subject = {"workflow_id": op.workflow_id, "name": op.name}
    must(not where(s, "proposals", **subject, status="rejected", source=op.source))
    earlier = where(s, "proposals", **subject, status="open")
    waiting = [key for key in where(s, "proposals", status="open") if s["proposals"][key]["expires_at"] > now]
    must(len(set(waiting) - set(earlier)) < 20)
    must(op.id not in s["proposals"])
    for key in where(s, "proposals", status="open"):
        if key not in waiting:
            s["proposals"][key] |= {"status": "expired", "source": "", "decided_at": now}
        elif key in earlier:
            s["proposals"][key] |= {"status": "replaced", "source": "", "decided_at": now}
    s["proposals"][op.id] = subject | {
        "base_version_id": op.base_version_id,
        "source": op.source,
        "status": "open",
        "expires_at": now + 14 * 86_400_000,
        "decided_at": None,
        "version_id": None,
    }


def decide_proposal(s: State, op: ops.DecideProposal, now: int) -> None:
    proposal = get(s, "proposals", op.proposal_id)
    must(proposal["status"] == "open" and proposal["expires_at"] > now)
    proposal["decided_at"] = now
    if op.version_id is None:
        proposal["status"] = "rejected"
        return
    version = get(s, "versions", op.version_id)
    must(proposal["workflow_id"] in (None, version["workflow_id"]))
    must(version["source"] == proposal["source"])
    must(s["workflows"][version["workflow_id"]]["active_version_id"] == op.version_id)
    proposal |= {
        "status": "accepted",
        "source": "",
        "workflow_id": version["workflow_id"],
        "version_id": op.version_id,
    }


# Notices.


def open_notice(s: State, op: ops.OpenNotice, now: int) -> None:
    get(s, "workflows", op.workflow_id)
    must(op.run_id is None or op.run_id in s["runs"])
    must(op.sinks and all(sink.strip() for sink in op.sinks) and len(set(op.sinks)) == len(op.sinks))
    matter = {"workflow_id": op.workflow_id, "kind": op.kind, "about": op.about}
    must(not where(s, "notices", **matter, settled_at=None))
    must(op.id not in s["notices"])
    s["notices"][op.id] = {**matter, "run_id": op.run_id, "settled_at": None, "outcome": ""}
    for sink in op.sinks:
        s["deliveries"][op.id, sink, "needs_person"] = untried(now)


def untried(at: int | None) -> Row:
    return {"status": "waiting", "attempts": 0, "next_attempt_at": at, "problem": "", "ended_at": None}


def add_delivery(s: State, op: ops.AddDelivery, now: int) -> None:
    must(get(s, "notices", op.notice_id)["settled_at"] is None)
    must(op.sink.strip())
    key = (op.notice_id, op.sink, "needs_person")
    must(s["deliveries"].get(key, {"status": "given_up"})["status"] == "given_up")
    s["deliveries"][key] = untried(now)


def settle_notice(s: State, op: ops.SettleNotice, now: int) -> None:
    notice = get(s, "notices", op.notice_id)
    must(notice["settled_at"] is None)
    notice |= {"settled_at": now, "outcome": op.outcome}
    for (notice_id, sink, _), opening in list(s["deliveries"].items()):
        if notice_id == op.notice_id:
            s["deliveries"][notice_id, sink, "settled"] = untried(None if opening["status"] == "waiting" else now)


def note_delivery(s: State, op: ops.NoteDelivery, now: int) -> None:
    delivery = get(s, "deliveries", (op.notice_id, op.sink, op.says))
    must(op.problem is not None or op.next_attempt_at is None)
    must(delivery["status"] == "waiting" and delivery["next_attempt_at"] is not None)
    is_over = op.next_attempt_at is None
    delivery |= {
        "status": "waiting" if not is_over else "delivered" if op.problem is None else "given_up",
        "attempts": delivery["attempts"] + 1,
        "next_attempt_at": op.next_attempt_at,
        "problem": op.problem or "",
        "ended_at": now if is_over else None,
    }
    behind = s["deliveries"].get((op.notice_id, op.sink, "settled"))
    if op.says == "needs_person" and is_over and behind is not None:
        behind["next_attempt_at"] = now


# Recovery.


def recover_crashed_runs(s: State, op: ops.RecoverCrashedRuns, now: int) -> None:
    for run_id in where(s, "runs", status="active"):
        if op.workflow_id in (None, s["runs"][run_id]["workflow_id"]):
            recover_run(s, run_id, now)
    for mutation_id, mutation in s["mutations"].items():
        if mutation["status"] in DOUBT and op.workflow_id in (None, mutation["workflow_id"]):
            admit_not_knowing(s, mutation_id, now)
            if s["runs"][mutation["run_id"]]["status"] == "paused:approval":
                stop(s, mutation["run_id"], "paused:reconciliation", now)


def recover_run(s: State, run_id: str, now: int) -> None:
    mutation_id = unsettled(s, run_id)
    if mutation_id and s["mutations"][mutation_id]["status"] in DOUBT:
        admit_not_knowing(s, mutation_id, now)
        stop(s, run_id, "paused:reconciliation", now)
    elif mutation_id and open_approval(s, mutation_id):
        stop(s, run_id, "paused:approval", now)
    else:
        if mutation_id:
            settle(s, mutation_id, "failure", "recovery", now)
            s["mutations"][mutation_id]["has_words"] = True
        stop(s, run_id, "crashed", now)


def admit_not_knowing(s: State, mutation_id: str, now: int) -> None:
    mutation = s["mutations"][mutation_id]
    if mutation["status"] == "in_flight":
        doubt(s, mutation_id, "needs_reconcile" if mutation["reconcilable"] else "indeterminate", None, now)
        mutation["has_words"] = True


def recover_unfinished_sessions(s: State, op: ops.RecoverUnfinishedSessions, now: int) -> None:
    for session_id in where(s, "sessions", result=None):
        if op.workflow_id in (None, s["sessions"][session_id]["workflow_id"]) and all_committed(s, session_id):
            end_session(s, session_id, "completed")


def recover_maintenance_mode(s: State, op: ops.RecoverMaintenanceMode, now: int) -> None:
    for workflow_id in where(s, "workflows", maintenance=True):
        if op.workflow_id in (None, workflow_id) and not open_task(s, workflow_id):
            order_repair(s, workflow_id)


RULES: dict[type[ops.Operation[Any]], Callable[[State, Any, int], None]] = {
    ops.CreateWorkflow: create_workflow,
    ops.AddScriptVersion: add_script_version,
    ops.ActivateScript: activate_script,
    ops.GrantPermission: grant_permission,
    ops.RevokePermission: revoke_permission,
    ops.UseGrant: use_grant,
    ops.PauseWorkflow: set_status("paused"),
    ops.ResumeWorkflow: resume_workflow,
    ops.ArchiveWorkflow: archive_workflow,
    ops.UnarchiveWorkflow: unarchive_workflow,
    ops.RunNow: run_now,
    ops.HaltWorkflow: halt_workflow,
    ops.ClearWorkflowError: clear_workflow_error,
    ops.CreateSession: create_session,
    ops.FinishSession: finish_session,
    ops.CreateRun: create_run,
    ops.CreateRetryRun: create_retry_run,
    ops.StopRun: stop_run,
    ops.CountCost: count_cost,
    ops.UpdateHandlerRunStatus: update_handler_run_status,
    ops.UpdateConsumerPhase: update_consumer_phase,
    ops.CommitConsumer: commit_consumer,
    ops.CommitProducer: commit_producer,
    ops.CommitJob: commit_job,
    ops.CreateMutation: create_mutation,
    ops.UpdateMutationStatus: update_mutation_status,
    ops.NoteMutation: note_mutation,
    ops.ApplyMutation: apply_mutation,
    ops.FailMutation: fail_mutation,
    ops.SkipMutation: skip_mutation,
    ops.AmendResult: amend_result,
    ops.ApproveMutation: approve_mutation,
    ops.RejectMutation: reject_mutation,
    ops.AskAgain: ask_again,
    ops.PublishEvents: publish_events,
    ops.SkipEvent: skip_event,
    ops.OpenItem: open_the_item,
    ops.CloseItem: close_item,
    ops.SkipItem: skip_item,
    ops.ReprocessItem: reprocess_item,
    ops.CreateMaintenanceTask: create_maintenance_task,
    ops.NoteRepairAttempt: note_repair_attempt,
    ops.HoldProposal: hold_proposal,
    ops.ExitMaintenanceMode: exit_maintenance_mode,
    ops.ProposeScript: propose_script,
    ops.DecideProposal: decide_proposal,
    ops.OpenNotice: open_notice,
    ops.AddDelivery: add_delivery,
    ops.SettleNotice: settle_notice,
    ops.NoteDelivery: note_delivery,
    ops.RecoverCrashedRuns: recover_crashed_runs,
    ops.RecoverUnfinishedSessions: recover_unfinished_sessions,
    ops.RecoverMaintenanceMode: recover_maintenance_mode,
}
