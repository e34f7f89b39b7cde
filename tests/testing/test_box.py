"""The kit itself: a box lives, crashes and lives again, steps and freezes, and says what happened outside."""

from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from keep_actors.connectors import NotApplied
from keep_actors.kernel import VirtualTime
from keep_actors.testing import (
    Box,
    Point,
    Step,
    auth,
    cannot_tell,
    fail,
    late_commit,
    lose_the_answer,
    lose_the_request,
    notes,
    says,
    transient,
)
from keep_actors.testing.fixtures import OpenBox
from keep_actors.workflow.messages import Advance, Do, Ended, Tick
from keep_storage.operations import PauseWorkflow
from tests.bank import fake_bank
from tests.runtime.world import script

pytestmark = pytest.mark.anyio


PAYS = script(mutate="await c.bank.pay({ to: prepared.data.id });", next_="return { last: result.result };")
WIRES = script(mutate="await c.bank.wire({ to: prepared.data.id });")


async def test_a_fake_has_the_methods_of_the_real_one_and_does_nothing_real() -> None:
    async with Box.open(fake_bank()) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann", "bob")
        await box.until_idle()
        box.world.happened("bank.pay", times=1, to="ann")
        assert [each.result for each in box.world.happened("bank.pay", times=2)] == ["paid ann", "paid bob"]
        box.ledger.has("bank.pay", "applied", "applied")
        box.journal.has("create_mutation", "apply_mutation", "commit_consumer")
        box.world.never_twice()
        box.check_invariants()


@pytest.mark.parametrize(
    ("step", "status", "happened"),
    [
        (fail, "failed", 0),
        (transient, "failed", 0),
        (auth, "failed", 0),
        (lose_the_answer, "indeterminate", 1),
        (lose_the_request, "indeterminate", 0),
        (late_commit(5_000), "indeterminate", 0),
    ],
)
async def test_each_step_of_a_plan_does_what_it_says(step: Step, status: str, happened: int) -> None:
    fake = fake_bank()
    fake.plan("wire", step)
    async with Box.open(fake) as box:
        await box.deploy(WIRES)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        box.ledger.has("bank.wire", status)
        assert len(box.world.effects) == happened


async def test_a_late_commit_happens_when_its_time_has_come() -> None:
    fake = fake_bank()
    fake.plan("wire", late_commit(5_000))
    async with Box.open(fake) as box:
        await box.deploy(WIRES)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        [line] = box.ledger.unsettled()
        assert box.world.found(line.idempotency_key) is None
        assert box.world.truth(line.idempotency_key) is not None
        await box.advance(seconds=6)
        box.world.happened("bank.wire", times=1)


async def test_a_reconciler_looks_into_the_world_unless_there_is_a_plan() -> None:
    fake = fake_bank()
    fake.plan("pay", lose_the_answer, lose_the_request)
    fake.plan("pay reconcile", cannot_tell)
    async with Box.open(fake) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        box.ledger.has("bank.pay", "needs_reconcile")
        await box.advance(minutes=1)
        box.ledger.has("bank.pay", "applied")
        await box.publish("flow", "in", "bob")
        await box.advance(minutes=1)
        box.ledger.has("bank.pay", "applied", "failed", "applied")
        box.world.happened("bank.pay", times=1, to="bob")


async def test_what_is_on_its_way_does_not_arrive_sooner_because_the_clock_is_set() -> None:
    fake, time = fake_bank(), VirtualTime()
    fake.plan("pay", late_commit(30_000))
    async with Box.open(fake, time=time) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        time.jump(3_600_000)
        await box.until_idle()
        assert (box.world.effects, len(box.world.coming)) == ([], 1)
        await box.advance(minutes=2)
        box.world.happened("bank.pay", times=1)


async def test_a_reconciler_can_be_made_to_lie() -> None:
    fake = fake_bank()
    fake.plan("pay", lose_the_answer)
    fake.plan("pay reconcile", *[says(NotApplied())] * 2)
    async with Box.open(fake) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann")
        await box.advance(minutes=2)
        box.world.happened("bank.pay", times=2)


@pytest.mark.parametrize("in_a_file", [False, True])
@pytest.mark.parametrize("point", [Point.RECORDED, Point.ANSWERED])
async def test_a_crash_around_the_call_is_settled_by_the_next_process(
    point: Point, in_a_file: bool, tmp_path: Path
) -> None:
    async with Box.open(fake_bank(), path=tmp_path / "keep.db" if in_a_file else None) as box:
        await box.deploy(PAYS)
        box.crash_at(point)
        await box.publish("flow", "in", "ann")
        await box.crashed()
        await box.reopen()
        await box.advance(minutes=2)
        box.world.happened("bank.pay", times=1)
        assert await box.statuses("flow", "in") == {"ann": "consumed"}
        assert box.processes == 2
        box.check_invariants()


@pytest.mark.parametrize("point", list(Point))
async def test_a_box_can_crash_at_every_point(point: Point) -> None:
    fake = fake_bank()
    fake.plan("pay", notes("payment 7", lose_the_answer))
    async with Box.open(fake) as box:
        await box.deploy(PAYS)
        await box.keep.pause("flow")
        await box.publish("flow", "in", "ann")
        await box.keep.resume("flow")
        box.crash_at(point)
        await box.crashed()
        await box.reopen()
        await box.advance(minutes=2)
        box.world.happened("bank.pay", times=1)
        box.check_invariants()


async def test_waiting_for_a_crash_that_does_not_come_is_a_failure_and_not_a_wait_for_ever() -> None:
    async with Box.open(fake_bank()) as box:
        await box.deploy(PAYS)
        box.crash_at(Point.CHECK)
        with pytest.raises(AssertionError, match=r"has not come to .*call\.check"):
            await box.crashed()


async def test_nothing_happens_after_a_crash() -> None:
    fake = fake_bank()
    async with Box.open(fake) as box:
        hangs = fake.hang("pay")
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        assert hangs.reached.is_set()
        await box.crash()
        hangs.release()
        await box.until_idle()
        assert box.world.effects == []
        box.ledger.has("bank.pay", "in_flight")


async def test_a_frozen_workflow_takes_one_message_at_a_time() -> None:
    async with Box.open(fake_bank()) as box:
        await box.deploy(PAYS)
        flow = await box.id_of("flow")
        await box.keep.pause("flow")
        await box.publish("flow", "in", "ann")
        await box.freeze("flow")
        await box.tell("flow", Tick())
        await box.tell("flow", Do(PauseWorkflow(flow)))
        assert [type(each) for each in await box.mailbox("flow")] == [Tick, Do]
        assert isinstance(await box.step("flow"), Tick)
        assert [type(each) for each in await box.mailbox("flow")] == [Do]
        await box.thaw()
        assert await box.mailbox("flow") == []


async def test_the_steps_of_a_run_can_be_taken_one_by_one() -> None:
    async with Box.open(fake_bank()) as box:
        await box.deploy(PAYS)
        await box.keep.pause("flow")
        await box.publish("flow", "in", "ann")
        await box.keep.resume("flow")
        await box.freeze("flow")
        seen = []
        while (message := await box.step("flow")) is not None:
            seen.append(type(message))
        assert seen[-1] is Ended
        assert set(seen) == {Advance, Ended}
        box.world.happened("bank.pay", times=1)


async def test_the_fixture_opens_a_box(keep_box: OpenBox) -> None:
    async with keep_box(fake_bank()) as box:
        await box.deploy(PAYS)
        assert [each.name for each in await box.keep.workflows()] == ["flow"]


async def test_a_plan_for_what_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(ValueError, match=r"no 'wire reconcile'.*balance, wire, pay"):
        fake_bank().plan("wire reconcile", cannot_tell)


async def test_an_assertion_about_the_world_shows_the_world() -> None:
    async with Box.open(fake_bank()) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        with pytest.raises(AssertionError, match=r"should have happened 2 time\(s\), and did 1.*\n.*bank\.pay"):
            box.world.happened("bank.pay", times=2)


@pytest.mark.parametrize("turns", range(6))
async def test_a_box_is_not_idle_while_somebody_has_yet_to_learn_that_a_task_has_ended(turns: int) -> None:
    went_on = anyio.Event()

    async def waits_for_a_task() -> None:
        async with anyio.create_task_group() as inner:
            inner.start_soon(checkpoint)
        went_on.set()

    async with Box.open() as box, anyio.create_task_group() as outer:
        outer.start_soon(waits_for_a_task)
        for _ in range(turns):
            await checkpoint()
        await box.until_idle()
        assert went_on.is_set()


async def test_a_note_of_the_connector_is_shown_to_the_person_who_has_to_find_out() -> None:
    fake = fake_bank()
    fake.plan("pay", notes("payment 7", lose_the_answer))
    fake.plan("pay reconcile", *[cannot_tell] * 20)
    async with Box.open(fake) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "ann")
        await box.until_idle()
        [question] = await box.keep.unknowns()
    assert question.noted == "payment 7"
    assert "noted: payment 7" in [each.what for each in question.tried]
    assert all(each.what for each in question.tried)
