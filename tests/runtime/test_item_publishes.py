"""What an item publishes is there when the item is closed: with it, once, and never without it."""

import pytest

from keep_actors import Backoff, Grant, Policy
from keep_actors.connectors import Transient
from keep_actors.host.fault_points import Point
from keep_actors.testing import Box
from tests.runtime.fakes import Fake, ok, raises
from tests.runtime.world import script

pytestmark = pytest.mark.anyio

STEADY = Policy(retry=Backoff(jitter=0))

ASKS = [Grant("fake.add", policy="ask")]

PAYS = """
  if (c.item.isDone) return;
  await c.publish("out", { messageId: `early ${id}`, title: `Early ${id}` });
  await c.fake.add({ text: id });
  await c.publish("out", { messageId: `paid ${id}`, title: `Paid ${id}` });
"""
"""An item that publishes before its payment and after it."""


def sweep(inside: str = PAYS, before: str = "", after: str = "", ids: str = "abc") -> str:
    """A job that works on three items, one after the other."""
    items = f'for (const id of "{ids}") await c.withItem(id, `Item ${{id}}`, async () => {{ {inside} }});'
    return script(job=f"{before} {items} {after}")


def both(*ids: str) -> dict[str, str]:
    return {f"{when} {each}": "pending" for each in ids for when in ("early", "paid")}


async def states(box: Box) -> dict[str, str]:
    return {each.item_id: str(each.state) for each in await box.keep.items("flow")}


# The two that were seen.


async def test_three_items_that_are_approved_one_after_another_are_three_payments_and_their_events() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep(), grants=ASKS)
        for number, each in enumerate("abc"):
            await box.until_idle()
            assert await box.statuses("flow", "out") == both(*"abc"[:number])
            [question] = await box.keep.approvals()
            assert question.params == f'{{"text":"{each}"}}'
            await box.keep.approve(question.approval_id, by="ann")
        await box.until_idle()
        assert fake.texts == ["a", "b", "c"]
        assert await box.statuses("flow", "out") == both("a", "b", "c")
        assert await states(box) == {"a": "done", "b": "done", "c": "done"}
        await box.advance(days=3)
        assert (fake.texts, len(await box.statuses("flow", "out"))) == (["a", "b", "c"], 6)
        box.check_invariants()


async def test_a_transient_failure_in_the_second_item_keeps_the_event_of_the_first() -> None:
    fake = Fake()
    fake.plan("add", *[ok, raises(Transient("503"))])
    async with Box.open(fake, policy=STEADY) as box:
        await box.deploy(sweep())
        await box.until_idle()
        assert await box.statuses("flow", "out") == both("a")
        assert await states(box) == {"a": "done", "b": "failed"}
        await box.advance(minutes=1)
        assert fake.texts == ["a", "b", "c"]
        assert await box.statuses("flow", "out") == both("a", "b", "c")


# With the close, in one transaction.


async def test_an_item_is_done_and_its_events_are_there_in_the_same_moment() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = fake.hang("put")
        await box.deploy(sweep(PAYS + 'if (id === "b") await c.fake.put({ text: "later" });'))
        await hang.reached.wait()
        # Inside the second item: the first is closed with its events, of the second there is nothing yet.
        assert (await states(box), await box.statuses("flow", "out")) == ({"a": "done", "b": "processing"}, both("a"))
        hang.release()
        await box.until_idle()
        closes = [each for each in box.journal if each.operation == "close_item"]
        assert ['"published":2' in each.changed for each in closes] == [True, True, True]
        [commit] = [each for each in box.journal if each.operation == "commit_job"]
        assert '"published":0' in commit.changed


async def test_what_a_job_publishes_outside_items_is_there_with_its_commit_and_not_before() -> None:
    fake = Fake()
    fake.plan("add", ok, ok, raises(Transient("503")))
    outside = 'await c.publish("out", { messageId: "WHEN", title: "Outside" });'
    code = sweep(before=outside.replace("WHEN", "before"), after=outside.replace("WHEN", "after"))
    async with Box.open(fake, policy=STEADY) as box:
        await box.deploy(code)
        await box.until_idle()
        assert await box.statuses("flow", "out") == both("a", "b")
        await box.advance(minutes=1)
        found = await box.statuses("flow", "out")
        assert found == {**both("a", "b", "c"), "before": "pending", "after": "pending"}
        assert list(found)[:4] == [f"{when} {each}" for each in "ab" for when in ("early", "paid")]


class Countdown:
    """Has the process die when it comes to a point for the so many-th time since `begin`."""

    def __init__(self, point: Point, times: int) -> None:
        self.point = point
        self.left = times
        self.box: Box | None = None

    def begin(self, box: Box) -> None:
        self.box = box
        if self.left == 0:
            box.crash_at(self.point)

    def __call__(self, reached: Point, _: str) -> None:
        if self.box is not None and reached is self.point:
            self.left -= 1
            if self.left == 0:
                self.box.crash_at(self.point)


@pytest.mark.parametrize("point", [Point.COMMIT, Point.COMMITTED, Point.RECORD, Point.RECORDED, Point.ANSWERED])
async def test_a_crash_anywhere_in_a_job_loses_no_event_of_an_item_and_doubles_none(point: Point) -> None:
    times = 0
    while True:
        fake, countdown = Fake(), Countdown(point, times)
        async with Box.open(fake, faults=countdown, policy=STEADY) as box:
            hang = fake.hang("search")
            await box.deploy(sweep(before="await c.fake.search({});", ids="ab").replace("fake.add", "fake.put"))
            await hang.reached.wait()
            countdown.begin(box)
            hang.release()
            if not await crashes(box):
                break
            await box.reopen()
            await box.advance(hours=2)
            assert fake.texts == ["a", "b"], times
            assert await box.statuses("flow", "out") == both("a", "b"), times
            assert await states(box) == {"a": "done", "b": "done"}, times
            box.check_invariants()
        times += 1
    # Each item is opened, its call recorded and its result, and closed with the next one's opening or the commit.
    assert times == {Point.COMMIT: 8, Point.COMMITTED: 8}.get(point, 2)


async def crashes(box: Box) -> bool:
    """Whether the process has come to the point at which it dies."""
    try:
        await box.crashed()
    except AssertionError:
        return False
    return True


async def test_a_process_that_dies_between_the_approved_call_and_the_close_publishes_when_the_call_is_settled() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep(ids="a"), grants=ASKS)
        await box.until_idle()
        [question] = await box.keep.approvals()
        box.crash_at(Point.ANSWERED, "fake.add")
        await box.keep.approve(question.approval_id, by="ann")
        await box.crashed()
        await box.reopen()
        await box.until_idle()
        assert await box.statuses("flow", "out") == {}
        [doubt] = await box.keep.unknowns()
        result = {"id": "add_1", "text": "a"}
        await box.keep.resolve(doubt.mutation_id, "happened", by="ann", result=result)
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "out")) == (["a"], both("a"))


# Without the item there is nothing.


async def test_an_item_that_fails_publishes_nothing_and_those_before_it_do() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep(PAYS + 'if (id === "b") throw new Error("no");'))
        await box.until_idle()
        assert await states(box) == {"a": "done", "b": "failed"}
        assert await box.statuses("flow", "out") == both("a")
        # Repaired, the item finds its call done, and publishes what it would have published then.
        await box.deploy(sweep(), workflow="flow")
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "out")) == (["a", "b", "c"], both("a", "b", "c"))


async def test_an_item_that_a_person_refuses_is_skipped_and_publishes_nothing() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep(ids="ab"), grants=ASKS)
        await box.until_idle()
        [first] = await box.keep.approvals()
        await box.keep.reject(first.approval_id, by="ann", why="wrong amount")
        await box.until_idle()
        [second] = await box.keep.approvals()
        await box.keep.approve(second.approval_id, by="ann")
        await box.until_idle()
        assert (await states(box), fake.texts) == ({"a": "skipped", "b": "done"}, ["b"])
        assert await box.statuses("flow", "out") == both("b")


async def test_an_item_that_needs_attention_publishes_nothing() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep(PAYS + 'await c.fake.add({ text: "another" });'))
        await box.until_idle()
        assert (await states(box), fake.texts) == ({"a": "needs_attention"}, ["a"])
        assert await box.statuses("flow", "out") == {}


# Replays.


async def test_a_message_that_a_replay_publishes_again_is_the_same_event() -> None:
    fake = Fake()
    always = 'await c.publish("out", { messageId: `seen ${id}`, title: `Seen ${id}`, payload: Math.random() });'
    async with Box.open(fake) as box:
        await box.deploy(sweep(always))
        await box.until_idle()
        first = await box.keep.events("flow", "out")
        await box.advance(days=2)
        again = await box.keep.events("flow", "out")
        assert [(each.id, each.message_id) for each in again] == [(each.id, each.message_id) for each in first]


async def test_an_event_that_was_consumed_is_not_brought_back_by_a_replay() -> None:
    fake = Fake()
    take = """
      const [first] = await c.peek("in");
      return { reservations: first ? [{ topic: "in", ids: [first.messageId] }] : [] };
    """
    job = """
      for (const id of ["a", "b"]) await c.withItem(id, id, async () => {
        await c.publish("in", { messageId: id, title: id });
        if (!c.item.isDone) await c.fake.add({ text: id });
      });
    """
    async with Box.open(fake) as box:
        await box.deploy(script(job=job, prepare=take))
        await box.advance(days=3)
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "consumed"}
        assert fake.texts == ["a", "b"]


async def test_a_message_without_an_id_is_published_once_by_an_item_that_is_tried_again() -> None:
    fake = Fake()
    fake.plan("put", raises(Transient("503")), raises(Transient("503")))
    nameless = """
      if (c.item.isDone) return;
      await c.publish("out", { title: "Nameless" });
      await c.fake.add({ text: id });
      await c.fake.put({ text: id });
    """
    async with Box.open(fake, policy=STEADY) as box:
        await box.deploy(sweep(nameless, ids="a"))
        await box.advance(hours=1)
        assert (fake.texts, len(await box.statuses("flow", "out"))) == (["a", "a"], 1)


async def test_what_an_item_publishes_counts_toward_what_one_run_may_publish() -> None:
    async with Box.open(Fake(), policy=Policy(publishes_max=2)) as box:
        await box.deploy(sweep('await c.publish("out", { messageId: id, title: id });'))
        await box.until_idle()
        [run] = await box.keep.runs("flow")
        assert (run.status, "more than 2 events in one run" in run.error_message) == ("failed:logic", True)
        assert await box.statuses("flow", "out") == {"a": "pending", "b": "pending"}


# Begun inside and not awaited; begun outside while items wait for their turn.

NOT_AWAITED = """
  if (c.item.isDone) return;
  [id].forEach(async (text) => {
    await c.fake.search({});
    await c.fake.add({ text });
    await c.publish("out", { messageId: text, title: "Paid" });
  });
"""


async def test_what_an_item_began_and_did_not_await_is_done_and_published_with_it() -> None:
    fake = Fake()
    fake.plan("add", ok, raises(Transient("503")))
    async with Box.open(fake, policy=STEADY) as box:
        await box.deploy(sweep(NOT_AWAITED))
        await box.until_idle()
        assert await states(box) == {"a": "done", "b": "failed"}
        assert await box.statuses("flow", "out") == {"a": "pending"}
        await box.advance(minutes=1)
        assert (fake.texts, await states(box)) == (["a", "b", "c"], {"a": "done", "b": "done", "c": "done"})
        assert list(await box.statuses("flow", "out")) == ["a", "b", "c"]


async def test_what_a_job_publishes_beside_items_that_wait_for_their_turn_comes_with_its_commit() -> None:
    fake = Fake()
    fake.plan("add", ok, raises(Transient("503")))
    together = """
      const items = [..."ab"].map((id) => c.withItem(id, id, async () => {
        if (!c.item.isDone) await c.fake.add({ text: id });
      }));
      await Promise.all([...items, c.publish("out", { title: "Nameless" })]);
    """
    async with Box.open(fake, policy=STEADY) as box:
        await box.deploy(script(job=together))
        await box.until_idle()
        assert (await states(box), await box.statuses("flow", "out")) == ({"a": "done", "b": "failed"}, {})
        await box.advance(minutes=1)
        assert (fake.texts, len(await box.statuses("flow", "out"))) == (["a", "b"], 1)
