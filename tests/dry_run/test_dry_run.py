"""A dry run shows what a script would do with the events that really wait for it, and does nothing."""

import ast
import hashlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keep_actors import DeployRefused, Grant, Policy
from keep_actors.authoring.dry_run import DryRunRefused, Report, compare, dry_run
from keep_actors.connectors import Catalog
from keep_actors.permissions import Envelope
from keep_actors.run.effects import CallMutation, EndScript, ScriptAsked
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.machine import SAVES, RunMachine
from keep_actors.run.state import At, ItemInHand, RunFacts, RunState
from keep_actors.script import Script
from keep_sandbox import Request
from keep_sandbox.declaration import Declaration
from keep_sandbox.outcomes import Kind
from keep_storage.ids import Ids
from keep_storage.model import FailureClass, GrantPolicy, HandlerKind, Item, ItemState, Workflow, WorkflowStatus
from keep_storage.model import StoredGrant as StoredGrant
from tests.runtime.fakes import Fake
from tests.runtime.world import START, TAKE, TimedBox, script, world
from tests.sandbox.world import needs_jail

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"
PLAIN = script(mutate=ADD, producer="")


@asynccontextmanager
async def waiting(
    path: Path, *ids: str, source: str = PLAIN, fake: Fake | None = None, **options: Any
) -> AsyncIterator[TimedBox]:
    """A paused workflow with these events, in a file."""
    async with world(fake or Fake(), path=path, **options) as box:
        await box.keep.deploy(source)
        await box.settle()
        await box.keep.pause("flow")
        await box.publish("flow", "in", *ids)
        yield box


async def tried(source: str, path: Path, fake: Fake, **options: Any) -> Report:
    return await dry_run(source, path, [fake], sandbox="thread", now=START, **{"workflow": "flow", **options})


def calls(report: Report) -> list[tuple[str, Any, str]]:
    wanted = [run.wants for run in report.new.runs if run.wants is not None]
    return [(each.call, json.loads(bytes(each.params)), each.verdict) for each in wanted]


def fingerprint(path: Path) -> str:
    """Of the file and of its log."""
    parts = [each.read_bytes() for each in (path, Path(f"{path}-wal")) if each.exists()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


async def test_the_whole_backlog_is_shown_run_by_run_and_nothing_happens(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", "b", "c", fake=fake):
        pass
    before = fingerprint(path)
    report = await tried(PLAIN, path, fake)
    assert calls(report) == [("fake.add", {"text": each}, "allowed") for each in "abc"]
    assert [[event.message_id for event in run.events] for run in report.new.runs] == [["a"], ["b"], ["c"]]
    [end] = report.new.ends
    assert (end.rest, end.pending, end.is_more) == ("nothing", 0, False)
    assert report.new.is_well
    assert (fake.calls, fake.effects) == ([], [])
    assert fingerprint(path) == before


async def test_it_works_beside_the_runtime_that_has_the_file(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", fake=fake) as box:
        report = await tried(PLAIN, path, fake)
        assert calls(report) == [("fake.add", {"text": "a"}, "allowed")]
        assert await box.statuses("flow", "in") == {"a": "pending"}
        await box.keep.resume("flow")
        await box.settle()
    assert fake.texts == ["a"]


async def test_no_more_runs_than_asked_for_are_shown(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", "b", "c", fake=fake):
        pass
    report = await tried(PLAIN, path, fake, limit=2)
    assert [call[1]["text"] for call in calls(report)] == ["a", "b"]
    [end] = report.new.ends
    assert (end.rest, end.pending) == ("limit", 1)


async def test_a_consumer_that_reserves_nothing_sleeps(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", fake=fake):
        pass
    wake = "return { reservations: [], wakeAt: new Date(Date.now() + 3600_000).toISOString() };"
    report = await tried(script(prepare=wake, mutate=ADD), path, fake)
    [run] = report.new.runs
    assert (run.wants, run.wake_at) == (None, START + 3_600_000)
    assert [(end.rest, end.pending) for end in report.new.ends] == [("sleeps", 1)]


async def test_reads_are_real_and_can_be_refused(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    reading = script(
        prepare="""const found = await c.fake.search({ query: "x" }); const [e] = await c.peek("in");
        return { reservations: [{ topic: "in", ids: [e.messageId] }], data: { id: `${found.length}` } };""",
        mutate=ADD,
    )
    async with waiting(path, "a", fake=fake, source=reading):
        pass
    assert calls(await tried(reading, path, fake)) == [("fake.add", {"text": "0"}, "allowed")]
    assert fake.calls == ["search x"]
    refused = await tried(reading, path, fake, call_reads=False)
    assert calls(refused) == []
    [run] = refused.new.runs
    assert run.failure is not None
    assert "fake.search is not called in a dry run" in run.failure.message
    assert fake.calls == ["search x"]
    assert not refused.new.is_well


HOSTILE = {
    "in prepare": script(prepare='await c.fake.add({ text: "x" }); return { reservations: [] };'),
    "unawaited in prepare": script(prepare='c.fake.add({ text: "x" }); return { reservations: [] };'),
    "swallowed in prepare": script(
        prepare='try { await c.fake.add({ text: "x" }) } catch {} return { reservations: [] };'
    ),
    "many in mutate": script(mutate='Promise.all([1, 2, 3].map(() => c.fake.add({ text: "x" })));'),
    "a loop in mutate": script(mutate='for (;;) { try { await c.fake.add({ text: "x" }) } finally { continue } }'),
    "an item in mutate": script(mutate='await c.withItem("i", "I", () => c.fake.add({ text: "x" }));'),
    "an item in prepare": script(
        prepare='await c.withItem("i", "I", () => c.fake.put({ text: "x" })); return { reservations: [] };'
    ),
    "publish in prepare": script(prepare='await c.publish("out", { title: "T" }); return { reservations: [] };'),
}


@needs_jail
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_script_has_no_effect(tmp_path: Path, name: str) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", "b", fake=fake, source=script(mutate=ADD, job="await c.fake.search();")):
        pass
    before = fingerprint(path)
    reached = list(fake.calls)
    report = await dry_run(HOSTILE[name], path, [fake], workflow="flow", now=START)
    assert (fake.calls, fake.effects) == (reached, [])
    assert fingerprint(path) == before
    assert report.new.runs
    assert len(calls(report)) == (2 if name in ("many in mutate", "a loop in mutate") else 0)


async def test_there_is_no_code_to_be_reached_that_changes_anything() -> None:
    """By construction: the methods of a dry run do not know their connector, and its modules not how to call."""
    fake = Fake()
    looking = Catalog([fake]).for_looking()
    mutations = [method for method in looking.methods.values() if method.kind == "mutation"]
    assert len(mutations) == 4
    for method in mutations:
        assert method.instance is not fake
        assert method.function.__module__ == "keep_actors.connectors.catalog"
        assert (method.reconciler, method.comparer, method.check_url) == (None, None, None)
    folder = Path(__file__).parents[2] / "keep_actors" / "authoring" / "dry_run"
    imported = {
        alias.name
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert (
        imported & {"Items", "Store", "StorageActor", "Host", "Execution", "call", "call_in_run", "recorded"} == set()
    )


async def test_what_the_grants_make_of_each_call_is_shown(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "add", "mark", "note", "put", grants="explicit") as box:
        await box.keep.grant("flow", Grant("fake.add", policy="ask"), by="ann")
        await box.keep.grant("flow", Grant("fake.put", per_day=1), by="ann")
        await box.keep.grant("flow", "fake.note", by="ann")
        await box.publish("flow", "in", "put2")
    source = script(
        mutate="""const m = prepared.data.id.slice(0, 3);
        if (m === "add") await c.fake.add({ text: "x" });
        if (m === "mar") await c.fake.mark({ target: "t", text: "x" });
        if (m === "not") await c.fake.note({ target: "t", text: "x" });
        if (m === "put") await c.fake.put({ text: "x" });"""
    )
    report = await tried(source, path, fake)
    assert [(call, verdict) for call, _, verdict in calls(report)] == [
        ("fake.add", "asked"),
        ("fake.mark", "refused"),
        ("fake.note", "allowed"),
        ("fake.put", "allowed"),
        ("fake.put", "refused"),
    ]
    assert not report.new.is_well
    whys = [run.wants.why for run in report.new.runs if run.wants and run.wants.verdict == "refused"]
    assert "needs the permission 'fake.mark'" in whys[0]
    assert "1 call a day" in whys[1]
    generous = await tried(source, path, fake, grants=["fake.mark"])
    assert ("fake.mark", {"target": "t", "text": "x"}, "allowed") in calls(generous)
    assert fake.calls == []


async def test_wrong_parameters_are_a_failure_with_words(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", "b", fake=fake):
        pass
    report = await tried(script(mutate="await c.fake.add({ txt: 1 });"), path, fake)
    [run] = report.new.runs
    assert run.failure is not None
    assert run.failure.cls is FailureClass.LOGIC
    assert "txt" in run.failure.message
    assert [end.rest for end in report.new.ends] == ["failed"]


@pytest.mark.parametrize(
    ("reservations", "words"),
    [
        ('{ topic: "in", ids: ["a", "a"] }', "reserved twice"),
        ('{ topic: "in", ids: ["gone"] }', "is not pending"),
        ('{ topic: "out", ids: ["a"] }', "does not subscribe"),
    ],
)
async def test_what_the_storage_would_refuse_is_refused(tmp_path: Path, reservations: str, words: str) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", fake=fake):
        pass
    report = await tried(script(prepare=f"return {{ reservations: [{reservations}] }};", mutate=ADD), path, fake)
    [run] = report.new.runs
    assert run.failure is not None
    assert words in run.failure.message


async def test_two_versions_are_compared_on_the_same_events(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", "b", "c", "d", fake=fake):
        pass
    new = script(
        prepare="""const [first] = (await c.peek("in")).filter((each) => each.messageId !== "d");
        if (!first) return { reservations: [] };
        return { reservations: [{ topic: "in", ids: [first.messageId] }], data: { id: first.messageId } };""",
        mutate="""const { id } = prepared.data; if (id === "a") return;
        await c.fake.add({ text: id === "b" ? "other" : id });""",
    )
    report = await tried(new, path, fake, against="1.0")
    assert report.old is not None
    assert (report.old.version, report.new.version) == ("1.0", "new")
    found = compare(report.old, report.new)
    assert [(each.kind, each.events[0].message_id) for each in found] == [
        ("only old", "a"),
        ("changed", "b"),
        ("same", "c"),
        ("only old", "d"),
    ]
    back = compare(report.new, report.old)
    assert [each.kind for each in back] == ["only new", "changed", "same", "only new"]
    assert fake.calls == []


async def test_the_order_of_parameters_is_no_difference(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    one, other = 'target: "t", text: "x"', 'text: "x", target: "t"'
    async with waiting(path, "a", fake=fake, source=script(mutate=f"await c.fake.note({{ {one} }});")):
        pass
    report = await tried(script(mutate=f"await c.fake.note({{ {other} }});"), path, fake, against="1.0")
    assert report.old is not None
    assert [each.kind for each in compare(report.old, report.new)] == ["same"]


async def test_events_are_seen_by_their_ids_in_any_state_as_a_real_run_would(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    seen = 'console.log((await c.getByIds("in", ["b", "gone", "a", "x"])).map((e) => `${e.messageId} ${e.status}`));'
    async with waiting(path, "a", "b", "gone", fake=fake) as box:
        await box.keep.skip_event("flow", "in", "gone")
    report = await tried(script(prepare=seen + TAKE, mutate=ADD), path, fake)
    assert [run.logs for run in report.new.runs] == [
        ['["b pending","gone skipped","a pending"]'],
        ['["b pending","gone skipped","a consumed"]'],
    ]


async def test_a_producer_shows_what_it_would_publish(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    publishing = script(
        producer="""for (const id of ["taken", "waits", "fresh"]) {
          await c.publish("in", { messageId: id, title: `Event ${id}`, payload: { id } });
        }
        return { n: (state?.n ?? 0) + 1 };""",
        mutate=ADD,
    )
    first = script(producer='await c.publish("in", { messageId: "taken", title: "T" }); return { n: 41 };', mutate=ADD)
    async with waiting(path, "waits", fake=fake, source=first):
        pass
    before, reached = fingerprint(path), list(fake.calls)
    report = await tried(publishing, path, fake, producer="poll")
    assert [(each.message_id, each.arrival) for each in report.new.published] == [
        ("taken", "known"),
        ("waits", "replaces"),
        ("fresh", "new"),
    ]
    assert report.new.state is not None
    assert json.loads(bytes(report.new.state)) == {"n": 42}
    assert report.new.runs == []
    assert (fake.calls, fingerprint(path)) == (reached, before)


LOOKS = """const found = await c.fake.search({ query: "what is secret" }); const [e] = await c.peek("in");
  return { reservations: [{ topic: "in", ids: [e.messageId] }], data: { id: e.messageId, found } };"""


async def test_a_script_with_the_name_of_a_workflow_does_not_read_with_its_grants(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", fake=fake) as box:
        workflow_id = (await box.keep.workflow("flow")).id
    theirs = script(prepare=LOOKS, mutate=ADD)
    with pytest.raises(DeployRefused, match=r"the workflow 'flow' .* already exists.* `--workflow`"):
        await tried(theirs, path, fake, workflow=None)
    assert fake.calls == []
    assert calls(await tried(PLAIN, path, fake, workflow=None)) == [("fake.add", {"text": "a"}, "allowed")]
    assert calls(await tried(theirs, path, fake, workflow=workflow_id)) == [("fake.add", {"text": "a"}, "allowed")]


async def test_nor_does_one_by_another_author_though_the_workflow_is_named(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", fake=fake):
        pass
    [run] = (await tried(script(prepare=LOOKS, mutate=ADD), path, fake, author="mallory")).new.runs
    assert run.failure is not None
    assert (run.failure.cls, fake.calls) == (FailureClass.PERMISSION, [])
    report = await tried(script(prepare=LOOKS, mutate=ADD), path, fake, author="mallory", grants=["fake.search"])
    assert [verdict for _, _, verdict in calls(report)] == ["refused"]


async def test_what_cannot_be_dry_run_is_said(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    with_job = script(mutate=ADD, job='await c.withItem("i", "I", () => c.fake.add({ text: "x" }));')
    async with waiting(path, "a", fake=fake):
        pass
    report = await tried(with_job, path, fake)
    assert report.not_run == ["sweep"]
    assert len(calls(report)) == 1
    with pytest.raises(DryRunRefused, match="'sweep' is a job, and jobs are not dry-run"):
        await tried(with_job, path, fake, producer="sweep")
    with pytest.raises(DryRunRefused, match=r"no version 7\.3; there are: 1\.0"):
        await tried(PLAIN, path, fake, against="7.3")
    with pytest.raises(DryRunRefused, match="'x' is not a version"):
        await tried(PLAIN, path, fake, against="x")
    with pytest.raises(DryRunRefused, match="no workflow 'other', so nothing is pending for it; there are: 'flow'"):
        await tried(script(name="other", mutate=ADD), path, fake, workflow=None)
    with pytest.raises(DryRunRefused, match="no workflow 'gone', so nothing is pending for it; there are: 'flow'"):
        await tried(PLAIN, path, fake, workflow="gone")
    with pytest.raises(DeployRefused, match="the script is named 'other', but is deployed as workflow 'flow'"):
        await tried(script(name="other", mutate=ADD), path, fake)
    with pytest.raises(DeployRefused, match="does not exist here"):
        await tried(PLAIN.replace("hidden(ctx);", "ctx;", 1).replace("c.fake.add", "ctx.fake.ad"), path, fake)
    assert fake.effects == []


async def test_a_read_that_was_not_granted_is_not_made(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    reading = script(prepare='await c.fake.search({ query: "x" }); return { reservations: [] };', mutate=ADD)
    async with waiting(path, "a", fake=fake, source=reading, grants="explicit"):
        pass
    [run] = (await tried(reading, path, fake)).new.runs
    assert run.failure is not None
    assert run.failure.cls is FailureClass.PERMISSION
    assert fake.calls == []


async def test_the_policy_is_asked_too(tmp_path: Path) -> None:
    path, fake = tmp_path / "keep.db", Fake()
    async with waiting(path, "a", "b", fake=fake):
        pass
    all_at_once = (
        'const all = await c.peek("in"); return { reservations: [{ topic: "in", ids: all.map((e) => e.messageId) }] };'
    )
    report = await tried(script(prepare=all_at_once, mutate=ADD), path, fake, policy=Policy(reservations_max=1))
    [run] = report.new.runs
    assert run.failure is not None
    assert "1 are the most in one run" in run.failure.message


@pytest.mark.parametrize("phase", ScriptPhase)
@pytest.mark.parametrize("kind", [Kind.MUTATION, Kind.ITEM_OPEN, Kind.ITEM_CLOSE])
def test_no_request_reaches_a_mutation_even_if_a_worker_was_taken_over(phase: ScriptPhase, kind: Kind) -> None:
    """A script cannot send these; a worker that obeys somebody else can. A rehearsal ends where a run would write."""
    declaration = Declaration(name="w", topics=[], producers={}, consumers={}, jobs={})
    workflow = Workflow("w", "w", "UTC", WorkflowStatus.ACTIVE, "", None, None, False, None, None, "v", 0, 0, "", "")
    script, catalog = Script("v", "", declaration, []), Catalog([Fake()])
    facts = RunFacts("run", workflow, script, "h", HandlerKind.CONSUMER, Policy(), catalog)
    item = Item("w", "i", 1, "I", ItemState.PROCESSING, "run", True, "", 0, 0) if phase is ScriptPhase.ITEM else None
    state = RunState(
        At.IN_SCRIPT,
        Envelope([StoredGrant("w", 1, "fake.add", GrantPolicy.ALLOW, "{}", "", 0)]),
        phase=ScriptPhase.JOB if item is not None else phase,
        item=ItemInHand(item) if item is not None else None,
    )
    machine = RunMachine(facts, state, Ids(lambda: START, random.Random(7)), random.Random(7))
    name, params = ("fake.add", '{"text":"x"}') if kind is Kind.MUTATION else ("withItem", '{"id":"i","title":"I"}')
    effect = machine.on(ScriptAsked(Request(id=1, kind=kind, name=name, params=params)), START)
    closes_its_item = item is not None and kind is Kind.ITEM_CLOSE
    assert isinstance(effect, EndScript) or machine.state.at in SAVES or closes_its_item
    assert not isinstance(effect, CallMutation)
