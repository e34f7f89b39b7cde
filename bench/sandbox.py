"""What one invocation costs: a kept worker, a worker used once, and a thread in the host, side by side.

Measured: the time from `invoke` to the end as the host sees it (p50, p99), and the CPU of host, zygote and workers
together per invocation; for a small and a large script, with 0, 1 and 10 host calls, alone and with two scripts
beside it that never end; and the first invocation of a workflow that has no worker yet. Not measured: connectors,
storage, and what a script itself computes. The goals are ratios within one run, because the machine varies.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_sandbox import Capabilities, Invocation, Request, Value

Emit = Callable[[dict[str, object]], None]

_CAPABILITIES: Final = Capabilities(connectors={"gmail": {"search": "read"}})
_TICK_S: Final = os.sysconf("SC_CLK_TCK")
_HANDLER: Final = """
export default Keep.workflow({
  name: "bench", topics: { "mail": {} },
  producers: {
    async poll(ctx, calls) {
      let found = 0;
      for (let i = 0; i < calls; i++) found += (await ctx.gmail.search({ query: "newer_than:1d", page: i })).length;
      return { found };
    },
  },
});
"""


def script(size_bytes: int) -> str:
    """A script of about this size, whose code is real functions, not padding."""
    lines = [_HANDLER]
    written = len(_HANDLER)
    while written < size_bytes:
        number = len(lines)
        line = f"function part{number}(a, b) {{ const sum = a + b; return sum > {number} ? [sum, a] : {{ b }}; }}\n"
        lines.append(line)
        written += len(line)
    return "".join(lines)


def run(quick: bool, emit: Emit) -> None:
    """Measure, and hand each result to `emit`."""
    anyio.run(_run, quick, emit)


async def _run(quick: bool, emit: Emit) -> None:
    count = 100 if quick else 1_000
    kept: dict[tuple[str, int], dict[str, float]] = {}
    threads: dict[tuple[str, int], dict[str, float]] = {}
    for size, size_name in ((300, "0.3 KB"), (20_000, "20 KB")):
        source = script(size)
        for calls in (0, 1, 10):
            for how, policy, results in (
                ("kept worker", PoolPolicy(invocations_max=1_000_000), kept),
                ("one-shot worker", PoolPolicy(invocations_max=1, spares=4), None),
                ("thread", None, threads),
            ):
                result = await _measure(source, calls, count, policy)
                if results is not None:
                    results[size_name, calls] = result
                emit({"benchmark": "sandbox", "how": how, "script": size_name, "host_calls": calls, **_rounded(result)})
    emit({"benchmark": "sandbox", "how": "beside two endless loops", **_rounded(await _beside_loops(count))})
    first = await _first_invocations(20 if quick else 100)
    emit({"benchmark": "sandbox", "how": "first of a cold workflow", **_rounded(first)})
    one, thread = kept["0.3 KB", 1], threads["0.3 KB", 1]
    emit(
        {
            "benchmark": "sandbox",
            "how": "goals",
            "kept_to_thread_cpu": round(one["cpu_ms"] / thread["cpu_ms"], 2),
            "kept_to_thread_cpu_goal": 1.5,
            "kept_to_thread_p50": round(one["p50_ms"] / thread["p50_ms"], 2),
            "kept_to_thread_p50_goal": 2.0,
            "first_to_kept_p50": round(first["p50_ms"] / one["p50_ms"], 2),
            "first_to_kept_p50_goal": 3.0,
        }
    )


async def _measure(source: str, calls: int, count: int, policy: PoolPolicy | None) -> dict[str, float]:
    """`count` invocations of one workflow, one after another."""
    invocation = _invocation(source, calls)
    mode = "jailed" if policy is not None else "thread"
    async with SandboxPool.open(mode=mode, policy=policy) as pool:  # type: ignore[arg-type]  # one of the two
        for _ in range(10):
            await _invoke(pool, "warm-up", invocation)
        cpu_before = _cpu_s(pool)
        times: list[float] = []
        with _no_collection():
            for _ in range(count):
                started = time.perf_counter()
                await _invoke(pool, "warm-up", invocation)
                times.append(time.perf_counter() - started)
        return {**_percentiles(times), "cpu_ms": 1000 * (_cpu_s(pool) - cpu_before) / count}


async def _beside_loops(count: int) -> dict[str, float]:
    """The same, while two workflows loop for ever, and with the longest gap of the event loop."""
    invocation = _invocation(script(300), 1)
    endless = Invocation(
        source="export default Keep.workflow({producers: {poll() { for (;;); }}});",
        handler="producers.poll",
        now_ms=0,
        seed=0,
    )
    times: list[float] = []
    gaps: list[float] = []
    async with SandboxPool.open(policy=PoolPolicy(spares=4)) as pool, anyio.create_task_group() as tasks:

        async def loop_for_ever(workflow_id: str) -> None:
            while True:
                await _invoke(pool, workflow_id, endless)

        async def watch_the_loop() -> None:
            while True:
                started = time.perf_counter()
                await anyio.sleep(0.001)
                gaps.append(time.perf_counter() - started - 0.001)

        for name in ("loop 1", "loop 2"):
            tasks.start_soon(loop_for_ever, name)
        tasks.start_soon(watch_the_loop)
        await _invoke(pool, "healthy", invocation)
        for _ in range(count):
            started = time.perf_counter()
            await _invoke(pool, "healthy", invocation)
            times.append(time.perf_counter() - started)
        tasks.cancel_scope.cancel()
    return {**_percentiles(times), "loop_gap_p99_ms": _percentiles(gaps)["p99_ms"], "loop_gap_max_ms": 1000 * max(gaps)}


async def _first_invocations(count: int) -> dict[str, float]:
    """The first invocation of each of many workflows, at a pace at which a spare is there before it is needed."""
    invocation = _invocation(script(300), 1)
    times: list[float] = []
    async with SandboxPool.open(policy=PoolPolicy(spares=2)) as pool:
        for number in range(count):
            await pool.wait_for_spares()
            started = time.perf_counter()
            await _invoke(pool, f"workflow {number}", invocation)
            times.append(time.perf_counter() - started)
    return _percentiles(times)


async def _invoke(pool: SandboxPool, workflow_id: str, invocation: Invocation) -> None:
    async with pool.invoke(workflow_id, invocation) as call:
        while isinstance(outcome := await call.next(), Request):
            await call.answer(outcome.id, '[{"id":"1","subject":"Invoice"},{"id":"2","subject":"Report"}]')
    assert isinstance(outcome, Value) or not invocation.args.startswith("[0"), outcome


def _invocation(source: str, calls: int) -> Invocation:
    return Invocation(
        source=source, handler="producers.poll", args=f"[{calls}]", capabilities=_CAPABILITIES, now_ms=0, seed=0
    )


def _cpu_s(pool: SandboxPool) -> float:
    """CPU of this process, of the zygote and what it has reaped, and of the workers that live."""
    used = time.process_time()
    stats = pool.stats
    if stats.zygote_pid is not None:
        # utime, stime and, for the workers that have ended, cutime and cstime
        fields = Path(f"/proc/{stats.zygote_pid}/stat").read_text().rpartition(")")[2].split()
        used += sum(int(field) for field in fields[11:15]) / _TICK_S
    for pid in stats.worker_pids:
        try:
            used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            continue
    return used


def _percentiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
    }


def _rounded(result: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in result.items()}


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
