import threading

import anyio
import anyio.to_thread
import pytest

from keep_actors.kernel import WorkerThread

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
