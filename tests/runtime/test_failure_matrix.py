"""The matrix of `docs/failures.md`, row by row: each failure, wherever it can happen, and what follows from it.

What a runtime does is made to happen in one; what only the storage would take is said to the storage, in the words that
the runtime would use; what it refuses is refused here.
"""

import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from keep_actors import Backoff, Grant, Policy
from keep_actors.connectors import (
    AuthRequired,
    ConnectorBug,
    ConnectorError,
    InvalidCall,
    PermissionDenied,
    PreconditionFailed,
    Transient,
    Uncertain,
)
from keep_actors.kernel import VirtualTime
from keep_actors.run.failures import STATUS, Before, Failure, stop_for
from keep_actors.run.gate import ALLOWED, Ask, ScriptPhase
from keep_actors.sandbox_pool import Call, SandboxPool
from keep_actors.workflow.plan import PlannedStep, Rest, StartRetry, StartRun, plan
from keep_sandbox import Invocation
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import EngineCrash, Terminal, WorkerLost
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.model import FailureClass, HandlerKind, MutationStatus, Phase, Run, RunStatus
from tests.runtime.fakes import Fake, raises
from tests.runtime.test_repair_crashes import Machine, machine
from tests.runtime.world import DAY, SECOND, START, TAKE, TimedBox, script
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW
from tests.storage.world import World as Model

DOC = (Path(__file__).parents[2] / "docs" / "failures.md").read_text("utf-8")
HEAD = "| where | class | when | seen in | events | run | error | repair | next |"


class Cell(NamedTuple):
    """One row."""

    where: str
    cls: str
    when: str
    seen_in: str
    events: str
    run: str
    error: str
    repair: str
    next: str

    def __str__(self) -> str:
        return f"{self.cls} in {self.where}, {self.when}"


def cells() -> list[Cell]:
    lines = DOC.partition(f"{HEAD}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [Cell(*(each.strip().replace("`", "") for each in line.strip("|").split("|"))) for line in lines]


CELLS = cells()

PHASES: Mapping[str, Phase] = {
    "producer": Phase.PENDING,
    "preparing": Phase.PREPARING,
    "prepared": Phase.PREPARED,
    "mutating, before the call": Phase.MUTATING,
    "mutating, at the call": Phase.MUTATING,
    "mutating, failed call": Phase.MUTATED,
    "emitting, no mutation": Phase.EMITTING,
    "emitting, applied": Phase.EMITTING,
}
"""How far the run had come, in each place."""


def seen_in(*wanted: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cell", [each for each in CELLS if each.seen_in in wanted], ids=str)


# The table.


def test_no_cell_of_the_matrix_is_missing_or_there_twice() -> None:
    assert HEAD in DOC
    listed = [(each.where, each.cls, each.when) for each in CELLS]
    assert len(set(listed)) == len(listed)
    every = {(where, str(cls), "first") for where in PHASES for cls in FailureClass}
    tired = {(where, "transient", "last") for where in PHASES if where != "mutating, at the call"}
    assert set(listed) == every | tired | {("mutating, before the call", "permission", "asks")}
    assert {each.seen_in for each in CELLS} == {"run", "storage", "refused"}


def test_the_statuses_are_those_of_the_code() -> None:
    for cell in CELLS:
        if cell.seen_in != "refused" and cell.when == "first":
            assert cell.run == STATUS[FailureClass(cell.cls)]


def test_a_cell_that_no_runtime_reaches_is_one_whose_reason_holds() -> None:
    assert ALLOWED[ScriptPhase.NEXT] == {Ask.PUBLISH}, "so no connector can fail in `next`"
    unreached = {(each.where, each.cls) for each in CELLS if each.seen_in == "storage"}
    definite = set(map(str, FailureClass)) - {"indeterminate", "logic"}
    assert unreached == {
        *(("prepared", cls) for cls in (*definite, "logic")),
        *(("mutating, at the call", cls) for cls in definite),
        *(("emitting, no mutation", cls) for cls in ("auth", "permission", "precondition")),
        *(("emitting, applied", cls) for cls in ("auth", "permission")),
    }


def test_every_way_for_a_run_to_end_is_said_to_be_of_a_class() -> None:
    classes = DOC.partition("## The classes")[2].partition("## Trying again")[0]
    for name in (
        *(each.__name__ for each in ConnectorError.__subclasses__() if each.__module__ == ConnectorError.__module__),
        *("Uncertain", "ScriptError", "InvalidValue", "CpuLimit", "WallLimit", "MemoryLimit", "StackLimit"),
        *("CallLimit", "SizeLimit", "Deadlock", "WorkerLost", "EngineCrash", "JailViolation", "ProtocolViolation"),
    ):
        assert f"`{name}`" in classes, name
    assert [line.split("`")[1] for line in classes.splitlines() if line.startswith("| `")] == [
        *("transient", "logic", "auth", "permission", "precondition", "internal", "indeterminate")
    ]


# A runtime whose workers can be lost.


class Ended:
    """A call that has come to this end."""

    def __init__(self, call: Call, terminal: Terminal) -> None:
        self._call = call
        self._terminal = terminal
        self.answer = call.answer
        self.refuse = call.refuse

    @property
    def logs(self) -> list[str]:
        return self._call.logs

    @property
    def terminal(self) -> Terminal | None:
        return self._terminal

    async def next(self) -> Terminal:
        return self._terminal


First = Callable[[], Awaitable[object]]


class FrailPool(SandboxPool):
    """Scripts in threads, as always; what a thread cannot do, such as being killed, is done where a test says so."""

    ends: ClassVar[defaultdict[str, deque[Terminal]]]
    """By the address of the handler: how its next invocations end."""
    before: ClassVar[dict[str, First]]
    """What happens first when a handler is invoked, once."""

    @asynccontextmanager
    async def invoke(
        self, workflow_id: str, invocation: Invocation, limits: Limits | None = None, *, owner: str = ""
    ) -> AsyncIterator[Call]:
        if (first := self.before.pop(invocation.handler, None)) is not None:
            await first()
        ends = self.ends[invocation.handler]
        async with super().invoke(workflow_id, invocation, limits, owner=owner) as call:
            yield Ended(call, ends.popleft()) if ends else call


def frail() -> type[FrailPool]:
    """A pool for one test, whose plans can be made before it is opened."""

    class Frail(FrailPool):
        ends: ClassVar = defaultdict(deque)
        before: ClassVar = {}

    return Frail


# Making it happen.

ADD = "await ctx.fake.add({ text: prepared.data.id });"
READ = "await ctx.fake.search({});"
GET = 'await ctx.fake.get({ entryId: "x" });'
POLICY = Policy(retry=Backoff(jitter=0), mutate_reads="by_id")
TO_THE_LAST = (10 * SECOND, POLICY.give_up_after_ms - 10 * SECOND)
"""How long to wait for each further try, until the one that is made when a day has passed since the first."""
ATTEMPTS = 1 + len(TO_THE_LAST)

ERRORS: Mapping[str, Exception] = {
    "transient": Transient("no"),
    "logic": InvalidCall("no"),
    "auth": AuthRequired("no"),
    "permission": PermissionDenied("no"),
    "precondition": PreconditionFailed("no"),
    "internal": ConnectorBug("no"),
    "indeterminate": Uncertain("no"),
}

ENDS: Mapping[str, Terminal] = {"transient": WorkerLost(), "internal": EngineCrash(signal=11)}

NEXT = "return 1;"
PLACES: Mapping[str, tuple[str, str]] = {
    "producer": ("search", script(producer=READ)),
    "preparing": ("search", script(prepare=READ + TAKE, mutate=ADD, next_=NEXT)),
    "mutating, before the call": ("get", script(mutate=GET + ADD, next_=NEXT)),
    "mutating, at the call": ("add", script(mutate=ADD, next_=NEXT)),
    "mutating, failed call": ("add", script(mutate=ADD, next_=NEXT)),
    "emitting, no mutation": ("", script(next_=NEXT)),
    "emitting, applied": ("", script(mutate=ADD, next_=NEXT)),
}
"""Which method fails there, and the script that calls it. Without one, something fails in `next`."""


async def begun(box: TimedBox, cell: Cell, source: str) -> None:
    """The workflow, one event, and the failure, as often as the cell says."""
    grants = [Grant("fake.add", policy="ask")] if cell.when == "asks" else []
    await box.keep.deploy(source, grants=[*map(Grant, ("fake.search", "fake.get")), Grant("fake.add"), *grants])
    await box.publish("flow", "in", "a")
    await box.settle()
    for wait_ms in TO_THE_LAST if cell.when == "last" else ():
        await box.leap(wait_ms)


async def assert_is(box: TimedBox, cell: Cell) -> Run:
    """The run, its events and its workflow are where the row says they are."""
    handler = "poll" if cell.where == "producer" else "file"
    runs, workflow = await box.runs("flow", handler), await box.keep.workflow("flow")
    run = runs[-1]
    status, _, parked = cell.run.partition(", ")
    assert (run.status, run.phase, run.error_class) == (status, PHASES[cell.where], cell.cls)
    assert run.parked == (parked == "parked")
    assert str(workflow.error_class or "none") == cell.error
    assert (workflow.error != "", workflow.error_run_id) == ((True, run.id) if cell.error != "none" else (False, None))
    assert workflow.maintenance == (cell.repair == "yes")
    if cell.events != "none":
        assert await box.statuses("flow", "in") == {"a": cell.events}
    assert workflow.pending_retry_run_id == (run.id if cell.events == "reserved" and not parked else None)
    return run


async def assert_next_is(box: TimedBox, cell: Cell, mended: str) -> None:
    """What follows is that, at that time and not before, and it ends well."""
    how, _, then = cell.next.partition(", then ")
    handler = "poll" if cell.where == "producer" else "file"
    before = await box.runs("flow", handler)
    await box.advance(10 * SECOND - 1 if how == "+10 s" else DAY)
    assert len(await box.runs("flow", handler)) == len(before), "too early, or by itself"
    match how:
        case "+10 s":
            await box.advance(1)
        case "a person":
            await box.keep.clear_error("flow", by="ann")
        case "repair":
            await box.keep.deploy(mended, workflow="flow")
        case _:
            await answered(box, cell)
    await box.settle()
    after = (await box.runs("flow", handler))[len(before)]
    assert (after.status, after.retry_of) == ("committed", before[-1].id if then == "next" else None)
    if handler == "file":
        assert await box.statuses("flow", "in") == {"a": "consumed"}


async def answered(box: TimedBox, cell: Cell) -> None:
    if cell.when == "asks":
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="ann")
        return
    [doubt] = await box.keep.outputs("flow")
    await box.keep.resolve(doubt.mutation_id, "happened", by="ann", result={"id": "told", "text": "one"})


def planned(cell: Cell, fake: Fake, pool: type[FrailPool]) -> tuple[str, str]:
    """Let the failure of this cell come. Returns the script, and the one that mends it."""
    times = ATTEMPTS if cell.when == "last" else 1
    method, source = PLACES[cell.where]
    mended = f"{source}\n// mended"
    if cell.when == "asks":
        return source, mended
    if method:
        fake.plan(method, *[raises(ERRORS[cell.cls])] * times)
        return source, mended
    if cell.cls == "logic":
        return source.replace(NEXT, 'throw new Error("no");'), mended
    pool.ends["consumers.file.next"].extend([ENDS[cell.cls]] * times)
    return source, mended


@seen_in("run")
@pytest.mark.anyio
async def test_a_runtime_does_what_the_matrix_says(cell: Cell, tmp_path: Path) -> None:
    if (cell.where, cell.cls) == ("emitting, applied", "precondition"):
        await a_retry_without_its_connector(cell, tmp_path)
        return
    fake, pool = Fake(), frail()
    source, mended = planned(cell, fake, pool)
    async with machine(fake, policy=POLICY, pool=pool) as box:
        await begun(box, cell, source)
        await assert_is(box, cell)
        assert len(await box.keep.runs("flow")) == (ATTEMPTS if cell.when == "last" else 1)
        await assert_next_is(box, cell, mended)
        makes_calls = "fake.add" in source and cell.cls != "indeterminate"
        assert fake.texts == (["a"] if makes_calls else [])
        assert await box.broken() == []


async def a_retry_without_its_connector(cell: Cell, tmp_path: Path) -> None:
    """The one way to meet a precondition in `next`."""
    path, fake, pool = tmp_path / "keep.db", Fake(), frail()
    pool.ends["consumers.file.next"].append(WorkerLost())
    async with machine(fake, path=path, policy=POLICY, pool=pool) as box:
        await begun(box, cell, PLACES[cell.where][1])
    async with machine(path=path, policy=POLICY, time=VirtualTime(START + DAY)) as box:
        await box.settle()
        await assert_is(box, cell)
        [stopped] = [run for run in await box.runs("flow", "file") if run.error_class == cell.cls]
        await box.advance(DAY)
        await assert_is(box, cell)
    async with machine(fake, path=path, policy=POLICY, time=VirtualTime(START + 3 * DAY)) as box:
        await box.settle()
        assert cell.next == "the connector, then next"
        last = await box.last_run("flow", "file")
        assert (last.status, last.retry_of) == ("committed", stopped.id)
        assert (await box.statuses("flow", "in"), fake.calls) == ({"a": "consumed"}, ["add a"])
        assert await box.keep.attention() == []


# Said to the storage.


def stopped_there(model: Model, where: str) -> str:
    """An active run in this place, by hand. Returns its id."""
    match where:
        case "producer":
            return model.start("poll").id
        case "preparing":
            return model.start().id
        case "prepared":
            return model.prepared("a").id
        case "mutating, before the call":
            return model.mutating("a").id
        case "mutating, at the call":
            return model.sent("a", reconcilable=False).run_id
        case "mutating, failed call":
            mutation = model.sent("a")
            model.model.fail_mutation(mutation.id, "no")
            return mutation.run_id
        case "emitting, no mutation":
            return model.model.update_consumer_phase(model.prepared("a").id, Phase.EMITTING).id
        case _:
            return model.emitting("a").id


def alone(kind: HandlerKind) -> Model:
    """A workflow with one handler of this kind, and one event."""
    model = Model(deploy=False)
    version = model.name("ver")
    model.model.create_workflow(WORKFLOW, "Mail to rows")
    model.model.add_script_version(version, WORKFLOW, 1, 0, "")
    handler = next(each for each in HANDLERS if each.kind is kind)
    model.model.activate_script(version, TOPICS, (handler,))
    model.model.resume_workflow(WORKFLOW)
    model.publish("a")
    return model


def stop(model: Model, cell: Cell, run_id: str) -> Run:
    """Stop the run in the words that the runtime would use."""
    before = Before(1, model.clock.now - POLICY.give_up_after_ms) if cell.when == "last" else Before()
    failure = Failure(FailureClass(cell.cls), "no")
    said = stop_for(failure, before, POLICY, model.clock.now, random.Random(7))
    return model.model.update_handler_run_status(run_id, said.status, said.error, retry_at=said.retry_at)


def step(model: Model, now: int) -> PlannedStep:
    snapshot = reads.snapshot(model.store.queries(), WORKFLOW)
    assert snapshot is not None
    return plan(snapshot, now)


def unblock(model: Model, how: str, run: Run) -> int:
    """Let happen what the next step waits for. Returns the time at which it has."""
    now = model.clock.now
    match how:
        case "+10 s":
            waits = model.handler("file").retry_at
            assert waits == now - 1 + 10 * SECOND, "counted from when it was said"
            return waits
        case "a person":
            model.model.clear_workflow_error(WORKFLOW, by="ann")
        case "repair":
            model.model.exit_maintenance_mode(WORKFLOW)
        case _:
            [doubt] = reads.unsettled_mutations(model.store.queries(), WORKFLOW)
            model.model.update_mutation_status(doubt.id, MutationStatus.INDETERMINATE)
            with pytest.raises(Rejected) as refused:
                model.model.clear_workflow_error(WORKFLOW, by="ann")
            assert refused.value.reason is Reason.MUTATION_OUTCOME_UNKNOWN
            model.model.skip_mutation(doubt.id, by="ann")
            return model.handler("file").retry_at or now
    return now


@seen_in("storage")
def test_the_storage_takes_it_as_the_matrix_says(cell: Cell) -> None:
    model = alone(HandlerKind.CONSUMER)
    run = stop(model, cell, stopped_there(model, cell.where))
    workflow = model.workflow()
    assert (run.status, run.phase, run.error_class) == (cell.run, PHASES[cell.where], cell.cls)
    assert model.states() == {"a": cell.events}
    assert (str(workflow.error_class or "none"), workflow.maintenance) == (cell.error, cell.repair == "yes")
    assert workflow.pending_retry_run_id == (run.id if cell.events == "reserved" else None)
    how, _, then = cell.next.partition(", then ")
    assert isinstance(step(model, model.clock.now), Rest)
    now = unblock(model, how, run)
    expected = StartRetry(run.id, "file") if then == "next" else StartRun("file", "event")
    assert step(model, now) == expected
    model.check()


@seen_in("refused")
def test_the_storage_refuses_what_the_matrix_says_cannot_be(cell: Cell) -> None:
    model = alone(HandlerKind.PRODUCER if cell.where == "producer" else HandlerKind.CONSUMER)
    run_id = stopped_there(model, cell.where)
    with pytest.raises(Rejected) as refused:
        stop(model, cell, run_id)
    at_the_call = cell.where == "mutating, at the call"
    reason = Reason.UNKNOWN_OUTCOME_IS_NEVER_REPAIRED if at_the_call else Reason.MUTATION_OUTCOME_KNOWN
    assert refused.value.reason is reason
    assert f"`{reason}`" in DOC
    assert model.run(run_id).status is RunStatus.ACTIVE
    model.check()


def test_a_run_that_a_crash_finds_prepared_lets_go_of_its_events_and_counts_as_no_failure() -> None:
    model = alone(HandlerKind.CONSUMER)
    run_id = stopped_there(model, "prepared")
    model.model.recover_crashed_runs()
    assert (model.run(run_id).status, model.states(), model.handler("file").failures) == (
        "crashed",
        {"a": "pending"},
        0,
    )
    assert step(model, model.clock.now) == StartRun("file", "event")


# Definite failures of a mutation.

DEFINITE = [str(cls) for cls in FailureClass if cls is not FailureClass.INDETERMINATE]


@pytest.mark.anyio
@pytest.mark.parametrize("cls", DEFINITE)
async def test_an_approved_call_that_definitely_fails_says_why_before_the_question_is_asked_again(cls: str) -> None:
    fake = Fake()
    fake.plan("add", raises(ERRORS[cls]))
    async with machine(fake, policy=POLICY) as box:
        await box.keep.deploy(PLACES["mutating, failed call"][1], grants=[Grant("fake.add", policy="ask")])
        await box.publish("flow", "in", "a")
        await box.settle()
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="ann")
        await box.settle()
        workflow = await box.keep.workflow("flow")
        waits = cls != "transient"
        assert str(workflow.error_class or "none") == (cls if waits else "none")
        assert len(await box.keep.approvals()) == (0 if waits else 1)
        if waits:
            assert workflow.error.endswith("fake.add: no")
            assert [(each.kind, each.words) for each in await box.keep.attention()] == [("error", workflow.error)]
            assert await box.statuses("flow", "in") == {"a": "pending"}
            await box.keep.clear_error("flow", by="ann")
            await box.settle()
        [again] = await box.keep.approvals()
        await box.keep.approve(again.approval_id, by="ann")
        await box.settle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})
        assert await box.broken() == []


@pytest.mark.anyio
async def test_a_workflow_that_is_archived_while_an_approved_call_fails_still_knows_that_it_failed() -> None:
    fake = Fake()
    call = fake.hang("add", raises(AuthRequired("no")))
    async with machine(fake) as box:
        source = PLACES["mutating, failed call"][1]
        deployed = await box.keep.deploy(source, grants=[Grant("fake.add", policy="ask")])
        await box.publish("flow", "in", "a")
        await box.settle()
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="ann")
        await call.reached.wait()
        await box.keep.archive("flow", by="ann")
        call.release()
        await box.settle()
        [output] = await box.keep.outputs(deployed.workflow_id)
        assert output.status is MutationStatus.FAILED


# A person who pauses is no failure.


async def assert_nothing_failed(box: Machine, *, stopped: int = 0) -> None:
    """Nothing is counted. A run that a person has stopped ends its session, as every run does that does not commit."""
    workflow = await box.keep.workflow("flow")
    assert (workflow.status, workflow.error, workflow.maintenance) == ("paused", "", False)
    handler = await box.reading.read(lambda q: reads.handler(q, workflow.id, "file"))
    assert handler is not None
    assert (handler.failures, handler.retry_at) == (0, None)
    sessions = await box.reading.read(lambda q: reads.sessions(q, workflow.id))
    assert [each.result for each in sessions if each.result != "completed"] == ["failed"] * stopped


PAUSED_AT: Mapping[str, list[str]] = {"search": ["search"], "get": ["search", "get x"]}
"""The read that is on its way when a person pauses, in `prepare` or in `mutate`, and the calls until then."""


@pytest.mark.anyio
@pytest.mark.parametrize("method", PAUSED_AT)
async def test_a_run_that_reads_when_a_person_pauses_stops_at_its_next_call_and_has_not_failed(method: str) -> None:
    fake = Fake()
    call = fake.hang(method)
    async with machine(fake, policy=POLICY) as box:
        await box.keep.deploy(script(prepare=READ + TAKE, mutate=GET + ADD, next_=NEXT))
        await box.publish("flow", "in", "a", "b")
        await call.reached.wait()
        await box.keep.pause("flow", by="ann")
        call.release()
        await box.settle()
        [run] = await box.keep.runs("flow")
        assert (run.status, run.phase, fake.calls) == ("paused:transient", "mutating", PAUSED_AT[method])
        assert "stopped before its next call: the workflow was paused" in run.error_message
        await assert_nothing_failed(box, stopped=1)
        assert await box.statuses("flow", "in") == {"a": "pending", "b": "pending"}
        assert await box.keep.attention() == []
        await box.keep.resume("flow", by="ann")
        await box.settle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a", "b"], {"a": "consumed", "b": "consumed"})


@pytest.mark.anyio
async def test_a_mutation_that_is_on_its_way_when_a_person_pauses_comes_to_its_end_with_next() -> None:
    fake = Fake()
    call = fake.hang("add")
    async with machine(fake, policy=POLICY) as box:
        await box.keep.deploy(script(prepare=READ + TAKE, mutate=GET + ADD, next_=NEXT))
        await box.publish("flow", "in", "a", "b")
        await call.reached.wait()
        await box.keep.pause("flow", by="ann")
        call.release()
        await box.settle()
        assert [run.status for run in await box.keep.runs("flow")] == ["committed"]
        await assert_nothing_failed(box)
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "pending"}
        await box.keep.resume("flow", by="ann")
        await box.settle()
        assert fake.texts == ["a", "b"]


@pytest.mark.anyio
@pytest.mark.parametrize("phase", ["prepare", "mutate"])
async def test_a_run_that_only_computes_when_a_person_pauses_leaves_nothing_behind(phase: str) -> None:
    fake, pool = Fake(), frail()
    async with machine(fake, policy=POLICY, pool=pool) as box:
        pool.before[f"consumers.file.{phase}"] = lambda: box.keep.pause("flow", by="ann")
        await box.keep.deploy(script(mutate=ADD, next_=NEXT))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert (await box.keep.runs("flow"), fake.calls) == ([], [])
        await assert_nothing_failed(box)
        assert await box.statuses("flow", "in") == {"a": "pending"}
        await box.keep.resume("flow", by="ann")
        await box.settle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


@pytest.mark.anyio
async def test_a_next_that_runs_when_a_person_pauses_commits() -> None:
    fake, pool = Fake(), frail()
    async with machine(fake, policy=POLICY, pool=pool) as box:
        pool.before["consumers.file.next"] = lambda: box.keep.pause("flow", by="ann")
        await box.keep.deploy(script(mutate=ADD, next_=NEXT))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert [run.status for run in await box.keep.runs("flow")] == ["committed"]
        await assert_nothing_failed(box)
        assert fake.texts == ["a"]
