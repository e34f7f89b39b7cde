"""The cost of one invocation: from an image, loaded each time, with large scripts, and in a crowd of scripts."""

import gc
import itertools
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
from keep_sandbox import Capabilities, Invocation, Limits, Request, Terminal, Value, wasm
from keep_sandbox.compiled import engine_wasm, machine_code
from keep_sandbox.engine import Engine
from keep_sandbox.trusted import TrustedCall

MEASURES: Final = (
    "the time from `invoke` to the end as the host sees it, and the CPU of the worker and of the host for it",
    "from the image of a script; a script whose loading looks at the clock, which has no image; 20 KB and 100 KB",
    "0, 1 and 10 host calls, answered at once",
    "1,000 scripts in turn: the three invocations of a run together, and each script once before any comes again",
    "the same beside two scripts that never end, with the longest gap of the event loop meanwhile",
    "the first invocation of a workflow that has no worker yet, while a spare is there",
    "the price of counting fuel: the same script in an engine that was compiled without",
    "the private memory of a worker with 64 images",
)
LEAVES_OUT: Final = (
    "connectors, storage, and what a script itself computes",
    "many calls at a time in one worker; a machine with more cores",
    "the native engine, which is no longer in the product: its figures below are from a machine of this kind",
)
NATIVE: Final = {
    "native engine, ms of CPU per invocation": "0.9 KB 1.78, 20 KB 2.85, 100 KB 7.7",
    "native engine, ms of sandbox CPU per run at 1, 100, 1,000 workflows": "7.5, 10.9, 18.7",
}
GOAL_CPU_MS: Final = 0.2
GOAL_PRIVATE_MB: Final = 40
GOAL_P50: Final = 2.0

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
_TOUCHED: Final = "const started = Date.now();\n"
_LOOP: Final = "let n = 0; for (let i = 0; i < 2e5; i++) n += JSON.stringify({ i, text: `${i}` }).length; return { n };"


def script(size_bytes: int, name: str = "") -> str:
    """A script of about this size, of real functions and not padding."""
    lines = [f"// {name}\n" if name else "", _HANDLER]
    written = len(_HANDLER)
    while written < size_bytes:
        number = len(lines)
        line = f"function part{number}(a, b) {{ const sum = a + b; return sum > {number} ? [sum, a] : {{ b }}; }}\n"
        lines.append(line)
        written += len(line)
    return "".join(lines)


COLUMNS: Final = (
    Column("how", "how", width=16),
    Column("script", "script"),
    Column("host_calls", "calls"),
    Column("p50_ms", "p50 ms", 3),
    Column("p99_ms", "p99 ms", 3),
    Column("worker_cpu_ms", "worker CPU ms", 3),
    Column("host_cpu_ms", "host CPU ms", 3),
)
LOOPS: Final = (
    Column("p50_ms", "p50 ms", 2),
    Column("p99_ms", "p99 ms", 2),
    Column("loop_gap_p99_ms", "gap p99 ms", 2),
    Column("loop_gap_max_ms", "gap max ms", 2),
)
FIRST: Final = (Column("p50_ms", "p50 ms", 2), Column("p99_ms", "p99 ms", 2))
FUEL: Final = (Column("with_ms", "with fuel ms", 1), Column("without_ms", "without ms", 1), Column("ratio", "ratio", 2))
MEMORY: Final = (Column("images", "images"), Column("private_mb", "private MB", 1))

Result = dict[str, float]


class Case(NamedTuple):
    """One line of the table: the scripts in the order in which they are invoked, round and round."""

    how: str
    size: str
    calls: int
    sources: tuple[str, ...]
    mode: str = "jailed"


class Size(NamedTuple):
    """The numbers of invocations of each kind, of new workflows, and of scripts in a crowd."""

    invocations: int
    first: int
    crowd: int


FULL: Final = Size(3_000, 100, 1_000)
QUICK: Final = Size(300, 20, 150)
_POLICY: Final = PoolPolicy(sharing="all", invocations_max=10_000_000)


def run(report: Report, *, quick: bool) -> None:
    report.about(MEASURES, LEAVES_OUT, {"machine": machine.describe(), **NATIVE})
    anyio.run(_run, report, QUICK if quick else FULL)


async def _run(report: Report, size: Size) -> None:
    report.progress("one invocation after another")
    table = report.table("invocation", "One invocation", COLUMNS)
    results: dict[tuple[str, str, int], Result] = {}
    for case in _cases(size):
        result = results[case.how, case.size, case.calls] = await _measure(case, size.invocations)
        table.row(how=case.how, script=case.size, host_calls=case.calls, **result)
    report.progress("beside two endless loops")
    loops = report.table("beside_loops", "From an image, 1 host call, beside two scripts that never end", LOOPS)
    loops.row(**await _beside_loops(size.invocations))
    report.progress("cold workflows")
    first = await _first_invocations(size.first)
    report.table("first", "The first invocation of a workflow with a worker of its own, 1 host call", FIRST).row(
        **first
    )
    report.progress("fuel")
    report.table("fuel", "A script that computes, in an engine with and without fuel", FUEL).row(**_fuel())
    report.progress("memory")
    images, private_mb = await _memory()
    report.table("memory", "The private memory of a worker", MEMORY).row(images=images, private_mb=private_mb)
    hot = results["image", "0.3 KB", 0]["worker_cpu_ms"]
    words = f"worker CPU of an invocation from an image, at most {GOAL_CPU_MS} ms"
    report.goal("invocation", words, hot, hot <= GOAL_CPU_MS, "ms")
    ratio = results["image", "0.3 KB", 1]["p50_ms"] / results["thread", "0.3 KB", 1]["p50_ms"]
    report.goal("invocation", f"p50 in a worker, times that in a thread, at most {GOAL_P50}", ratio, ratio <= GOAL_P50)
    words = f"private memory of a worker with {images} images, at most {GOAL_PRIVATE_MB} MB"
    report.goal("memory", words, private_mb, private_mb <= GOAL_PRIVATE_MB, "MB")


def _cases(size: Size) -> Iterator[Case]:
    small = script(300)
    for calls in (0, 1, 10):
        yield Case("image", "0.3 KB", calls, (small,))
    yield Case("image", "20 KB", 1, (script(20_000),))
    yield Case("image", "100 KB", 1, (script(100_000),))
    yield Case("loaded each time", "0.3 KB", 1, (_TOUCHED + small,))
    yield Case("loaded each time", "20 KB", 1, (_TOUCHED + script(20_000),))
    crowd = [script(300, f"workflow {number}") for number in range(size.crowd)]
    yield Case("crowd, 3 by 3", "0.3 KB", 1, tuple(each for each in crowd for _ in range(3)))
    yield Case("crowd, in turn", "0.3 KB", 1, tuple(crowd))
    yield Case("thread", "0.3 KB", 1, (small,), "thread")


async def _measure(case: Case, count: int) -> Result:
    """Time invocations, one after another."""
    invocations = itertools.cycle([_invocation(source, case.calls) for source in case.sources])
    async with SandboxPool.open(mode=case.mode, policy=_POLICY) as pool:  # type: ignore[arg-type]  # one of the modes
        for _ in range(10):
            await _invoke(pool, "warm-up", next(invocations))
        host_before, worker_before = time.process_time(), _worker_cpu_s(pool)
        times: list[float] = []
        with _no_collection():
            for _ in range(count):
                started = time.perf_counter()
                await _invoke(pool, "warm-up", next(invocations))
                times.append(time.perf_counter() - started)
        return {
            **_percentiles(times),
            "worker_cpu_ms": 1000 * (_worker_cpu_s(pool) - worker_before) / count,
            "host_cpu_ms": 1000 * (time.process_time() - host_before) / count,
        }


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
    policy = PoolPolicy(spares=4, sharing="none")
    async with SandboxPool.open(policy=policy) as pool, anyio.create_task_group() as tasks:

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
    async with SandboxPool.open(policy=PoolPolicy(spares=2, sharing="none")) as pool:
        for number in range(count):
            await pool.wait_for_spares()
            started = time.perf_counter()
            await _invoke(pool, f"workflow {number}", invocation)
            times.append(time.perf_counter() - started)
    return _percentiles(times)


def _fuel() -> Result:
    """CPU of one script that computes, in the product's engine and in one that was compiled without fuel."""
    source = f"export default Keep.workflow({{ producers: {{ poll() {{ {_LOOP} }} }} }});"
    invocation = _invocation(source, 0)
    with_fuel = Engine(machine_code())
    usual = wasm._config
    try:
        wasm._config = _without_fuel  # type: ignore[assignment]  # the same, but for one setting
        without = Engine(wasm.compiled(engine_wasm()))
    finally:
        wasm._config = usual
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        for counts, engine in ((True, with_fuel), (False, without)):
            started = time.process_time()
            call = TrustedCall(invocation, Limits(fuel=1 << 40), engine)
            assert isinstance(call.next(), Value)
            times[counts].append(1000 * (time.process_time() - started))
    with_ms, without_ms = min(times[True]), min(times[False])
    return {"with_ms": with_ms, "without_ms": without_ms, "ratio": with_ms / without_ms}


def _without_fuel(*, compiles: bool) -> object:
    config = _usual_config(compiles=compiles)
    config.consume_fuel = False
    return config


_usual_config: Final = wasm._config


_IMAGES: Final = 64


async def _memory() -> tuple[int, float]:
    """The private memory of one worker that has the images of this many scripts."""
    async with SandboxPool.open(policy=PoolPolicy(sharing="all", workers=1, spares=0)) as pool:
        for number in range(_IMAGES):
            await _invoke(pool, "w", _invocation(script(900, f"script {number}"), 1))
        (worker,) = pool.stats.worker_pids
        return _IMAGES, _private_mb(worker)


def _private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean")))
    return kilobytes / 1024


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


def _worker_cpu_s(pool: SandboxPool) -> float:
    """CPU time of the zygote and its ended workers, and of the living ones."""
    used = 0.0
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
