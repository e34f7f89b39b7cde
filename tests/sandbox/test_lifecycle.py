"""Killing anything at any time leaves no process behind, and the next invocation works."""

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import anyio
import msgspec
import pytest

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool, SandboxUnavailable
from keep_sandbox import Limits, Request, Value, WorkerLost
from keep_sandbox.worker import WorkerOptions
from keep_sandbox.zygote import ZygoteOptions
from tests.sandbox.world import drive, needs_jail, prepare, run

pytestmark = [pytest.mark.anyio, needs_jail]

PATIENT = Limits(fuel=160_000_000_000, cpu_hard_ms=20_000)
ALONE = PoolPolicy(sharing="none")
FINE = Value(value="2")
HEALTHY = prepare("return (await ctx.gmail.search({})).length")


class Watched:
    """Processes, held by a descriptor each: a process id may be given to somebody else, a descriptor not."""

    def __init__(self, pids: list[int]) -> None:
        self._descriptors: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._descriptors[pid] = os.pidfd_open(pid)

    def still_there_after(self, seconds: float) -> list[int]:
        """The processes that have not ended by then. Waits no longer than needed."""
        until = time.monotonic() + seconds
        there: list[int] = []
        for pid, descriptor in self._descriptors.items():
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(max(0, 1000 * (until - time.monotonic()))):
                there.append(pid)
            os.close(descriptor)
        return there


def processes(pool: SandboxPool) -> list[int]:
    stats = pool.stats
    return [*([stats.zygote_pid] if stats.zygote_pid is not None else []), *stats.worker_pids]


async def test_closing_the_pool_ends_every_process() -> None:
    async with SandboxPool.open(limits=PATIENT) as pool, pool.invoke("w", prepare("for(;;);")):
        await pool.wait_for_spares()
        watched = Watched(processes(pool))
    assert watched.still_there_after(1) == []


async def test_an_error_leaves_the_block_as_it_came() -> None:
    watched: list[Watched] = []

    async def fail_inside() -> None:
        async with SandboxPool.open() as pool:
            watched.append(Watched(processes(pool)))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail_inside()
    assert watched[0].still_there_after(1) == []


async def test_a_worker_that_is_killed_while_idle_is_replaced() -> None:
    async with SandboxPool.open() as pool:
        assert await run(pool, HEALTHY) == FINE
        for pid in pool.stats.worker_pids:
            os.kill(pid, signal.SIGKILL)
        assert await run(pool, HEALTHY) == FINE


async def test_workers_that_die_as_they_are_taken_do_not_use_up_the_second_chance() -> None:
    # Stopped, all look alive; the kept one and the spares end one after the other, each as it is given the script.
    async with SandboxPool.open(limits=PATIENT) as pool:
        assert await run(pool, HEALTHY) == FINE
        doomed = pool.stats.worker_pids
        for pid in doomed:
            os.kill(pid, signal.SIGSTOP)
        async with pool.invoke("w", HEALTHY) as call:
            for pid in doomed:
                os.kill(pid, signal.SIGKILL)
            assert await drive(call) == FINE


async def test_a_worker_that_is_killed_before_it_said_a_word_is_replaced_unseen() -> None:
    async with SandboxPool.open(limits=PATIENT) as pool:
        body = "for(let i=0;i<3e6;i++); return (await ctx.gmail.search({})).length"
        async with pool.invoke("w", prepare(body)) as call:
            os.kill(call.worker.pid, signal.SIGKILL)  # type: ignore[attr-defined]  # which worker is not for drivers
            assert await drive(call) == FINE


async def test_an_inspection_whose_worker_is_killed_is_done_by_another() -> None:
    source = 'for (let i = 0; i < 3e6; i++); export default Keep.workflow({ name: "w", jobs: { a() {} } });'
    async with SandboxPool.open(limits=PATIENT) as pool:
        await pool.wait_for_spares()
        doomed = pool.stats.worker_pids
        for pid in doomed:
            os.kill(pid, signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:

            async def end_them() -> None:
                for pid in doomed:
                    os.kill(pid, signal.SIGKILL)

            tasks.start_soon(end_them)
            inspection = await pool.inspect(source)
        assert inspection.declaration is not None
        assert inspection.declaration.name == "w"


async def test_a_worker_that_is_killed_after_it_said_a_word_is_lost() -> None:
    async with SandboxPool.open() as pool:
        async with pool.invoke("w", HEALTHY) as call:
            request = await call.next()
            assert isinstance(request, Request)
            os.kill(call.worker.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            await call.answer(request.id, "[]")
            assert await call.next() == WorkerLost()
        assert await run(pool, HEALTHY) == FINE


async def test_a_zygote_that_is_killed_takes_its_workers_along_and_is_replaced() -> None:
    async with SandboxPool.open(limits=PATIENT) as pool:
        await pool.wait_for_spares()
        async with pool.invoke("w", HEALTHY) as call:
            assert isinstance(await call.next(), Request)
            watched = Watched(processes(pool))
            assert pool.stats.zygote_pid is not None
            os.kill(pool.stats.zygote_pid, signal.SIGKILL)
            assert await call.next() == WorkerLost()
        assert watched.still_there_after(1) == []
        assert await run(pool, HEALTHY) == FINE
        assert pool.stats.zygote_restarts == 1


async def test_a_zygote_that_dies_too_often_ends_the_pool() -> None:
    async def kill_every_zygote() -> None:
        async with SandboxPool.open(policy=PoolPolicy(restarts_max=2)) as pool:
            for restarts in range(4):
                os.kill(processes(pool)[0], signal.SIGKILL)
                while pool.stats.zygote_restarts == restarts:
                    await run(pool, HEALTHY)

    with pytest.raises(SandboxUnavailable):
        await kill_every_zygote()


async def test_whatever_is_killed_at_any_time_the_next_invocation_works() -> None:
    seed = random.SystemRandom().randrange(2**32)
    numbers = random.Random(seed)
    policy = PoolPolicy(restarts_max=100)
    async with SandboxPool.open(policy=policy) as pool:
        for round_number in range(12):
            async with anyio.create_task_group() as tasks:
                for workflow_id in "abc":
                    tasks.start_soon(run, pool, HEALTHY, lambda _: "[]", workflow_id)
                await anyio.sleep(numbers.uniform(0, 0.02))  # the moment is what varies
                everyone = processes(pool)
                victim = everyone[0] if round_number % 3 == 0 else numbers.choice(everyone)
                watched = Watched(everyone if victim == everyone[0] else [victim])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            assert watched.still_there_after(1) == [], f"seed {seed}"
            assert await run(pool, HEALTHY) == FINE, f"seed {seed}"
        watched = Watched(processes(pool))
    assert watched.still_there_after(1) == [], f"seed {seed}"


HOST = """
    import anyio, sys
    from keep_actors.sandbox_pool import SandboxPool
    from tests.sandbox.world import prepare, run
    from tests.sandbox.test_lifecycle import PATIENT, processes

    async def main():
        async with SandboxPool.open(limits=PATIENT) as pool, anyio.create_task_group() as tasks:
            await run(pool, prepare("return 1"), workflow_id="kept")
            if sys.argv[1] == "busy":
                for name in "ab":
                    tasks.start_soon(run, pool, prepare("for(;;);"), lambda _: "", name)
            await pool.wait_for_spares()
            print(*processes(pool), flush=True)
            await anyio.sleep_forever()

    anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_host_that_is_killed_leaves_no_process_behind(state: str, anyio_backend: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(HOST), state, anyio_backend]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) >= 4
        watched = Watched(pids)
        host.kill()
        assert watched.still_there_after(1) == []


def test_a_zygote_whose_host_was_killed_as_it_started_ends_without_a_word() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as host:
        host.wait()
    ours, control = socket.socketpair()
    with ours, control:
        workers = WorkerOptions(limits=Limits(), invocations=1, calls=1)
        options = ZygoteOptions(control=control.fileno(), host=host.pid, workers=workers)
        command = [sys.executable, "-m", "keep_sandbox.zygote", msgspec.json.encode(options).decode()]
        ended = subprocess.run(command, pass_fds=[control.fileno()], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_a_worker_serves_a_bounded_number_of_invocations() -> None:
    async with SandboxPool.open(policy=PoolPolicy(invocations_max=3, spares=1)) as pool:
        before = pool.stats.spawned
        for _ in range(9):
            assert await run(pool, HEALTHY) == FINE
        assert pool.stats.spawned >= before + 2


async def test_a_worker_belongs_to_one_workflow_if_nothing_is_shared() -> None:
    async with SandboxPool.open(policy=ALONE) as pool:
        seen: dict[str, set[int]] = {}
        for workflow_id in "abcabcabc":
            async with pool.invoke(workflow_id, HEALTHY) as call:
                await drive(call)
                seen.setdefault(workflow_id, set()).add(call.worker.pid)  # type: ignore[attr-defined]
        assert sum(map(len, seen.values())) == len(set().union(*seen.values())) == 3


async def test_a_worker_belongs_to_one_script_of_its_workflow_if_nothing_is_shared() -> None:
    async with SandboxPool.open(policy=ALONE) as pool:
        seen: dict[str, set[int]] = {}
        for body in ["return 1", "return 2"] * 3:
            async with pool.invoke("w", prepare(body)) as call:
                await drive(call)
                seen.setdefault(body, set()).add(call.worker.pid)  # type: ignore[attr-defined]
        assert sum(map(len, seen.values())) == len(set().union(*seen.values())) == 2


async def test_dropped_workers_are_ended_and_busy_ones_end_with_what_they_do() -> None:
    async with SandboxPool.open(policy=ALONE) as pool:
        async with pool.invoke("w", HEALTHY) as call:
            await drive(call)
            idle = call.worker  # type: ignore[attr-defined]
        async with pool.invoke("other", HEALTHY) as call:
            await drive(call)
        async with pool.invoke("w", prepare("return (await ctx.gmail.search({})).length + 0")) as call:
            request = await call.next()
            assert isinstance(request, Request)
            pool.drop_workers("w")
            busy = call.worker  # type: ignore[attr-defined]
            await call.answer(request.id, "[1]")
            assert await call.next() == Value(value="1")
        with anyio.fail_after(5):
            await idle.exited.wait()
            await busy.exited.wait()
        assert pool.stats.kept == 1


async def test_a_worker_that_is_idle_for_long_is_ended() -> None:
    async with SandboxPool.open(policy=PoolPolicy(idle_ms=50)) as pool:
        async with pool.invoke("w", HEALTHY) as call:
            await drive(call)
            worker = call.worker  # type: ignore[attr-defined]
        with anyio.fail_after(5):
            await worker.exited.wait()
        assert pool.stats.kept == 0


async def test_of_too_many_idle_workers_the_longest_idle_goes_first() -> None:
    async with SandboxPool.open(policy=PoolPolicy(kept_max=2, sharing="none")) as pool:
        for workflow_id in "abc":
            await run(pool, HEALTHY, workflow_id=workflow_id)
        assert pool.stats.kept == 2


@pytest.mark.parametrize("body", ["for(;;);", "const f=()=>f(); f()", "for(;;) ctx.gmail.search({})"])
async def test_a_limit_inside_the_engine_does_not_cost_a_worker(body: str) -> None:
    async with SandboxPool.open(limits=Limits(fuel=240_000_000)) as pool:
        async with pool.invoke("w", prepare(body)) as call:
            while isinstance(await call.next(), Request):
                pass
            worker = call.worker  # type: ignore[attr-defined]
        async with pool.invoke("w", HEALTHY) as call:
            assert await drive(call) == FINE
            assert call.worker is worker  # type: ignore[attr-defined]


async def test_leaving_an_invocation_early_drops_the_script() -> None:
    async with SandboxPool.open(limits=PATIENT) as pool:
        async with pool.invoke("w", prepare("for(;;);")) as call:
            worker = call.worker  # type: ignore[attr-defined]
        with anyio.fail_after(5):
            await worker.exited.wait()
        assert await run(pool, HEALTHY) == FINE


async def test_a_cancelled_invocation_is_dropped_at_once() -> None:
    async with SandboxPool.open(limits=PATIENT) as pool:
        with anyio.move_on_after(0.05) as scope:
            await run(pool, prepare("for(;;);"))
        assert scope.cancelled_caught
        assert await run(pool, HEALTHY) == FINE


@pytest.mark.parametrize("answer", ["", "{", "undefined", "[" * 65 + "]" * 65, '"' + "x" * 2_000_000 + '"'])
async def test_an_answer_that_no_script_could_take_is_the_hosts_error(answer: str) -> None:
    async with SandboxPool.open() as pool, pool.invoke("w", HEALTHY) as call:
        request = await call.next()
        assert isinstance(request, Request)
        with pytest.raises(ValueError, match="answer"):
            await call.answer(request.id, answer)
        await call.answer(request.id, "[1,2]")
        assert await call.next() == FINE


async def test_an_answer_to_nobody_is_dropped() -> None:
    async with SandboxPool.open() as pool:
        async with pool.invoke("w", prepare("ctx.gmail.search({}); return 1")) as call:
            request = await call.next()
            assert isinstance(request, Request)
            assert await call.next() == Value(value="1")
            await call.answer(request.id, "1")
            await call.answer(99, "1")
        assert await run(pool, HEALTHY) == FINE


async def test_more_invocations_than_are_allowed_at_a_time_wait_their_turn() -> None:
    async with SandboxPool.open(policy=PoolPolicy(concurrent_max=2)) as pool, anyio.create_task_group() as tasks:
        outcomes: list[object] = []

        async def one(workflow_id: str) -> None:
            outcomes.append(await run(pool, HEALTHY, workflow_id=workflow_id))
            assert pool.stats.calls <= 2

        for number in range(10):
            tasks.start_soon(one, f"w{number}")
    assert outcomes == [FINE] * 10


async def test_an_invocation_may_have_limits_of_its_own() -> None:
    async with SandboxPool.open() as pool:
        for limits, body, expected in [
            (Limits(fuel=8_000_000_000), "for(let i=0;i<1.5e7;i++); return 1", "Value"),
            (Limits(fuel=160_000_000), "for(let i=0;i<1.5e7;i++); return 1", "CpuLimit"),
            (Limits(host_calls=1), "await ctx.gmail.search({}); await ctx.gmail.search({})", "CallLimit"),
            (Limits(value_bytes=100), "return 'x'.repeat(100)", "SizeLimit"),
            (Limits(heap_bytes=2_000_000), "return new Array(1e6).fill(1).length", "MemoryLimit"),
            (Limits(js_stack_bytes=100_000), "const f=(n)=>n&&f(n-1); f(1000); return 1", "StackLimit"),
            (None, "const f=(n)=>n&&f(n-1); f(1000); return new Array(1e6).fill(1).length", "Value"),
        ]:
            async with pool.invoke("w", prepare(body), limits) as call:
                assert type(await drive(call)).__name__ == expected
