"""Items as people see and change them: where each stands, every attempt with its calls, and many of them at once."""

import pytest

from keep_actors import Backoff, Policy, Reason, Rejected
from keep_actors.connectors import Transient
from keep_storage.model import ItemState
from tests.runtime.fakes import Fake, raises
from tests.runtime.world import DAY, TimedBox, script, world

pytestmark = pytest.mark.anyio

STEADY = Policy(retry=Backoff(jitter=0))

THREE = """
  for (const id of ["a", "b", "c"])
    await c.withItem(id, `Item ${id}`, async () => {
      if (!c.item.isDone) await c.fake.add({ text: id });
    });
"""


async def deployed(box: TimedBox, body: str = THREE) -> None:
    await box.keep.deploy(script(job=body), workflow="flow")
    await box.settle()


async def states(box: TimedBox) -> dict[str, str]:
    return {each.item_id: f"{each.state} {each.attempt}" for each in await box.keep.items("flow")}


# Looking.


async def test_items_are_listed_by_id_with_their_state_in_pages() -> None:
    fake = Fake()
    async with world(fake, policy=STEADY) as box:
        fake.plan("add", raises(Transient("busy")))
        await deployed(box)
        [first] = await box.keep.items("flow")
        run = await box.last_run("flow", "sweep")
        assert (first.item_id, first.title, first.state, first.attempt) == ("a", "Item a", ItemState.FAILED, 1)
        assert (first.run_id, first.is_open, first.error) == (run.id, False, run.error_message)
        await box.advance(DAY)
        assert await states(box) == {"a": "done 1", "b": "done 1", "c": "done 1"}
        await box.keep.reprocess_item("flow", "b", by="alice")
        assert [each.item_id for each in await box.keep.items("flow", limit=2)] == ["a", "b"]
        assert [each.item_id for each in await box.keep.items("flow", after="b")] == ["c"]
        assert [each.item_id for each in await box.keep.items("flow", state="done")] == ["a", "c"]
        assert [each.item_id for each in await box.keep.items("flow", state=ItemState.PROCESSING)] == ["b"]
        with pytest.raises(ValueError, match="finished"):
            await box.keep.items("flow", state="finished")


async def test_an_item_is_shown_with_every_attempt_and_the_calls_of_each() -> None:
    fake = Fake()
    body = """
      await c.withItem("7", "Invoice 7", async () => {
        if (c.item.isDone) return;
        await c.fake.add({ text: "one" });
        await c.fake.put({ text: "two" });
      });
    """
    async with world(fake, policy=STEADY) as box:
        fake.plan("put", raises(Transient("busy")))
        await deployed(box, body)
        await box.advance(DAY)
        runs = [each.id for each in await box.runs("flow", "sweep")]
        await box.keep.reprocess_item("flow", "7", by="alice")
        await box.keep.run_now("flow")
        await box.settle()
        found = await box.keep.item("flow", "7")
        assert (found.item.state, found.item.attempt, found.can_do != "") == (ItemState.DONE, 2, True)
        [first, second] = found.attempts
        assert (first.attempt, first.state, second.attempt, second.state) == (1, "done", 2, "done")
        assert first.runs == runs[: len(first.runs)]
        assert len(first.runs) == 2, "the first run failed half-way, the second finished it"
        assert second.runs == [(await box.last_run("flow", "sweep")).id]
        for attempt in (first, second):
            assert [(each.call, each.status) for each in attempt.calls] == [
                ("fake.add", "applied"),
                ("fake.put", "applied"),
            ]
        assert {each.mutation_id for each in first.calls}.isdisjoint(each.mutation_id for each in second.calls)
        assert fake.texts == ["one", "two"] * 2


async def test_an_item_that_is_not_there_is_refused_with_words() -> None:
    async with world(Fake()) as box:
        await deployed(box)
        with pytest.raises(Rejected, match="has no item 'z'") as refused:
            await box.keep.item("flow", "z")
        assert refused.value.reason is Reason.ITEM_NOT_FOUND


async def test_the_item_that_a_job_waits_for_is_named_by_attention_and_by_explain_until_it_is_answered() -> None:
    fake = Fake()
    body = """
      await c.withItem("7", "T", async () => {
        if (c.item.isDone) return;
        await c.fake.note({ target: "ann", text: "WORDS" });
        END
      });
    """
    async with world(fake) as box:
        await deployed(box, body.replace("WORDS", "hi").replace("END", 'throw new Error("no");'))
        await deployed(box, body.replace("WORDS", "bye").replace("END", ""))
        [waits] = await box.keep.attention()
        assert (waits.kind, waits.item) == ("error", "7")
        assert "'7'; then skip or reprocess it, and clear the error" in waits.can_do
        run = await box.last_run("flow", "sweep")
        explained = await box.keep.explain(run.id)
        assert (explained.item, explained.can_do) == ("7", [waits.can_do])
        await box.keep.skip_items("flow", state="needs_attention", by="alice")
        [waits] = await box.keep.attention()
        assert (waits.item, (await box.keep.explain(run.id)).item) == (None, None)


# Many at once.


async def test_many_items_are_processed_anew_at_once() -> None:
    fake = Fake()
    async with world(fake) as box:
        await deployed(box)
        again = await box.keep.reprocess_items("flow", ["c", "a", "c"], by="alice", why="wrong")
        assert [(each.item_id, each.attempt, each.state) for each in again] == [
            ("c", 2, "processing"),
            ("a", 2, "processing"),
        ]
        await box.keep.run_now("flow")
        await box.settle()
        assert await states(box) == {"a": "done 2", "b": "done 1", "c": "done 2"}
        assert fake.texts == ["a", "b", "c", "a", "c"]
        assert len(await box.keep.reprocess_items("flow", state="done", by="alice")) == 3
        assert await box.keep.reprocess_items("flow", state="done", by="alice") == [], "none is done any more"


async def test_all_items_in_a_state_are_skipped_at_once() -> None:
    fake = Fake()
    async with world(fake) as box:
        await deployed(box)
        await box.keep.reprocess_items("flow", ["a", "b"], by="alice")
        skipped = await box.keep.skip_items("flow", state="processing", by="alice", why="has left")
        assert [each.item_id for each in skipped] == ["a", "b"]
        await box.keep.run_now("flow")
        await box.settle()
        assert await states(box) == {"a": "skipped 2", "b": "skipped 2", "c": "done 1"}
        assert fake.texts == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("wrong", "reason"), [("b", Reason.ITEM_IS_DONE), ("z", Reason.ITEM_NOT_FOUND), ("", Reason.ITEM_NOT_FOUND)]
)
async def test_of_many_items_all_are_changed_or_none_and_the_first_refusal_is_named(wrong: str, reason: Reason) -> None:
    async with world(Fake()) as box:
        await deployed(box)
        await box.keep.reprocess_items("flow", ["a", "c"], by="alice")
        before = await states(box)
        with pytest.raises(Rejected, match=f"'{wrong}'") as refused:
            await box.keep.skip_items("flow", ["a", wrong, "c"], by="alice")
        assert refused.value.reason is reason
        assert await states(box) == before


async def test_an_item_that_was_done_meanwhile_is_not_done_a_second_time_with_those_that_failed() -> None:
    async with world(Fake()) as box:
        await deployed(box)
        before = await states(box)
        with pytest.raises(Rejected, match="Item 'a' is done, and no longer failed") as refused:
            await box.keep.reprocess_items("flow", ["a"], state="failed", by="alice")
        assert refused.value.reason is Reason.ITEM_STATE_CHANGED
        assert await states(box) == before


async def test_what_cannot_be_meant_is_refused_before_anything_is_asked() -> None:
    async with world(Fake()) as box:
        await deployed(box)
        with pytest.raises(ValueError, match="which items"):
            await box.keep.skip_items("flow", by="alice")
        with pytest.raises(ValueError, match="skip items that are processing, failed, needs_attention; not 'done'"):
            await box.keep.skip_items("flow", state="done", by="alice")
        with pytest.raises(ValueError, match="not 'processing'"):
            await box.keep.reprocess_items("flow", state="processing", by="alice")
        with pytest.raises(ValueError, match="more than 1,000 items at once"):
            await box.keep.skip_items("flow", [str(each) for each in range(1_001)], by="alice")
        with pytest.raises(TypeError, match="not the text 'abc'"):
            await box.keep.skip_items("flow", "abc", by="alice")
        assert await box.keep.skip_items("flow", [], by="alice") == []
