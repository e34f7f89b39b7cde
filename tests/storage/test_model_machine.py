"""The library and the small model, driven side by side by random steps, legal and illegal.

After every step they agree, every promise of `invariants.sql` holds, what was accepted is in the journal, and what
was refused changed nothing. `KEEP_MACHINE_EXAMPLES` and `KEEP_MACHINE_STEPS` make the run longer.
"""

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from keep_storage import ExecutionModelManager, Rejected, Store, invariants, lookups, notice_reads, reads
from keep_storage import operations as ops
from keep_storage.attention_reads import attention, failing_handlers
from keep_storage.manager import OPERATIONS
from keep_storage.model import (
    Approval,
    AttentionKind,
    AttentionRow,
    Delivery,
    Event,
    FailureClass,
    GrantPolicy,
    HandlerKind,
    Item,
    ItemState,
    MaintenanceTask,
    Mutation,
    MutationStatus,
    NoticeKind,
    NoticeRow,
    OnUnknown,
    Phase,
    Resolver,
    Run,
    RunStatus,
    Says,
    ScriptProposal,
    ScriptVersion,
    Session,
    StoredGrant,
    WaitsOn,
    Workflow,
)
from keep_storage.operations import GrantUse, HandlerSpec, OperationRefused, Publish, Reserve, RunError, Together
from keep_storage.reads import Snapshot
from keep_storage.transaction import Queries
from tests.storage import small_model as small
from tests.storage.databases import DATABASES, Contents
from tests.storage.due import check_agenda
from tests.storage.world import WORKFLOW, World

EXAMPLES = int(os.environ.get("KEEP_MACHINE_EXAMPLES", "50"))
STEPS = int(os.environ.get("KEEP_MACHINE_STEPS", "60"))

_FAR = 2**60

T = TypeVar("T")
Operation = ops.Operation[Any]
State = small.State

LOOKS: dict[str, tuple[str, str, str]] = {
    "workflows": (
        "id",
        "name status has_error error_run_id maintenance pending_retry_run_id active_version_id owner",
        "(SELECT *, error <> '' AS has_error FROM workflows)",
    ),
    "versions": ("id", "workflow_id major minor author source", "script_versions"),
    "topics": ("workflow_id name", "declared consumer ordering writes", "topics"),
    "handlers": (
        "workflow_id name",
        "kind declared schedule next_run_at state wake_at seen failures failing_since retry_at repairs",
        "handlers",
    ),
    "grants": ("workflow_id major permission", "policy limits", "grants"),
    "uses": ("workflow_id permission day", "calls", "grant_uses"),
    "sessions": ("id", "workflow_id result handler_run_count cost_micros", "sessions"),
    "runs": (
        "id",
        "workflow_id session_id version_id handler kind phase status mutation_outcome retry_of on_unknown "
        "parked stop_until ended_at reserved_count seen "
        "prepare_result mutation_result skip_reason cost_micros",
        "runs",
    ),
    "events": (
        "workflow_id name message_id",
        "id status attempt reserved_by_run_id title payload",
        "events JOIN (SELECT id AS topic, workflow_id, name FROM topics) ON topic = topic_id",
    ),
    "mutations": (
        "id",
        "workflow_id run_id identity_key item_id item_attempt reconcilable status version resolved_by result "
        "next_reconcile_at reconcile_attempts doubted_at has_words attempts note",
        "(SELECT *, error <> '' AS has_words FROM mutations)",
    ),
    "approvals": ("id", "mutation_id status expires_at", "approvals"),
    "items": ("workflow_id item_id attempt", "state run_id is_open", "items"),
    "tasks": ("run_id", "workflow_id status attempts next_attempt_at held_version_id problem", "maintenance_tasks"),
    "proposals": (
        "id",
        "workflow_id name base_version_id source status expires_at decided_at version_id",
        "proposals",
    ),
    "notices": ("id", "workflow_id kind about run_id settled_at outcome", "notices"),
    "deliveries": ("notice_id sink says", "status attempts next_attempt_at problem ended_at", "deliveries"),
}
"""Where each table of the small model is in the database: its key, its columns, and what to select them from."""

ANSWERS: dict[type, tuple[str, int]] = {
    Workflow: ("workflows", 1),
    ScriptVersion: ("script_versions", 1),
    StoredGrant: ("grants", 3),
    Session: ("sessions", 1),
    Run: ("runs", 1),
    Event: ("events", 1),
    Mutation: ("mutations", 1),
    Approval: ("approvals", 1),
    Item: ("items", 3),
    MaintenanceTask: ("maintenance_tasks", 1),
    ScriptProposal: ("proposals", 1),
    NoticeRow: ("notices", 1),
    Delivery: ("deliveries", 3),
}
"""The table of each answer, and how many of its first columns are its key."""

WHOSE = {"workflows": 0, "runs": 1, "mutations": 3, "approvals": 1, "maintenance_tasks": 1, "notices": 1}
"""The column that names the workflow, of what decides whether somebody is needed."""

RECOVERY = (ops.RecoverCrashedRuns, ops.RecoverUnfinishedSessions, ops.RecoverMaintenanceMode)

RESERVATIONS = """SELECT r.id, t.workflow_id, t.name, e.message_id FROM reservations h
    JOIN runs r ON r.number = h.run JOIN events e ON e.seq = h.event JOIN topics t ON t.id = e.topic_id"""
ROOTS = """SELECT t.workflow_id, t.name, e.message_id, tr.workflow_id, tr.name, r.message_id FROM event_roots c
    JOIN events e ON e.seq = c.event JOIN topics t ON t.id = e.topic_id
    JOIN events r ON r.seq = c.root JOIN topics tr ON tr.id = r.topic_id"""


def _name(q: Queries, row: AttentionRow) -> str | None:
    """What a matter is about, as the small model says it: of an event its topic."""
    if row.kind is not AttentionKind.STALE:
        return row.about
    found = lookups.event(q, row.about or "")
    assert found
    return found.topic


def may_change_nothing(operation: Operation) -> bool:
    """Recovery finds nothing to recover; a session that has more to do stays open."""
    return isinstance(operation, RECOVERY) or (isinstance(operation, ops.FinishSession) and operation.if_idle)


class Duel:
    """A store and the small model, given the same operations. On the first kind of database there is."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.folder = TemporaryDirectory()
        self.opened = next(iter(DATABASES.values()))(Path(self.folder.name))
        self.store = Store(self.opened.database, lambda: self.now)
        self.manager = ExecutionModelManager(self.store)
        self.state = small.empty()
        self.content = self.opened.contents()
        self.seen: Counter[str] = Counter()
        self.names = itertools.count(1)

    def close(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def step(self, operation: Operation) -> None:
        """Give both the operation, and compare."""
        self.now += 1
        expected = small.after(self.state, operation, self.now)
        before = self.content
        try:
            answer = self.manager.execute(operation)
        except Rejected as rejected:
            self.is_refused(operation, rejected, expected)
            return
        assert expected is not None, f"the library allows what the model refuses: {operation}"
        self.content = self.opened.contents()
        self.agree(expected)
        self.is_in_the_journal(operation, before)
        if isinstance(operation, ops.RevokePermission):
            self.is_what_was_there(answer, before)
        else:
            self.is_what_was_stored(answer)
        self.seen.update(noteworthy(operation, self.state, expected))
        self.state = expected

    def is_refused(self, operation: Operation, rejected: Rejected, expected: State | None) -> None:
        """By both; and nothing changed."""
        assert expected is None, f"the library refuses what the model allows: {rejected}"
        assert self.opened.contents() == self.content, "what was refused has changed something"
        self.seen.update((f"refused {type(operation).__name__}", f"refused because {rejected.reason}"))

    def agree(self, expected: State) -> None:
        found = self.look()
        for table, rows in expected.items():
            assert found[table] == rows, f"the library and the model disagree about {table}"
        broken = invariants.check(self.store.queries(), deep=True)
        assert not broken, "\n".join(map(str, broken))
        self.is_in_the_snapshots(expected)
        self.are_listed(expected)
        self.may_be_taken(expected)
        check_agenda(self.store.queries())

    def is_in_the_snapshots(self, expected: State) -> None:
        """What decides when something runs is read as the model knows it."""
        for workflow_id in expected["workflows"]:
            snapshot = reads.snapshot(self.store.queries(), workflow_id)
            assert snapshot, "what exists has a snapshot"
            retry = small.goes_on_next(expected, workflow_id)
            parked = small.parked(expected, workflow_id, kind="consumer")
            assert (snapshot.retry_run_id, snapshot.parked) == (retry, len(parked))
            assert snapshot.open_session_id == small.open_session(expected, workflow_id)
            assert snapshot.retry_handler == (expected["runs"][retry]["handler"] if retry else None)
            declared = {key[1] for key in small.where(expected, "handlers", declared=True) if key[0] == workflow_id}
            assert {view.name for view in snapshot.handlers} == declared
            for view in snapshot.handlers:
                assert view.has_news == small.has_news(expected, workflow_id, view.name), view
                assert view.is_held == small.is_held(expected, workflow_id, view.name), view
            self.waits_as_the_model_knows(snapshot, expected)

    def waits_as_the_model_knows(self, snapshot: Snapshot, expected: State) -> None:
        """Questions, doubts and the repair of a workflow, in its snapshot and in the lists."""
        q, workflow_id, far = self.store.queries(), snapshot.workflow.id, self.now + 1000
        questions = {
            key: row["expires_at"]
            for key, row in expected["approvals"].items()
            if row["status"] == "open" and expected["mutations"][row["mutation_id"]]["workflow_id"] == workflow_id
        }
        doubts = {
            key: row["next_reconcile_at"]
            for key, row in expected["mutations"].items()
            if row["workflow_id"] == workflow_id and row["next_reconcile_at"] is not None
        }
        expiring = {key: at for key, at in questions.items() if at is not None}
        assert snapshot.approval_expires_at == min(expiring.values(), default=None)
        assert snapshot.reconcile_at == min(doubts.values(), default=None)
        assert {each.id for each in reads.open_approvals(q, workflow_id)} == set(questions)
        assert {each.id for each in reads.approvals_due(q, workflow_id, far)} == set(expiring)
        assert {each.id for each in reads.mutations_due(q, workflow_id, far)} == set(doubts)
        failed = small.open_task(expected, workflow_id)
        assert (snapshot.task and snapshot.task.run_id) == failed
        if failed and snapshot.task:
            task, handler = expected["tasks"][failed], small.failed_handler(expected, workflow_id)
            assert snapshot.task.handler == expected["runs"][failed]["handler"]
            assert snapshot.task.repairs == handler["repairs"]
            for name in ("attempts", "next_attempt_at", "held_version_id"):
                assert getattr(snapshot.task, name) == task[name]

    def are_listed(self, expected: State) -> None:
        """Who needs a person, and what each version did, as the model knows it."""
        q = self.store.queries()
        matters = set(small.matters(expected))
        found = attention(q, stale_before=_FAR, expired_after=-1)
        assert len(found) == len(matters)
        assert {(each.workflow_id, each.kind, _name(q, each), each.waits_on) for each in found} == matters
        for workflow_id in expected["workflows"]:
            mine = attention(q, workflow_id, stale_before=_FAR, expired_after=-1)
            assert mine == [each for each in found if each.workflow_id == workflow_id]
        asked = {each.workflow_id for each in found if each.waits_on not in (WaitsOn.RETRY, WaitsOn.LOOK)}
        assert {each.id for each in reads.workflows_needing_attention(q)} == asked
        in_vain = {(each.workflow_id, each.name) for each in failing_handlers(q)}
        assert in_vain == {(each.workflow_id, each.about) for each in found if each.kind is AttentionKind.FAILING}
        callers = (WaitsOn.PERSON, WaitsOn.MAINTAINER, WaitsOn.RETRY)
        self.are_told(expected, {each.workflow_id for each in found if each.waits_on in callers})
        for version_id in expected["versions"]:
            runs = set(small.where(expected, "runs", version_id=version_id))
            held = {event for run, event in expected["reservations"] if run in runs}
            made = {key for key, row in expected["mutations"].items() if row["run_id"] in runs}
            items = {item[1:] for run, item in expected["item_runs"] if run in runs}
            assert {each.id for each in reads.runs_of_version(q, version_id, limit=1000)} == runs
            events = [each.id for each in reads.events_of_version(q, version_id, limit=1000)]
            assert sorted(events) == sorted(expected["events"][key]["id"] for key in held)
            assert {each.id for each in reads.mutations_of_version(q, version_id, limit=1000)} == made
            entered = [(each.item_id, each.attempt) for each in reads.items_of_version(q, version_id, limit=1000)]
            assert entered == sorted(items)

    def may_be_taken(self, expected: State) -> None:
        """What is pending and waits for nobody is what a consumer sees."""
        q = self.store.queries()
        for workflow_id, topic in expected["topics"]:
            mine = [key for key in small.where(expected, "events", status="pending") if key[:2] == (workflow_id, topic)]
            free = {key[2] for key in mine if not small.waits_for(expected, key)}
            assert {each.message_id for each in reads.peek(q, workflow_id, topic, limit=1000)} == free
            for key in mine:
                assert (reads.peek_one(q, *key) is not None) == (
                    key[2] in free and expected["topics"][workflow_id, topic]["declared"]
                )

    def are_told(self, expected: State, in_need: set[str]) -> None:
        """Who is to be compared with what people know, what each sink is told next, and of what it knows nothing."""
        q = self.store.queries()
        is_open = {key: row for key, row in expected["notices"].items() if row["settled_at"] is None}
        compared = set(notice_reads.workflows_to_compare(q, limit=1000))
        assert compared == in_need | {row["workflow_id"] for row in is_open.values()}
        changed = notice_reads.changed_workflows_to_compare(q, after=0, until=reads.journal_end(q))
        assert set(changed) == compared
        for sink in SINKS:
            due = [
                (row["next_attempt_at"], key)
                for key, row in expected["deliveries"].items()
                if key[1] == sink and row["next_attempt_at"] is not None
            ]
            first = min(due, default=(None, (None,)))
            found = notice_reads.next_delivery(q, sink)
            assert (found and found.next_attempt_at, found and found.notice_id) == (first[0], first[1][0])
            told = [
                key for key, row in expected["deliveries"].items() if key[1] == sink and row["status"] != "given_up"
            ]
            known = {key[0] for key in told}
            assert {each.id for each in notice_reads.untold_notices(q, sink, limit=1000)} == set(is_open) - known

    def look(self) -> State:
        state: State = {
            "reservations": {(row[0], row[1:]): {} for row in self.opened.select(RESERVATIONS)},
            "roots": {(row[:3], row[3:]): {} for row in self.opened.select(ROOTS)},
            "item_runs": {(row[0], row[1:]): {} for row in self.opened.select("SELECT * FROM item_runs")},
        }
        for table, (key, columns, source) in LOOKS.items():
            keys, names = key.split(), columns.split()
            found = self.opened.select(f"SELECT {', '.join(keys + names)} FROM {source}")
            state[table] = {
                row[: len(keys)] if len(keys) > 1 else row[0]: dict(zip(names, row[len(keys) :], strict=True))
                for row in found
            }
        return state

    def is_in_the_journal(self, operation: Operation, before: Contents) -> None:
        """Whatever happened left a trace; and what was written before stays as it was."""
        old, new = before["journal"], self.content["journal"]
        assert new[: len(old)] == old, "the journal is only appended to"
        if self.content != before or not all(map(may_change_nothing, parts(operation))):
            assert len(new) > len(old), "something happened and the journal does not say so"
        names = {row[0]: row[1] for row in self.content["names"]}
        runs = {row[-1]: row[0] for row in self.content["runs"]}
        words = str([(runs.get(run), changed) for _, _, _, _, run, changed, _ in new[len(old) :]])
        for table in ("runs", "mutations"):
            for row in set(self.content[table]) - set(before[table]):
                assert row[0] in words, f"{row[0]} changed, and the journal does not name it"
        # Whoever follows the journal is led to every workflow that may have begun or ceased to need a person.
        named = {names.get(workflow) for _, _, _, workflow, _, _, _ in new[len(old) :]}
        for table, column in WHOSE.items():
            for row in set(self.content[table]) - set(before[table]):
                assert row[column] in named, f"{table} changed, and the journal does not say whose they are"

    def is_what_was_stored(self, answer: Any) -> None:
        """The answer of an operation is the row as it is now in the database."""
        if isinstance(answer, tuple):
            return
        table, width = ANSWERS.get(type(answer), ("", 0))
        if table:
            stored = {row[:width]: row for row in self.content[table]}
            said = tuple(msgspec.structs.asdict(answer).values())
            assert stored[said[:width]] == said, "the answer is not what was stored"

    def is_what_was_there(self, gone: StoredGrant, before: Contents) -> None:
        """The answer of a removal is the row as it was."""
        assert tuple(msgspec.structs.asdict(gone).values()) in before["grants"]

    def batch(self, operations: Sequence[Operation]) -> None:
        """Commit several at once: each is accepted or refused by itself."""
        self.now += 1
        outcomes = self.store.commit(operations)
        for operation, outcome in zip(operations, outcomes, strict=True):
            expected = small.after(self.state, operation, self.now)
            if isinstance(outcome, OperationRefused):
                assert isinstance(outcome.error, Rejected), f"{operation} raised {outcome.error!r}"
                assert expected is None, f"the library refuses what the model allows: {outcome.error}"
            else:
                assert expected is not None, f"the library allows what the model refuses: {operation}"
                self.state = expected
        self.content = self.opened.contents()
        self.agree(self.state)


def parts(operation: Operation) -> tuple[Operation, ...]:
    return operation.operations if isinstance(operation, Together) else (operation,)


def noteworthy(operation: Operation, before: State, after: State) -> Iterator[str]:
    """What happened, in words that can be counted."""
    yield f"accepted {type(operation).__name__}"
    for table, column in CHANGES:
        for key, row in after[table].items():
            old, new = before[table].get(key, {}).get(column), row[column]
            if new != old:
                yield f"{table}: {old} -> {new}"
    if isinstance(operation, ops.CommitConsumer):
        run = before["runs"][operation.run_id]
        yield f"committed after {run['mutation_outcome'] or 'no mutation'}"
        if not run["reserved_count"]:
            news = small.has_news(after, run["workflow_id"], run["handler"])
            yield "committed an empty look, with news since" if news else "committed an empty look"
        if run["retry_of"]:
            yield "committed a retry"
            if before["runs"][run["retry_of"]]["retry_of"]:
                yield "committed a retry of a retry"
    if isinstance(operation, ops.CreateMutation) and before["mutations"] == after["mutations"]:
        yield "replayed an applied mutation"
    if isinstance(operation, ops.HaltWorkflow):
        workflow_id = operation.workflow_id
        busy = small.active_run(before, workflow_id)
        known = before["workflows"][workflow_id]["has_error"]
        yield "halted, and an error was there" if known else "halted under a run" if busy else "halted"
    yield from noteworthy_stops(operation, before)
    yield from noteworthy_words(operation, before, after)
    yield from noteworthy_parking(before, after)
    yield from noteworthy_moves(operation, before, after)
    yield from noteworthy_repairs(operation, before, after)


def noteworthy_stops(operation: Operation, before: State) -> Iterator[str]:
    """What people wanted to end, and what was there."""
    match operation:
        case ops.StopRun():
            yield f"stopped a run of a {before['runs'][operation.run_id]['kind']}"
        case ops.UpdateHandlerRunStatus() if before["runs"][operation.run_id]["stop_until"] is not None:
            yield f"put off a {before['runs'][operation.run_id]['kind']}"
        case ops.ArchiveWorkflow(workflow_id):
            there = (small.asked(before, workflow_id), small.doubts(before, workflow_id))
            names = ("with an open question", "with a doubt", "under a run")
            for name, found in zip(names, (*there, small.active_run(before, workflow_id)), strict=True):
                if found:
                    yield f"archived {name}"
        case ops.ApplyMutation() | ops.FailMutation() | ops.SkipMutation():
            workflow = before["workflows"][before["mutations"][operation.mutation_id]["workflow_id"]]
            if workflow["status"] == "archived":
                yield "settled a doubt of an archived workflow"
        case _:
            pass


def noteworthy_words(operation: Operation, before: State, after: State) -> Iterator[str]:
    """What people said, and to what."""
    match operation:
        case ops.ApproveMutation() if operation.use:
            yield "counted an approved call"
        case ops.RejectMutation():
            yield "sent back a call" if operation.retry else "refused a call for good"
        case ops.NoteMutation():
            yield "noted about a call"
        case ops.AmendResult():
            mutation = before["mutations"][operation.mutation_id]
            yield f"amended a result of a {before['runs'][mutation['run_id']]['kind']}"
        case ops.CloseItem() if before["events"] != after["events"]:
            yield "published in an item"
        case ops.CountCost() if operation.cost_micros:
            yield "counted a cost"
        case ops.CreateMutation() if operation.permission:
            yield "called with a permission"
        case _:
            pass


def noteworthy_parking(before: State, after: State) -> Iterator[str]:
    """What waits beside its workflow, and what stops it all the same."""
    for key, row in after["runs"].items():
        was = before["runs"].get(key, {"parked": False, "status": None})
        if row["parked"] and not was["parked"]:
            yield f"parked a {row['kind']} over {row['status']}"
        elif row["parked"] and row["status"] != was["status"]:
            yield "an approved call beside the workflow is in doubt"
    for key in after["workflows"]:
        if len(small.asked(after, key)) > max(1, len(small.asked(before, key))):
            yield "asked while another question was open"
        was, now = (state["workflows"].get(key, {"error_run_id": None})["error_run_id"] for state in (before, after))
        if now is not None and now != was and after["runs"][now]["parked"]:
            yield "a doubt beside the workflow stops it" if was is None else "one doubt after another"
            if small.active_run(after, key):
                yield "a doubt beside the workflow stops it under a run"


def noteworthy_moves(operation: Operation, before: State, after: State) -> Iterator[str]:
    if not isinstance(operation, ops.ActivateScript):
        return
    by_id = {row["id"]: (key, row) for key, row in after["events"].items()}
    for key, row in before["events"].items():
        now, then = by_id[row["id"]]
        if now != key:
            yield f"moved an event that is {row['status']}"
        elif then["status"] != row["status"]:
            yield "dropped a pending event" if key[1] in operation.drop else "skipped an event of both topics"


def noteworthy_repairs(operation: Operation, before: State, after: State) -> Iterator[str]:
    for key, row in after["handlers"].items():
        was = before["handlers"].get(key, {"repairs": 0})["repairs"]
        if was and not row["repairs"]:
            yield f"repairs forgiven by {type(operation).__name__}"
        if row["repairs"] > was >= REPAIRS_WORTH_SEEING:
            yield "repaired again and again"
    for key, row in after["tasks"].items():
        was = before["tasks"].get(key, {}).get("held_version_id")
        if was != row["held_version_id"]:
            yield f"{'held' if row['held_version_id'] else 'dropped'} by {type(operation).__name__}"
    for key, row in after["uses"].items():
        if row != before["uses"].get(key) and row["calls"] > 1:
            yield "used a grant again"


CHANGES = (
    ("workflows", "status"),
    ("workflows", "maintenance"),
    ("sessions", "result"),
    ("runs", "phase"),
    ("runs", "status"),
    ("runs", "parked"),
    ("events", "status"),
    ("mutations", "status"),
    ("approvals", "status"),
    ("items", "state"),
    ("tasks", "status"),
    ("deliveries", "status"),
)

REPAIRS_WORTH_SEEING = 3


# What may be asked next: what makes sense in the state at hand, what nearly does, and anything at all.

WORKFLOWS = ("wf_mail", "wf_other")
MESSAGES = ("m1", "m2", "m3")
ITEMS = ("i1", "i2")
SINKS = ("pager", "chat")
UNKNOWN = "unknown"

POLL = HandlerSpec("poll", HandlerKind.PRODUCER, schedule='{"interval":"5m"}', first_run_at=1)
DIGEST = HandlerSpec("digest", HandlerKind.JOB, schedule='{"cron":"0 8 * * *"}', first_run_at=1)
ELSEWHERE = HandlerSpec("digest", HandlerKind.JOB, schedule='{"cron":"0 8 * * *"}', first_run_at=3, plan_anew=True)
FILE = HandlerSpec("file", HandlerKind.CONSUMER, subscribe=("mail",), ordering="to")
ANNOUNCE = HandlerSpec("announce", HandlerKind.CONSUMER, subscribe=("rows",))

SCRIPTS: tuple[tuple[tuple[str, ...], tuple[HandlerSpec, ...]], ...] = (
    (("mail", "rows"), (FILE, ANNOUNCE, POLL, DIGEST)),
    (("mail", "rows"), (HandlerSpec("file", HandlerKind.CONSUMER, ("mail", "rows"), "cc"), POLL, ELSEWHERE)),
    (("mail",), (FILE, HandlerSpec("poll", HandlerKind.JOB, schedule='{"interval":"1h"}', first_run_at=2))),
    (("post", "rows"), (replace(FILE, subscribe=("post",)), ANNOUNCE, POLL, DIGEST)),
)
BAD_SCRIPTS: tuple[tuple[tuple[str, ...], tuple[HandlerSpec, ...]], ...] = (
    (("rows",), (FILE,)),
    (("mail",), (FILE, HandlerSpec("twice", HandlerKind.CONSUMER, subscribe=("mail",)))),
    (("mail",), (FILE, FILE)),
    (("mail",), (FILE, replace(POLL, ordering="to"))),
    (("mail",), (replace(FILE, ordering=""),)),
    (("mail",), (HandlerSpec("poll", HandlerKind.PRODUCER, subscribe=("mail",)),)),
)
PAYLOADS = ('{"to":1,"cc":{"x":1}}', '{"to":2,"cc":{"x":1}}', '{"to":null,"cc":"a"}', "2")
BAD_PUBLISHES = (
    ("nowhere", "m1", "Mail"),
    ("mail", "", "Mail"),
    ("mail", "m" * 513, "Mail"),
    ("mail", "m1", ""),
    ("mail", "m1", "  "),
    ("mail", "m1", "M" * 501),
)


class Author:
    """Thinks of the next operation. All its choices come from `choose`, all its knowledge from the small model."""

    def __init__(self, choose: random.Random, state: State, names: Iterator[int], now: int) -> None:
        self.choose = choose
        self.s = state
        self.names = names
        self.now = now

    def likely(self, percent: int) -> bool:
        return self.choose.randrange(100) < percent

    def one(self, options: Sequence[T]) -> T:
        return options[self.choose.randrange(len(options))]

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """A few of them, or none."""
        wanted = self.choose.randrange(min(most, len(options)) + 1)
        left = list(options)
        return [left.pop(self.choose.randrange(len(left))) for _ in range(wanted)]

    def fresh(self, prefix: str) -> str:
        """A new id. Nothing may depend on how ids sort: a clock that is set back makes them go back."""
        return f"{prefix}_{next(self.names) * 7919 % 1_000_003:06d}"

    def known(self, table: str) -> Any:
        """Something that exists, mostly something recent; now and then something that does not."""
        keys = list(self.s[table])
        if not keys or self.likely(10):
            return UNKNOWN
        return self.one(keys[-2:]) if self.likely(60) else self.one(keys)

    def id_for(self, table: str, prefix: str) -> str:
        return self.fresh(prefix) if self.likely(90) else str(self.known(table))

    def workflow(self) -> str:
        return str(self.one(list(self.s["workflows"])))

    def cost(self) -> int:
        return self.one((0, 0, 7))

    def publishes(self, workflow_id: str, most: int = 3) -> tuple[Publish, ...]:
        topics = [key[1] for key, row in self.s["topics"].items() if key[0] == workflow_id and row["declared"]]
        if not topics or self.likely(3):
            topic, message, title = self.one(BAD_PUBLISHES)
            return (Publish(self.fresh("evt"), topic, message, title),)
        if self.s["events"] and self.likely(2):
            taken = self.one(list(self.s["events"].values()))["id"]
            return (Publish(taken, self.one(topics), self.fresh("m"), "Mail"),)
        return tuple(
            Publish(self.fresh("evt"), self.one(topics), message, self.one(("Mail", "Mail, again")), self.one(PAYLOADS))
            for message in self.some((*MESSAGES, self.fresh("m")), most)
        )

    def activation(self, workflow_id: str, version_id: str) -> Operation:
        """Another script, mostly with a word about every topic that it leaves behind."""
        topics, handlers = SCRIPTS[-1] if self.likely(30) else self.one(SCRIPTS)
        left = [key[1] for key, row in self.s["topics"].items() if key[0] == workflow_id and row["declared"]]
        drop: list[str] = []
        move: list[tuple[str, str]] = []
        for topic in left:
            if topic not in topics and self.likely(85):
                if self.likely(30):
                    drop.append(topic)
                else:
                    move.append((topic, self.one(topics)))
        owner = self.one((None, None, "", "ann", "bob"))
        return ops.ActivateScript(version_id, topics, handlers, drop=tuple(drop), move=tuple(move), owner=owner)

    # What makes sense now.

    def active_runs(self) -> list[str]:
        return small.where(self.s, "runs", status="active")

    def open_questions(self) -> list[str]:
        """Mutations that are not settled and whose run has stopped."""
        mutations = self.s["mutations"]
        return [
            key
            for key, row in mutations.items()
            if row["status"] not in small.SETTLED and self.s["runs"][row["run_id"]]["status"] != "active"
        ]

    def events_arrive(self) -> Operation:
        workflow_id = self.workflow()
        return ops.PublishEvents(workflow_id, self.publishes(workflow_id))

    def something_starts(self) -> Operation | None:
        """What a scheduler would do."""
        idle = [
            key
            for key, row in self.s["workflows"].items()
            if row["status"] == "active"
            and not row["has_error"]
            and not row["maintenance"]
            and not small.active_run(self.s, key)
        ]
        if not idle:
            return None
        workflow_id = self.one(idle)
        session = small.open_session(self.s, workflow_id)
        if session is None:
            return ops.CreateSession(self.fresh("ses"), workflow_id, "test")
        if self.likely(5):
            return ops.FinishSession(session, self.likely(50))
        if retry := small.goes_on_next(self.s, workflow_id):
            return ops.CreateRetryRun(self.fresh("run"), retry, session)
        handlers = [key[1] for key, row in self.s["handlers"].items() if key[0] == workflow_id and row["declared"]]
        handler = "digest" if "digest" in handlers and self.likely(20) else self.one(handlers)
        repaired = [each for each in handlers if self.s["handlers"][workflow_id, each]["repairs"]]
        if repaired and self.likely(50):
            handler = self.one(repaired)
        starts = self.s["handlers"][workflow_id, handler]["kind"] == "consumer" and self.likely(80)
        phase, kind = Phase.PREPARING if starts else Phase.PENDING, self.s["handlers"][workflow_id, handler]["kind"]
        on_unknown = OnUnknown.PARK if kind == "consumer" and self.likely(50) else OnUnknown.PAUSE
        return ops.CreateRun(self.fresh("run"), session, handler, phase, on_unknown=on_unknown)

    def the_run_goes_on(self) -> Operation | None:
        if not self.active_runs():
            return None
        run_id = self.one(self.active_runs())
        run = self.s["runs"][run_id]
        if self.likely(4):
            return self.use(run_id)
        if run["stop_until"] is not None and self.likely(70):
            return self.stopping(run_id)
        if run["kind"] == "producer" and self.likely(40):
            return self.events_arrive()
        if run["kind"] == "producer":
            publishes = self.publishes(run["workflow_id"])
            return ops.CommitProducer(run_id, self.now + 9, publishes, self.one((None, "1", "2")), "[]", self.cost())
        if mutation_id := small.unsettled(self.s, run_id):
            return self.the_call_goes_on(run_id, mutation_id)
        if run["kind"] == "job":
            return self.the_job_goes_on(run_id)
        return self.the_consumer_goes_on(run_id, run)

    def use(self, run_id: str) -> Operation:
        return ops.UseGrant(run_id, self.one(("mail.send", "mail.read")), self.one((1, 1, 2)), self.one((0, 2, 9)))

    def the_consumer_goes_on(self, run_id: str, run: small.Row) -> Operation:
        match run["phase"]:
            case "pending":
                return ops.UpdateConsumerPhase(run_id, Phase.PREPARING)
            case "preparing":
                return self.prepared(run_id, run)
            case "prepared":
                mutates = run["reserved_count"] and self.likely(90)
                return ops.UpdateConsumerPhase(run_id, Phase.MUTATING if mutates else Phase.EMITTING)
            case "mutating":
                return self.call(run_id) if self.likely(90) else ops.UpdateConsumerPhase(run_id, Phase.MUTATED)
            case "mutated" if run["mutation_outcome"] != "failure":
                return ops.UpdateConsumerPhase(run_id, Phase.EMITTING)
            case "emitting":
                publishes = self.publishes(run["workflow_id"])
                return ops.CommitConsumer(run_id, publishes, self.one((None, "1", "2")), "[]", self.cost())
            case _:
                return self.stopping(run_id)

    def prepared(self, run_id: str, run: small.Row) -> Operation:
        mine = [
            key
            for key, row in self.s["events"].items()
            if key[0] == run["workflow_id"]
            and row["status"] == "pending"
            and self.s["topics"][key[:2]]["consumer"] == run["handler"]
        ]
        chosen = self.some(mine, 3)
        topics = dict.fromkeys(topic for _, topic, _ in chosen)
        reservations = tuple(Reserve(each, tuple(key[2] for key in chosen if key[1] == each)) for each in topics)
        wake_at = self.one((None, None, self.now + 5))
        return ops.UpdateConsumerPhase(run_id, Phase.PREPARED, reservations, '{"data":1}', "File it", wake_at)

    def call(self, run_id: str, item: ops.ItemScope | None = None) -> Operation:
        ask = self.likely(45)
        question = ops.AskFirst(self.fresh("apr"), self.one((None, None, self.now + 12))) if ask else None
        send = not ask and self.likely(80)
        needs = "mail.send" if self.is_granted(run_id) and self.likely(50) else self.one(("", "", "", "mail.read"))
        return ops.CreateMutation(
            self.fresh("mut"), run_id, "mail", "send", "{}", run_id, self.likely(60), send, item, question, needs
        )

    def is_granted(self, run_id: str) -> bool:
        return (self.s["runs"][run_id]["workflow_id"], 1, "mail.send") in self.s["grants"]

    def the_call_goes_on(self, run_id: str, mutation_id: str) -> Operation:
        if small.open_approval(self.s, mutation_id):
            return ops.UpdateHandlerRunStatus(run_id, RunStatus.PAUSED_APPROVAL, parks=self.likely(80))
        match self.s["mutations"][mutation_id]["status"]:
            case "pending":
                return ops.UpdateMutationStatus(mutation_id, MutationStatus.IN_FLIGHT)
            case "in_flight" if self.likely(70):
                applied = self.likely(70)
                return ops.ApplyMutation(mutation_id, '"done"') if applied else ops.FailMutation(mutation_id, "no")
            case "in_flight":
                return self.doubting(mutation_id)
            case _:
                return ops.UpdateHandlerRunStatus(run_id, RunStatus.PAUSED_RECONCILIATION)

    def doubting(self, mutation_id: str) -> Operation:
        reconcilable = self.s["mutations"][mutation_id]["reconcilable"] and self.likely(60)
        status = MutationStatus.NEEDS_RECONCILE if reconcilable else MutationStatus.INDETERMINATE
        return ops.UpdateMutationStatus(mutation_id, status, "timed out", self.now + 3 if reconcilable else None)

    def the_job_goes_on(self, run_id: str) -> Operation:
        item = small.open_item(self.s, run_id)
        if item is None:
            if self.likely(70):
                return ops.OpenItem(run_id, self.one(ITEMS), "An item")
            publishes = self.publishes(self.s["runs"][run_id]["workflow_id"])
            return ops.CommitJob(run_id, self.now + 9, publishes, self.one((None, "1", "2")), "[]", self.cost())
        if self.s["items"][item]["state"] not in ("done", "skipped") and self.likely(60):
            return self.call(run_id, self.scope(item))
        left = self.one((ItemState.DONE, ItemState.FAILED, ItemState.NEEDS_ATTENTION))
        publishes = self.publishes(item[0]) if self.likely(50) else ()
        return ops.CloseItem(run_id, item[1], left, publishes=publishes)

    def scope(self, item: Any) -> ops.ItemScope:
        return ops.ItemScope(item[1], f"{'/'.join(map(str, item))}/{self.one(('send', 'send', 'label'))}")

    def the_run_stops(self) -> Operation | None:
        return self.stopping(self.one(self.active_runs())) if self.active_runs() else None

    def stopping(self, run_id: str) -> Operation:
        error = self.one((None, RunError(FailureClass.TRANSIENT, "no answer")))
        retry_at, since = self.one((None, self.now + 7)), self.one((None, None, self.now - 3))
        status, is_fault, parks = self.one(list(RunStatus)), self.likely(70), self.likely(80)
        return ops.UpdateHandlerRunStatus(
            run_id, status, error, "[]", self.cost(), retry_at, since, is_fault=is_fault, parks=parks
        )

    def an_answer_comes(self) -> Operation | None:
        """Something or someone finds out about a mutation whose run has stopped, or thinks better of it."""
        if (asserted := small.where(self.s, "mutations", resolved_by="user_assert_applied")) and self.likely(10):
            return ops.AmendResult(asserted[-1], "2", "ann")
        if not self.open_questions():
            return None
        mutation_id = self.one(self.open_questions())
        mutation = self.s["mutations"][mutation_id]
        if approval := small.open_approval(self.s, mutation_id):
            return self.decided(approval) if self.likely(60) else None
        if mutation["status"] == "in_flight" and self.likely(20):
            return ops.NoteMutation(mutation_id, mutation["attempts"], self.one(("task 7", "task 8")))
        if mutation["status"] == "in_flight" and self.likely(40):
            return self.doubting(mutation_id)
        if self.s["runs"][mutation["run_id"]]["status"] == "paused:approval" and self.likely(60):
            return ops.UpdateHandlerRunStatus(mutation["run_id"], RunStatus.PAUSED_RECONCILIATION)
        if self.likely(15):
            return ops.SkipMutation(mutation_id, "ann")
        if self.likely(35):
            label = MutationStatus(self.one(small.LABELS[mutation["status"]]))
            return ops.UpdateMutationStatus(mutation_id, label, "no answer")
        version = mutation["version"] if self.likely(50) else None
        settle, said = self.one(((ops.ApplyMutation, "applied"), (ops.FailMutation, "failed")))
        who = Resolver(self.one(small.MAY_SAY[said, mutation["status"]]))
        return settle(mutation_id, "0", who, "ann", expected_version=version)

    def decided(self, approval: str) -> Operation:
        """A question is answered, or asked again."""
        if self.likely(10):
            return ops.AskAgain(approval, self.id_for("approvals", "apr"), self.one((None, self.now + 12)))
        if self.likely(60):
            use = GrantUse("mail.send", 1, self.one((1, 9))) if self.likely(30) else None
            return ops.ApproveMutation(approval, "ann", use=use)
        return ops.RejectMutation(approval, "ann", self.one(("", "no")), self.likely(40), self.likely(40))

    def something_is_in_the_way(self) -> Operation | None:
        """What keeps a workflow from running is cleared away."""
        missing = [each for each in WORKFLOWS if each not in self.s["workflows"]]
        if missing and self.likely(20):
            return ops.CreateWorkflow(missing[0], self.one(("Mail to rows", "Mail")), owner=self.one(("", "ann")))
        workflow_id = self.workflow()
        row = self.s["workflows"][workflow_id]
        scripts = small.where(self.s, "versions", workflow_id=workflow_id)
        if not scripts and row["status"] == "draft" and self.likely(10):
            return ops.ArchiveWorkflow(workflow_id, "ann")
        if not scripts and row["status"] != "archived":
            return ops.AddScriptVersion(self.fresh("ver"), workflow_id, 1, 0, "source")
        if row["status"] == "draft":
            return self.activation(workflow_id, self.one(scripts))
        to_do: list[Operation] = []
        if row["status"] == "archived" and self.likely(60):
            to_do.append(ops.UnarchiveWorkflow(workflow_id, "ann"))
        if row["status"] in ("ready", "paused"):
            to_do.append(ops.ResumeWorkflow(workflow_id, "ann"))
        if row["has_error"] and (not small.unsettled(self.s, row["error_run_id"]) or self.likely(20)):
            to_do.append(ops.ClearWorkflowError(workflow_id, "ann"))
        if row["maintenance"]:
            to_do.append(self.repairing(workflow_id))
        return self.one(to_do) if to_do else None

    def repairing(self, workflow_id: str) -> Operation:
        """The repair is ordered, tried, proposed, refused, or over."""
        task = small.open_task(self.s, workflow_id)
        if task is None and self.likely(80):
            return ops.CreateMaintenanceTask(workflow_id)
        if task is not None and (held := self.s["tasks"][task]["held_version_id"]) and self.likely(15):
            return ops.HoldProposal(workflow_id, held, "once more")
        if self.likely(40):
            return ops.ExitMaintenanceMode(workflow_id, "ann", by_person=self.likely(35))
        if self.likely(50):
            at = self.one((None, self.now + 6))
            return ops.NoteRepairAttempt(workflow_id, self.one(("no", "does not parse")), at, "ann")
        scripts = small.where(self.s, "versions", workflow_id=workflow_id)
        idle = [each for each in scripts if each != self.s["workflows"][workflow_id]["active_version_id"]]
        if not idle or self.likely(10):
            return ops.AddScriptVersion(self.fresh("ver"), workflow_id, 1, len(scripts), "repaired")
        return ops.HoldProposal(workflow_id, self.one(idle if self.likely(50) else scripts), "it wants more")

    def somebody_is_told(self) -> Operation:
        """A matter is opened, settled or delivered, whatever the workflow does."""
        too_early = self.likely(10)
        waiting = [
            key
            for key, row in self.s["deliveries"].items()
            if row["status"] == "waiting" and (row["next_attempt_at"] is not None or too_early)
        ]
        if waiting and self.likely(60):
            return self.delivered(self.one(waiting))
        is_open = small.where(self.s, "notices", settled_at=None)
        given_up = [key for key in small.where(self.s, "deliveries", status="given_up") if key[0] in is_open]
        if given_up and self.likely(40):
            return ops.AddDelivery(*self.one(given_up)[:2])
        if is_open and self.likely(50):
            return ops.SettleNotice(self.one(is_open), self.one(("", "approved by ann")))
        if is_open and self.likely(60):
            return ops.AddDelivery(self.one(is_open), self.one(SINKS))
        return self.opening(self.workflow())

    def somebody_proposes(self) -> Operation:
        """A script is proposed for a workflow or for a new one, and accepted as what runs, or rejected."""
        is_open = small.where(self.s, "proposals", status="open")
        workflow_id = self.workflow()
        if is_open and self.likely(50):
            chosen = self.one(is_open)
            return self.accepting(chosen) if self.likely(70) else ops.DecideProposal(chosen, "ann", "no")
        base = self.s["workflows"][workflow_id]["active_version_id"]
        if self.likely(10):
            base = self.one(list(self.s["versions"]) or [None])
        is_new = self.likely(25)
        return ops.ProposeScript(
            self.id_for("proposals", "prp"),
            self.one(("mail", "sheets")) if is_new or self.likely(5) else self.s["workflows"][workflow_id]["name"],
            self.one(("source", "repaired", "proposed")),
            "ann's assistant",
            workflow_id=None if is_new else workflow_id,
            base_version_id=None if is_new and self.likely(90) else base,
        )

    def accepting(self, proposal_id: str) -> Operation:
        """With a version and its activation, or without one of them."""
        proposal = self.s["proposals"][proposal_id]
        workflow_id = proposal["workflow_id"] or self.workflow()
        scripts = small.where(self.s, "versions", workflow_id=workflow_id)
        version_id = self.fresh("ver")
        add = ops.AddScriptVersion(version_id, workflow_id, 1 + len(scripts), 0, proposal["source"])
        decide = ops.DecideProposal(proposal_id, "ann", "", version_id)
        if self.likely(15):
            running = self.s["workflows"][workflow_id]["active_version_id"]
            return ops.DecideProposal(proposal_id, "ann", "", running or version_id)
        steps = (add, self.activation(workflow_id, version_id), decide)
        return ops.Together(steps if self.likely(85) else (add, decide))

    def delivered(self, key: Any) -> Operation:
        notice_id, sink, says = key
        failed = self.likely(50)
        again = failed and self.likely(60)
        return ops.NoteDelivery(
            notice_id, sink, Says(says), "no answer" if failed else None, self.now + 4 if again else None
        )

    def opening(self, workflow_id: str) -> Operation:
        runs = [None, *small.where(self.s, "runs", workflow_id=workflow_id)[-1:]]
        kind, about = self.one(list(NoticeKind)), self.one(("", "apr_1"))
        told = small.where(self.s, "notices", workflow_id=workflow_id, settled_at=None)
        if told and self.likely(60):
            kind, about = NoticeKind(self.s["notices"][told[-1]]["kind"]), self.s["notices"][told[-1]]["about"]
        sinks = tuple(self.some(SINKS, 2)) or SINKS
        return ops.OpenNotice(
            self.id_for("notices", "ntc"), workflow_id, kind, about, "words", "can do", sinks, self.one(runs)
        )

    def people_change_their_mind(self) -> Operation:
        held = {key[0] for key in small.where(self.s, "events", status="reserved")}
        waiting = sorted(each for each in held if not small.active_run(self.s, each))
        workflow_id = self.one(waiting) if waiting and self.likely(50) else self.workflow()
        pending = [key for key, row in self.s["events"].items() if row["status"] == "pending"]
        resting = [key for key, row in self.s["items"].items() if not row["is_open"]]
        scripts = small.where(self.s, "versions", workflow_id=workflow_id)
        if resting and self.likely(40):
            change = self.one((ops.SkipItem, ops.ReprocessItem, ops.ReprocessItem))
            workflow, item, _ = self.one(resting)
            return change(workflow, item, "ann")
        if pending and self.likely(20):
            workflow, topic, message = self.one(pending)
            return ops.SkipEvent(workflow, topic, message, "ann")
        if scripts and self.likely(60):
            return self.activation(workflow_id, self.one(scripts))
        if self.likely(30):
            return ops.AddScriptVersion(self.fresh("ver"), workflow_id, 1, len(scripts), "source")
        if self.likely(50):
            return ops.HaltWorkflow(workflow_id, "its actor keeps crashing")
        return ops.RunNow(workflow_id, "ann")

    def people_say_stop(self) -> Operation:
        """Or go on; and whatever is under way hears of it at its next call."""
        waiting = [each for each in self.s["workflows"] if small.asked(self.s, each) or small.doubts(self.s, each)]
        workflow_id = self.one(waiting) if waiting and self.likely(50) else self.workflow()
        if self.likely(15):
            return ops.CountCost(self.known("runs"), self.cost())
        if self.active_runs() and self.likely(35):
            return ops.StopRun(self.one(self.active_runs()), self.now + 8, "ann")
        if self.likely(20):
            return ops.ArchiveWorkflow(workflow_id, "ann")
        if self.likely(30):
            return ops.PauseWorkflow(workflow_id, "ann")
        if self.s["grants"] and self.likely(30):
            workflow, major, permission = self.one(list(self.s["grants"]))
            return ops.RevokePermission(workflow, major, permission, "ann")
        limits = self.one(("{}", '{"per_day":5}'))
        return ops.GrantPermission(workflow_id, 1, "mail.send", self.one(list(GrantPolicy)), limits)

    def something_sensible(self) -> Operation:
        if self.likely(5):
            return self.somebody_is_told()
        if self.likely(3):
            return self.somebody_proposes()
        turn = self.choose.randrange(100)
        thought = None
        if turn < 50:
            thought = self.the_run_goes_on()
        elif turn < 65:
            thought = self.an_answer_comes()
        elif turn < 75:
            thought = self.events_arrive()
        elif turn < 82:
            thought = self.the_run_stops()
        elif turn < 87:
            thought = self.people_change_their_mind()
        elif turn < 91:
            thought = self.people_say_stop()
        return thought or self.something_is_in_the_way() or self.something_starts() or self.events_arrive()

    # What is one step beside what makes sense.

    def something_nearly_right(self) -> Operation:
        words = (self.anyones_word, self.anyones_word, self.any_phase, self.any_phase, self.any_call)
        return self.one((*words, self.a_start_too_early, self.any_stop, self.any_end))()

    def a_run(self) -> str:
        """An active one, if there is one."""
        active = self.active_runs()
        return self.one(active) if active and self.likely(85) else str(self.known("runs"))

    def a_mutation(self) -> str:
        """One that is not settled, if there is one."""
        unsettled = [key for key in self.s["mutations"] if not small.is_settled(self.s, key)]
        return self.one(unsettled) if unsettled and self.likely(85) else str(self.known("mutations"))

    def a_start_too_early(self) -> Operation:
        """Whatever is in the way."""
        waiting = [key for key, row in self.s["workflows"].items() if row["pending_retry_run_id"]]
        workflow_id = self.one(waiting) if waiting and self.likely(70) else self.workflow()
        session = small.open_session(self.s, workflow_id)
        if session is None:
            return ops.CreateSession(self.fresh("ses"), workflow_id)
        if self.likely(30):
            forward = [key for key, row in self.s["runs"].items() if row["mutation_outcome"] in small.FOR_GOOD]
            run_id = self.one(forward) if forward and self.likely(60) else str(self.known("runs"))
            return ops.CreateRetryRun(self.fresh("run"), run_id, session)
        handler, on_unknown = self.one(("file", "poll", "digest", UNKNOWN)), self.one(list(OnUnknown))
        return ops.CreateRun(self.fresh("run"), session, handler, on_unknown=on_unknown)

    def any_phase(self) -> Operation:
        run_id = self.a_run()
        run = self.s["runs"].get(run_id)
        phase = self.one(list(Phase))
        if run and run["phase"] in small.PHASES and self.likely(60):
            phase = Phase(self.one((*small.PHASES[run["phase"]], "emitting")))
        if (phase is Phase.PREPARED) == self.likely(90):
            return ops.UpdateConsumerPhase(run_id, phase, self.any_reservations(run), '{"data":2}')
        return ops.UpdateConsumerPhase(run_id, phase)

    def any_reservations(self, run: small.Row | None) -> tuple[Reserve, ...]:
        """Of events that may be held, finished or not there; in topics that may not be subscribed to; or twice."""
        mine = [key for key in self.s["events"] if run and key[0] == run["workflow_id"]]
        named = [Reserve(topic, (message,)) for _, topic, message in self.some(mine, 2)]
        if named and self.likely(20):
            named.append(named[0])
        odd = [Reserve("nowhere", ("m1",)), Reserve("mail", (UNKNOWN,)), Reserve("mail", ("m1", "m1"))]
        return tuple(named + (self.some(odd, 1) if self.likely(30) else []))

    def any_call(self) -> Operation:
        run_id = self.a_run()
        item = small.open_item(self.s, run_id)
        identity = self.one(("", run_id, "identity", str(self.known("runs"))))
        scope = self.one((None, ops.ItemScope(self.one(ITEMS), identity)))
        if item and self.likely(70):
            scope = self.scope(item)
        ask = ops.AskFirst(self.id_for("approvals", "apr")) if self.likely(30) else None
        mutation_id = self.id_for("mutations", "mut")
        send, needs = self.likely(50), self.one(("", "", "mail.send"))
        return ops.CreateMutation(
            mutation_id, run_id, "mail", "send", "{}", "key", self.likely(50), send, scope, ask, needs
        )

    def anyones_word(self) -> Operation:
        mutation_id = self.a_mutation()
        version = self.one((None, None, None, 1, 2))
        who = self.one(list(Resolver))
        return self.one(
            (
                ops.ApplyMutation(mutation_id, "1", who, expected_version=version),
                ops.FailMutation(mutation_id, "no", who, expected_version=version),
                ops.SkipMutation(mutation_id, expected_version=version),
                ops.AmendResult(mutation_id, "3", expected_version=version),
                ops.NoteMutation(mutation_id, self.one((1, 2)), "any"),
                ops.UpdateMutationStatus(mutation_id, self.one(list(MutationStatus)), expected_version=version),
                ops.ApproveMutation(str(self.known("approvals")), "ann"),
                ops.RejectMutation(str(self.known("approvals")), "ann", "", self.likely(50), self.likely(50)),
                ops.AskAgain(str(self.known("approvals")), self.id_for("approvals", "apr")),
            )
        )

    def any_stop(self) -> Operation:
        run_id = self.a_run()
        return ops.UpdateHandlerRunStatus(run_id, self.one(list(RunStatus)), cost_micros=self.cost())

    def any_end(self) -> Operation:
        run_id = self.a_run()
        publishes = self.publishes(self.one(WORKFLOWS))
        return self.one(
            (
                ops.CommitConsumer(run_id, publishes),
                ops.CommitProducer(run_id, None, publishes),
                ops.CommitJob(run_id, None, publishes),
                ops.OpenItem(run_id, self.one((*ITEMS, "")), self.one(("Item", " "))),
                ops.CloseItem(run_id, self.one(ITEMS), self.one(list(ItemState)), publishes=publishes),
                ops.FinishSession(str(self.known("sessions")), self.likely(50)),
                ops.SkipEvent(*self.any_event()),
            )
        )

    # What may make no sense at all.

    def anything(self) -> Operation:
        return ANYTHING[self.one(list(ANYTHING))](self)

    def any_item(self) -> tuple[str, str]:
        return self.one((*WORKFLOWS, UNKNOWN)), self.one((*ITEMS, UNKNOWN))

    def any_event(self) -> tuple[str, str, str]:
        if self.s["events"] and self.likely(60):
            workflow_id, topic, message_id = self.one(list(self.s["events"]))
            return workflow_id, topic, message_id
        return self.one((*WORKFLOWS, UNKNOWN)), self.one(("mail", "rows", "nowhere")), self.one((*MESSAGES, UNKNOWN))

    def several(self) -> list[Operation]:
        """Operations that follow from each other; at times one among them that does not."""
        state, operations = self.s, []
        for _ in range(2 + self.choose.randrange(3)):
            author = Author(self.choose, state, self.names, self.now + 1)
            operation = self.one((author.something_sensible,) * 7 + (author.something_nearly_right, author.anything))()
            operations.append(operation)
            state = small.after(state, operation, self.now + 1) or state
        return operations


ANYTHING: dict[type[Operation], Callable[[Author], Operation]] = {
    ops.CreateWorkflow: lambda a: ops.CreateWorkflow(a.one(WORKFLOWS), "Mail"),
    ops.AddScriptVersion: lambda a: ops.AddScriptVersion(
        a.id_for("versions", "ver"),
        a.known("workflows"),
        a.one((1, 1, 2)),
        a.choose.randrange(9),
        "source",
        "{}",
        a.one(("", "ann")),
    ),
    ops.ActivateScript: lambda a: ops.ActivateScript(
        a.known("versions"),
        *a.one(SCRIPTS + BAD_SCRIPTS),
        drop=tuple(a.some(("mail", "rows", "post", UNKNOWN), 1)),
        move=tuple((a.one(("mail", "post", UNKNOWN)), a.one(("rows", "post"))) for _ in range(a.choose.randrange(3))),
    ),
    ops.GrantPermission: lambda a: ops.GrantPermission(
        a.known("workflows"), 1, a.one(("mail.read", " ")), GrantPolicy.ALLOW, a.one(("{}", "[]", "no"))
    ),
    ops.RevokePermission: lambda a: ops.RevokePermission(a.known("workflows"), 1, a.one(("mail.read", "mail.send"))),
    ops.UseGrant: lambda a: a.use(a.known("runs")),
    ops.PauseWorkflow: lambda a: ops.PauseWorkflow(a.known("workflows")),
    ops.ResumeWorkflow: lambda a: ops.ResumeWorkflow(a.known("workflows")),
    ops.ArchiveWorkflow: lambda a: ops.ArchiveWorkflow(a.known("workflows") if a.likely(20) else UNKNOWN),
    ops.UnarchiveWorkflow: lambda a: ops.UnarchiveWorkflow(a.known("workflows")),
    ops.RunNow: lambda a: ops.RunNow(a.known("workflows")),
    ops.HaltWorkflow: lambda a: ops.HaltWorkflow(a.known("workflows"), a.one(("no more", " "))),
    ops.ClearWorkflowError: lambda a: ops.ClearWorkflowError(a.known("workflows"), "ann"),
    ops.CreateSession: lambda a: ops.CreateSession(a.id_for("sessions", "ses"), a.known("workflows")),
    ops.FinishSession: lambda a: ops.FinishSession(a.known("sessions"), a.likely(50)),
    ops.CreateRun: lambda a: ops.CreateRun(
        a.id_for("runs", "run"), a.known("sessions"), a.one(("file", "poll", UNKNOWN)), a.one(list(Phase))
    ),
    ops.CreateRetryRun: lambda a: ops.CreateRetryRun(a.id_for("runs", "run"), a.known("runs"), a.known("sessions")),
    ops.StopRun: lambda a: ops.StopRun(a.known("runs"), a.now + 8),
    ops.CountCost: lambda a: ops.CountCost(a.known("runs"), a.cost()),
    ops.UpdateHandlerRunStatus: lambda a: ops.UpdateHandlerRunStatus(
        a.known("runs"), a.one(list(RunStatus)), cost_micros=a.cost()
    ),
    ops.UpdateConsumerPhase: Author.any_phase,
    ops.CommitConsumer: lambda a: ops.CommitConsumer(a.known("runs"), a.publishes(a.one(WORKFLOWS))),
    ops.CommitProducer: lambda a: ops.CommitProducer(a.known("runs"), None, a.publishes(a.one(WORKFLOWS))),
    ops.CommitJob: lambda a: ops.CommitJob(a.known("runs"), None, a.publishes(a.one(WORKFLOWS))),
    ops.CreateMutation: Author.any_call,
    ops.UpdateMutationStatus: lambda a: ops.UpdateMutationStatus(a.known("mutations"), a.one(list(MutationStatus))),
    ops.ApplyMutation: lambda a: ops.ApplyMutation(a.known("mutations"), "1", a.one(list(Resolver))),
    ops.FailMutation: lambda a: ops.FailMutation(a.known("mutations"), "no", a.one(list(Resolver))),
    ops.SkipMutation: lambda a: ops.SkipMutation(a.known("mutations")),
    ops.AmendResult: lambda a: ops.AmendResult(a.known("mutations"), "3"),
    ops.NoteMutation: lambda a: ops.NoteMutation(a.known("mutations"), a.one((1, 2)), "any"),
    ops.ApproveMutation: lambda a: ops.ApproveMutation(a.known("approvals"), "ann"),
    ops.RejectMutation: lambda a: ops.RejectMutation(a.known("approvals"), "ann", "", a.likely(50), a.likely(50)),
    ops.AskAgain: lambda a: ops.AskAgain(a.known("approvals"), a.id_for("approvals", "apr")),
    ops.PublishEvents: lambda a: ops.PublishEvents(a.known("workflows"), a.publishes(a.one(WORKFLOWS))),
    ops.SkipEvent: lambda a: ops.SkipEvent(*a.any_event()),
    ops.OpenItem: lambda a: ops.OpenItem(a.known("runs"), a.one((*ITEMS, "")), a.one(("Item", " "))),
    ops.CloseItem: lambda a: ops.CloseItem(a.known("runs"), a.one(ITEMS), a.one(list(ItemState))),
    ops.SkipItem: lambda a: ops.SkipItem(*a.any_item(), state=a.one((None, None, *ItemState))),
    ops.ReprocessItem: lambda a: ops.ReprocessItem(*a.any_item(), state=a.one((None, None, *ItemState))),
    ops.CreateMaintenanceTask: lambda a: ops.CreateMaintenanceTask(a.known("workflows")),
    ops.NoteRepairAttempt: lambda a: ops.NoteRepairAttempt(a.known("workflows"), "no", a.one((None, a.now + 6))),
    ops.HoldProposal: lambda a: ops.HoldProposal(a.known("workflows"), a.known("versions")),
    ops.ExitMaintenanceMode: lambda a: ops.ExitMaintenanceMode(a.known("workflows"), by_person=a.likely(50)),
    ops.ProposeScript: lambda a: ops.ProposeScript(
        a.id_for("proposals", "prp"),
        a.one(("Mail", "sheets")),
        a.one(("source", "better")),
        "ann's assistant",
        workflow_id=a.one((None, a.known("workflows"))),
        base_version_id=a.one((None, a.known("versions"))),
    ),
    ops.DecideProposal: lambda a: ops.DecideProposal(
        a.known("proposals"), "ann", "", a.one((None, a.known("versions")))
    ),
    ops.OpenNotice: lambda a: ops.OpenNotice(
        a.id_for("notices", "ntc"),
        a.known("workflows"),
        NoticeKind.ERROR,
        a.one(("", "x")),
        "words",
        "can do",
        a.one((SINKS, (), (" ",), ("pager", "pager"))),
        a.one((None, a.known("runs"))),
    ),
    ops.AddDelivery: lambda a: ops.AddDelivery(a.known("notices"), a.one((*SINKS, " "))),
    ops.SettleNotice: lambda a: ops.SettleNotice(a.known("notices")),
    ops.NoteDelivery: lambda a: ops.NoteDelivery(
        a.known("notices"), a.one((*SINKS, UNKNOWN)), a.one(list(Says)), a.one((None, "no")), a.one((None, a.now + 4))
    ),
    ops.RecoverCrashedRuns: lambda a: ops.RecoverCrashedRuns(a.known("workflows")),
    ops.RecoverUnfinishedSessions: lambda a: ops.RecoverUnfinishedSessions(a.known("workflows")),
    ops.RecoverMaintenanceMode: lambda a: ops.RecoverMaintenanceMode(a.known("workflows")),
}

DEPLOYED = (
    ops.CreateWorkflow(WORKFLOWS[0], "Mail to rows"),
    ops.AddScriptVersion("ver_first", WORKFLOWS[0], 1, 0, "source"),
    ops.ActivateScript("ver_first", *SCRIPTS[0]),
    ops.ResumeWorkflow(WORKFLOWS[0]),
)


def asking(name: str, message_id: str) -> tuple[Operation, ...]:
    """A run that asks whether it may do something about one event, and is parked."""
    question = ops.AskFirst(f"apr_{name}")
    return (
        ops.CreateSession(f"ses_{name}", WORKFLOWS[0]),
        ops.CreateRun(f"run_{name}", f"ses_{name}", "file", Phase.PREPARING),
        ops.UpdateConsumerPhase(f"run_{name}", Phase.PREPARED, (Reserve("mail", (message_id,)),), '{"data":1}'),
        ops.UpdateConsumerPhase(f"run_{name}", Phase.MUTATING),
        ops.CreateMutation(f"mut_{name}", f"run_{name}", "mail", "send", "{}", name, True, ask_first=question),
        ops.UpdateHandlerRunStatus(f"run_{name}", RunStatus.PAUSED_APPROVAL),
    )


ASKING: tuple[Operation, ...] = (
    *DEPLOYED,
    ops.PublishEvents(
        WORKFLOWS[0],
        tuple(Publish(f"evt_{each}", "mail", each, "Mail", key) for each, key in zip(MESSAGES, PAYLOADS, strict=False)),
    ),
    *asking("one", "m1"),
    *asking("two", "m2"),
)
"""Two questions are open. By chance alone that is rare, and what follows from it rarer."""


CHOICES = st.randoms(use_true_random=False)


class Machine(RuleBasedStateMachine):
    """One workflow is deployed; everything else happens by chance."""

    @cached_property
    def duel(self) -> Duel:
        """Made when it is needed: Hypothesis also makes machines that it never runs, nor tears down."""
        return Duel()

    def teardown(self) -> None:
        self.duel.close()

    def author(self, choose: random.Random) -> Author:
        return Author(choose, self.duel.state, self.duel.names, self.duel.now)

    def ask(self, operation: Operation | None) -> None:
        if operation is not None:
            note(repr(operation))
            self.duel.step(operation)

    def a_run_is_active(self) -> bool:
        return bool(small.where(self.duel.state, "runs", status="active"))

    def a_question_is_open(self) -> bool:
        return any(row["status"] not in small.SETTLED for row in self.duel.state["mutations"].values())

    @initialize(begun=st.sampled_from((DEPLOYED, ASKING)))
    def deploy(self, begun: tuple[Operation, ...]) -> None:
        for operation in begun:
            self.ask(operation)

    @rule(choose=CHOICES, steps=st.integers(1, 8))
    def life_goes_on(self, choose: random.Random, steps: int) -> None:
        for _ in range(steps):
            self.ask(self.author(choose).something_sensible())

    @precondition(a_run_is_active)
    @rule(choose=CHOICES, steps=st.integers(1, 6))
    def the_run_goes_on(self, choose: random.Random, steps: int) -> None:
        for _ in range(steps):
            self.ask(self.author(choose).the_run_goes_on())

    @precondition(a_question_is_open)
    @rule(choose=CHOICES)
    def an_answer_comes(self, choose: random.Random) -> None:
        self.ask(self.author(choose).an_answer_comes())

    @precondition(lambda self: self.a_run_is_active() or self.a_question_is_open())
    @rule(choose=CHOICES)
    def the_process_dies(self, choose: random.Random) -> None:
        if self.author(choose).likely(40):
            for recover in RECOVERY:
                self.ask(recover())

    @rule(choose=CHOICES, steps=st.integers(1, 4))
    def something_is_nearly_right(self, choose: random.Random, steps: int) -> None:
        for _ in range(steps):
            self.ask(self.author(choose).something_nearly_right())

    @rule(choose=CHOICES)
    def anything_is_asked(self, choose: random.Random) -> None:
        self.ask(self.author(choose).anything())

    @rule(choose=CHOICES)
    def all_or_nothing(self, choose: random.Random) -> None:
        self.ask(Together(tuple(self.author(choose).several())))

    @rule(choose=CHOICES)
    def a_group_is_committed(self, choose: random.Random) -> None:
        operations = self.author(choose).several()
        note(repr(operations))
        self.duel.batch(operations)


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def walk(duel: Duel, choose: random.Random, steps: int) -> None:
    """The same steps without Hypothesis: fast, and the same every time."""
    for operation in choose.choice((DEPLOYED, DEPLOYED, ASKING)):
        duel.step(operation)
    for _ in range(steps):
        author = Author(choose, duel.state, duel.names, duel.now)
        turn = choose.randrange(100)
        if turn < 70:
            duel.step(author.something_sensible())
        elif turn < 84:
            duel.step(author.something_nearly_right())
        elif turn < 90:
            duel.step(author.anything())
        elif turn < 92:
            for recover in RECOVERY:
                duel.step(recover())
        elif turn < 96:
            duel.step(Together(tuple(author.several())))
        else:
            duel.batch(author.several())


MUST_BE_REACHED = (
    "committed after no mutation",
    "committed after success",
    "committed after skipped",
    "committed a retry",
    "committed a retry of a retry",
    "committed an empty look",
    "committed an empty look, with news since",
    "halted",
    "halted, and an error was there",
    "halted under a run",
    "replayed an applied mutation",
    "moved an event that is pending",
    "moved an event that is reserved",
    "moved an event that is consumed",
    "moved an event that is skipped",
    "dropped a pending event",
    "skipped an event of both topics",
    "refused because topic_has_events",
    "accepted Together",
    "refused Together",
    "events: reserved -> pending",
    "events: reserved -> consumed",
    "events: reserved -> skipped",
    "mutations: pending -> failed",
    "mutations: pending -> in_flight",
    "mutations: in_flight -> applied",
    "mutations: in_flight -> failed",
    "mutations: in_flight -> needs_reconcile",
    "mutations: in_flight -> indeterminate",
    "mutations: needs_reconcile -> applied",
    "mutations: needs_reconcile -> failed",
    "mutations: needs_reconcile -> indeterminate",
    "mutations: indeterminate -> needs_reconcile",
    "mutations: indeterminate -> applied",
    "mutations: indeterminate -> failed",
    "mutations: failed -> in_flight",
    "approvals: open -> approved",
    "approvals: open -> rejected",
    "approvals: open -> expired",
    "runs: active -> committed",
    "runs: active -> crashed",
    "runs: active -> paused:transient",
    "runs: active -> paused:approval",
    "runs: active -> paused:reconciliation",
    "runs: active -> failed:logic",
    "runs: active -> failed:internal",
    "runs: paused:approval -> paused:reconciliation",
    "items: processing -> done",
    "items: failed -> done",
    "items: failed -> skipped",
    "workflows: active -> archived",
    "workflows: archived -> paused",
    "workflows: archived -> draft",
    "archived with an open question",
    "archived with a doubt",
    "archived under a run",
    "settled a doubt of an archived workflow",
    "refused because workflow_name_taken",
    "stopped a run of a consumer",
    "stopped a run of a job",
    "stopped a run of a producer",
    "put off a consumer",
    "put off a job",
    "put off a producer",
    "refused because run_was_stopped",
    "called with a permission",
    "refused because grant_not_found",
    "refused because grant_asks_first",
    "parked a consumer over paused:approval",
    "parked a consumer over paused:reconciliation",
    "parked a job over paused:approval",
    "asked while another question was open",
    "an approved call beside the workflow is in doubt",
    "a doubt beside the workflow stops it",
    "a doubt beside the workflow stops it under a run",
    "one doubt after another",
    "refused because job_awaits_approval",
    "refused because event_held_back",
    "counted an approved call",
    "sent back a call",
    "refused a call for good",
    "amended a result of a consumer",
    "amended a result of a job",
    "noted about a call",
    "refused because result_already_used",
    "published in an item",
    "counted a cost",
    "tasks: open -> done",
    "held by HoldProposal",
    "dropped by NoteRepairAttempt",
    "dropped by ExitMaintenanceMode",
    "repairs forgiven by CommitConsumer",
    "repairs forgiven by CommitProducer",
    "repairs forgiven by CommitJob",
    "repairs forgiven by ExitMaintenanceMode",
    "repaired again and again",
    "used a grant again",
    "refused because grant_used_up",
    "refused because proposal_already_held",
    "refused because proposal_is_active",
    "deliveries: None -> waiting",
    "deliveries: waiting -> delivered",
    "deliveries: waiting -> given_up",
    "deliveries: given_up -> waiting",
    "refused because delivery_out_of_order",
    "refused because notice_already_open",
)


def test_a_long_walk_reaches_every_operation_and_every_deep_state() -> None:
    seen: Counter[str] = Counter()
    for seed in range(120):
        with closing(Duel()) as duel:
            walk(duel, random.Random(seed), steps=180)
        seen += duel.seen
        if seed >= 40 and not never_in(seen):
            break
    assert not never_in(seen)


def never_in(seen: Counter[str]) -> list[str]:
    """List what no walk has come to."""
    never = [what for what in MUST_BE_REACHED if not seen[what]]
    never += [name.__name__ for name in OPERATIONS if not seen[f"accepted {name.__name__}"]]
    never += [
        f"{name.__name__}, refused"
        for name in OPERATIONS
        if name not in RECOVERY and not seen[f"refused {name.__name__}"]
    ]
    return never


def test_the_small_model_and_the_machine_know_every_operation() -> None:
    assert set(small.RULES) == set(ANYTHING) == set(OPERATIONS)


# What the machine has found, each as small as it gets.


def test_only_a_consumer_subscribes_to_a_topic(world: World) -> None:
    """Else the topic has a reader that can never reserve from it."""
    version = world.workflow().active_version_id
    assert version
    with pytest.raises(Rejected):
        world.model.activate_script(version, ("mail",), (HandlerSpec("poll", HandlerKind.PRODUCER, ("mail",)),))


@pytest.mark.parametrize("resolver", [Resolver.USER_ASSERT_FAILED, Resolver.USER_SKIP])
@pytest.mark.parametrize("reconcilable", [True, False])
def test_nobody_applies_a_mutation_by_saying_that_it_failed(
    world: World, reconcilable: bool, resolver: Resolver
) -> None:
    """`indeterminate` is applied only with `user_assert_applied`."""
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=reconcilable)
    with pytest.raises(Rejected):
        world.model.apply_mutation(mutation.id, "1", resolver)


@pytest.mark.parametrize("resolver", [Resolver.USER_ASSERT_APPLIED, Resolver.USER_SKIP])
@pytest.mark.parametrize("reconcilable", [True, False])
def test_nobody_fails_a_mutation_by_saying_that_it_was_applied_or_skipped(
    world: World, reconcilable: bool, resolver: Resolver
) -> None:
    """It would release events whose effect exists; and a skip has an operation of its own."""
    world.publish("m1")
    mutation = world.uncertain("m1", reconcilable=reconcilable)
    with pytest.raises(Rejected):
        world.model.fail_mutation(mutation.id, "", resolver)


@pytest.mark.parametrize("resolver", [Resolver.APPROVAL_REJECTED, Resolver.APPROVAL_EXPIRED])
def test_a_call_that_was_never_asked_about_is_not_rejected_by_approval(world: World, resolver: Resolver) -> None:
    world.publish("m1")
    mutation = world.recorded("m1")
    with pytest.raises(Rejected):
        world.model.fail_mutation(mutation.id, "", resolver)


def call_in_item(world: World, run: Run, identity: str, *, send: bool = True, item: str = "i1") -> Mutation:
    scope = ops.ItemScope(item, identity)
    return world.model.create_mutation(
        world.name("mut"), run.id, "mail", "send", "{}", identity, reconcilable=False, send=send, item=scope
    )


def test_a_job_makes_one_call_at_a_time(world: World) -> None:
    """At most one mutation of a workflow is active; a run stops before anything follows an open question."""
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "An item")
    call_in_item(world, run, "first")
    with pytest.raises(Rejected):
        call_in_item(world, run, "second")


def test_a_call_that_an_archived_workflow_still_makes_is_shown_and_calls_for_no_person(world: World) -> None:
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "An item")
    mutation = call_in_item(world, run, "first")
    q = world.store.queries()

    world.model.archive_workflow(WORKFLOW)

    assert [each.id for each in reads.workflows_needing_attention(q)] == [WORKFLOW]
    assert notice_reads.workflows_to_compare(q) == []
    world.model.update_mutation_status(mutation.id, MutationStatus.INDETERMINATE, error="no answer")
    world.model.update_handler_run_status(run.id, RunStatus.PAUSED_RECONCILIATION)
    assert notice_reads.workflows_to_compare(q) == [WORKFLOW], "it is over, and only a person can tell"


def test_recovery_is_never_refused(world: World) -> None:
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "An item")
    call_in_item(world, run, "first", send=False)
    with suppress(Rejected):
        call_in_item(world, run, "second", send=False)

    [recovered] = world.model.recover_crashed_runs()

    assert recovered.status is RunStatus.CRASHED


def test_a_workflow_waits_until_every_doubt_is_settled(world: World) -> None:
    run = world.start("digest")
    world.model.open_item(run.id, "i1", "An item")
    first = call_in_item(world, run, "first")
    with suppress(Rejected):
        call_in_item(world, run, "second")
    world.model.recover_crashed_runs()

    world.model.apply_mutation(first.id, "1", Resolver.USER_ASSERT_APPLIED)

    world.check()


def test_a_line_of_the_ledger_belongs_to_one_attempt_at_one_item(world: World) -> None:
    """An identity that another item has used answers with the other item's result."""
    run = world.start("digest")
    for item in ("i1", "i2"):
        world.model.open_item(run.id, item, "An item")
        if item == "i1":
            world.model.apply_mutation(call_in_item(world, run, "same", item=item).id, '"of i1"')
        else:
            with pytest.raises(Rejected):
                call_in_item(world, run, "same", item=item)
        world.model.close_item(run.id, item, ItemState.DONE)


def test_a_session_costs_what_its_runs_cost(world: World) -> None:
    """Also when the approved call of a stopped run costs something."""
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)
    run = world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL, cost_micros=5)
    [approval] = [row[0] for row in world.store.queries().all("open_approval", {"mutation_id": mutation.id})]
    world.model.approve_mutation(approval, "ann")

    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_RECONCILIATION, cost_micros=7)

    assert world.run(run.id).cost_micros == 12
    assert world.session_row(run.session_id).cost_micros == 12


def test_a_parked_run_goes_on_in_its_own_workflow_only(world: World) -> None:
    """Whatever stops that one would not stop it, in a session of another."""
    world.publish("m1")
    mutation = world.recorded("m1", ask=True)
    world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_APPROVAL)
    world.model.reject_mutation(world.open_approval(mutation.id), "ann")
    world.model.pause_workflow(WORKFLOW)
    world.deploy("wf_other")
    with pytest.raises(Rejected):
        world.model.create_retry_run("run_retry", mutation.run_id, world.session("wf_other"))


def test_an_event_id_that_is_taken_is_rejected(world: World) -> None:
    world.publish("m1")
    [event] = world.events()
    with pytest.raises(Rejected):
        world.model.publish_events(WORKFLOW, (Publish(event.id, "mail", "m2", "Another mail"),))


def test_a_repair_is_ordered_for_the_last_failure_also_when_ids_went_back(world: World) -> None:
    """A clock that is set back between two starts makes later ids sort first."""
    for run_id in ("run_2", "run_1"):
        world.model.create_run(run_id, world.session(), "poll")
        world.model.update_handler_run_status(run_id, RunStatus.FAILED_LOGIC)
        task = world.model.create_maintenance_task(WORKFLOW)
        assert task.run_id == run_id
        world.model.exit_maintenance_mode(WORKFLOW)


@pytest.mark.parametrize("left", ["pending", "in_flight", "in_flight of a stopped run"])
def test_recovery_says_in_the_journal_what_became_of_each_mutation(world: World, left: str) -> None:
    world.publish("m1")
    mutation = world.recorded("m1", send=left != "pending")
    if left == "in_flight of a stopped run":
        world.model.update_handler_run_status(mutation.run_id, RunStatus.PAUSED_RECONCILIATION)
    before = len(world.journal())

    world.model.recover_crashed_runs()

    assert world.mutation(mutation.id).status is not mutation.status
    assert any(mutation.id in entry.changed for entry in world.journal()[before:])


def test_a_run_can_be_stopped_whatever_its_script_threw(world: World) -> None:
    """`throw new Error("\\ud800")`: a JavaScript string can hold half a character."""
    run = world.start()
    stopped = world.model.update_handler_run_status(
        run.id, RunStatus.FAILED_LOGIC, RunError(FailureClass.LOGIC, "half \ud800 a character")
    )
    assert stopped.status is RunStatus.FAILED_LOGIC


@pytest.mark.parametrize("where", ["title", "reserved id", "item id", "item title"])
def test_half_a_character_in_the_text_of_a_script_is_rejected(world: World, where: str) -> None:
    """As it is in an event: `Rejected`, and not an error of the driver."""
    half = "\ud800"
    run = world.start("digest" if where.startswith("item") else "file")
    operations: dict[str, Operation] = {
        "title": ops.UpdateConsumerPhase(run.id, Phase.PREPARED, prepare_result="{}", title=half),
        "reserved id": ops.UpdateConsumerPhase(run.id, Phase.PREPARED, (Reserve("mail", (half,)),), "{}"),
        "item id": ops.OpenItem(run.id, half, "An item"),
        "item title": ops.OpenItem(run.id, "i1", half),
    }
    with pytest.raises(Rejected):
        world.model.execute(operations[where])
