"""Who may run now: so many at a time, in the order they came, and nobody is held up by who waits for the world."""

import random

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from keep_actors.host.run_slots import RunSlots

pytestmark = pytest.mark.anyio


class Visitor:
    """Takes one turn in a task of its own, and stays until it is told to go on."""

    def __init__(self, turnstile: RunSlots, name: str, seen: list[str]) -> None:
        self.scope = anyio.CancelScope()
        self.leave = anyio.Event()
        self.go_outside = anyio.Event()
        self.come_back = anyio.Event()
        self._turnstile = turnstile
        self._name = name
        self._seen = seen

    async def visit(self) -> None:
        with self.scope:
            async with self._turnstile.turn():
                self._seen.append(self._name)
                await self.leave.wait()

    async def visit_and_call(self) -> None:
        """The same, with a call of the outside in the middle."""
        with self.scope:
            async with self._turnstile.turn():
                self._seen.append(self._name)
                await self.go_outside.wait()
                with self._turnstile.outside():
                    await self.come_back.wait()
                self._seen.append(f"{self._name} is back")
                await self.leave.wait()


class Hall:
    """A turnstile, and who has come to it."""

    def __init__(self, width: int, tasks: TaskGroup) -> None:
        self.turnstile = RunSlots(width)
        self.seen: list[str] = []
        self._tasks = tasks

    async def come(self, *names: str, call: bool = False) -> list[Visitor]:
        """They arrive one after the other."""
        visitors = [Visitor(self.turnstile, name, self.seen) for name in names]
        for visitor in visitors:
            self._tasks.start_soon(visitor.visit_and_call if call else visitor.visit)
            await anyio.wait_all_tasks_blocked()
        return visitors

    async def let(self, event: anyio.Event) -> None:
        """Something happens, and what follows from it."""
        event.set()
        await anyio.wait_all_tasks_blocked()


async def test_so_many_are_inside_at_a_time_and_the_next_enters_when_one_leaves() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(2, tasks)
        a, b, _ = await hall.come("a", "b", "c")
        assert hall.seen == ["a", "b"]
        await hall.let(b.leave)
        assert hall.seen == ["a", "b", "c"]
        await hall.let(a.leave)
        tasks.cancel_scope.cancel()


async def test_those_who_wait_enter_in_the_order_they_came() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        visitors = await hall.come(*"abcdef")
        for visitor in visitors:
            await hall.let(visitor.leave)
    assert hall.seen == list("abcdef")


async def test_nobody_who_comes_later_slips_in_while_the_next_is_being_called() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        async with hall.turnstile.turn():
            [b] = await hall.come("b")
        b.leave.set()
        # Nothing else has run yet: `b` has been called, and has not come in.
        async with hall.turnstile.turn():
            assert hall.seen == ["b"]


async def test_one_who_gives_up_while_waiting_is_passed_over() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        a, b, c = await hall.come(*"abc")
        b.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        await hall.let(a.leave)
        assert hall.seen == ["a", "c"]
        await hall.let(c.leave)


async def test_one_who_gives_up_just_as_it_is_called_leaves_its_place_to_the_next() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        async with hall.turnstile.turn():
            b, c = await hall.come("b", "c")
        b.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert "c" in hall.seen
        await hall.let(c.leave)
        await hall.come("d")
        assert hall.seen[-1] == "d"
        tasks.cancel_scope.cancel()


async def test_one_who_is_cancelled_inside_leaves() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        a, b = await hall.come("a", "b")
        a.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert hall.seen == ["a", "b"]
        await hall.let(b.leave)


async def test_one_who_fails_inside_leaves() -> None:
    turnstile = RunSlots(1)
    with pytest.raises(ZeroDivisionError):
        async with turnstile.turn():
            raise ZeroDivisionError
    with anyio.fail_after(5):
        async with turnstile.turn():
            pass


async def test_a_call_that_hangs_outside_holds_up_nobody() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        [hung] = await hall.come("hung", call=True)
        others = await hall.come("a", "b", "c")
        assert hall.seen == ["hung"]
        await hall.let(hung.go_outside)
        for other in others:
            await hall.let(other.leave)
        assert hall.seen == ["hung", "a", "b", "c"]
        tasks.cancel_scope.cancel()


async def test_one_who_comes_back_goes_on_at_once_and_only_those_who_have_not_begun_wait() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        [caller] = await hall.come("caller", call=True)
        await hall.let(caller.go_outside)
        a, b = await hall.come("a", "b")
        await hall.let(caller.come_back)
        assert hall.seen == ["caller", "a", "caller is back"]
        await hall.let(a.leave)
        # Two were inside, one more than there is room for: `b` still waits.
        assert hall.seen == ["caller", "a", "caller is back"]
        await hall.let(caller.leave)
        assert hall.seen[-1] == "b"
        await hall.let(b.leave)


async def test_one_who_is_cancelled_outside_is_gone_for_good() -> None:
    async with anyio.create_task_group() as tasks:
        hall = Hall(1, tasks)
        [caller] = await hall.come("caller", call=True)
        await hall.let(caller.go_outside)
        caller.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        a, _ = await hall.come("a", "b")
        assert hall.seen == ["caller", "a"]
        await hall.let(a.leave)
        assert hall.seen == ["caller", "a", "b"]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_happens_no_place_is_lost_and_none_is_given_twice(seed: int) -> None:
    rng = random.Random(seed)
    width = rng.randint(1, 3)
    turnstile = RunSlots(width)
    beginning, entered = 0, 0

    async def dawdle() -> None:
        for _ in range(rng.randint(0, 4)):
            await checkpoint()

    async def visit() -> None:
        nonlocal beginning, entered
        with anyio.CancelScope() as scope:
            if rng.random() < 0.3:
                tasks.start_soon(cancel_later, scope)
            async with turnstile.turn():
                entered += 1
                beginning += 1
                try:
                    assert beginning <= width, "more have begun and not been outside than there is room for"
                    await dawdle()
                finally:
                    beginning -= 1
                with turnstile.outside():
                    await dawdle()
                await dawdle()

    async def cancel_later(scope: anyio.CancelScope) -> None:
        await dawdle()
        scope.cancel()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(visit)
                await dawdle()
        assert entered > 20
        async with anyio.create_task_group() as tasks:
            hall = Hall(1, tasks)
            hall.turnstile = turnstile
            await hall.come(*"abcd")
            assert hall.seen == list("abcd")[:width]
            tasks.cancel_scope.cancel()
