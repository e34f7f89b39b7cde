"""Events that a person skips while a run prepares them, and events that nobody takes for long."""

from pathlib import Path

import pytest

from keep_actors import Policy
from keep_storage import reads
from tests.runtime.fakes import Fake
from tests.runtime.pager import Pager, calm
from tests.runtime.world import DAY, MINUTE, TimedBox, left_in, script, world

pytestmark = pytest.mark.anyio

SLOW = """
  const [first] = await c.peek("in");
  if (!first) return { reservations: [] };
  await c.fake.search({});
  return { reservations: [{ topic: "in", ids: [first.messageId] }], data: { id: first.messageId } };
"""
BOTH = """
  const found = await c.peek("in");
  await c.fake.search({});
  return { reservations: [{ topic: "in", ids: found.map((each) => each.messageId) }], data: { id: "all" } };
"""
ADD = "await c.fake.add({ text: prepared.data.id });"


# Skipped while it is being prepared.


@pytest.mark.parametrize(("prepare", "done"), [(SLOW, ["b"]), (BOTH, ["all"])], ids=["one", "with another"])
async def test_an_event_that_is_skipped_while_it_is_prepared_is_no_failure_of_anybody(
    tmp_path: Path, prepare: str, done: list[str]
) -> None:
    fake = Fake()
    hang = fake.hang("search")
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(script(prepare=prepare, mutate=ADD))
        await box.keep.pause("flow")
        await box.publish("flow", "in", "a", "b")
        await box.keep.resume("flow")
        await hang.reached.wait()
        await box.keep.skip_event("flow", "in", "a", by="alice", why="not this one")
        hang.release()
        await box.settle()
        workflow = await box.keep.workflow("flow")
        assert (workflow.error, workflow.maintenance, await box.keep.attention()) == ("", False, [])
        # No time has passed: nothing waited for a backoff.
        assert (fake.texts, await box.statuses("flow", "in")) == (done, {"a": "skipped", "b": "consumed"})
        first, *_ = await box.runs("flow", "file")
        assert (first.status, "skipped while it was being prepared" in first.error_message) == (
            "paused:transient",
            True,
        )
    with left_in(tmp_path / "keep.db") as q:
        handler = reads.handler(q, workflow.id, "file")
        assert handler is not None
        assert (handler.failures, handler.failing_since, handler.retry_at) == (0, None, None)


async def test_a_skip_meanwhile_is_no_excuse_for_a_script_that_takes_what_is_finished() -> None:
    fake = Fake()
    async with world(fake) as box:
        takes_always_a = 'return { reservations: [{ topic: "in", ids: ["a"] }], data: { id: "a" } };'
        await box.keep.deploy(script(prepare="await c.fake.search({});" + takes_always_a, mutate=ADD))
        await box.publish("flow", "in", "a")
        await box.settle()
        hang = fake.hang("search")
        await box.publish("flow", "in", "b", "c")
        await hang.reached.wait()
        await box.keep.skip_event("flow", "in", "b", by="alice")
        hang.release()
        await box.settle()
        assert [str(each.status) for each in await box.runs("flow", "file")][-1] == "failed:logic"
        assert fake.texts == ["a"]


# Pending for long.


async def stale(box: TimedBox) -> list[tuple[str, str | None]]:
    return [(each.workflow, each.about) for each in await box.keep.attention() if each.kind == "stale"]


async def test_inputs_that_nobody_takes_for_a_week_are_in_attention_until_they_are_taken_or_skipped() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager) as box:
        # It looks, and takes nothing.
        await box.keep.deploy(script(prepare='await c.peek("in"); return { reservations: [] };'))
        await box.publish("flow", "in", "a")
        await box.advance(7 * DAY)
        assert await stale(box) == []
        await box.publish("flow", "in", "b")
        await box.advance(1)
        assert await stale(box) == [("flow", "in")]
        [old] = await box.keep.attention()
        assert old.words == "Event 'a' of 'in' has been pending for 7 days."
        assert old.can_do == "Find out why its consumer does not take it, or skip it."
        assert [(each.message_id, each.is_stale) for each in await box.keep.inputs("flow")] == [
            ("b", False),
            ("a", True),
        ]
        await calm(box)
        # Who looks sees it; nobody is called for it.
        assert pager.got == []
        await box.keep.skip_event("flow", "in", "a", by="alice")
        assert await stale(box) == []


async def test_how_old_is_too_old_can_be_said_for_each_workflow() -> None:
    hasty = {"hasty": Policy(stale_after_ms=MINUTE)}
    async with world(Fake(), policies=hasty) as box:
        for name in ("hasty", "flow"):
            await box.keep.deploy(script(name=name, prepare="return { reservations: [] };"), workflow=name)
            await box.publish(name, "in", "a")
        await box.advance(2 * MINUTE)
        assert await stale(box) == [("hasty", "in")]
        await box.advance(8 * DAY)
        assert sorted(await stale(box)) == [("flow", "in"), ("hasty", "in")]
        await box.keep.archive("hasty")
        assert await stale(box) == [("flow", "in")]


async def test_what_a_paused_workflow_does_not_take_is_stale_too_until_it_goes_on() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(script(mutate=ADD))
        await box.keep.pause("flow")
        await box.publish("flow", "in", "a")
        await box.advance(8 * DAY)
        assert await stale(box) == [("flow", "in")]
        await box.keep.resume("flow")
        await box.settle()
        assert (await stale(box), await box.statuses("flow", "in")) == ([], {"a": "consumed"})
