"""Whatever happens, in several lives, and however badly a sink behaves: in the end each knows what is so."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from keep_actors import Grant, Rejected
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.kernel import VirtualTime
from keep_actors.notices import Notice
from keep_actors.policy import Backoff
from keep_storage.model import Says
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.pager import Pager, until
from tests.runtime.world import SECOND, START, TimedBox, script, world
from tests.storage.world import contents

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"
NAMES = ("one", "two", "three")


class Flaky(Pager):
    """Takes it, loses it, or takes it and loses the answer."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(name="flaky")
        self.backoff = Backoff(first_ms=SECOND, cap_ms=4 * SECOND, attempts_max=10_000)
        self._chance = chance

    async def deliver(self, notice: Notice) -> None:
        luck = self._chance.random()
        if luck < 0.7:
            await super().deliver(notice)
        if luck > 0.4:
            raise ConnectionError("lost")


class Person:
    """Does one thing after the other to the workflows of a runtime."""

    def __init__(self, box: TimedBox, fake: Fake, chance: random.Random) -> None:
        self.box = box
        self.fake = fake
        self.chance = chance

    async def act(self) -> None:
        acts: list[Callable[[], Awaitable[None]]] = [self.ask, self.ask, self.doubt, self.break_it, self.archive]
        acts += [self.answer, self.answer, self.resolve, self.resolve]
        with suppress(Rejected):
            await self.chance.choice(acts)()
        await self.box.settle()
        self.box.time.advance(self.chance.randrange(2 * SECOND))

    async def ask(self) -> None:
        name = self.chance.choice(NAMES)
        await self.box.keep.deploy(
            script(name=name, mutate=ADD), grants=[Grant("fake.add", policy="ask")], workflow=name
        )
        await self.box.publish(name, "in", f"m{self.chance.random()}")

    async def doubt(self) -> None:
        name = self.chance.choice(NAMES)
        self.fake.plan("add", applies_and_raises(ConnectionError("lost")))
        await self.box.keep.deploy(script(name=name, mutate=ADD), grants=["fake.add"], workflow=name)
        await self.box.publish(name, "in", f"m{self.chance.random()}")

    async def break_it(self) -> None:
        name = self.chance.choice(NAMES)
        await self.box.keep.deploy(script(name=name, prepare="null.x;", mutate=ADD), grants=["fake.add"], workflow=name)
        await self.box.publish(name, "in", f"m{self.chance.random()}")

    async def answer(self) -> None:
        for question in (await self.box.keep.approvals())[:1]:
            if self.chance.random() < 0.5:
                await self.box.keep.approve(question.approval_id, by="ann")
            else:
                await self.box.keep.reject(question.approval_id, by="ann")

    async def resolve(self) -> None:
        for question in (await self.box.keep.unknowns())[:1]:
            verdict: PersonVerdict = self.chance.choice(["happened", "skip"])
            told = {"id": "x", "text": "told"}
            await self.box.keep.resolve(question.mutation_id, verdict, by="ann", result=told)

    async def archive(self) -> None:
        await self.box.keep.archive(self.chance.choice(NAMES), by="ann")


def believes(pager: Pager) -> set[tuple[str, str]]:
    """What needs a person, by all that this sink was told."""
    settled = {each.matter for each in pager.said(Says.SETTLED)}
    return {(each.workflow_id, str(each.kind)) for each in pager.said(Says.NEEDS_PERSON) if each.matter not in settled}


def assert_in_order(pager: Pager) -> None:
    for matter in {each.matter for each in pager.got}:
        said = [each.says for each in pager.got if each.matter == matter]
        # Again is allowed; back is not.
        assert said == sorted(said, key=[Says.NEEDS_PERSON, Says.SETTLED].index)
        assert said[0] is Says.NEEDS_PERSON


@pytest.mark.parametrize("seed", range(3))
async def test_in_the_end_every_sink_believes_what_is_so_and_was_told_in_order(tmp_path: Path, seed: int) -> None:
    chance, path, time = random.Random(seed), tmp_path / "keep.db", VirtualTime(START)
    fake, flaky, pager = Fake(), Flaky(chance), Pager()
    for _ in range(3):
        grace_ms = chance.choice([1, 10_000])
        async with world(
            fake, path=path, notices=[flaky, pager], time=time, grants="explicit", shutdown_grace_ms=grace_ms
        ) as box:
            person = Person(box, fake, chance)
            for _ in range(6):
                await person.act()
    async with world(fake, path=path, notices=[flaky, pager], time=time, grants="explicit") as box:
        await box.settle()
        so = {(each.workflow_id, each.kind) for each in await box.keep.attention()}
        await until(box, lambda: believes(pager) == believes(flaky) == so)
    assert_in_order(pager)
    assert_in_order(flaky)
    assert len(pager.got) > 2
    assert {row[3] for row in contents(path)["deliveries"] if row[1] == "pager"} == {"delivered"}
