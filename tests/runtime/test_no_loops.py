"""What fails comes to rest: so many runs and no more, and a workflow that waits does nothing at all meanwhile."""

import gc
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import pytest

import keep_actors
from keep_actors import Backoff, Grant, Keep, Policy, Rejected
from keep_actors.connectors import AuthRequired, Transient, Uncertain
from keep_actors.maintenance import Proposal, RepairFailed, RepairTask
from keep_actors.run.failures import Failure
from keep_storage.model import FailureClass
from tests.runtime.fakes import Fake, raises
from tests.runtime.test_failures import retries
from tests.runtime.test_repair_crashes import machine
from tests.runtime.world import DAY, MINUTE, SECOND, TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"
READ = "await c.fake.search({});"
STEADY: Final = Policy(retry=Backoff(jitter=0))
"""The policy that there is unless told otherwise, without its dice."""
TRIES: Final = len(retries(STEADY, Failure(FailureClass.TRANSIENT, "503")))
"""How often a handler is tried in the day after which a person is asked."""
BUDGET: Final = Policy().repairs_max


class Tinker:
    """A maintainer whose repairs change something, and never what is wrong."""

    is_automatic = True

    def __init__(self) -> None:
        self.tasks: list[RepairTask] = []

    async def repair(self, task: RepairTask) -> Proposal:
        self.tasks.append(task)
        return Proposal(f"{task.source}\n// repair {len(self.tasks)}", "safe")


# Always failing, whatever starts it.

WRONG: Mapping[str, str] = {"transient": READ, "logic": "null.x;"}
"""What goes wrong in a handler: a call that always fails, or the script."""

Poke = Callable[[TimedBox], Awaitable[object]]


async def nothing(box: TimedBox) -> None:
    await box.settle()


async def publish_more(box: TimedBox) -> None:
    await box.publish("flow", "in", f"more-{box.time.now()}")


async def run_now(box: TimedBox) -> None:
    try:
        await box.keep.run_now("flow")
    except Rejected:
        await box.settle()


TRIGGERS: Mapping[str, tuple[str, Poke]] = {
    "event": ("file", publish_more),
    "schedule": ("poll", nothing),
    "wakeAt": ("file", nothing),
    "run_now": ("poll", run_now),
    "job": ("sweep", nothing),
}
"""The handler that fails, and what tempts it to run again, every minute."""


def failing(trigger: str, wrong: str) -> str:
    every_minute = '{ interval: "1m" }'
    match trigger:
        case "event":
            return script(prepare=wrong + TAKE)
        case "wakeAt":
            asleep = "if (!state) return { reservations: [], wakeAt: new Date(Date.now() + 30000).toISOString() };"
            return script(prepare=asleep + wrong, next_="return 1;")
        case "job":
            return script(job=wrong, schedule=every_minute)
        case _:
            return script(producer=wrong, schedule=every_minute)


async def failed(box: TimedBox, handler: str) -> int:
    """How many runs of the handler have failed, of all that there are."""
    runs, before = 0, None
    while page := await box.keep.runs("flow", limit=1000, before=before):
        runs += sum(run.handler == handler and run.status != "committed" for run in page)
        before = page[-1].id
    return runs


async def go_on(box: TimedBox, poke: Poke, *steps_ms: int) -> None:
    for each in steps_ms:
        await poke(box)
        await box.advance(each)


A_DAY: Final = (*[MINUTE] * 60, *[10 * MINUTE] * 144)
"""The steps in which a day passes, and a little more."""


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_a_workflow_that_always_fails_makes_so_many_runs_and_no_more(trigger: str, wrong: str) -> None:
    handler, poke = TRIGGERS[trigger]
    fake, tinker = Fake(), Tinker()
    fake.plan("search", *[raises(Transient("503"))] * 1000)
    async with world(fake, maintainer=tinker, policy=STEADY) as box:
        await box.keep.deploy(failing(trigger, WRONG[wrong]))
        if trigger in ("event", "wakeAt"):
            await box.publish("flow", "in", "one")
        await go_on(box, poke, *A_DAY)
        runs = await failed(box, handler)
        if wrong == "logic":
            assert (runs, len(tinker.tasks)) == (1 + BUDGET, BUDGET)
        else:
            # Who wants a run now has one, until the workflow stops; the clock makes no more than it would by itself.
            wished = len(A_DAY) if trigger == "run_now" else 0
            assert TRIES * 0.9 < runs <= TRIES + wished
            assert tinker.tasks == []
        await go_on(box, poke, *[DAY] * 10)
        assert await failed(box, handler) == runs
        needs = [each.kind for each in await box.keep.attention()]
        old = ["stale"] if trigger in ("event", "wakeAt") else []
        assert needs == ["error" if wrong == "transient" else "maintenance", *old]


async def test_a_workflow_that_fails_now_so_now_otherwise_is_bounded_too() -> None:
    fake, tinker = Fake(), Tinker()
    source = script(prepare='if ((await c.fake.get({ entryId: "x" })) === null) null.x;')
    fake.plan("get", *([raises(Transient("503"))] * 4 + [answers_nothing]) * 100)
    async with world(fake, maintainer=tinker, policy=STEADY) as box:
        await box.keep.deploy(source)
        await box.publish("flow", "in", "one")
        await go_on(box, nothing, *A_DAY)
        assert (await failed(box, "file"), len(tinker.tasks)) == (5 * (1 + BUDGET), BUDGET)
        await go_on(box, nothing, *[DAY] * 3)
        assert await failed(box, "file") == 5 * (1 + BUDGET)


async def test_a_repair_does_not_give_a_handler_another_day() -> None:
    fake, tinker = Fake(), Tinker()
    source = script(prepare='if ((await c.fake.get({ entryId: "x" })) === null) null.x;')
    fake.plan("get", *([raises(Transient("503"))] * 100 + [answers_nothing]) * 100)
    async with world(fake, maintainer=tinker, policy=STEADY) as box:
        await box.keep.deploy(source)
        await box.publish("flow", "in", "one")
        await go_on(box, nothing, *A_DAY)
        assert len(tinker.tasks) == 1
        assert await failed(box, "file") <= TRIES + 1
        assert [each.kind for each in await box.keep.attention()] == ["error"]


async def answers_nothing(_: object) -> None:
    """There is no such entry."""


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_deploy_of_the_same_script_is_a_wish_for_one_more_try_and_not_for_another_day(wrong: str) -> None:
    fake = Fake()
    fake.plan("search", *[raises(Transient("503"))] * 1000)
    source = script(prepare=WRONG[wrong] + TAKE)
    async with world(fake, policy=STEADY) as box:
        await box.keep.deploy(source)
        await box.publish("flow", "in", "one")
        await box.settle()
        for tries in range(1, 4):
            before = len(await box.keep.runs("flow"))
            assert (await box.keep.deploy(source)).version == "1.0"
            await box.settle()
            # What waits for its backoff is not hurried; what waits for a script has been given one.
            assert len(await box.keep.runs("flow")) - before == (1 if wrong == "logic" else 0), tries
        await go_on(box, nothing, *A_DAY)
        runs = await failed(box, "file")
        assert runs == 4 if wrong == "logic" else TRIES * 0.9 < runs <= TRIES
        assert [each.kind for each in await box.keep.attention()] == ["maintenance" if wrong == "logic" else "error"]


# Waiting.

STATES: Final = (
    *("error", "maintenance", "paused", "approval", "proposal", "uncertain", "halted", "tired", "backoff"),
)
POLICIES: Final[Mapping[str, Policy]] = {
    "maintenance": Policy(repairs_max=0),
    "halted": Policy(repairs_max=1),
    "tired": Policy(retry=Backoff(attempts_max=1)),
    "backoff": Policy(retry=Backoff(first_ms=10 * MINUTE)),
}


class Foreman:
    """Has a proposal for the one, and none for the other."""

    is_automatic = True

    async def repair(self, task: RepairTask) -> Proposal:
        if task.workflow_name != "proposal":
            raise RepairFailed("no idea")
        return Proposal(f"{task.source}\n// mended", "potentially_impactful")


BESIDE: Final = ("approval", "backoff")
"""What waits beside its workflow: the rest of that goes on."""


async def bring(keep: Keep, fake: Fake, state: str, *, producer: str | None = None) -> None:
    """A workflow of that name, in that state; where nothing is to run, there is a producer that would like to, every
    ten seconds."""
    prepare = "null.x;" if state in ("maintenance", "proposal", "halted") else TAKE
    if producer is None:
        producer = "return 1;" if state not in BESIDE else ""
    source = script(name=state, prepare=prepare, producer=producer, mutate=ADD, schedule='{ interval: "10s" }')
    await keep.deploy(
        source, grants=[Grant("fake.add", policy="ask" if state == "approval" else "allow")], workflow=state
    )
    match state:
        case "error":
            fake.plan("add", raises(AuthRequired("sign in")))
        case "uncertain":
            fake.plan("add", raises(Uncertain("lost")))
        case "tired" | "backoff":
            fake.plan("add", raises(Transient("503")))
        case "paused":
            await keep.pause(state)
        case _:
            pass
    await keep.publish(state, "in", message_id="one", title="One")
    await keep.wait_idle()


async def assert_is(keep: Keep, state: str) -> None:
    """It is where it was to be brought."""
    workflow = await keep.workflow(state)
    kinds = [each.kind for each in await keep.attention() if each.workflow == state]
    expected = {
        "error": ["error"],
        "maintenance": ["maintenance"],
        "approval": ["approval"],
        "proposal": ["repair"],
        "uncertain": ["unknown"],
        "halted": ["maintenance"],
        "tired": ["error"],
    }.get(state, [])
    assert kinds == expected
    assert (workflow.status == "paused") == (state == "paused")
    assert workflow.maintenance == (state in ("maintenance", "proposal", "halted"))


@pytest.mark.parametrize("state", STATES)
async def test_what_waits_runs_nothing_and_writes_nothing(state: str) -> None:
    fake = Fake()
    async with machine(fake, maintainer=Foreman(), policies=POLICIES) as box:
        await bring(box.keep, fake, state)
        await assert_is(box.keep, state)
        runs, commits, calls = len(await box.keep.runs(state)), box.commits, list(fake.calls)
        for _ in range(300):
            await box.advance(SECOND // 5)
        assert len(await box.keep.runs(state)) == runs
        assert (box.commits, fake.calls) == (commits, calls)
        await assert_is(box.keep, state)


@pytest.mark.parametrize("state", BESIDE)
async def test_beside_what_waits_for_its_own_sake_the_rest_of_the_workflow_runs(state: str) -> None:
    fake = Fake()
    async with machine(fake, maintainer=Foreman(), policies=POLICIES) as box:
        await bring(box.keep, fake, state, producer="return 1;")
        await assert_is(box.keep, state)
        for _ in range(6):
            await box.advance(10 * SECOND)
        assert len(await box.runs(state, "poll")) == 7
        assert len(await box.runs(state, "file")) == 1
        await assert_is(box.keep, state)


async def test_what_waits_writes_nothing_either_when_it_is_told_of_what_it_cannot_do_yet() -> None:
    fake = Fake()
    async with machine(fake, maintainer=Foreman(), policies=POLICIES) as box:
        for state in STATES:
            await bring(box.keep, fake, state)
        for state in STATES:
            runs, commits = len(await box.keep.runs(state)), box.commits
            await box.keep.publish(state, "in", message_id="two", title="Two")
            await box.settle()
            # To ask is something that it can do: the question is about the event that is new.
            asks = int(state == "approval")
            assert (len(await box.keep.runs(state)), box.commits) == (runs + asks, commits + 1 + asks), state


QUIET_S: Final = 5


async def resting(keep: Keep) -> float:
    """How much of a core the process uses while nothing is asked of it."""
    await keep.wait_idle()
    gc.collect()
    # The one place where real time has to pass: what is measured is what happens when nothing should.
    began = time.process_time()
    await anyio.sleep(QUIET_S)
    return (time.process_time() - began) / QUIET_S


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_waits_costs_nothing_in_real_time() -> None:
    async with keep_actors.open(":memory:", sandbox="thread") as keep:
        empty = await resting(keep)
    fake = Fake()
    async with keep_actors.open(
        ":memory:",
        connectors=[fake],
        sandbox="thread",
        maintainer=Foreman(),
        policies=POLICIES,
        rng=random.Random(7),
    ) as keep:
        for state in STATES:
            await bring(keep, fake, state)
        runs = {state: len(await keep.runs(state)) for state in STATES}
        blocked = await resting(keep)
        for state in STATES:
            await assert_is(keep, state)
        assert {state: len(await keep.runs(state)) for state in STATES} == runs
    print(f"of a core: {blocked:.4%} with {len(STATES)} workflows that wait, {empty:.4%} with none")  # noqa: T201
    assert blocked - empty < 0.01
