"""A connector that was not there: its workflows wait, and go on by themselves when it is back."""

from pathlib import Path

import pytest

from keep_actors import Connector, DeployRefused, Grant, Rejected, mutation, read
from keep_actors.connectors import Retry
from keep_actors.kernel import VirtualTime
from keep_actors.notices import Notice
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.pager import calm
from tests.runtime.world import DAY, MINUTE, START, TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio

NEEDS_FAKE = script(mutate="await ctx.fake.add({ text: prepared.data.id });", next_="return {};")
NEEDS_BOTH = script(prepare="await ctx.post.look({});" + TAKE, mutate="await ctx.fake.add({ text: prepared.data.id });")
BY_CLOCK = script(producer="await ctx.fake.search({});", job="await ctx.fake.search({});")


class Post(Connector):
    name = "post"

    @read
    async def look(self) -> int:
        return 1

    @mutation
    async def send(self) -> int:
        return 1


async def waits(box: TimedBox, workflow: str = "flow") -> str:
    """What it waits for, and that it is nothing for a maintainer."""
    found = await box.keep.workflow(workflow)
    assert not found.maintenance
    return found.error


def later(times: int) -> VirtualTime:
    return VirtualTime(START + times * DAY)


async def test_a_consumer_that_waited_for_its_connector_goes_on_when_that_is_back(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE)
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        await box.publish("flow", "in", "a")
        await box.settle()
        assert "This runtime has no `ctx.fake.add`" in await waits(box)
        assert await box.keep.missing_methods() == [("flow", ["fake.add"])]
        [asked] = await box.keep.attention()
        assert (asked.kind, "continues by itself" in asked.can_do) == ("error", True)
        await box.advance(DAY)
        assert len(await box.keep.runs("flow")) == 1
    # Still not there.
    async with world(path=tmp_path / "keep.db", time=later(3)) as box:
        await box.settle()
        assert await waits(box)
    async with world(fake, path=tmp_path / "keep.db", time=later(4)) as box:
        await box.settle()
        assert (await waits(box), await box.statuses("flow", "in"), fake.texts) == ("", {"a": "consumed"}, ["a"])
        assert (await box.keep.attention(), await box.keep.missing_methods()) == ([], [])


async def test_producers_and_jobs_wait_and_go_on_too(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(BY_CLOCK)
        await box.settle()
    async with world(path=tmp_path / "keep.db", time=later(2)) as box:
        await box.settle()
        assert await waits(box)
    async with world(fake, path=tmp_path / "keep.db", time=later(3)) as box:
        await box.settle()
        assert (await waits(box), len(fake.calls)) == ("", 4)


HELPED = {
    "a producer": script(producer="await c.fake.search({});"),
    "prepare": script(prepare="await c.fake.search({});" + TAKE, next_="return {};"),
    "mutate": script(mutate="await c.fake.add({ text: prepared.data.id });", next_="return {};"),
    "an item": script(job='await c.withItem("one", "T", async () => { await c.fake.add({ text: "a" }); });'),
}
"""They call a connector without naming it where inspection looks, as a function does that is handed `ctx`."""


@pytest.mark.parametrize("where", HELPED)
async def test_a_call_that_inspection_cannot_see_waits_for_its_connector_too(tmp_path: Path, where: str) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(HELPED[where], start=False)
        await box.publish("flow", "in", "a")
    async with world(path=tmp_path / "keep.db", time=later(2)) as box:
        await box.keep.resume("flow")
        await box.settle()
        assert "This runtime has no `ctx.fake." in await waits(box)
    async with world(fake, path=tmp_path / "keep.db", time=later(3)) as box:
        await box.settle()
        assert (await waits(box), len(fake.calls)) == ("", 1)
        assert await box.keep.attention() == []


async def test_a_call_whose_connector_is_away_is_not_approved_and_its_question_stays_open(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE, grants=[Grant("fake.add", policy="ask")])
        await box.publish("flow", "in", "a")
        await box.settle()
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        [question] = await box.keep.approvals()
        with pytest.raises(Rejected, match="open it with the connector"):
            await box.keep.approve(question.approval_id, by="ann")
        assert await box.keep.approvals() == [question]
    async with world(fake, path=tmp_path / "keep.db", time=later(2)) as box:
        await box.keep.approve(question.approval_id, by="ann")
        await box.settle()
        assert (await box.statuses("flow", "in"), fake.texts) == ({"a": "consumed"}, ["a"])


async def test_a_method_that_was_never_there_is_the_mistake_of_the_script_still() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(script(producer="await c.fake.serch({});"))
        await box.settle()
        assert (await box.last_run("flow", "poll")).status == "failed:logic"


async def test_a_next_that_waited_goes_on_with_its_stored_result_and_the_call_is_not_made_again(tmp_path: Path) -> None:
    fake = Fake()
    broken = NEEDS_FAKE.replace("return {};", "null.x;")
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(broken)
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.keep.pause("flow")
        await box.keep.deploy(NEEDS_FAKE, workflow="flow")
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        await box.keep.resume("flow")
        await box.settle()
        assert await waits(box)
    async with world(fake, path=tmp_path / "keep.db", time=later(2)) as box:
        await box.settle()
        assert (await waits(box), await box.statuses("flow", "in"), fake.texts) == ("", {"a": "consumed"}, ["a"])


async def test_of_two_that_come_back_one_by_one_the_words_name_the_one_that_is_missing_still(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, Post(), path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_BOTH)
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        await box.publish("flow", "in", "a")
        await box.settle()
        assert "no `ctx.fake.add`, `ctx.post.look`" in await waits(box)
    async with world(fake, path=tmp_path / "keep.db", time=later(2)) as box:
        await box.settle()
        assert "no `ctx.post.look`. Open" in await waits(box)
    async with world(Post(), path=tmp_path / "keep.db", time=later(3)) as box:
        await box.settle()
        assert "no `ctx.fake.add`. Open" in await waits(box)
    async with world(fake, Post(), path=tmp_path / "keep.db", time=later(4)) as box:
        await box.settle()
        assert (await waits(box), fake.texts) == ("", ["a"])


async def test_another_error_of_the_workflow_is_not_cleared_by_a_connector(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("add", applies_and_raises(ConnectionError("lost")))
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE)
        await box.publish("flow", "in", "a")
        await box.settle()
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        await box.settle()
    async with world(fake, path=tmp_path / "keep.db", time=later(2)) as box:
        await box.settle()
        assert await waits(box) == "Mutation outcome uncertain: fake.add: ConnectionError: lost"


async def test_one_that_is_archived_meanwhile_goes_on_when_it_is_brought_back(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE)
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        workflow_id = (await box.keep.workflow("flow")).id
        await box.publish("flow", "in", "a")
        await box.settle()
        await box.keep.archive("flow")
    async with world(fake, path=tmp_path / "keep.db", time=later(2)) as box:
        await box.keep.unarchive(workflow_id)
        await box.keep.resume(workflow_id)
        await box.settle()
        assert (await waits(box), fake.texts) == ("", ["a"])


async def test_a_script_that_does_without_the_connector_goes_on_without_it(tmp_path: Path) -> None:
    async with world(Fake(), path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE)
    async with world(path=tmp_path / "keep.db", time=later(1)) as box:
        await box.publish("flow", "in", "a")
        await box.settle()
        with pytest.raises(DeployRefused):
            await box.keep.deploy(NEEDS_FAKE + "\n// again", workflow="flow")
        await box.keep.deploy(script(next_="return {};"), workflow="flow")
        await box.settle()
        assert (await waits(box), await box.statuses("flow", "in")) == ("", {"a": "consumed"})


async def test_people_are_told_that_it_is_missing_and_that_it_is_back(tmp_path: Path) -> None:
    got: list[Notice] = []

    async def page(notice: Notice) -> None:
        got.append(notice)

    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE)
    async with world(path=tmp_path / "keep.db", time=later(1), notices=page) as box:
        await box.publish("flow", "in", "a")
        await calm(box)
    async with world(fake, path=tmp_path / "keep.db", time=later(2), notices=page) as box:
        await calm(box)
    assert [str(each.says) for each in got] == ["needs_person", "settled"]
    assert "has no `ctx.fake.add`" in got[0].words


@pytest.mark.parametrize("days", [0, 3])
async def test_a_doubt_that_nobody_could_be_asked_about_is_looked_into_when_the_connector_is_back(
    tmp_path: Path, days: int
) -> None:
    """After three days without it a person was asked; after a few minutes not yet."""
    fake = Fake()
    fake.plan("put", applies_and_raises(ConnectionError("lost")))
    fake.plan("reconcile", *[lambda _: _cannot_tell()] * 2)
    async with world(fake, path=tmp_path / "keep.db") as box:
        await box.keep.deploy(NEEDS_FAKE.replace("add", "put"))
        await box.publish("flow", "in", "a")
        await box.settle()
    async with world(path=tmp_path / "keep.db", time=VirtualTime(START + MINUTE)) as box:
        for _ in range(1 + days * 24):
            await box.advance(60 * MINUTE)
        [doubt] = await box.keep.unknowns()
        assert doubt.status == ("indeterminate" if days else "needs_reconcile")
    async with world(fake, path=tmp_path / "keep.db", time=later(9)) as box:
        await box.settle()
        assert [each.status for each in await box.keep.unknowns()] == ["needs_reconcile"]
        await box.advance(MINUTE)
        assert (await waits(box), await box.statuses("flow", "in"), fake.texts) == ("", {"a": "consumed"}, ["a"])


async def _cannot_tell() -> Retry:
    return Retry("not yet")
