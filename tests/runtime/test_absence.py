"""When an absence is believed: after the deadline of the call and `settle_ms`, on a clock that nobody can set."""

from pathlib import Path
from typing import NoReturn

import pytest

from keep_actors import Grant
from keep_actors.host.call_times import CallTimes
from keep_actors.host.fault_points import Point
from keep_actors.kernel import VirtualTime
from keep_actors.testing import Attempt, Box, Fake
from tests.bank import SETTLE_MS, TIMEOUT_MS, fake_bank, payees
from tests.runtime.world import MINUTE, START, TimedBox, script, world

pytestmark = pytest.mark.anyio

HOUR = 60 * MINUTE
PAYS = script(mutate="await c.bank.pay({ to: prepared.data.id });", next_="return {};")


class Adrift:
    """A step: the request is lost by the one who sent it, and stays on its way until a test lets it arrive."""

    def __init__(self) -> None:
        self._attempt: Attempt | None = None

    async def __call__(self, attempt: Attempt) -> NoReturn:
        self._attempt = attempt
        attempt.send()
        raise ConnectionError("the line is dead")

    def arrive(self) -> None:
        """Pay now."""
        assert self._attempt is not None
        self._attempt.do()


@pytest.fixture(name="lost")
def _lost() -> Adrift:
    return Adrift()


@pytest.fixture(name="bank")
def _bank(lost: Adrift) -> Fake:
    """The first payment is lost."""
    bank = fake_bank()
    bank.plan("pay", lost)
    return bank


async def start(box: TimedBox) -> None:
    await box.keep.deploy(PAYS)
    await box.publish("flow", "in", "one")
    await box.settle()


async def is_held(box: TimedBox) -> bool:
    return await box.statuses("flow", "in") == {"one": "reserved"}


async def test_a_clock_that_jumps_an_hour_forward_does_not_have_a_lost_request_paid_twice(
    bank: Fake, lost: Adrift
) -> None:
    async with world(bank) as box:
        await start(box)
        box.time.jump(HOUR)
        await box.settle()
        assert await is_held(box)
        await box.advance(TIMEOUT_MS + SETTLE_MS - 1)
        lost.arrive()
        for _ in range(5):
            await box.advance(MINUTE)
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert payees(bank) == ["one"]


@pytest.mark.parametrize("days", [2, 20_000])
async def test_a_clock_that_jumps_by_days_or_decades_neither_pays_twice_nor_asks_a_person(
    bank: Fake, days: int
) -> None:
    """The time that the policy gives a connector is over at once by such a clock; what it is given here is not."""
    async with world(bank) as box:
        await start(box)
        for _ in range(3):
            box.time.jump(days * 24 * HOUR)
            await box.settle()
            assert [each.status for each in await box.keep.unknowns()] == ["needs_reconcile"]
        await box.advance(TIMEOUT_MS + SETTLE_MS)
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert payees(bank) == ["one"]


async def test_what_never_arrives_is_sent_again_once_its_time_is_over_whatever_the_clock_says(bank: Fake) -> None:
    async with world(bank) as box:
        await start(box)
        box.time.jump(-HOUR)
        await box.advance(TIMEOUT_MS + SETTLE_MS)
        assert await is_held(box), "by a clock that was set back the next check is not due"
        for _ in range(3):
            await box.advance(HOUR)
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert payees(bank) == ["one"]


async def test_a_process_that_did_not_make_the_call_counts_from_its_own_start(
    bank: Fake, lost: Adrift, tmp_path: Path
) -> None:
    async with world(bank, path=tmp_path / "keep.db") as box:
        await start(box)
    # By the wall clock the call was made a day ago. How long the machine was off nobody can know.
    async with world(bank, path=tmp_path / "keep.db", time=VirtualTime(START + 24 * HOUR)) as box:
        await box.settle()
        assert await is_held(box)
        await box.advance(TIMEOUT_MS + SETTLE_MS - 1)
        assert await is_held(box)
        lost.arrive()
        for _ in range(5):
            await box.advance(MINUTE)
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert payees(bank) == ["one"]


async def test_after_that_an_absence_that_another_process_left_is_believed(bank: Fake, tmp_path: Path) -> None:
    async with world(bank, path=tmp_path / "keep.db") as box:
        await start(box)
    async with world(bank, path=tmp_path / "keep.db", time=VirtualTime(START + 24 * HOUR)) as box:
        await box.settle()
        await box.advance(TIMEOUT_MS + SETTLE_MS)
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert payees(bank) == ["one"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_many_lives_too_short_to_believe_it_leave_the_question_to_one_that_lasts(
    bank: Fake, lost: Adrift, tmp_path: Path, arrives: bool
) -> None:
    """More of them than a connector is asked: none of them could have told."""
    async with world(bank, path=tmp_path / "keep.db") as box:
        await start(box)
    for number in range(1, 20):
        async with world(bank, path=tmp_path / "keep.db", time=VirtualTime(START + number * HOUR)) as box:
            await box.settle()
            await box.advance(TIMEOUT_MS + SETTLE_MS - 1)
            assert await is_held(box)
    if arrives:
        lost.arrive()
    async with world(bank, path=tmp_path / "keep.db", time=VirtualTime(START + 20 * HOUR)) as box:
        await box.settle()
        await box.advance(TIMEOUT_MS + SETTLE_MS)
        assert (await box.statuses("flow", "in"), await box.keep.unknowns()) == ({"one": "consumed"}, [])
    assert payees(bank) == ["one"]


async def test_a_crash_of_the_actor_does_not_count_the_call_from_the_start_of_the_process(
    bank: Fake, lost: Adrift
) -> None:
    armed = True

    def strike(point: Point, _: str) -> None:
        nonlocal armed
        if armed and point is Point.ANSWERED:
            armed = False
            raise RuntimeError("struck")

    async with world(bank, faults=strike) as box:
        await box.advance(HOUR)
        await box.keep.deploy(PAYS)
        await box.publish("flow", "in", "one")
        await box.until_idle()
        await box.advance(TIMEOUT_MS)
        assert not armed
        assert await is_held(box)
        lost.arrive()
        for _ in range(5):
            await box.advance(MINUTE)
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert payees(bank) == ["one"]


IN_AN_ITEM = script(job='await c.withItem("one", "T", async () => { await c.bank.pay({ to: "one" }); });')


@pytest.mark.parametrize("how", ["in a consumer", "in an item", "approved"])
async def test_a_clock_that_jumps_while_the_call_is_on_its_way_does_not_have_it_paid_twice(
    lost: Adrift, how: str
) -> None:
    bank = fake_bank()
    call = bank.hang("pay", then=lost)
    async with world(bank) as box:
        grants = [Grant("bank.pay", policy="ask")] if how == "approved" else "all"
        await box.keep.deploy(IN_AN_ITEM if how == "in an item" else PAYS, grants=grants)
        if how != "in an item":
            await box.publish("flow", "in", "one")
        if how == "approved":
            await box.settle()
            [question] = await box.keep.approvals()
            await box.keep.approve(question.approval_id, by="alice")
        await call.reached.wait()
        box.time.jump(HOUR)
        call.release()
        await box.settle()
        [doubt] = await box.keep.unknowns()
        assert doubt.status == "needs_reconcile"
        await box.advance(TIMEOUT_MS + SETTLE_MS - 1)
        assert len(await box.keep.unknowns()) == 1
        lost.arrive()
        for _ in range(5):
            await box.advance(MINUTE)
        assert (await box.keep.unknowns(), (await box.keep.workflow("flow")).error) == ([], "")
    assert payees(bank) == ["one"]


def test_a_call_that_resists_its_deadline_is_over_when_it_ends() -> None:
    time = VirtualTime()
    times = CallTimes(time)
    with times.making("mut_1", 1_000):
        assert times.waited_ms("mut_1", 1_000) == -1_000
        time.advance(5_000)
    time.advance(300)
    assert times.waited_ms("mut_1", 1_000) == 300


def test_a_call_that_ends_early_is_over_at_its_deadline() -> None:
    time = VirtualTime()
    times = CallTimes(time)
    with times.making("mut_1", 1_000):
        time.advance(10)
    time.jump(HOUR)
    assert times.waited_ms("mut_1", 1_000) == -990


async def test_a_call_is_remembered_until_its_outcome_is_in_the_ledger() -> None:
    time = VirtualTime()
    times = CallTimes(time)
    async with Box.open(fake_bank()) as box:
        await box.deploy(PAYS)
        await box.publish("flow", "in", "one")
        await box.until_idle()
        [paid] = box.ledger
    with times.making(paid.id, 1_000):
        time.advance(HOUR)
    times.note(())
    assert (len(times), times.waited_ms(paid.id, 1_000)) == (1, 0)
    times.note((None, (paid,)))
    assert len(times) == 0
