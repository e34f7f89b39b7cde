"""Every attack we know, against workers with and without a jail, with the host's event loop watched."""

import anyio
import pytest

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import DEFAULT_LIMITS, Limits, Value
from tests.sandbox.world import LOOP_DELAY_MAX_S, LoopWatch, attacks, drive, invocation, label, needs_jail, prepare, run

pytestmark = [pytest.mark.anyio, needs_jail]


# Our own run with less time, which is all that most of them use.
@pytest.mark.parametrize(
    ("name", "limits"),
    [("attacks.json", DEFAULT_LIMITS), ("further.json", Limits(fuel=960_000_000, cpu_hard_ms=1_000))],
    ids=["given", "further"],
)
@pytest.mark.parametrize("mode", ["jailed", "wasm"])
async def test_every_attack_is_contained_and_none_delays_the_event_loop(
    name: str, limits: Limits, mode: PoolMode
) -> None:
    escaped: list[str] = []
    waiting = attacks(name)
    assert len(waiting) >= 100
    watch = LoopWatch()

    async def attack_until_none_is_left(pool: SandboxPool) -> None:
        while waiting:
            attack = waiting.pop(0)
            async with pool.invoke("attacker", invocation(attack.source)) as call:
                outcome = await drive(call)
            if not attack.is_contained_by(outcome):
                escaped.append(f"{attack.id}: {label(outcome)[:200]} ({outcome!r})"[:600])
            if any("AFTER" in line for line in call.logs):
                escaped.append(f"{attack.id}: went on after the end: {call.logs[:3]}")

    async with SandboxPool.open(mode=mode, limits=limits) as pool, anyio.create_task_group() as watching:
        watching.start_soon(watch.run)
        async with anyio.create_task_group() as attacking:
            for _ in range(2):
                attacking.start_soon(attack_until_none_is_left, pool)
        watching.cancel_scope.cancel()
    assert escaped == []
    assert watch.worst_s < LOOP_DELAY_MAX_S


async def test_a_healthy_script_is_served_while_others_never_end() -> None:
    async with SandboxPool.open(policy=PoolPolicy(spares=3)) as pool, anyio.create_task_group() as tasks:

        async def loop_for_ever(workflow_id: str) -> None:
            while True:
                await run(pool, prepare("for(;;);"), workflow_id=workflow_id)

        tasks.start_soon(loop_for_ever, "loop 1")
        tasks.start_soon(loop_for_ever, "loop 2")
        for _ in range(20):
            outcome = await run(pool, prepare("return (await ctx.gmail.search({})).length"), workflow_id="healthy")
            assert outcome == Value(value="2")
        tasks.cancel_scope.cancel()
