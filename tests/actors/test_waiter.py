"""The waiter: what every wait on the way of a run is made of."""

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from keep_actors.kernel.waiter import Waiter, wake_up_caller

pytestmark = pytest.mark.anyio


async def wait_at(waiter: Waiter) -> None:
    await waiter.wait()


async def test_a_wake_lets_the_waiting_task_go_on() -> None:
    waiter, order = Waiter(), list[str]()

    async def wait() -> None:
        await waiter.wait()
        order.append("went on")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        order.append("woke")
        waiter.wake()
    assert order == ["woke", "went on"]


async def test_waking_twice_before_the_task_runs_is_waking_once() -> None:
    waiter, times = Waiter(), list[int]()

    async def wait_twice() -> None:
        for number in range(2):
            await waiter.wait()
            times.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_twice)
        await anyio.wait_all_tasks_blocked()
        waiter.wake()
        waiter.wake()
        await anyio.wait_all_tasks_blocked()
        assert times == [0]
        waiter.wake()
    assert times == [0, 1]


async def test_a_wake_without_a_task_is_not_kept() -> None:
    waiter = Waiter()
    waiter.wake()
    with anyio.move_on_after(0.01) as scope:
        await waiter.wait()
    assert scope.cancelled_caught


async def test_a_cancelled_wait_leaves_the_waiter_as_new() -> None:
    waiter = Waiter()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await waiter.wait()
    assert scope.cancelled_caught
    waiter.wake()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_at, waiter)
        await anyio.wait_all_tasks_blocked()
        waiter.wake()


async def test_a_task_that_is_woken_and_then_cancelled_ends() -> None:
    waiter = Waiter()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_at, waiter)
        await anyio.wait_all_tasks_blocked()
        waiter.wake()
        tasks.cancel_scope.cancel()


async def test_a_second_task_may_not_wait_at_the_same_time() -> None:
    waiter = Waiter()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_at, waiter)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(AssertionError, match="one task"):
            await waiter.wait()
        waiter.wake()


async def test_another_thread_wakes_a_task_through_the_loop() -> None:
    waiter, call_soon = Waiter(), wake_up_caller()
    threads = list[int]()

    def woken() -> None:
        threads.append(threading.get_ident())
        waiter.wake()

    other = threading.Thread(target=call_soon, args=[woken])
    other.start()
    await waiter.wait()
    other.join()
    assert threads == [threading.get_ident()]
    await checkpoint()
