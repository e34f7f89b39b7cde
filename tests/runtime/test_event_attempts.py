"""An event's attempt grows with every release, and people see it."""

import pytest

from keep_actors import Backoff, Grant, Policy
from keep_actors.connectors import Transient
from tests.runtime.fakes import Fake, raises
from tests.runtime.world import MINUTE, TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"


async def attempt(box: TimedBox, message_id: str = "a") -> int:
    """As `inputs` shows it."""
    [found] = [each for each in await box.keep.inputs("flow") if each.message_id == message_id]
    return found.attempt


async def test_each_call_that_did_not_happen_is_another_attempt() -> None:
    fake = Fake()
    fake.plan("add", *[raises(Transient("503"))] * 2)
    async with world(fake, policy=Policy(retry=Backoff(jitter=0))) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.publish("flow", "in", "a")
        seen = []
        for _ in range(3):
            await box.settle()
            seen.append((await attempt(box), (await box.statuses("flow", "in"))["a"]))
            box.time.advance(MINUTE)
        assert seen == [(2, "pending"), (3, "pending"), (3, "consumed")]
        # And each run knows at which attempt it held the event.
        held = [(await box.keep.explain(run.id)).selected for run in await box.runs("flow", "file")]
        assert [len(each) for each in held] == [1, 1, 1]


async def test_a_failure_of_the_script_a_verdict_and_a_no_that_prepares_anew_release_it_too() -> None:
    fake = Fake()
    fake.plan("add", raises(ConnectionError("lost")))
    async with world(fake) as box:
        await box.keep.deploy(script(mutate="null.x;"))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await attempt(box) == 2
        await box.keep.deploy(script(mutate=ADD), workflow="flow")
        await box.settle()
        [doubt] = await box.keep.unknowns()
        assert await attempt(box) == 2
        await box.keep.pause("flow")
        await box.keep.resolve(doubt.mutation_id, "did_not_happen", by="alice")
        assert await attempt(box) == 3
        await box.keep.grant("flow", Grant("fake.add", policy="ask"), by="alice")
        await box.keep.resume("flow")
        await box.settle()
        [question] = await box.keep.approvals()
        await box.keep.pause("flow")
        await box.keep.reject(question.approval_id, by="alice", retry=True)
        assert await attempt(box) == 4


async def test_a_run_that_holds_nothing_releases_nothing_and_a_retry_of_next_keeps_what_it_holds() -> None:
    fake = Fake()
    fake.plan("search", raises(Transient("503")))
    async with world(fake) as box:
        await box.keep.deploy(script(prepare="await c.fake.search({});" + TAKE, mutate=ADD, next_="null.x;"))
        await box.publish("flow", "in", "a")
        await box.settle()
        assert await attempt(box) == 1
        await box.advance(MINUTE)
        assert (await attempt(box), fake.texts) == (1, ["a"])
        await box.keep.deploy(script(mutate=ADD, next_="return {};"), workflow="flow")
        await box.settle()
        assert (await attempt(box), await box.statuses("flow", "in")) == (1, {"a": "consumed"})
