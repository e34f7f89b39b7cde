import sys
import threading

import anyio
import anyio.to_thread
import pytest

from keep_actors.kernel import WorkerThread
from keep_actors.kernel import thread as thread_module

pytestmark = pytest.mark.anyio


async def test_the_call_runs_in_another_thread_and_its_result_comes_back() -> None:
    assert await WorkerThread().run(threading.get_ident) != threading.get_ident()


async def test_what_the_call_raises_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        await WorkerThread().run(divmod, 1, 0)


async def test_a_caller_that_is_already_cancelled_still_gets_its_call_done() -> None:
    done: list[int] = []

    with anyio.CancelScope() as scope:
        scope.cancel()
        await WorkerThread().run(done.append, 1)

    assert done == [1]


async def test_a_call_does_not_queue_behind_other_users_of_threads() -> None:
    shared = anyio.to_thread.current_default_thread_limiter()
    others = [object() for _ in range(int(shared.total_tokens))]
    for other in others:
        shared.acquire_on_behalf_of_nowait(other)

    assert await WorkerThread().run(abs, -1) == 1

    for other in others:
        shared.release_on_behalf_of(other)


async def test_calls_happen_one_at_a_time_in_the_order_in_which_they_were_made() -> None:
    thread, made, seen = WorkerThread(), list[int](), list[tuple[int, int]]()

    def note(number: int) -> None:
        seen.append((number, threading.get_ident()))

    async def call(number: int) -> None:
        made.append(number)
        await thread.run(note, number)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(call, number)

    assert [number for number, _ in seen] == made
    assert len({ident for _, ident in seen}) == 1


async def test_an_idle_thread_ends_and_the_next_call_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "_IDLE_S", 0.01)
    thread = WorkerThread()
    first = await thread.run(threading.current_thread)
    first.join(timeout=60)
    assert not first.is_alive()
    assert await thread.run(abs, -1) == 1


async def test_an_error_of_the_call_does_not_end_the_thread() -> None:
    thread = WorkerThread()
    first = await thread.run(threading.get_ident)
    with pytest.raises(SystemExit):
        await thread.run(sys.exit)
    assert await thread.run(threading.get_ident) == first
