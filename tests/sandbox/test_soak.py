"""Ten thousand invocations in one host: nothing grows."""

import gc
import resource
from pathlib import Path

import anyio
import pytest

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_sandbox import IssuedMutation, ScriptError, Value
from tests.sandbox.world import needs_jail, prepare, run, trusted

pytestmark = [pytest.mark.anyio, needs_jail]

INVOCATIONS = 10_000
AT_A_TIME = 4
GROWTH_MAX_BYTES = 8 * 1024 * 1024

BODIES = [
    "return (await ctx.gmail.search({})).length",
    "console.log('x'.repeat(500)); return 'y'.repeat(2000)",
    "await ctx.gmail.send({to:1}); break",
    "throw new Error('x')",
    "await ctx.gmail.search({q:'fatal'}); break",
    "return {a:1n}",
]
# One script for all of them: a worker is used again for that script only.
SCRIPT = f"switch (ev) {{ {' '.join(f'case {number}: {body};' for number, body in enumerate(BODIES))} }}"
KINDS = [prepare(SCRIPT, args=f"[{number}]") for number in range(len(BODIES))]


def resident_bytes(pid: int | str = "self") -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def descriptors(pid: int | str = "self") -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


# On one backend: the pool's own bookkeeping is the same on both, and the other tests run on both.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ten_thousand_invocations_leave_memory_descriptors_and_processes_as_they_were() -> None:
    async with SandboxPool.open(policy=PoolPolicy(spares=2, invocations_max=150, sharing="none")) as pool:

        async def invoke(count: int, workflow_id: str) -> None:
            for number in range(count):
                await run(pool, KINDS[number % len(KINDS)], workflow_id=workflow_id)

        async def invoke_many(count: int) -> None:
            async with anyio.create_task_group() as tasks:
                for number in range(AT_A_TIME):
                    tasks.start_soon(invoke, count // AT_A_TIME, f"w{number}")
            await pool.wait_for_spares()
            gc.collect()

        await invoke_many(1_000)
        zygote = pool.stats.zygote_pid
        assert zygote is not None
        before = (resident_bytes(), resident_bytes(zygote))
        counts = (descriptors(), descriptors(zygote))
        await invoke_many(INVOCATIONS - 1_000)
        after = (resident_bytes(), resident_bytes(zygote))
        assert descriptors() <= counts[0] + AT_A_TIME
        assert descriptors(zygote) <= counts[1] + 1
        assert len(pool.stats.worker_pids) <= AT_A_TIME + 2
        assert pool.stats.spawned > INVOCATIONS // 150
        assert after[0] - before[0] < GROWTH_MAX_BYTES
        assert after[1] - before[1] < GROWTH_MAX_BYTES
        assert pool.stats.zygote_restarts == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_that_serves_many_invocations_does_not_grow() -> None:
    async with SandboxPool.open(policy=PoolPolicy(invocations_max=100_000)) as pool:
        sizes: list[int] = []
        pids: set[int] = set()
        for round_number in range(3):
            for number in range(300):
                async with pool.invoke("w", KINDS[number % 3]) as call:
                    while type(await call.next()).__name__ == "Request":
                        await call.answer(1, "[]")
                    pids.add(call.worker.pid)  # type: ignore[attr-defined]
            if round_number > 0:
                sizes.append(resident_bytes(next(iter(pids))))
        assert len(pids) == 1
        assert sizes[1] - sizes[0] < 1024 * 1024


def test_trusted_scripts_leave_nothing_behind() -> None:
    for _ in range(100):
        trusted(KINDS[0])
    gc.collect()
    gc.disable()
    try:
        before = resident_bytes()
        for number in range(500):
            assert isinstance(trusted(KINDS[number % 4]).outcome, Value | IssuedMutation | ScriptError)
        assert resident_bytes() - before < GROWTH_MAX_BYTES
    finally:
        gc.enable()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_shared_workers_that_are_never_recycled_do_not_grow() -> None:
    """`python -m tests.sandbox.soak` does the same a million times."""
    from tests.sandbox.soak import growth, soak

    readings = await soak(12_000, steps=4)
    assert set(readings[0].resident) == set(readings[-1].resident) >= {"host", "worker 1", "worker 2"}
    assert {name: size for name, size in growth(readings).items() if size >= GROWTH_MAX_BYTES} == {}
    assert readings[-1].descriptors <= readings[0].descriptors
