"""What a person says a call returned is checked like the connector's own answer, shown, and put right in time."""

from pathlib import Path

import anyio
import pytest

from keep_actors import Policy, Reason, Rejected, ResultRefused
from keep_actors.host.fault_points import Point
from keep_storage.model import JournalEntry
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.world import TimedBox, script, world

pytestmark = pytest.mark.anyio

LOST = ConnectionError("the line is dead")
SCRIPT = script(mutate="await c.fake.add({ text: prepared.data.id });", next_="return result.result;")
SEEN, READ_WRONG = {"id": "add_1", "text": "one"}, {"id": "add_9", "text": "one"}


async def doubted(box: TimedBox, fake: Fake, source: str = SCRIPT) -> str:
    """A call of which nobody knows whether it happened."""
    fake.plan("add", applies_and_raises(LOST))
    await box.keep.deploy(source)
    await box.publish("flow", "in", "one")
    await box.settle()
    [asked] = await box.keep.unknowns()
    return asked.mutation_id


async def state(box: TimedBox) -> str | None:
    return (await box.keep.runs("flow"))[0].output_state


async def test_a_verdicts_result_that_does_not_fit_is_refused_and_nothing_is_written() -> None:
    fake = Fake()
    async with world(fake) as box:
        mutation_id = await doubted(box, fake)
        before = await box.keep.unknowns()
        for wrong in (None, "r7", {"id": 7, "text": "one"}, {"id": "add_1"}):
            with pytest.raises(ResultRefused) as refused:
                await box.keep.resolve(mutation_id, "happened", by="ann", result=wrong)
            assert refused.value.expected == "{ id: string; text: string }"
            assert 'for example {"id":"text","text":"text"}' in str(refused.value)
            assert str(refused.value).startswith("The result of fake.add does not fit: ")
        await box.settle()
        assert await box.keep.unknowns() == before
        await box.keep.resolve(mutation_id, "happened", by="ann", result={**SEEN, "more": 1})
        await box.settle()
        assert await state(box) == '{"id":"add_1","text":"one"}', "kept as the connector's own answer would be"


async def test_the_question_shows_the_shape_of_the_result_with_an_example() -> None:
    fake = Fake()
    async with world(fake) as box:
        await doubted(box, fake)
        [asked] = await box.keep.unknowns()
        assert (asked.result_type, asked.result_example) == (
            "{ id: string; text: string }",
            '{"id":"text","text":"text"}',
        )


async def test_a_runtime_without_the_connector_takes_no_result_and_says_what_to_do(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        mutation_id = await doubted(box, fake)
    async with world(path=tmp_path / "keep.db", time=box.time) as box:
        [asked] = await box.keep.unknowns()
        assert (asked.result_type, asked.result_example) == ("", "")
        with pytest.raises(ResultRefused, match=r"this runtime has no fake\.add\. Open it with that connector"):
            await box.keep.resolve(mutation_id, "happened", by="ann", result=SEEN)
        assert await box.keep.unknowns() == [asked]
        await box.keep.resolve(mutation_id, "skip", by="ann")


async def test_a_result_that_nothing_has_used_is_amended_and_next_is_given_the_right_one() -> None:
    fake = Fake()
    async with world(fake) as box:
        mutation_id = await doubted(box, fake)
        await box.keep.pause("flow")
        said = await box.keep.resolve(mutation_id, "happened", by="ann", result=READ_WRONG)
        amended = await box.keep.amend(mutation_id, result=SEEN, by="bob", why="read it wrong", version=said.version)
        assert (amended.version, amended.resolved_who) == (said.version + 1, "bob")
        with pytest.raises(Rejected, match="changed since you looked") as stale:
            await box.keep.amend(mutation_id, result=SEEN, by="ann", version=said.version)
        assert stale.value.reason is Reason.MUTATION_VERSION_STALE
        with pytest.raises(ResultRefused, match="is required and missing"):
            await box.keep.amend(mutation_id, result={"id": "add_1"}, by="bob")
        await box.keep.resume("flow")
        await box.settle()
        assert await state(box) == '{"id":"add_1","text":"one"}'
        entry = await amendment(box, amended.run_id)
        assert entry.why == "read it wrong"
        assert '"by":"bob"' in entry.changed
        assert "add_9" in entry.changed, "what was said first stays readable"
        with pytest.raises(Rejected, match="has used the result") as used:
            await box.keep.amend(mutation_id, result=SEEN, by="ann")
        assert used.value.reason is Reason.RESULT_ALREADY_USED


async def amendment(box: TimedBox, run_id: str) -> JournalEntry:
    explained = await box.keep.explain(run_id)
    return next(each for each in explained.journal if each.operation == "amend_result")


async def test_what_the_connector_answered_is_not_amended() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(SCRIPT)
        await box.publish("flow", "in", "one")
        await box.settle()
        [output] = await box.keep.outputs("flow")
        with pytest.raises(Rejected, match="only a result that a person gave"):
            await box.keep.amend(output.mutation_id, result=SEEN, by="ann")
        with pytest.raises(Rejected, match="no mutation 'mut_none'"):
            await box.keep.amend("mut_none", result=SEEN, by="ann")


async def test_a_result_that_next_is_running_with_is_not_changed_under_its_feet(tmp_path: Path) -> None:
    """`next` runs ahead of the file: what is amended meanwhile waits for its end, and is refused then."""
    fake, refused, mutation_id = Fake(), list[Rejected](), ""
    async with anyio.create_task_group() as tasks:

        async def amend(box: TimedBox) -> None:
            with pytest.raises(Rejected) as caught:
                await box.keep.amend(mutation_id, result=READ_WRONG, by="bob")
            refused.append(caught.value)

        def when_next_starts(point: Point, _: str) -> None:
            if point is Point.STARTED and mutation_id and not refused:
                tasks.start_soon(amend, box)

        async with world(fake, path=tmp_path / "keep.db", faults=when_next_starts) as box:
            doubt = await doubted(box, fake)
            mutation_id = doubt
            await box.keep.resolve(doubt, "happened", by="ann", result=SEEN)
            await box.settle()
            [output] = await box.keep.outputs("flow")
            assert (await state(box), output.result) == ('{"id":"add_1","text":"one"}',) * 2
    assert [each.reason for each in refused] == [Reason.RESULT_ALREADY_USED]


async def test_inside_an_item_the_amended_result_is_replayed() -> None:
    fake = Fake()
    job = """
      await c.withItem("i1", "Item", async (inner) => { told = await hidden(inner).fake.add({ text: "one" }); });
      return told;
    """
    async with world(fake) as box:
        fake.plan("add", applies_and_raises(LOST))
        await box.keep.deploy(script(job=f"let told; {job}"))
        await box.settle()
        [asked] = await box.keep.unknowns()
        await box.keep.pause("flow")
        await box.keep.resolve(asked.mutation_id, "happened", by="ann", result=READ_WRONG)
        await box.keep.amend(asked.mutation_id, result=SEEN, by="ann")
        await box.keep.resume("flow")
        await box.settle()
        assert fake.texts == ["one"]
        assert await state(box) == '{"id":"add_1","text":"one"}'


async def test_a_parked_call_that_was_answered_is_amended_while_its_workflow_is_paused() -> None:
    fake = Fake()
    async with world(fake, policy=Policy(on_unknown="park")) as box:
        mutation_id = await doubted(box, fake)
        await box.keep.pause("flow")
        await box.keep.resolve(mutation_id, "happened", by="ann", result=READ_WRONG)
        await box.keep.amend(mutation_id, result=SEEN, by="ann")
        await box.keep.resume("flow")
        await box.settle()
        assert await state(box) == '{"id":"add_1","text":"one"}'
