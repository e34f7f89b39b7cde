"""A deploy that renames or drops a topic with events in it: nothing is left behind, and a person says where it goes."""

from pathlib import Path
from typing import Literal

import pytest

from keep_actors import EventsWouldWait, Policy, Reason, Rejected
from keep_storage import invariants, reads
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.world import TAKE, left_in, script, world

pytestmark = pytest.mark.anyio

FILES = "await c.fake.add({ text: prepared.data.id });"
OLD = script(mutate=FILES)
NEW = script(topics=("post", "out"), prepare=TAKE.replace('"in"', '"post"'), mutate=FILES).replace(
    'subscribe: ["in"]', 'subscribe: ["post"]'
)
"""The same, with the topic `in` renamed to `post`."""


async def test_a_deploy_that_would_leave_events_behind_is_refused_and_nothing_changes() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(OLD)
        await box.keep.pause("flow")
        await box.publish("flow", "in", "m1", "m2")
        with pytest.raises(EventsWouldWait) as refused:
            await box.keep.deploy(NEW, workflow="flow")
        assert (refused.value.topics, refused.value.declared) == ({"in": 2}, ("post", "out"))
        assert refused.value.reason is Reason.TOPIC_HAS_EVENTS
        assert "'in' (2 waiting)" in str(refused.value)
        assert [(each.major, each.minor) for each in await box.keep.versions("flow")] == [(1, 0)]
        await box.keep.resume("flow")
        await box.settle()
    assert fake.texts == ["m1", "m2"]


async def test_moved_events_are_taken_by_the_consumer_of_their_new_topic() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(OLD)
        await box.keep.pause("flow")
        await box.publish("flow", "in", "m1", "m2")
        deployed = await box.keep.deploy(NEW, move={"in": "post"}, by="ann", workflow="flow")
        assert deployed.version == "1.1"
        await box.keep.resume("flow")
        await box.settle()
        assert await box.statuses("flow", "post") == {"m1": "consumed", "m2": "consumed"}
        assert await box.statuses("flow", "in") == {}
    assert fake.texts == ["m1", "m2"]


async def test_dropped_events_are_skipped_and_the_journal_knows_by_whom(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        await box.keep.deploy(OLD)
        await box.keep.pause("flow")
        await box.publish("flow", "in", "m1", "m2")
        await box.keep.deploy(NEW, drop=["in"], by="ann", workflow="flow")
        await box.keep.resume("flow")
        await box.settle()
        assert await box.statuses("flow", "in") == {"m1": "skipped", "m2": "skipped"}
    assert fake.texts == []
    with left_in(path) as q:
        [entry] = [each for each in reads.journal(q) if '"dropped":{"in":2}' in each.changed]
        assert (entry.operation, '"by":"ann"' in entry.changed) == ("activate_script", True)


async def test_a_rollback_asks_for_the_events_of_the_newer_topics_too() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(OLD)
        await box.keep.deploy(NEW, workflow="flow")
        await box.keep.pause("flow")
        await box.publish("flow", "post", "m1", "m2")
        with pytest.raises(EventsWouldWait) as refused:
            await box.keep.rollback("flow", "1.0", by="ann")
        assert refused.value.topics == {"post": 2}
        await box.keep.rollback("flow", "1.0", move={"post": "in"}, by="ann")
        await box.keep.resume("flow")
        await box.settle()
        assert await box.statuses("flow", "in") == {"m1": "consumed", "m2": "consumed"}
    assert fake.texts == ["m1", "m2"]


async def test_a_slip_of_the_pen_is_refused_and_no_workflow_is_made_of_it() -> None:
    async with world(Fake()) as box:
        with pytest.raises(Rejected) as refused:
            await box.keep.deploy(OLD, drop=["ni"])
        assert refused.value.reason is Reason.TOPIC_NOT_FOUND
        assert await box.keep.workflows() == []


async def test_a_word_about_topics_is_heard_also_when_the_script_is_the_same() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(NEW)
        with pytest.raises(Rejected) as refused:
            await box.keep.deploy(NEW, drop=["post"])
        assert refused.value.reason is Reason.TOPIC_STILL_DECLARED


@pytest.mark.parametrize("on_unknown", ["park", "pause"])
async def test_a_call_in_doubt_is_settled_under_the_new_topic_and_made_once(
    tmp_path: Path, on_unknown: Literal["park", "pause"]
) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    fake.plan("add", applies_and_raises(OSError("gone")))
    async with world(fake, path=path, policy=Policy(on_unknown=on_unknown)) as box:
        await box.keep.deploy(OLD)
        await box.publish("flow", "in", "m1")
        await box.settle()
        [question] = await box.keep.unknowns()
        with pytest.raises(Rejected, match="Settle that run first"):
            await box.keep.deploy(NEW, drop=["in"], workflow="flow")
        await box.keep.deploy(NEW, move={"in": "post"}, workflow="flow")
        assert await box.statuses("flow", "post") == {"m1": "reserved"}
        await box.publish("flow", "post", "m2")
        await box.settle()
        await box.keep.resolve(question.mutation_id, "happened", by="ann", result={"id": "add_1", "text": "m1"})
        await box.settle()
        assert await box.statuses("flow", "post") == {"m1": "consumed", "m2": "consumed"}
        assert await box.keep.attention() == []
    assert fake.done_twice == []
    assert sorted(fake.texts) == ["m1", "m2"]
    with left_in(path) as q:
        assert invariants.check(q, deep=True) == []
