"""The cost of one invocation: in a kept worker, in a worker used once, and in a thread of the host."""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from bench import machine
from bench.report import Column, Report
from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_sandbox import Capabilities, Invocation, Request, Terminal, Value

MEASURES: Final = (
    "the time from `invoke` to the end as the host sees it, and the CPU of host, zygote and workers together",
    "a fresh context per invocation; a small and a large script; 0, 1 and 10 host calls, answered at once",
    "the same beside two scripts that never end, with the longest gap of the event loop meanwhile",
    "the first invocation of a workflow that has no worker yet, while a spare is there",
)
LEAVES_OUT: Final = (
    "connectors, storage, and what a script itself computes",
    "many workflows at once; a machine with more cores",
)
GOAL_CPU: Final = 1.5
GOAL_P50: Final = 2.0
GOAL_FIRST: Final = 3.0

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
    """A script of about this size, of real functions and not padding."""
    lines = [_HANDLER]
    written = len(_HANDLER)
    while written < size_bytes:
        number = len(lines)
        line = f"function part{number}(a, b) {{ const sum = a + b; return sum > {number} ? [sum, a] : {{ b }}; }}\n"
        lines.append(line)
        written += len(line)
    return "".join(lines)


COLUMNS: Final = (
    Column("how", "how"),
    Column("script", "script"),
    Column("host_calls", "calls"),
    Column("p50_ms", "p50 ms", 2),
    Column("p99_ms", "p99 ms", 2),
    Column("cpu_ms", "CPU ms", 2),
)
LOOPS: Final = (
    Column("p50_ms", "p50 ms", 2),
    Column("p99_ms", "p99 ms", 2),
    Column("loop_gap_p99_ms", "gap p99 ms", 2),
    Column("loop_gap_max_ms", "gap max ms", 2),
)
FIRST: Final = (Column("p50_ms", "p50 ms", 2), Column("p99_ms", "p99 ms", 2))
WAYS: Final[dict[str, PoolPolicy | None]] = {
    "kept": PoolPolicy(invocations_max=1_000_000),
    "one-shot": PoolPolicy(invocations_max=1, spares=4),
    "thread": None,
}

Result = dict[str, float]


class Size(NamedTuple):
    """The numbers of invocations of each kind, and of new workflows."""

    invocations: int
    first: int


FULL: Final = Size(1_000, 100)
QUICK: Final = Size(100, 20)


def run(report: Report, *, quick: bool) -> None:
    report.about(MEASURES, LEAVES_OUT, {"machine": machine.describe()})
    anyio.run(_run, report, QUICK if quick else FULL)


async def _run(report: Report, size: Size) -> None:
    report.progress("one workflow, one invocation after another")
    table = report.table("invocation", "One invocation", COLUMNS)
    results: dict[tuple[str, str, int], Result] = {}
    for length, size_name in ((300, "0.3 KB"), (20_000, "20 KB")):
        for calls in (0, 1, 10):
            for how, policy in WAYS.items():
                result = results[how, size_name, calls] = await _measure(
                    script(length), calls, size.invocations, policy
                )
                table.row(how=how, script=size_name, host_calls=calls, **result)
    report.progress("beside two endless loops")
    loops = report.table("beside_loops", "A kept worker, 1 host call, beside two scripts that never end", LOOPS)
    loops.row(**await _beside_loops(size.invocations))
    report.progress("cold workflows")
    first = await _first_invocations(size.first)
    report.table("first", "The first invocation of a workflow, 1 host call", FIRST).row(**first)
    _goals(report, results["kept", "0.3 KB", 1], results["thread", "0.3 KB", 1], first)


def _goals(report: Report, kept: Result, thread: Result, first: Result) -> None:
    for words, ratio, limit in (
        ("CPU of a kept worker, times that of a thread", kept["cpu_ms"] / thread["cpu_ms"], GOAL_CPU),
        ("p50 of a kept worker, times that of a thread", kept["p50_ms"] / thread["p50_ms"], GOAL_P50),
        ("p50 of the first invocation, times that of a kept worker", first["p50_ms"] / kept["p50_ms"], GOAL_FIRST),
    ):
        report.goal("invocation", f"{words}, at most {limit}", ratio, ratio <= limit)


async def _measure(source: str, calls: int, count: int, policy: PoolPolicy | None) -> Result:
    """Time `count` invocations of one workflow, one after another."""
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


async def _beside_loops(count: int) -> Result:
    """The same, beside two workflows in endless loops, with the longest gap of the event loop."""
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
                await _run_to_its_end(pool, workflow_id, endless)

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


async def _first_invocations(count: int) -> Result:
    """Time the first invocation of many workflows, slowly enough for a spare worker to be ready each time."""
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
    outcome = await _run_to_its_end(pool, workflow_id, invocation)
    assert isinstance(outcome, Value), outcome


async def _run_to_its_end(pool: SandboxPool, workflow_id: str, invocation: Invocation) -> Terminal:
    async with pool.invoke(workflow_id, invocation) as call:
        while isinstance(outcome := await call.next(), Request):
            await call.answer(outcome.id, '[{"id":"1","subject":"Invoice"},{"id":"2","subject":"Report"}]')
    return outcome


def _invocation(source: str, calls: int) -> Invocation:
    return Invocation(
        source=source, handler="producers.poll", args=f"[{calls}]", capabilities=_CAPABILITIES, now_ms=0, seed=0
    )


def _cpu_s(pool: SandboxPool) -> float:
    """CPU time of this process, of the zygote and its ended workers, and of the living ones."""
    used = time.process_time()
    stats = pool.stats
    if stats.zygote_pid is not None:
        # utime, stime and, for the workers that have ended, cutime and cstime
        fields = Path(f"/proc/{stats.zygote_pid}/stat").read_text().rpartition(")")[2].split()
        used += sum(int(field) for field in fields[11:15]) / _TICK_S
    for pid in stats.worker_pids:
        try:
            used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return used


def _percentiles(times: list[float]) -> Result:
    ordered = sorted(times)
    return {
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
    }


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
