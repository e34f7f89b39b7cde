"""What the storage refuses of a run ends that run, once, and never its actor."""

from collections.abc import Iterator
from typing import Any

import pytest

from keep_actors import Reason
from keep_actors.run.failures import CLASS_OF_REFUSAL, NOT_ADMITTED_REASONS
from keep_storage import operations as ops
from tests.refusing import refuse_next
from tests.runtime.fakes import Fake
from tests.runtime.world import DAY, TimedBox, script, world

pytestmark = pytest.mark.anyio

PUT = "await c.fake.put({ text: prepared.data.id });"
CONSUMER = script(mutate=PUT, next_="return {};")
WITHOUT_NEXT = script(mutate=PUT)
READS = "await c.fake.search({});"
ITEM = 'await c.withItem("7", "T", async () => { if (!c.item.isDone) await c.fake.put({ text: "a" }); });'


@pytest.fixture(autouse=True)
def _no_actor_crashes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [each.getMessage() for each in caplog.records if each.name == "keep_actors.kernel"] == []


async def happens(box: TimedBox, source: str) -> None:
    await box.keep.deploy(source)
    await box.publish("flow", "in", "a")
    await box.until_idle()


WRITES: dict[str, tuple[type[ops.Operation[Any]], str]] = {
    "the creation of the run": (ops.CreateRun, CONSUMER),
    "the session": (ops.CreateSession, CONSUMER),
    "what was prepared": (ops.UpdateConsumerPhase, CONSUMER),
    "the call": (ops.CreateMutation, CONSUMER),
    "the outcome": (ops.ApplyMutation, CONSUMER),
    "the outcome, and there is no next": (ops.ApplyMutation, WITHOUT_NEXT),
    "the commit": (ops.CommitConsumer, CONSUMER),
    "the commit of a producer": (ops.CommitProducer, script(producer=READS)),
    "the beginning of an item": (ops.OpenItem, script(job=ITEM)),
    "a call in an item": (ops.CreateMutation, script(job=ITEM)),
    "the outcome of a call in an item": (ops.ApplyMutation, script(job=ITEM)),
    "the end of an item": (ops.CloseItem, script(job=ITEM)),
    "the commit of a job": (ops.CommitJob, script(job=ITEM)),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_refusal_that_nobody_expects_is_an_internal_failure_once_and_nothing_is_done_twice(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    operation, source = WRITES[what]
    fake = Fake()
    async with world(fake) as box:
        refused = refuse_next(monkeypatch, operation)
        await happens(box, source)
        assert len(refused) == 1
        if operation is not ops.ApplyMutation:
            # A call that was made is looked for and found at once; the rest a person sees to.
            assert [str(run.status) for run in await box.keep.runs("flow")] == ["failed:internal"]
            await box.advance(DAY)
            workflow = await box.keep.workflow("flow")
            assert ("Nobody expects this." in workflow.error, workflow.maintenance) == (True, False)
            await box.keep.clear_error("flow", by="alice")
        await box.settle()
        assert [str(run.status) for run in await box.keep.runs("flow")] == ["committed", "failed:internal"]
        assert fake.texts == ([] if "producer" in what else ["a"])


async def test_a_run_whose_end_is_refused_too_stops_its_workflow_once_as_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake()
    looks = fake.hang("reconcile")
    async with world(fake) as box:
        refuse_next(monkeypatch, ops.ApplyMutation)
        refused = refuse_next(monkeypatch, ops.UpdateHandlerRunStatus, times=2)
        await happens(box, CONSUMER)
        assert len(refused) == 1
        [run] = await box.keep.runs("flow")
        assert (run.status, await box.statuses("flow", "in")) == ("paused:reconciliation", {"a": "reserved"})
        assert (await box.keep.workflow("flow")).error
        looks.release()
        await box.settle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


async def test_whatever_the_reason_no_refusal_crashes_the_actor_or_is_tried_again_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, expected = Fake(), {*CLASS_OF_REFUSAL, *NOT_ADMITTED_REASONS}
    unexpected = [each for each in Reason if each not in expected]
    async with world(fake) as box:
        await box.keep.deploy(script(mutate=PUT))
        for reason in unexpected:
            refuse_next(monkeypatch, ops.CreateMutation, reason=reason)
            await box.publish("flow", "in", str(reason))
            await box.until_idle()
            last, *before = await box.keep.runs("flow", limit=2)
            assert (last.status, {run.status for run in before} - {"committed"}) == ("failed:internal", set())
            await box.keep.clear_error("flow", by="alice")
            await box.settle()
        assert fake.texts == [str(reason) for reason in unexpected]
