import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_actors.kernel import Clock, VirtualTime
from tests.actors.test_time import settle
from tests.actors.workplace import Boom

pytestmark = pytest.mark.anyio


class WatchedTime(VirtualTime):
    """Keeps the moments that were slept for."""

    def __init__(self) -> None:
        super().__init__(0)
        self.slept_for: list[int] = []

    async def sleep_until(self, at: int) -> None:
        self.slept_for.append(at)
        await super().sleep_until(at)


class RungClock:
    """A clock on a time that moves by hand, and what it rang for."""

    def __init__(self, ring: Callable[[str], None] = lambda _: None) -> None:
        self.time = WatchedTime()
        self.rung: list[tuple[str, int]] = []
        self.also = ring
        self.clock = Clock(self.time, self.ring)

    def ring(self, key: str) -> None:
        self.rung.append((key, self.time.now()))
        self.also(key)

    async def advance(self, ms: int) -> None:
        self.time.advance(ms)
        await settle()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.clock.run)
            await settle()
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture(name="world")
def _world() -> RungClock:
    return RungClock()


async def test_an_alarm_rings_once_when_it_is_due_and_not_before(world: RungClock) -> None:
    async with world.running():
        world.clock.set("a", 100)
        await world.advance(99)
        before = list(world.rung)
        await world.advance(1)
        await world.advance(100)

    assert before == []
    assert world.rung == [("a", 100)]


async def test_alarms_that_were_set_before_the_clock_runs_ring(world: RungClock) -> None:
    world.clock.set("a", 100)
    async with world.running():
        await world.advance(100)

    assert world.rung == [("a", 100)]


async def test_an_alarm_in_the_past_rings_at_once(world: RungClock) -> None:
    async with world.running():
        world.clock.set("a", -5)
        await settle()

    assert world.rung == [("a", 0)]


async def test_alarms_ring_earliest_first_and_at_one_moment_in_the_order_they_were_set(world: RungClock) -> None:
    for key, at in [("d", 40), ("b", 20), ("a", 10), ("c", 20)]:
        world.clock.set(key, at)
    async with world.running():
        await world.advance(100)

    assert [key for key, _ in world.rung] == ["a", "b", "c", "d"]


async def test_setting_an_alarm_again_replaces_it(world: RungClock) -> None:
    async with world.running():
        world.clock.set("later", 10)
        world.clock.set("later", 30)
        world.clock.set("earlier", 30)
        world.clock.set("earlier", 20)
        assert len(world.clock) == 2
        for _ in range(5):
            await world.advance(10)

    assert world.rung == [("earlier", 20), ("later", 30)]


async def test_an_alarm_that_was_cleared_does_not_ring(world: RungClock) -> None:
    async with world.running():
        world.clock.set("a", 10)
        world.clock.set("b", 10)
        world.clock.clear("a")
        world.clock.clear("never set")
        await world.advance(10)

    assert world.rung == [("b", 10)]


async def test_an_alarm_can_be_set_again_after_it_rang_or_was_cleared(world: RungClock) -> None:
    async with world.running():
        world.clock.set("a", 10)
        await world.advance(10)
        world.clock.set("a", 20)
        world.clock.clear("a")
        world.clock.set("a", 30)
        await world.advance(10)
        await world.advance(10)

    assert world.rung == [("a", 10), ("a", 30)]


async def test_next_at_is_the_earliest_alarm_still_set(world: RungClock) -> None:
    clock = world.clock
    seen = [clock.next_at]
    async with world.running():
        clock.set("a", 30)
        seen.append(clock.next_at)
        clock.set("b", 10)
        seen.append(clock.next_at)
        clock.set("b", 20)
        seen.append(clock.next_at)
        clock.clear("b")
        seen.append(clock.next_at)
        await world.advance(30)
        seen.append(clock.next_at)

    assert seen == [None, 30, 10, 20, 30, None]


async def test_an_alarm_is_removed_before_it_rings() -> None:
    left: list[tuple[int, int | None]] = []
    world: RungClock = RungClock(ring=lambda _: left.append((len(world.clock), world.clock.next_at)))
    world.clock.set("a", 10)
    async with world.running():
        await world.advance(10)

    assert left == [(0, None)]


async def test_ringing_may_set_alarms_and_clear_others() -> None:
    def again_in_ten(key: str) -> None:
        world.clock.set(key, world.time.now() + 10)
        world.clock.clear("b")

    world: RungClock = RungClock(ring=again_in_ten)
    world.clock.set("a", 10)
    world.clock.set("b", 10)
    async with world.running():
        await world.advance(10)
        await world.advance(10)

    assert world.rung == [("a", 10), ("a", 20)]


async def test_one_that_always_rings_leaves_the_others_their_turn_and_can_be_cancelled() -> None:
    world: RungClock = RungClock(ring=lambda key: world.clock.set(key, world.time.now()))
    world.clock.set("busy", 0)
    world.clock.set("calm", 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.clock.run)
        for _ in range(10):
            await checkpoint()
        tasks.cancel_scope.cancel()

    assert {key for key, _ in world.rung} == {"busy", "calm"}
    assert tasks.cancel_scope.cancelled_caught


async def test_however_many_alarms_there_are_there_is_one_sleep(world: RungClock) -> None:
    for number in range(1000):
        world.clock.set(str(number), 10 + number)
    async with world.running():
        assert world.time.slept_for == [10]
        await world.advance(0)

        assert world.time.slept_for == [10]


async def test_a_later_alarm_does_not_wake_the_clock_and_an_earlier_one_does(world: RungClock) -> None:
    async with world.running():
        world.clock.set("a", 100)
        await settle()
        world.clock.set("later", 200)
        world.clock.set("same", 100)
        await settle()
        after_later = list(world.time.slept_for)
        world.clock.set("earlier", 50)
        await settle()
        after_earlier = list(world.time.slept_for)

    assert after_later == [100]
    assert after_earlier == [100, 50]


async def test_a_clock_with_nothing_to_do_does_not_sleep_for_anything(world: RungClock) -> None:
    async with world.running():
        assert world.time.slept_for == []
        assert world.time.next_due is None


async def test_what_ringing_raises_leaves_run_and_the_other_alarms_ring_when_it_runs_again() -> None:
    def fail(key: str) -> None:
        if key == "bad":
            raise Boom

    world = RungClock(ring=fail)
    world.clock.set("bad", -2)
    world.clock.set("good", -1)
    with pytest.raises(Boom):
        await world.clock.run()
    async with world.running():
        pass

    assert [key for key, _ in world.rung] == ["bad", "good"]


async def test_a_clock_runs_in_one_task_at_a_time(world: RungClock) -> None:
    async with world.running():
        with pytest.raises(AssertionError, match="one task"):
            await world.clock.run()


async def test_alarms_that_are_set_again_and_again_do_not_pile_up(world: RungClock) -> None:
    keys = [str(number) for number in range(1000)]
    for key in keys:
        world.clock.set(key, 1_000_000)
    tracemalloc.start()
    try:
        for round_ in range(100):
            for key in keys:
                world.clock.set(key, 2_000_000 + round_)
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(world.clock) == 1000
    assert grown_bytes < 1_000_000, "100,000 entries would take ten times that"


async def test_alarms_that_are_cleared_do_not_pile_up(world: RungClock) -> None:
    world.clock.set("stays", 1)
    tracemalloc.start()
    try:
        for number in range(100_000):
            world.clock.set(str(number), 1_000_000)
            world.clock.clear(str(number))
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (len(world.clock), world.clock.next_at) == (1, 1)
    assert grown_bytes < 1_000_000, "100,000 entries would take ten times that"


Step = tuple[str, str, int]
keys = st.sampled_from("abcde")
plans = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers(-5, 60)),
        st.tuples(st.just("clear"), keys, st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(steps=plans)
@settings(max_examples=100, deadline=None)
async def test_it_rings_like_a_list_of_alarms_that_is_read_from_end_to_end(steps: list[Step]) -> None:
    world = RungClock()
    alarms: dict[str, int] = {}
    expected: list[tuple[str, int]] = []
    async with world.running():
        for what, key, number in steps:
            match what:
                case "set":
                    alarms.pop(key, None)
                    alarms[key] = world.time.now() + number
                    world.clock.set(key, alarms[key])
                case "clear":
                    alarms.pop(key, None)
                    world.clock.clear(key)
                case _:
                    await world.advance(number)
                    due = [key for key, at in alarms.items() if at <= world.time.now()]
                    for key in sorted(due, key=alarms.__getitem__):
                        del alarms[key]
                        expected.append((key, world.time.now()))
            assert world.clock.next_at == min(alarms.values(), default=None)
            assert len(world.clock) == len(alarms)

    assert world.rung == expected
