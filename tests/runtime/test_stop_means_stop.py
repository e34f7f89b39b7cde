"""Pause, archive, revoke, stop: the call that is on the wire comes to its end, and no further one is made."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from keep_actors import Backoff, Grant, Policy, Reason, Rejected
from keep_actors.connectors import InvalidCall, Uncertain
from keep_actors.host.fault_points import Point
from keep_actors.testing import Box
from keep_storage import reads
from keep_storage.model import Handler
from tests.runtime.fakes import Fake, applies_and_raises, raises
from tests.runtime.fakes import ok as well
from tests.runtime.world import TAKE, script

pytestmark = pytest.mark.anyio

STEADY = Policy(retry=Backoff(jitter=0))

TWENTY = script(
    job="""
      for (let n = 1; n <= 20; n++)
        await c.withItem(`${n}`, `Payment ${n}`, async () => {
          if (!c.item.isDone) await c.fake.add({ text: `${n}` });
        });
    """
)
ALL = [str(n) for n in range(1, 21)]

Say = Callable[[Box], Awaitable[Any]]

STOPS: dict[str, Say] = {
    "pause": lambda box: box.keep.pause("flow", by="ann"),
    "archive": lambda box: box.keep.archive("flow", by="ann"),
    "revoke": lambda box: box.keep.revoke("flow", "fake.add", by="ann"),
    "stop": lambda box: box.keep.stop_run("flow", by="ann", why="the wrong list"),
}


async def resume(box: Box, action: str) -> None:
    """Take back what was said."""
    match action:
        case "pause":
            await box.keep.resume("flow", by="ann")
        case "archive":
            await box.keep.unarchive("flow", by="ann")
            await box.keep.resume("flow", by="ann")
        case "revoke":
            await box.keep.grant("flow", "fake.add", by="ann")
        case _:
            await box.advance(days=1)
    await box.until_idle()


async def handler(box: Box, name: str) -> Handler:
    workflow_id = await box.id_of("flow")
    found = box.read(lambda q: reads.handler(q, workflow_id, name))
    assert found is not None
    return found


async def third_on_the_wire(box: Box, fake: Fake, then: Any = well) -> Any:
    """A job of twenty payments whose third one hangs."""
    fake.plan("add", well, well)
    hang = fake.hang("add", then)
    await box.deploy(TWENTY)
    await hang.reached.wait()
    return hang


# A job of twenty items.


@pytest.mark.parametrize("action", STOPS)
async def test_the_payment_on_the_wire_is_finished_and_no_further_one_is_made(action: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        assert fake.texts == ["1", "2", "3"]
        await box.advance(hours=20)
        assert fake.calls == ["add 1", "add 2", "add 3"]
        box.ledger.has("fake.add", "applied", "applied", "applied")
        await resume(box, action)
        assert fake.texts == ALL
        assert fake.done_twice == []
        assert {str(each.state) for each in await box.keep.items("flow")} == {"done"}
        box.check_invariants()


@pytest.mark.parametrize("action", STOPS)
async def test_what_a_person_has_stopped_is_nobodys_failure(action: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        found = await handler(box, "sweep")
        assert (found.failures, found.failing_since, found.repairs) == (0, None, 0)
        states = {each.item_id: str(each.state) for each in await box.keep.items("flow")}
        assert states == {"1": "done", "2": "done", "3": "done", "4": "processing"}
        [run] = await box.keep.runs("flow")
        assert run.status == ("paused:approval" if action == "revoke" else "paused:transient")
        assert not (await box.keep.workflow("flow")).maintenance


@pytest.mark.parametrize("action", STOPS)
async def test_a_stop_outlives_the_process(action: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        await box.crash()
        await box.reopen()
        await box.advance(hours=20)
        assert fake.texts == ["1", "2", "3"]
        await resume(box, action)
        assert (fake.texts, fake.done_twice) == (ALL, [])


async def test_a_process_that_dies_while_the_stopped_call_is_on_the_wire_makes_no_further_one() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await third_on_the_wire(box, fake)
        await box.keep.stop_run("flow", by="ann")
        await box.crash()
        await box.reopen()
        await box.until_idle()
        [doubt] = await box.keep.unknowns()
        await box.keep.resolve(doubt.mutation_id, "did_not_happen", by="ann")
        await box.advance(hours=20)
        assert fake.texts == ["1", "2"]
        await box.advance(hours=5)
        assert (fake.texts, fake.done_twice) == (ALL, [])


async def test_a_grant_that_asks_meanwhile_has_the_next_call_asked_for() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        await box.keep.grant("flow", Grant("fake.add", policy="ask"), by="ann")
        hang.release()
        await box.until_idle()
        assert fake.texts == ["1", "2", "3"]
        [question] = await box.keep.approvals()
        assert question.params == '{"text":"4"}'
        assert (await handler(box, "sweep")).failures == 0
        await box.keep.grant("flow", "fake.add", by="ann", approve=True)
        await box.until_idle()
        assert (fake.texts, fake.done_twice) == (ALL, [])


async def test_a_pause_that_is_taken_back_during_the_call_loses_and_repeats_nothing() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        await box.keep.pause("flow")
        await box.keep.resume("flow")
        hang.release()
        await box.until_idle()
        assert (fake.texts, fake.done_twice) == (ALL, [])


@pytest.mark.parametrize("action", ["pause", "archive", "stop"])
async def test_reads_are_calls_too(action: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = fake.hang("search")
        await box.deploy(script(producer='for (const q of ["a", "b"]) await c.fake.search({ query: q });'))
        await hang.reached.wait()
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        assert fake.calls == ["search a"]


# A consumer: what becomes of its events.

READS_FIRST = script(
    prepare=f"const take = async () => {{ {TAKE} }}; return [await take(), await c.fake.search({{}})][0];",
    mutate="await c.fake.add({ text: prepared.data.id });",
    next_='await c.publish("out", { messageId: prepared.data.id, title: result.status });',
)


@pytest.mark.parametrize("action", STOPS)
async def test_between_prepare_and_mutate_the_call_is_never_made_and_the_event_is_released(action: str) -> None:
    """Rule 2a."""
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(READS_FIRST)
        hang = fake.hang("search")
        await box.publish("flow", "in", "a")
        await hang.reached.wait()
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        assert fake.calls == ["search"]
        assert await box.statuses("flow", "in") == {"a": "pending"}
        assert (len(box.ledger), (await handler(box, "file")).failures) == (0, 0)
        await resume(box, action)
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})
        assert await box.statuses("flow", "out") == {"a": "pending"}


@pytest.mark.parametrize("action", STOPS)
async def test_a_call_on_the_wire_that_happened_is_told_to_next(action: str) -> None:
    """There is no further call: the run commits."""
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(READS_FIRST)
        hang = fake.hang("add")
        await box.publish("flow", "in", "a", "b")
        await hang.reached.wait()
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        assert (await box.statuses("flow", "in"))["a"] == "consumed"
        assert (await box.statuses("flow", "out"))["a"] == "pending"
        if action != "stop":
            assert (fake.texts, (await box.statuses("flow", "in"))["b"]) == (["a"], "pending")


@pytest.mark.parametrize("action", ["pause", "archive", "revoke"])
async def test_a_call_on_the_wire_that_happened_keeps_its_event_when_next_fails(action: str) -> None:
    """Rule 2b."""
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(READS_FIRST.replace("await c.publish", 'if (!state_is_right) throw new Error("no");'))
        hang = fake.hang("add")
        await box.publish("flow", "in", "a")
        await hang.reached.wait()
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "reserved"})
        await resume(box, action)
        await box.deploy(READS_FIRST, workflow="flow")
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


@pytest.mark.parametrize("action", STOPS)
async def test_a_call_on_the_wire_that_nobody_knows_of_holds_its_event(action: str) -> None:
    """Rule 2c."""
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(READS_FIRST)
        hang = fake.hang("add", applies_and_raises(Uncertain("lost")))
        await box.publish("flow", "in", "a")
        await hang.reached.wait()
        await STOPS[action](box)
        hang.release()
        await box.until_idle()
        assert await box.statuses("flow", "in") == {"a": "reserved"}
        [doubt] = await box.keep.unknowns()
        await box.keep.resolve(doubt.mutation_id, "happened", by="ann", result={"id": "add_1", "text": "a"})
        if action != "revoke":
            await resume(box, action)
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


@pytest.mark.parametrize("action", ["pause", "revoke"])
async def test_a_call_that_waits_for_a_person_still_waits(action: str) -> None:
    """Rule 2d: a stop is no answer."""
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(READS_FIRST, grants=[Grant("fake.add", policy="ask"), "fake.search"])
        await box.publish("flow", "in", "a")
        await box.until_idle()
        await STOPS[action](box)
        await box.until_idle()
        assert (await box.statuses("flow", "in"), len(await box.keep.approvals())) == ({"a": "reserved"}, 1)


# Stopping a run.


async def test_who_stops_a_run_is_told_which_one_and_the_journal_who_it_was() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        stopped = await box.keep.stop_run("flow", by="ann", why="the wrong list")
        hang.release()
        await box.until_idle()
        [run] = await box.keep.runs("flow")
        assert run.id == stopped
        assert "ann has stopped it: the wrong list" in run.error_message
        [entry] = [each for each in box.journal if each.operation == "stop_run"]
        assert ('"by":"ann"' in entry.changed, entry.why, entry.run_id) == (True, "the wrong list", run.id)
        assert await box.keep.attention() == []


async def test_a_stopped_job_runs_again_at_its_next_time_and_not_before() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        await box.keep.stop_run("flow", by="ann")
        hang.release()
        await box.advance(hours=23)
        assert len(await box.keep.runs("flow")) == 1
        await box.advance(hours=1)
        assert len(await box.keep.runs("flow")) == 2


async def test_a_stopped_consumer_takes_its_event_again_when_a_new_one_comes_or_after_the_longest_wait() -> None:
    fake = Fake()
    async with Box.open(fake, policy=STEADY) as box:
        await box.deploy(READS_FIRST)
        for more in (["b"], []):
            hang = fake.hang("search")
            await box.publish("flow", "in", f"a{len(more)}")
            await hang.reached.wait()
            await box.keep.stop_run("flow", by="ann")
            hang.release()
            await box.advance(minutes=9)
            assert (await box.statuses("flow", "in"))[f"a{len(more)}"] == "pending"
            await box.publish("flow", "in", *more)
            await box.advance(minutes=0 if more else 1)
            assert set((await box.statuses("flow", "in")).values()) == {"consumed"}


async def test_a_stop_when_nothing_runs_is_refused_in_words() -> None:
    async with Box.open(Fake()) as box:
        await box.deploy(TWENTY)
        await box.until_idle()
        with pytest.raises(Rejected, match=r"No run of workflow .* is active") as refused:
            await box.keep.stop_run("flow", by="ann")
        assert refused.value.reason is Reason.RUN_NOT_ACTIVE


async def test_a_stop_of_another_run_than_the_one_under_way_is_refused() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake)
        with pytest.raises(Rejected, match=r"Run 'run_0' of workflow .* is not active"):
            await box.keep.stop_run("flow", run_id="run_0", by="ann")
        hang.release()
        await box.until_idle()
        assert fake.texts == ALL


LONG = f'for (let n = 0; n < 50; n++) await c.peek("in"); {TAKE}'
"""A `prepare` that is busy for a while, and asks nobody outside."""


@pytest.mark.parametrize("action", STOPS)
async def test_a_run_that_computes_when_it_is_stopped_makes_no_call(action: str) -> None:
    fake, said = Fake(), anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def say() -> None:
            await STOPS[action](box)
            said.set()

        def while_prepare_computes(point: Point, _: str) -> None:
            if point is Point.INVOKE and not said.is_set():
                tasks.start_soon(say)

        async with Box.open(fake, faults=while_prepare_computes) as box:
            await box.deploy(script(prepare=LONG, mutate="await c.fake.add({ text: prepared.data.id });"))
            await box.publish("flow", "in", "a")
            await said.wait()
            await box.until_idle()
            assert fake.calls == []
            assert await box.statuses("flow", "in") == {"a": "pending"}
            assert (await handler(box, "file")).failures == 0
            box.check_invariants()
            await resume(box, action)
            assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


async def test_a_run_that_calls_nothing_any_more_commits_although_it_was_stopped() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = fake.hang("search")
        await box.deploy(script(producer='await c.fake.search({}); await c.publish("out", { title: "T" });'))
        await hang.reached.wait()
        await box.keep.stop_run("flow", by="ann")
        hang.release()
        await box.until_idle()
        [run] = await box.keep.runs("flow")
        assert (run.status, len(await box.statuses("flow", "out"))) == ("committed", 1)


async def test_what_fails_while_it_is_stopped_is_still_a_failure() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = await third_on_the_wire(box, fake, raises(InvalidCall("no such account")))
        await box.keep.stop_run("flow", by="ann")
        hang.release()
        await box.until_idle()
        assert (await box.keep.workflow("flow")).maintenance
