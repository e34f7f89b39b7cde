"""A repair and an approval, with a crash between every two commits: each story always ends in the same way.

The world here is put together from the parts of a runtime, so that a picture of its file can be taken around every
commit. A picture is what a process that was killed then leaves behind: another runtime goes on from it.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from keep_actors import Connector, Grant, Keep, Policy, Rejected
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.connectors import Catalog, Uncertain
from keep_actors.host.reading_actor import ReadingRef
from keep_actors.host.storage_actor import StorageActor
from keep_actors.kernel import ActorDied, VirtualTime
from keep_actors.maintenance import Maintainer, Proposal, RepairTask
from keep_actors.runtime.assembly import assemble
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.testing import Outside
from keep_storage import Store, invariants
from keep_storage.model import Event, MutationStatus, Workflow
from keep_storage.operations import ApproveMutation
from keep_storage.sqlite import SqliteDatabase
from tests.crash.life import Moment, Mortal
from tests.runtime.fakes import Fake, raises
from tests.runtime.test_actor_crashes import (
    NEVER_GIVE_UP,
    Assembly,
    HastyTime,
    Here,
    Strike,
    StruckStorage,
    calm,
)
from tests.runtime.test_actor_crashes import Crash as Struck
from tests.runtime.world import MINUTE, START, TimedBox, left_in, script, world

pytestmark = pytest.mark.anyio


class Machine(Assembly):
    """A world whose parts are at hand, those that `open` would hide too."""

    def __init__(
        self, keep: Keep, time: VirtualTime, storage: StorageActor, reading: ReadingRef, files: Mortal
    ) -> None:
        super().__init__(keep, time, storage.ref, reading)
        self.files = files

    @property
    def commits(self) -> int:
        """How often the file was written to."""
        return self.files.commits


@asynccontextmanager
async def machine(
    *connectors: Connector,
    path: str | Path = ":memory:",
    time: VirtualTime | None = None,
    maintainer: Maintainer | None = None,
    policy: Policy | None = None,
    policies: Mapping[str, Policy] | None = None,
    pool: type[SandboxPool] = SandboxPool,
    strike: Strike = calm,
) -> AsyncIterator[Machine]:
    """What `keep_actors.open` puts together, with everything done on the spot. On asyncio it tells one story."""
    now, here = time or VirtualTime(START), Here()
    files = Mortal(SqliteDatabase.open(str(path), now=now.now()))
    with Store(files, now.now) as store:
        async with pool.open(mode="thread", run_sync=here) as sandbox:
            runtime = assemble(
                store,
                store.reader(),
                sandbox,
                Catalog(connectors),
                time=now,
                rng=random.Random(7),
                thread=here,
                reading_thread=here,
                policy=policy,
                policies=policies,
                grants="all",
                maintainer=maintainer,
                restart=None if strike is calm else NEVER_GIVE_UP,
            )
            storage, reading = runtime.core.storage, runtime.core.reading
            runtime.host.storage = StruckStorage(storage, strike)
            async with runtime.running(grace_ms=10_000) as keep:
                yield Machine(keep, now, storage, reading.ref, files)


# Two stories.

ADD = "await c.fake.add({ text: prepared.data.id });"
BROKEN = script(mutate=ADD, next_="null.x;")
MENDED = script(mutate=ADD, next_='await c.publish("out", { messageId: "said", title: "done", payload: result });')


class Mender:
    """A maintainer that knows the answer."""

    is_automatic = True

    def __init__(self) -> None:
        self.tasks: list[RepairTask] = []

    async def repair(self, task: RepairTask) -> Proposal:
        self.tasks.append(task)
        return Proposal(MENDED, "safe")


async def known(box: TimedBox) -> Workflow | None:
    return next((each for each in await box.keep.workflows() if each.name == "flow"), None)


async def told(box: TimedBox, source: str, grant: Grant) -> None:
    """A person says once more what may not have been heard: a script that is there is not deployed again."""
    if await known(box) is None:
        await box.keep.deploy(source, grants=[grant])
    await box.publish("flow", "in", "one")
    await box.settle()


async def repair_story(box: TimedBox) -> None:
    """`next` throws after its mutation; the maintainer mends it."""
    await told(box, BROKEN, Grant("fake.add"))


async def approval_story(box: TimedBox) -> None:
    """A call waits for a person, who allows it."""
    await told(box, MENDED, Grant("fake.add", policy="ask"))
    for question in await box.keep.approvals():
        await box.keep.approve(question.approval_id, by="ann")
    await box.settle()


Story = Callable[[TimedBox], Awaitable[None]]
STORIES: Mapping[str, Story] = {"a repair": repair_story, "an approval": approval_story}


@dataclass(frozen=True)
class Ending:
    """What is left of a story."""

    events: dict[str, str]
    said: list[str]
    effects: list[str]
    applied: int
    blocked: tuple[str, bool, str | None]
    source: str

    @classmethod
    async def of(cls, box: TimedBox, fake: Fake) -> "Ending":
        workflow = await box.keep.workflow("flow")
        said: list[Event] = await box.keep.events("flow", "out")
        [source, *_] = [
            each.source for each in await box.keep.versions("flow") if each.id == workflow.active_version_id
        ]
        return cls(
            await box.statuses("flow", "in"),
            [each.payload for each in said],
            fake.texts,
            [each.status for each in await box.keep.outputs("flow")].count(MutationStatus.APPLIED),
            (workflow.error, workflow.maintenance, workflow.pending_retry_run_id),
            source,
        )


GOOD = Ending(
    events={"one": "consumed"},
    said=['{"status":"applied","result":{"id":"add_1","text":"one"}}'],
    effects=["one"],
    applied=1,
    blocked=("", False, None),
    source=MENDED,
)


async def settle_doubts(box: TimedBox, fake: Fake) -> int:
    """A person who can look outside says what became of each call that nobody knows about."""
    doubts = [each for each in await box.keep.outputs("flow") if each.status is MutationStatus.INDETERMINATE]
    for doubt in doubts:
        happened = bool(fake.effects)
        await box.keep.resolve(
            doubt.mutation_id,
            "happened" if happened else "did_not_happen",
            by="ann",
            result=fake.effects[0] if happened else None,
        )
    return len(doubts)


# A process that is killed.


@dataclass(frozen=True)
class Picture:
    """The files and the outside at one moment."""

    words: str
    files: dict[str, bytes]
    outside: Outside

    def restore(self, folder: Path) -> tuple[Path, Fake]:
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        fake = Fake()
        fake.world = copied(self.outside)
        return folder / "keep.db", fake


def copied(world: Outside) -> Outside:
    """The same world, that goes its own way from here."""
    copy = Outside()
    copy.asked = list(world.asked)
    for each in world.effects:
        copy.happen(each)
    return copy


class Album:
    """Takes a picture before and after each commit of a life."""

    def __init__(self, path: Path, fake: Fake) -> None:
        self.pictures: list[Picture] = []
        self._path = path
        self._fake = fake

    def watch(self, moment: Moment, commit: int) -> None:
        files = {name: self._path.with_name(name).read_bytes() for name in ("keep.db", "keep.db-wal")}
        self.pictures.append(Picture(f"{moment.value} commit {commit}", files, copied(self._fake.world)))


async def pictured(
    story: Story, path: Path, fake: Fake, time: VirtualTime | None = None
) -> tuple[list[Picture], Ending]:
    """Tell the story, or the rest of it, in a life that is not disturbed."""
    async with machine(fake, path=path, maintainer=Mender(), time=time) as box:
        album = Album(path, fake)
        box.files.watch = album.watch
        await story(box)
        return album.pictures, await Ending.of(box, fake)


@pytest.mark.parametrize("name", STORIES)
async def test_whenever_the_process_is_killed_the_story_ends_in_the_same_way(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    pictures, ending = await pictured(story, tmp_path / "keep.db", Fake())
    assert ending == GOOD
    assert len(pictures) >= 12, "a commit for each step that must not be lost"
    doubts = 0
    for number, picture in enumerate(pictures):
        path, fake = picture.restore(tmp_path / str(number))
        mender = Mender()
        async with world(fake, path=path, maintainer=mender, time=VirtualTime(START + MINUTE)) as box:
            calls = list(fake.calls)
            await story(box)
            doubted = [each for each in await box.keep.outputs("flow") if each.status == "indeterminate"]
            if doubted:
                doubts += 1
                await assert_it_waits(box, fake, calls)
                await settle_doubts(box, fake)
                await story(box)
            assert await Ending.of(box, fake) == GOOD, picture.words
            assert fake.done_twice == []
            assert len(mender.tasks) <= 1
        with left_in(path) as q:
            assert invariants.check(q, deep=True) == [], picture.words
    # In the ledger before the call, and the answer: killed after the one, or before the other.
    assert doubts == 2


async def assert_it_waits(box: TimedBox, fake: Fake, calls: list[str]) -> None:
    """Nobody knows: nothing is sent, nothing is repaired, and a person is asked."""
    await box.advance(MINUTE)
    assert fake.calls == calls
    assert await box.statuses("flow", "in") == {"one": "reserved"}
    [run, *_] = await box.keep.runs("flow")
    assert run.status == "paused:reconciliation"
    assert [needs.kind for needs in await box.keep.attention()] == ["unknown"]


@pytest.mark.parametrize("name", STORIES)
async def test_killed_again_while_it_recovers_from_being_killed_it_still_ends_in_the_same_way(
    name: str, tmp_path: Path
) -> None:
    story = STORIES[name]
    pictures, _ = await pictured(story, tmp_path / "keep.db", Fake())
    held = next(each for each in pictures if each.outside.effects)
    path, fake = held.restore(tmp_path / "second life")
    later, _ = await pictured(story, path, fake, VirtualTime(START + MINUTE))
    for number, picture in enumerate(later[:8]):
        path, fake = picture.restore(tmp_path / str(number))
        async with world(fake, path=path, maintainer=Mender(), time=VirtualTime(START + 2 * MINUTE)) as box:
            await story(box)
            await settle_doubts(box, fake)
            await story(box)
            assert await Ending.of(box, fake) == GOOD, picture.words


# An actor that crashes.


@pytest.mark.parametrize("name", STORIES)
async def test_whichever_message_to_the_storage_kills_the_actor_the_story_ends_in_the_same_way(name: str) -> None:
    story, turn, struck = STORIES[name], 0, True
    while struck:
        turn += 1
        fake, strike = Fake(), Once(turn)
        async with machine(fake, maintainer=Mender(), strike=strike, time=HastyTime(START)) as box:
            strike.on = True
            for _ in range(3):
                # Whoever was told that the actor died says it again, as a person would.
                with suppress(ActorDied):
                    await story(box)
                    await settle_doubts(box, fake)
                await box.advance(MINUTE)
            struck = strike.has_struck
            assert await Ending.of(box, fake) == GOOD, f"struck at turn {turn}"
            assert fake.done_twice == []
            assert await box.broken() == []
    assert turn > 12


class Once:
    """Strikes at one turn, counted from the first: each message has two, before it and after it."""

    def __init__(self, turn: int) -> None:
        self.on = False
        self.has_struck = False
        self._left = turn

    def __call__(self, _: object) -> None:
        self._left -= self.on
        if self._left == 0 and not self.has_struck:
            self.has_struck = True
            raise Struck


# The moments that matter, by name.


async def test_a_next_that_was_repaired_gets_the_stored_result_and_the_effect_is_one(tmp_path: Path) -> None:
    fake, mender = Fake(), Mender()
    async with world(fake, maintainer=mender) as box:
        await repair_story(box)
        failed, retried = await box.runs("flow", "file")
        assert (failed.status, retried.status, retried.retry_of) == ("failed:logic", "committed", failed.id)
        assert retried.mutation_result == failed.mutation_result == '{"id":"add_1","text":"one"}'
        assert (await Ending.of(box, fake), fake.calls, len(mender.tasks)) == (GOOD, ["add one"], 1)


@pytest.mark.parametrize("made", [False, True], ids=["before the call", "after the call"])
async def test_a_crash_between_the_approval_and_the_answer_leaves_a_doubt_and_no_second_call(
    made: bool, tmp_path: Path
) -> None:
    pictures, _ = await pictured(approval_story, tmp_path / "keep.db", Fake())
    with_call = [index for index, each in enumerate(pictures) if each.outside.asked]
    picture = pictures[with_call[0] if made else with_call[0] - 1]
    path, fake = picture.restore(tmp_path / "second")
    calls = fake.calls
    assert bool(fake.effects) == made
    async with world(fake, path=path, time=VirtualTime(START + MINUTE)) as box:
        await box.settle()
        await assert_it_waits(box, fake, calls)
        assert await box.keep.approvals() == [], "it was answered, once"
        with pytest.raises(Rejected, match="open question"):
            await box.keep.clear_error("flow", by="ann")


async def test_who_is_told_that_the_actor_died_at_the_approval_can_see_that_it_was_heard() -> None:
    fake, turns = Fake(), 0

    def strike(operation: object) -> None:
        nonlocal turns
        if isinstance(operation, ApproveMutation):
            turns += 1
            if turns == 2:
                raise Struck

    async with machine(fake, strike=strike, time=HastyTime(START)) as box:
        await told(box, MENDED, Grant("fake.add", policy="ask"))
        [question] = await box.keep.approvals()
        with pytest.raises(ActorDied):
            await box.keep.approve(question.approval_id, by="ann")
        await box.advance(MINUTE)
        assert await box.keep.approvals() == []
        await assert_it_waits(box, fake, [])


# A person who is quicker.


def crashes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the supervisors had to say."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("keep_actors.kernel")]


class Waiting(Mender):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = anyio.Event(), anyio.Event()

    async def repair(self, task: RepairTask) -> Proposal:
        self.reached.set()
        await self.go_on.wait()
        return await super().repair(task)


async def test_a_workflow_that_is_archived_during_its_repair_stays_so_and_nothing_crashes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake, maintainer = Fake(), Waiting()
    async with machine(fake, maintainer=maintainer, time=HastyTime(START)) as box:
        deployed = await box.keep.deploy(BROKEN)
        await box.publish("flow", "in", "one")
        await maintainer.reached.wait()
        await box.keep.archive("flow", by="ann")
        maintainer.go_on.set()
        await box.settle()
        assert (await box.keep.workflow(deployed.workflow_id)).status == "archived"
        assert len(await box.keep.versions(deployed.workflow_id)) == 1
        assert crashes(caplog) == []


async def test_the_repair_of_a_version_that_was_brought_back_runs_under_the_grants_of_that_version() -> None:
    fake, greedy = Fake(), script(mutate='await c.fake.put({ text: "greedy" });')
    source = script(prepare="null.x;", mutate=ADD)

    class Greedy(Mender):
        async def repair(self, task: RepairTask) -> Proposal:
            self.tasks.append(task)
            return Proposal(greedy, "safe")

    async with world(fake, maintainer=Greedy(), grants="explicit") as box:
        await box.keep.deploy(source, grants=["fake.add"])
        await box.keep.deploy(f"{source}\n// 2", grants=["fake.add", "fake.put"], major=True, workflow="flow")
        await box.keep.rollback("flow", "1.0", by="ann")
        await box.publish("flow", "in", "one")
        await box.settle()
        versions = await box.keep.versions("flow")
        assert [f"{each.major}.{each.minor}" for each in versions] == ["2.0", "1.1", "1.0"]
        assert [each.permission for each in await box.keep.grants("flow")] == ["fake.add"]
        assert (fake.calls, (await box.keep.workflow("flow")).error_class) == ([], "permission")


@pytest.mark.parametrize("verdict", ["happened", "did_not_happen", "skip"])
async def test_a_person_who_finds_out_before_the_connector_does_has_the_last_word_and_nothing_crashes(
    verdict: PersonVerdict, caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake()
    fake.plan("put", raises(Uncertain("lost")))
    fake.plan("reconcile", raises(LookupError("no idea")))
    async with machine(fake) as box:
        await box.keep.deploy(script(mutate="await c.fake.put({ text: prepared.data.id });"))
        await box.publish("flow", "in", "one")
        await box.settle()
        asked = fake.hang("reconcile")
        box.time.advance(MINUTE)
        await asked.reached.wait()
        [doubt] = await box.keep.outputs("flow")
        await box.keep.resolve(doubt.mutation_id, verdict, by="ann", result={"id": "told", "text": "one"})
        asked.release()
        await box.settle()
        assert await box.statuses("flow", "in") == {"one": "skipped" if verdict == "skip" else "consumed"}
        assert fake.texts == (["one"] if verdict == "did_not_happen" else [])
        assert crashes(caplog) == []
