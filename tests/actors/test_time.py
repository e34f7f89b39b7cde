"""The time of the machine, with a machine that obeys the test; and the time that moves by hand."""

import time

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_actors.kernel import Time, VirtualTime, WallTime

pytestmark = pytest.mark.anyio

START = 1_700_000_000_000


async def settle() -> None:
    """Let everybody run until all wait for something."""
    # On asyncio, waiting until all are blocked takes a long pause if they are not: these turns avoid it.
    for _ in range(20):
        await checkpoint()
    await anyio.wait_all_tasks_blocked()


class Machine:
    """A wall clock, and an event loop whose sleeps move it at once. `jumps_ms` is added after each sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *jumps_ms: int) -> None:
        self.ns = START * 1_000_000
        self.jumps_ms = list(jumps_ms)
        self.slept: list[float] = []
        monkeypatch.setattr(time, "time_ns", lambda: self.ns)
        monkeypatch.setattr(anyio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ns += int(seconds * 1_000_000_000)
        if self.jumps_ms:
            self.ns += self.jumps_ms.pop(0) * 1_000_000


class Sleeper:
    """Sleeps in a task of its own and then writes its name down."""

    def __init__(self, virtual: VirtualTime, name: str, at: int, woken: list[tuple[str, int]]) -> None:
        self.virtual = virtual
        self.name = name
        self.at = at
        self.woken = woken
        self.scope = anyio.CancelScope()

    async def __call__(self) -> None:
        with self.scope:
            await self.virtual.sleep_until(self.at)
            self.woken.append((self.name, self.virtual.now()))


@pytest.fixture(params=[WallTime, VirtualTime])
def any_time(request: pytest.FixtureRequest) -> Time:
    made: Time = request.param()
    return made


async def test_a_moment_that_has_passed_is_not_waited_for(any_time: Time) -> None:
    await any_time.sleep_until(any_time.now())
    await any_time.sleep_until(0)


async def test_waiting_for_a_moment_that_has_passed_is_a_checkpoint(any_time: Time) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await any_time.sleep_until(0)

    assert scope.cancelled_caught


async def test_a_wait_can_be_cancelled(any_time: Time) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(any_time.sleep_until, any_time.now() + 1_000_000)
        await settle()
        tasks.cancel_scope.cancel()

    assert tasks.cancel_scope.cancelled_caught


async def test_wall_time_is_in_whole_milliseconds_since_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.ns += 1_999_999

    assert WallTime().now() == START + 1


async def test_what_has_elapsed_is_not_read_from_a_clock_that_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, machine_time = Machine(monkeypatch), WallTime()
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_999_999)
    machine.ns += 3_600_000_000_000

    assert machine_time.elapsed() == 5


async def test_a_virtual_clock_that_is_set_lets_no_time_pass_and_wakes_who_is_due() -> None:
    virtual, woken = VirtualTime(START), list[tuple[str, int]]()
    virtual.advance(1_000)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Sleeper(virtual, "tea", START + 60_000, woken))
        await settle()
        virtual.jump(-500)
        assert (virtual.now(), virtual.elapsed()) == (START + 500, 1_000)
        virtual.jump(3_600_000)
        await settle()

    assert woken == [("tea", START + 3_600_500)]
    assert virtual.elapsed() == 1_000


async def test_wall_time_sleeps_until_the_moment_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)

    await WallTime().sleep_until(START + 1500)

    assert machine.slept == [1.5]


async def test_wall_time_sleeps_at_most_half_a_minute_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)

    await WallTime().sleep_until(START + 70_000)

    assert machine.slept == [30, 30, 10]


async def test_a_clock_that_was_set_forward_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 0, 3_600_000)

    await WallTime().sleep_until(START + 3_600_000)

    assert machine.slept == [30, 30]


async def test_a_clock_that_was_set_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, -20_000)

    await WallTime().sleep_until(START + 30_000)

    assert machine.slept == [30, 20]


async def test_a_sleep_that_ends_early_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, -1)

    await WallTime().sleep_until(START + 1000)

    assert machine.slept == [1, 0.001]


async def test_virtual_time_stands_still_until_it_is_moved() -> None:
    virtual = VirtualTime()

    assert virtual.now() == START
    virtual.advance(5)
    assert virtual.now() == START + 5
    virtual.advance_to(START + 7)
    assert virtual.now() == START + 7


async def test_virtual_time_begins_where_it_is_told_to() -> None:
    assert VirtualTime(42).now() == 42


async def test_virtual_time_does_not_go_back() -> None:
    with pytest.raises(AssertionError, match="does not go back"):
        VirtualTime(10).advance_to(9)


async def test_a_sleeper_wakes_when_its_moment_has_come_and_not_before() -> None:
    virtual = VirtualTime(0)
    woken: list[tuple[str, int]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Sleeper(virtual, "a", 100, woken))
        await settle()
        virtual.advance(99)
        await settle()
        before = list(woken)
        virtual.advance(1)

    assert before == []
    assert woken == [("a", 100)]


async def test_sleepers_wake_earliest_first_and_at_one_moment_in_the_order_they_lay_down() -> None:
    virtual = VirtualTime(0)
    woken: list[tuple[str, int]] = []
    async with anyio.create_task_group() as tasks:
        for name, at in [("d", 40), ("b", 20), ("a", 10), ("c", 20), ("e", 50)]:
            tasks.start_soon(Sleeper(virtual, name, at, woken))
            await settle()
        virtual.advance(30)
        virtual.advance(30)

    assert [name for name, _ in woken] == ["a", "b", "c", "d", "e"]


async def test_next_due_is_the_moment_of_the_earliest_sleeper_still_asleep() -> None:
    virtual = VirtualTime(0)
    woken: list[tuple[str, int]] = []
    late, early = Sleeper(virtual, "late", 20, woken), Sleeper(virtual, "early", 10, woken)
    seen = [virtual.next_due]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(late)
        await settle()
        seen.append(virtual.next_due)
        tasks.start_soon(early)
        await settle()
        seen.append(virtual.next_due)
        virtual.advance_to(10)
        seen.append(virtual.next_due)
        late.scope.cancel()
        await settle()
        seen.append(virtual.next_due)

    assert seen == [None, 20, 10, 20, None]


@given(
    moments=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    steps=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 11), st.booleans()), max_size=8),
)
@settings(max_examples=100, deadline=None)
async def test_a_sleeper_that_is_cancelled_at_any_time_holds_nobody_up(
    moments: list[int], steps: list[tuple[int, int, bool]]
) -> None:
    virtual = VirtualTime(0)
    woken: list[tuple[str, int]] = []
    sleepers = [Sleeper(virtual, str(number), at, woken) for number, at in enumerate(moments)]
    async with anyio.create_task_group() as tasks:
        for sleeper in sleepers:
            tasks.start_soon(sleeper)
            await checkpoint()
        for ms, victim, turn in steps:
            virtual.advance(ms)
            sleepers[victim % len(sleepers)].scope.cancel()
            if turn:
                await checkpoint()
        virtual.advance_to(200)
        for _ in range(20):
            await checkpoint()
        tasks.cancel_scope.cancel()

    names = {name for name, _ in woken}
    assert len(names) == len(woken)
    assert all(sleeper.scope.cancelled_caught or sleeper.name in names for sleeper in sleepers)
    assert virtual.next_due is None
