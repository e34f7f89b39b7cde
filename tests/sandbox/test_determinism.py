"""The thread mode: the same inputs give the same trace, on every run and under every order of other work."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_actors.sandbox_pool import SandboxPool
from keep_sandbox import IssuedMutation, Value
from tests.sandbox.world import NOW_MS, Trace, drive, invocation, prepare, prepare_script, run, trusted

T = TypeVar("T")

BUSY = """
  const out = [Date.now(), Math.random()];
  const wait = async (n) => { for (let i = 0; i < n; i++) await null; return n };
  out.push(...await Promise.all([wait(3), ctx.gmail.search({q:Math.random()}), wait(1), ctx.gmail.search({q:2})]));
  console.log(new Date().toISOString(), Object.keys({b:1,a:2}));
  return [out, [3,1,2].sort(() => Math.random() - 0.5), new Date(2024, 0, 31).toISOString()]
"""


def test_the_same_inputs_give_the_same_trace() -> None:
    traces: list[Trace] = [trusted(prepare(BUSY)) for _ in range(5)]
    assert all(trace == traces[0] for trace in traces)
    assert isinstance(traces[0].outcome, Value)
    assert len(traces[0].requests) == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_a_seed_decides_every_random_number(seed: int) -> None:
    script = prepare_script("return [Math.random(), Math.random(), Math.random()]")
    first, second = (trusted(invocation(script, seed=seed)).outcome for _ in range(2))
    other = trusted(invocation(script, seed=seed ^ 1)).outcome
    assert first == second != other


def test_time_stands_still() -> None:
    body = "const a=Date.now(); for(let i=0;i<1e5;i++); return [a, Date.now()-a, new Date().getTime()-a, typeof Date()]"
    assert trusted(prepare(body)).outcome == Value(value=f'[{NOW_MS},0,0,"string"]')


@pytest.mark.anyio
async def test_the_pool_runs_trusted_scripts_in_threads_when_told_so() -> None:
    async with SandboxPool.open(mode="thread") as pool:
        assert await run(pool, prepare(BUSY)) == trusted(prepare(BUSY)).outcome
        assert isinstance(await run(pool, prepare("ctx.gmail.send({})")), IssuedMutation)


@pytest.mark.anyio
async def test_a_simulation_runs_trusted_scripts_without_a_thread() -> None:
    async def directly(function: Callable[[], T], /) -> T:
        return function()

    async with SandboxPool.open(mode="thread", run_sync=directly) as pool, pool.invoke("w", prepare(BUSY)) as call:
        assert await drive(call) == trusted(prepare(BUSY)).outcome
        assert call.logs == trusted(prepare(BUSY)).logs


def test_no_state_survives_between_invocations() -> None:
    source = prepare_script("n += 1; globalThis.leak = (globalThis.leak ?? 0) + 1; return [n, leak]", "let n = 0;")
    assert [trusted(invocation(source)).outcome for _ in range(3)] == [Value(value="[1,1]")] * 3
