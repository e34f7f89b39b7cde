"""Actors that crash at any point, disks that fail for a while, and runtimes that end: nothing is lost or repeated.

The world here is put together from the parts of a runtime, so that its doors to the storage can be struck by
lightning: before an operation, or after it is durable and before anybody has heard.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import anyio
import pytest
from anyio.lowlevel import checkpoint

from keep_actors import Connector, Keep
from keep_actors.connectors import Catalog, Transient, Uncertain
from keep_actors.host.reading_actor import ReadingActor, ReadingRef
from keep_actors.host.storage_actor import Apply, StorageActor, StorageRef
from keep_actors.kernel import ActorDied, ActorStopped, Escalated, RestartPolicy, VirtualTime
from keep_actors.permissions import Grant
from keep_actors.runtime.assembly import assemble
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.testing import Box
from keep_actors.workflow.messages import Advance, Ended, Message
from keep_storage import Store, invariants, reads
from keep_storage.errors import Rejected, StorageLost, StorageOwned, StorageUnavailable
from keep_storage.model import Event, MutationStatus, RunStatus
from keep_storage.operations import (
    ApplyMutation,
    CreateMutation,
    CreateRun,
    CreateSession,
    Operation,
    OperationOutcome,
    PublishEvents,
    Together,
)
from keep_storage.transaction import Queries
from tests.runtime.fakes import Attempt, Fake, Hang, applies_and_raises, raises
from tests.runtime.world import DAY, MINUTE, START, Opened, TimedBox, left_in, opened, script, world

pytestmark = pytest.mark.anyio

A = TypeVarTuple("A")
R = TypeVar("R")
T = TypeVar("T")

SEEDS = range(24)


class Crash(Exception):
    """What strikes an actor."""


Strike = Callable[[Operation[Any] | None], None]
"""Called around everything that is asked of the storage, with the operation if it is one. May raise."""


def calm(_: Operation[Any] | None) -> None:
    """Nothing strikes."""


class Lightning:
    """Strikes at random, while it is on."""

    def __init__(self, seed: int, share: float) -> None:
        self.on = False
        self.strikes = 0
        self._rng = random.Random(seed)
        self._share = share

    def __call__(self, _: Operation[Any] | None) -> None:
        if self.on and self._rng.random() < self._share:
            self.strikes += 1
            raise Crash


class StruckStorage(StorageRef):
    """The way to the storage. After a strike nobody knows whether the operation is durable."""

    __slots__ = ("_strike",)

    def __init__(self, actor: StorageActor, strike: Strike) -> None:
        super().__init__(actor)
        self._strike = strike

    async def apply(self, operation: Operation[T]) -> T:
        self._strike(operation)
        answer = await super().apply(operation)
        self._strike(operation)
        return answer

    def pass_on(self, question: Apply[Any]) -> None:
        self._strike(question.operation)
        super().pass_on(StruckStep(question, self._strike))


class StruckStep(Apply[Any]):
    """A step of a run on its way. A strike after it kills the run, and with it the actor."""

    def __init__(self, step: Apply[Any], strike: Strike) -> None:
        super().__init__(step.operation)
        self._step = step
        self._strike = strike

    def answer(self, value: Any) -> None:
        super().answer(value)
        try:
            self._strike(self.operation)
        except Crash as crash:
            self._step.fail(crash)
        else:
            self._step.answer(value)

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._step.fail(error)


class StruckReading(ReadingRef):
    """The way to the reader. `heard` is awaited with every answer before the asker has it."""

    __slots__ = ("_heard", "_strike")

    def __init__(self, actor: ReadingActor, strike: Strike, heard: "Heard | None") -> None:
        super().__init__(actor)
        self._strike = strike
        self._heard = heard

    async def read(self, function: Callable[[Queries], T]) -> T:
        self._strike(None)
        answer = await super().read(function)
        if self._heard is not None:
            await self._heard(answer)
        self._strike(None)
        return answer


Heard = Callable[[Any], Awaitable[None]]


class UnsteadyStore:
    """A real store. Before a commit, `weather` may raise what a disk would."""

    def __init__(self, store: Store) -> None:
        self.weather: Callable[[Sequence[Operation[Any]]], None] = lambda _: None
        self._store = store

    def commit(self, batch: Sequence[Operation[Any]], /) -> Sequence[OperationOutcome]:
        self.weather(batch)
        return self._store.commit(batch)


class HastyTime(VirtualTime):
    """A time that does not wait for what is less than a minute away: a backoff takes no time at all."""

    async def sleep_until(self, at: int) -> None:
        await checkpoint()
        if self.now() < at < self.now() + MINUTE:
            self.advance_to(at)
        await super().sleep_until(at)


class Here:
    """Blocking work is done on the spot, others may run before it. So on asyncio a seed always tells the same story."""

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        await checkpoint()
        return function(*arguments)

    async def __call__(self, function: Callable[[], R], /) -> R:
        return await self.run(function)


class Assembly(Opened):
    """A world whose parts are at hand. What its own words ask of the storage is not struck."""

    def __init__(self, keep: Keep, time: VirtualTime, storage: StorageRef, reading: ReadingRef) -> None:
        super().__init__(keep, time)
        self.storage = storage
        self.reading = reading

    async def settle(self) -> None:
        """Let everything happen that is due now, or so soon that this time does not wait for it."""
        before = None
        while before != self.time.now():
            before = self.time.now()
            await super().settle()
            for _ in range(10):
                # The clock goes to sleep, and time moves on if that is not for long.
                await checkpoint()

    async def broken(self) -> list[invariants.Broken]:
        return await self.reading.read(lambda q: invariants.check(q, deep=True))


@asynccontextmanager
async def assembled(
    *connectors: Connector,
    strike: Strike = calm,
    heard: Heard | None = None,
    weather: Callable[[Sequence[Operation[Any]]], None] | None = None,
    restart: RestartPolicy | None = None,
    grace_ms: int = 10_000,
) -> AsyncIterator[Assembly]:
    """What `keep_actors.open` puts together, in memory."""
    time, here = HastyTime(START), Here()
    with Store.in_memory(time.now) as store:
        unsteady = UnsteadyStore(store)
        unsteady.weather = weather or unsteady.weather
        async with SandboxPool.open(mode="thread", run_sync=here) as pool:
            runtime = assemble(
                unsteady,
                store.reader(),
                pool,
                Catalog(connectors),
                time=time,
                rng=random.Random(7),
                thread=here,
                reading_thread=here,
                grants="all",
                restart=restart,
            )
            storage, reading = runtime.core.storage, runtime.core.reading
            runtime.host.storage = StruckStorage(storage, strike)
            runtime.host.reading = StruckReading(reading, strike, heard)
            async with runtime.running(grace_ms) as keep:
                yield Assembly(keep, time, storage.ref, reading.ref)


Ask = Callable[[], Awaitable[object]]


async def insist(ask: Ask) -> None:
    """Ask until it is answered. For what may be asked twice."""
    while True:
        try:
            await ask()
            return
        except (Crash, ActorDied, StorageUnavailable):
            await checkpoint()


def parts(operation: Operation[Any] | None) -> Sequence[Operation[Any]]:
    """An operation, or those that it is made of."""
    if operation is None:
        return ()
    return operation.operations if isinstance(operation, Together) else (operation,)


# Anywhere, at random.

TWO_STEPS = """
export default Keep.workflow({
  name: "flow",
  topics: { in: {}, out: {} },
  producers: {
    poll: {
      schedule: { interval: "30d" },
      async handler(ctx) {
        for (const id of await ctx.fake.search({}))
          await ctx.publish("in", { messageId: id, title: `Event ${id}`, payload: id });
      },
    },
  },
  consumers: {
    copy: Keep.consumer({
      subscribe: ["in"],
      async prepare(ctx) {
        const pending = await ctx.peek("in", { limit: 2 });
        const ids = pending.map((event) => event.messageId);
        return { reservations: ids.length ? [{ topic: "in", ids }] : [], data: ids };
      },
      async next(ctx, prepared) {
        for (const id of prepared.data)
          await ctx.publish("out", { messageId: id, title: `Copy of ${id}`, payload: id });
      },
    }),
    file: Keep.consumer({
      subscribe: ["out"],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("out");
        if (!event) return { reservations: [] };
        return { reservations: [{ topic: "out", ids: [event.messageId] }], data: { id: event.payload, state } };
      },
      async mutate(ctx, prepared) { await ctx.fake.add({ text: prepared.data.id }); },
      async next(ctx, prepared) { return (prepared.data.state ?? 0) + 1; },
    }),
  },
});
"""


def slow(seed: int, *polled: str) -> Fake:
    """Takes its time, before and after what it does: whoever is cancelled may be cancelled at either side of it."""
    fake, rng = Fake(), random.Random(seed)

    async def dawdle() -> None:
        for _ in range(rng.randint(0, 12)):
            await checkpoint()

    async def step(attempt: Attempt) -> Any:
        await dawdle()
        result = attempt.do()
        await dawdle()
        return result

    fake.answer("search", list(polled))
    fake.otherwise = lambda _: step
    return fake


async def questions(box: Assembly, fake: Fake) -> list[Ask]:
    """What a person who can look outside answers to all that waits for one: yes, and the truth."""
    keep, workflow = box.keep, await box.keep.workflow("flow")
    unsettled = await box.reading.read(lambda q: reads.unsettled_mutations(q, workflow.id))
    answers: list[Ask] = [partial(keep.approve, each.approval_id, by="ann") for each in await keep.approvals("flow")]
    for doubt in (each for each in unsettled if each.status is MutationStatus.INDETERMINATE):
        [held] = (await keep.explain(doubt.run_id)).selected
        assert held.status == "reserved"
        if held.message_id in fake.texts:
            entry = {"id": held.message_id, "text": held.message_id}
            answers.append(partial(keep.resolve, doubt.id, "happened", by="ann", result=entry))
        else:
            answers.append(partial(keep.resolve, doubt.id, "did_not_happen", by="ann"))
    assert len(answers) == len(unsettled), "what is not settled waits for a person"
    return answers


class Story:
    """What happens to one workflow while lightning strikes, to its end."""

    def __init__(self, box: Assembly, fake: Fake, lightning: Lightning) -> None:
        self._box = box
        self._fake = fake
        self._lightning = lightning

    async def begin(self, *people: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """They act at once, and the workflow comes to rest."""
        self._lightning.on = True
        async with anyio.create_task_group() as tasks:
            for each in people:
                tasks.start_soon(each)
        await persist(lambda: self._box.keep.resume("flow"))
        await self._rest()

    async def end(self) -> None:
        """Answer until nothing is asked any more. It still strikes, though not for ever."""
        rounds = 0
        while answers := await questions(self._box, self._fake):
            rounds += 1
            self._lightning.on = rounds < 20
            for answer in answers:
                await persist(answer)
            await self._rest()
        workflow = await self._box.keep.workflow("flow")
        assert (workflow.status, workflow.error, workflow.maintenance) == ("active", "", False)
        sessions = await self._box.reading.read(lambda q: reads.sessions(q, workflow.id, limit=1000))
        assert [session for session in sessions if session.ended_at is None] == []
        runs = await self._box.keep.runs("flow", limit=1000)
        assert [run for run in runs if run.status is RunStatus.ACTIVE] == []

    async def _rest(self) -> None:
        await self._box.settle()
        self._lightning.on = False
        assert await self._box.broken() == []


async def persist(ask: Ask) -> None:
    """Insist, and take a no for an answer: it may have been heard the first time."""

    async def ask_once() -> None:
        try:
            await ask()
        except Rejected:
            await checkpoint()

    await insist(ask_once)


# It may crash as often as it likes: giving up is for another test.
NEVER_GIVE_UP = RestartPolicy(restarts_max=10**6)


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_actor_that_crashes_anywhere_loses_nothing_and_repeats_nothing(seed: int) -> None:
    lightning = Lightning(seed, share=random.Random(seed).choice([0.1, 0.15, 0.2]))
    polled, published = ["p1", "p2"], ["e1", "e2", "e3", "e4"]
    fake = slow(seed, *polled)
    async with assembled(fake, strike=lightning, restart=NEVER_GIVE_UP) as box:
        await box.keep.deploy(TWO_STEPS)
        story = Story(box, fake, lightning)
        publishes = (partial(box.publish, "flow", "in", each, payload=each) for each in published)
        await story.begin(*(partial(insist, each) for each in publishes))
        await story.end()
        assert lightning.strikes > 0
        everything = {*polled, *published}
        for topic in ("in", "out"):
            assert await box.statuses("flow", topic) == dict.fromkeys(everything, "consumed")
        assert Counter(fake.texts) == Counter(everything)
        filed = [run for run in await box.runs("flow", "file") if run.status is RunStatus.COMMITTED]
        assert [run.output_state for run in filed] == [str(count) for count in range(1, len(everything) + 1)]


@pytest.mark.parametrize("seed", SEEDS[:8])
async def test_whatever_people_do_while_it_crashes_every_event_is_filed_once_or_skipped(seed: int) -> None:
    rng, lightning = random.Random(seed), Lightning(seed, share=0.05)
    fake = slow(seed, "p1", "p2")
    events = ["e1", "e2", "e3", "e4", "e5"]
    async with assembled(fake, strike=lightning, restart=NEVER_GIVE_UP) as box:
        keep = box.keep

        async def act(*asks: Ask) -> None:
            for ask in asks:
                for _ in range(rng.randint(0, 60)):
                    await checkpoint()
                await persist(ask)

        publishes = [partial(box.publish, "flow", "in", each, payload=each) for each in events]
        pauses = [partial(keep.pause, "flow"), partial(keep.resume, "flow")] * 4
        deploys = [partial(keep.deploy, f"{TWO_STEPS}// {version}", workflow="flow") for version in range(3)]
        skips = [partial(keep.skip_event, "flow", "in", each) for each in rng.sample(events, 3)]
        runs = [partial(keep.run_now, "flow")] * 3
        await keep.deploy(TWO_STEPS)
        story = Story(box, fake, lightning)
        await story.begin(*(partial(act, *asks) for asks in (publishes, pauses, deploys, skips, runs)))
        await story.end()
        came, copied = await box.statuses("flow", "in"), await box.statuses("flow", "out")
        assert set(came) == {"p1", "p2", *events}
        assert set(came.values()) <= {"consumed", "skipped"}
        assert copied == {each: "consumed" for each, status in came.items() if status == "consumed"}
        assert Counter(fake.texts) == Counter(copied.keys())


@pytest.mark.parametrize("seed", SEEDS[:8])
async def test_a_call_that_a_person_approves_while_it_crashes_is_made_once(seed: int) -> None:
    lightning, fake = Lightning(seed, share=0.08), slow(seed, "p1", "p2")
    async with assembled(fake, strike=lightning, restart=NEVER_GIVE_UP) as box:
        await box.keep.deploy(TWO_STEPS, grants=["fake.search", Grant("fake.add", "ask")])
        story = Story(box, fake, lightning)
        await story.begin(partial(insist, partial(box.publish, "flow", "in", "e1", payload="e1")))
        assert fake.texts == []
        await story.end()
        assert await box.statuses("flow", "out") == dict.fromkeys(["p1", "p2", "e1"], "consumed")
        assert Counter(fake.texts) == Counter(["p1", "p2", "e1"])


# Again and again.

FILE = """
export default Keep.workflow({
  name: "NAME",
  topics: { in: {}, out: {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["in"],
      async prepare(ctx) {
        const [event] = await ctx.peek("in");
        if (!event) return { reservations: [] };
        return { reservations: [{ topic: "in", ids: [event.messageId] }], data: event.payload };
      },
      async mutate(ctx, prepared) { await ctx.fake.add({ text: prepared.data }); },
      async next(ctx, prepared) {
        await ctx.publish("out", { messageId: prepared.data, title: `Filed ${prepared.data}` });
      },
    }),
  },
});
"""
"""Adds what is in `in`, and says so in `out`."""


def flow(name: str = "flow") -> str:
    return FILE.replace("NAME", name)


async def test_a_workflow_that_keeps_crashing_is_stopped_with_words_and_its_neighbours_are_not_disturbed() -> None:
    fake, attempts = Fake(), list[str]()
    struck: set[str] = set()

    def strike(operation: Operation[Any] | None) -> None:
        for part in parts(operation):
            if isinstance(part, CreateSession) and part.workflow_id in struck:
                attempts.append(part.workflow_id)
                raise Crash("the roof is gone")

    async with assembled(fake, strike=strike) as box:
        bad = (await box.keep.deploy(flow("bad"))).workflow_id
        await box.keep.deploy(flow("good"))
        struck.add(bad)
        for number in range(3):
            await box.publish("bad", "in", f"b{number}", payload=f"b{number}")
            await box.publish("good", "in", f"g{number}", payload=f"g{number}")
        await box.settle()
        assert fake.texts == ["g0", "g1", "g2"]
        stopped, fine = await box.keep.workflow("bad"), await box.keep.workflow("good")
        assert "keeps failing" in stopped.error
        assert "Crash: the roof is gone" in stopped.error
        assert (fine.error, stopped.status, stopped.error_class) == ("", "active", "internal")
        assert len(attempts) == 6, "once, and five restarts"
        assert set((await box.statuses("bad", "in")).values()) == {"pending"}
        await box.advance(DAY)
        await box.publish("bad", "in", "b3", payload="b3")
        await box.settle()
        assert len(attempts) == 6
        struck.clear()
        assert (await box.keep.clear_error("bad", by="ann", why="a new roof")).error == ""
        await box.settle()
        assert fake.texts == ["g0", "g1", "g2", "b0", "b1", "b2", "b3"]
        assert await box.broken() == []


async def test_the_doubt_of_a_workflow_that_kept_crashing_is_still_looked_into() -> None:
    fake, struck = Fake(), list[str]()
    is_bad = True

    def strike(operation: Operation[Any] | None) -> None:
        # The answer to a check that was made after the run had paused.
        for part in parts(operation):
            if is_bad and isinstance(part, ApplyMutation):
                struck.append(part.mutation_id)
                raise Crash("the roof is gone")

    fake.plan("put", applies_and_raises(Uncertain("the line is dead")))
    fake.plan("reconcile", raises(Transient("ask later")))
    async with assembled(fake, strike=strike) as box:
        await box.keep.deploy(flow().replace("fake.add", "fake.put"))
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        await box.advance(MINUTE)
        assert len(struck) == 6, "once, and five restarts"
        is_bad = False
        await box.advance(2 * MINUTE)
        [unknown] = await box.keep.unknowns("flow")
        assert unknown.status is MutationStatus.NEEDS_RECONCILE
        await box.advance(3 * MINUTE)
        assert await box.keep.unknowns("flow") == []
        assert await box.statuses("flow", "in") == {"a": "consumed"}
        assert (fake.texts, (await box.keep.workflow("flow")).error) == (["a"], "")
        assert await box.broken() == []


async def test_a_workflow_that_crashes_now_and_then_is_never_stopped() -> None:
    fake, strikes = Fake(), iter([True] * 5)

    def strike(operation: Operation[Any] | None) -> None:
        if any(isinstance(part, CreateSession) for part in parts(operation)) and next(strikes, False):
            raise Crash

    async with assembled(fake, strike=strike) as box:
        await box.keep.deploy(flow())
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert (fake.texts, (await box.keep.workflow("flow")).error) == (["a"], "")


POLLS = script(producer='await c.publish("in", { title: "One" });', schedule='{ interval: "10m" }')


@pytest.mark.parametrize(
    "left_behind",
    [lambda: Ended("run_of_the_dead"), lambda: Advance("run_of_the_dead", (), lambda: None)],
    ids=["an end", "a step"],
)
async def test_what_the_run_of_a_dead_incarnation_leaves_behind_keeps_nobody_awake(
    left_behind: Callable[[], Message],
) -> None:
    async with Box.open() as box:
        await box.deploy(POLLS)
        await box.until_idle()
        await box.tell("flow", left_behind())
        await box.advance(minutes=10)
        assert len(await box.keep.runs("flow")) == 2, "who is awake and does nothing does not hear the clock"


# During a call.


async def crash_during_a_call(box: Assembly, fake: Fake) -> None:
    """The first event is being added when something else that the actor does kills it."""
    await box.keep.deploy(flow())
    call = fake.hang("add")
    await box.publish("flow", "in", "a", payload="a")
    await call.reached.wait()
    with pytest.raises(ActorDied):
        await box.publish("flow", "in", "b", payload="b")
    await box.settle()


def strikes_at(kind: type[Operation[Any]], turn: int) -> Strike:
    """Strikes once: at this turn of the operations of that kind. Each has two, before it and after it."""
    turns = 0

    def strike(operation: Operation[Any] | None) -> None:
        nonlocal turns
        if any(isinstance(part, kind) for part in parts(operation)):
            turns += 1
            if turns == turn:
                raise Crash

    return strike


async def test_a_crash_during_a_call_leaves_it_uncertain_and_it_is_never_repeated() -> None:
    fake = Fake()
    # The third turn is before the second event is published.
    async with assembled(fake, strike=strikes_at(PublishEvents, 3)) as box:
        await crash_during_a_call(box, fake)
        [run] = await box.runs("flow", "file")
        assert (run.status, run.phase) == ("paused:reconciliation", "mutating")
        assert await box.statuses("flow", "in") == {"a": "reserved"}
        assert "uncertain" in (await box.keep.workflow("flow")).error
        [output] = await box.keep.outputs("flow")
        assert output.status is MutationStatus.INDETERMINATE
        explained = await box.keep.explain(run.id)
        assert "paused:reconciliation in mutating" in explained.why
        assert explained.can_do == ["Find out whether the call took effect, and say so. Its events are held."]
        await box.publish("flow", "in", "c", payload="c")
        await box.advance(30 * DAY)
        assert fake.calls == ["add a"]
        assert await box.broken() == []


async def test_what_was_durable_before_the_crash_is_there_even_if_its_asker_was_told_otherwise() -> None:
    fake = Fake()
    async with assembled(fake, strike=strikes_at(PublishEvents, 4)) as box:
        await crash_during_a_call(box, fake)
        assert await box.statuses("flow", "in") == {"a": "reserved", "b": "pending"}


@pytest.mark.parametrize(
    ("kind", "turn", "calls", "left"),
    [
        (CreateRun, 1, ["add a"], "consumed"),
        (CreateMutation, 1, ["add a"], "consumed"),
        (CreateMutation, 2, [], "reserved"),
        (ApplyMutation, 1, ["add a"], "reserved"),
        (ApplyMutation, 2, ["add a"], "consumed"),
    ],
)
async def test_what_a_crash_leaves_depends_on_what_the_ledger_knew(
    kind: type[Operation[Any]], turn: int, calls: list[str], left: str
) -> None:
    """Before the ledger knows of a call, it was not made; until the ledger knows its answer, nobody does."""
    fake = Fake()
    async with assembled(fake, strike=strikes_at(kind, turn)) as box:
        await box.keep.deploy(flow())
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert fake.calls == calls
        assert await box.statuses("flow", "in") == {"a": left}
        assert bool((await box.keep.workflow("flow")).error) == (left == "reserved")
        assert await box.statuses("flow", "out") == ({"a": "pending"} if left == "consumed" else {})
        assert await box.broken() == []


async def test_an_event_that_comes_when_a_consumer_has_just_looked_is_not_taken_for_seen() -> None:
    """Its run is written down only when it ends: what was there by then is more than it has looked at."""
    pairs = flow().replace("const [event] =", "const [, event] =")
    fake = Fake()

    async def heard(answer: object) -> None:
        match answer:
            case [Event(message_id="first")] if not late:
                late.append("second")
                await box.publish("flow", "in", "second", payload="second")

    late: list[str] = []
    async with assembled(fake, heard=heard) as box:
        await box.keep.deploy(pairs)
        await box.publish("flow", "in", "first", payload="first")
        await box.settle()
        assert late == fake.texts == ["second"]
        assert [run.reserved_count for run in await box.runs("flow", "file")] == [0, 1, 0]


async def test_who_deploys_as_the_actor_crashes_is_told_and_can_deploy_again() -> None:
    fake = Fake()
    lightning = Lightning(1, share=1)

    def strike(operation: Operation[Any] | None) -> None:
        if operation is not None:
            lightning(operation)

    async with assembled(fake, strike=strike) as box:
        lightning.on = True
        with pytest.raises(ActorDied) as died:
            await box.keep.deploy(flow())
        assert isinstance(died.value.__cause__, Crash)
        lightning.on = False
        await box.settle()
        assert (await box.keep.deploy(flow())).version == "1.0"
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert fake.texts == ["a"]


# A disk that fails for a while.


@pytest.mark.parametrize("error", [StorageUnavailable, StorageLost])
async def test_an_effect_is_recorded_in_the_end_however_long_the_disk_is_full(error: type[Exception]) -> None:
    fake, failures = Fake(), 0

    def weather(batch: Sequence[Operation[Any]]) -> None:
        nonlocal failures
        is_outcome = any(isinstance(part, ApplyMutation) for operation in batch for part in parts(operation))
        if is_outcome and failures < 8:
            failures += 1
            raise error("the disk is full")

    async with assembled(fake, weather=weather) as box:
        await box.keep.deploy(flow())
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert failures == 8
        assert fake.calls == ["add a"]
        assert await box.statuses("flow", "in") == {"a": "consumed"}
        [run] = await box.runs("flow", "file")
        assert (run.status, run.mutation_outcome) == ("committed", "success")
        assert run.ended_at is not None
        assert run.ended_at - START > 20_000, "it waited longer and longer"
        assert (await box.keep.workflow("flow")).error == ""


async def test_nothing_is_called_before_the_ledger_could_be_written() -> None:
    fake, seen = Fake(), list[list[str]]()

    def weather(batch: Sequence[Operation[Any]]) -> None:
        is_order = any(isinstance(part, CreateMutation) for operation in batch for part in parts(operation))
        if is_order and len(seen) < 3:
            seen.append(list(fake.calls))
            raise StorageUnavailable("the disk is full")

    async with assembled(fake, weather=weather) as box:
        await box.keep.deploy(flow())
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert (seen, fake.calls) == ([[], [], []], ["add a"])


async def test_who_asks_while_the_disk_is_full_is_told_at_once_and_nothing_changed() -> None:
    full = False

    def weather(_: Sequence[Operation[Any]]) -> None:
        if full:
            raise StorageUnavailable("the disk is full")

    async with assembled(Fake(), weather=weather) as box:
        await box.keep.deploy(flow())
        full = True
        for ask in (
            lambda: box.keep.pause("flow"),
            lambda: box.publish("flow", "in", "a"),
            lambda: box.keep.deploy(flow().replace("Filed", "Done"), workflow="flow"),
        ):
            with pytest.raises(StorageUnavailable, match="full"):
                await ask()
        full = False
        await box.settle()
        assert (await box.keep.workflow("flow")).status == "active"
        assert await box.statuses("flow", "in") == {}
        assert (await box.keep.deploy(flow())).version == "1.0"


async def test_a_disk_that_cannot_be_read_for_a_while_delays_and_stops_no_workflow() -> None:
    fake, failures = Fake(), 0

    def strike(operation: Operation[Any] | None) -> None:
        nonlocal failures
        if operation is None and 0 < failures <= 12:
            failures += 1
            raise StorageUnavailable("the disk failed to read")

    async with assembled(fake, strike=strike) as box:
        await box.keep.deploy(flow())
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        call = fake.hang("add")
        await box.publish("flow", "in", "b", payload="b")
        await call.reached.wait()
        await box.publish("flow", "in", "c", payload="c")
        failures = 1
        with pytest.raises(StorageUnavailable):
            await box.keep.workflow("flow")
        call.release()
        await box.settle()
        assert failures == 13
        assert fake.texts == ["a", "b", "c"]
        assert (await box.keep.workflow("flow")).error == ""


@pytest.mark.parametrize("seed", SEEDS[:10])
async def test_a_disk_that_fails_now_and_then_delays_and_loses_nothing(seed: int) -> None:
    rng, failures = random.Random(seed), 0
    fake = slow(seed, "p1", "p2")

    def weather(_: Sequence[Operation[Any]]) -> None:
        nonlocal failures
        if bad and rng.random() < 0.3:
            failures += 1
            raise rng.choice([StorageUnavailable, StorageLost])("the disk failed")

    bad = False
    published = ["e1", "e2", "e3"]
    async with assembled(fake, weather=weather) as box:
        await box.keep.deploy(TWO_STEPS)
        bad = True
        for each in published:
            await insist(partial(box.publish, "flow", "in", each, payload=each))
        await box.settle()
        bad = False
        everything = {"p1", "p2", *published}
        assert failures > 0
        assert Counter(fake.texts) == Counter(everything)
        for topic in ("in", "out"):
            assert await box.statuses("flow", topic) == dict.fromkeys(everything, "consumed")
        assert {run.status for run in await box.keep.runs("flow")} == {RunStatus.COMMITTED}
        assert await box.broken() == []


# The end of a runtime.


async def reach_the_call(box: TimedBox, call: Hang) -> None:
    """Event `a` is being added, and `b` is pending."""
    await box.keep.deploy(flow(), start=False)
    for each in "ab":
        await box.publish("flow", "in", each, payload=each)
    await box.keep.resume("flow")
    await call.reached.wait()


def statuses_in(q: Queries) -> dict[str, str]:
    [workflow] = reads.workflows(q)
    return {event.message_id: str(event.status) for event in reads.events(q, workflow.id, "in")}


async def test_a_run_in_a_call_gets_its_time_at_shutdown_and_no_other_begins(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    call = fake.hang("add")

    async def release_later() -> None:
        # Not before the runtime waits for the run.
        await anyio.wait_all_tasks_blocked()
        call.release()

    async with anyio.create_task_group() as tasks, world(fake, path=path) as box:
        await reach_the_call(box, call)
        tasks.start_soon(release_later)
    with left_in(path) as q:
        assert statuses_in(q) == {"a": "consumed", "b": "pending"}
        [workflow] = reads.workflows(q)
        [session] = reads.sessions(q, workflow.id)
        assert (session.result, session.handler_run_count) == ("completed", 1)
        assert invariants.check(q, deep=True) == []
    assert fake.calls == ["add a"]
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.settle()
        assert fake.calls == ["add a", "add b"]


async def assert_the_call_is_in_doubt(fake: Fake, path: Path) -> None:
    """The next runtime finds a call whose answer nobody heard: it says so, and never repeats it."""
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.settle()
        [run] = await box.runs("flow", "file")
        assert run.status == "paused:reconciliation"
        assert await box.statuses("flow", "in") == {"a": "reserved", "b": "pending"}
        assert "uncertain" in (await box.keep.workflow("flow")).error
        await box.advance(DAY)
    assert fake.calls == ["add a"]
    with left_in(path) as q:
        assert invariants.check(q, deep=True) == []


async def test_a_run_that_takes_too_long_at_shutdown_is_cut_off_and_the_next_start_finds_it_uncertain(
    tmp_path: Path,
) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    call = fake.hang("add")
    async with world(fake, path=path, shutdown_grace_ms=1) as box:
        await reach_the_call(box, call)
    await assert_the_call_is_in_doubt(fake, path)


async def test_a_block_that_is_cancelled_ends_at_once_and_leaves_a_file_that_can_be_opened(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    call = fake.hang("add")
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with world(fake, path=path) as box:
            await reach_the_call(box, call)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    await assert_the_call_is_in_doubt(fake, path)


async def test_an_actor_that_waits_for_its_restart_does_not_keep_the_runtime_from_ending() -> None:
    fake = Fake()
    restart = RestartPolicy(backoff_ms=DAY, backoff_max_ms=DAY)
    with anyio.fail_after(5):
        async with assembled(fake, strike=strikes_at(CreateRun, 1), restart=restart, grace_ms=10) as box:
            await box.keep.deploy(flow())
            await box.publish("flow", "in", "a", payload="a")
            await anyio.wait_all_tasks_blocked()


async def test_who_still_waits_for_an_answer_when_the_runtime_ends_is_told(tmp_path: Path) -> None:
    fake, told = Fake(), list[str]()
    call = fake.hang("add")

    async def deploy() -> None:
        try:
            await box.keep.deploy(flow().replace("Filed", "Done"), workflow="flow")
        except (ActorDied, ActorStopped) as error:
            told.append(type(error).__name__)

    async with anyio.create_task_group() as tasks, world(fake, path=tmp_path / "keep.db", shutdown_grace_ms=50) as box:
        await reach_the_call(box, call)
        tasks.start_soon(deploy)
        await anyio.wait_all_tasks_blocked()
    assert len(told) == 1


async def test_a_file_has_one_runtime_at_a_time_and_the_first_one_does_not_notice(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        await box.keep.deploy(flow())
        with pytest.raises(StorageOwned):
            async with world(fake, path=path):
                pytest.fail("it was opened twice")
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert fake.texts == ["a"]
    async with world(fake, path=path):
        pass


class OfTheService(Exception):
    """What the embedding code raises."""


@pytest.mark.parametrize(
    "error",
    [OfTheService("why"), ExceptionGroup("several", [OfTheService(), ValueError()]), KeyError("x")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_an_exception_of_the_embedding_code_leaves_the_block_as_it_came(
    error: Exception, busy: bool, tmp_path: Path
) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    call = fake.hang("add")

    async def serve() -> None:
        async with opened(fake, path=path, shutdown_grace_ms=1) as box:
            if busy:
                await reach_the_call(box, call)
            raise error

    with pytest.raises(type(error)) as caught:
        await serve()
    assert caught.value is error
    if busy:
        await assert_the_call_is_in_doubt(fake, path)


@pytest.mark.parametrize("asks", [False, True], ids=["it waits", "it asks"])
async def test_when_the_storage_dies_the_block_ends_with_an_error_that_says_so(asks: bool) -> None:
    fake, dead = Fake(), False

    def weather(_: Sequence[Operation[Any]]) -> None:
        if dead:
            raise Crash("a bug in the storage")

    async def serve() -> None:
        nonlocal dead
        call = fake.hang("add")
        async with assembled(fake, weather=weather) as box:
            await reach_the_call(box, call)
            dead = True
            call.release()
            if asks:
                await box.keep.pause("flow")
            await anyio.sleep_forever()

    with anyio.fail_after(5), pytest.raises(Escalated) as caught:
        await serve()
    assert isinstance(caught.value.__cause__, Crash)
    assert "storage" in str(caught.value)


async def test_a_runtime_that_cannot_recover_does_not_start_and_says_why() -> None:
    def weather(_: Sequence[Operation[Any]]) -> None:
        raise StorageUnavailable("the disk is full")

    with pytest.raises(StorageUnavailable, match="full"):
        async with assembled(weather=weather):
            pytest.fail("it started")
