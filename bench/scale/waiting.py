"""Waiting: for a slow service, and for a turn when all workflows are due at once."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import anyio

import keep_actors
from bench import machine, runtime
from bench.report import Column, Report
from bench.scale.work import copied, publish, workflow_ids
from bench.shop import fill
from keep_actors import Connector
from keep_actors.connectors import mutation

GOAL_OF_IDEAL: Final = 0.8
GOAL_FAIRNESS: Final = 3.0
LATENCY_S: Final = 0.2
SLOTS: Final = (16, 256)
"""Few, so that they would be the limit if a call held one; and the default."""

SLOW: Final = (
    Column("slots", "slots"),
    Column("workflows", "workflows"),
    Column("latency_ms", "latency ms"),
    Column("runs_per_s", "runs/s"),
    Column("ideal_per_s", "ideal"),
    Column("of_ideal", "of ideal", 2),
    Column("calls_at_once", "calls at once"),
    Column("if_a_call_held_a_slot_per_s", "if calls held slots"),
    Column("load", "load", 1),
)
FAIR: Final = (
    Column("due", "due", width=34),
    Column("workflows", "workflows"),
    Column("p10_ms", "p10 ms"),
    Column("p50_ms", "p50 ms"),
    Column("p90_ms", "p90 ms"),
    Column("p99_ms", "p99 ms"),
    Column("max_ms", "max ms"),
    Column("max_by_median", "max / median", 2),
    Column("load", "load", 1),
)


class SlowShop(Connector):
    """A service that takes its time, and counts how many calls wait for it."""

    name = "shop"

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._waiting = 0
        self.waiting_max = 0

    @mutation
    async def file(self, order: int, customer: str) -> str:
        """File an order."""
        self._waiting += 1
        self.waiting_max = max(self.waiting_max, self._waiting)
        await anyio.sleep(self._latency_s)
        self._waiting -= 1
        return f"{customer}: {order}"


class Size(NamedTuple):
    """The number of workflows; those that have much more to do than the others, and how much."""

    workflows: int
    busy: int
    events_of_busy: int


def run(report: Report, size: Size, folder: Path) -> None:
    prepared = folder / "waiting.db"
    fill(prepared, size.workflows, 1)
    _slow_service(report, size, prepared, folder / "slow.db")
    _fairness(report, size, prepared, folder / "fair.db")


def _slow_service(report: Report, size: Size, prepared: Path, path: Path) -> None:
    title = f"A service that answers after {LATENCY_S * 1000:.0f} ms (ideal: the same without latency, and one wait)"
    table = report.table("slow service", title, SLOW)
    for slots in SLOTS:
        report.progress(f"a slow service, {size.workflows:,} workflows, {slots} run slots")
        load = machine.load()
        at_once_s, _ = anyio.run(_work_through, copied(prepared, path), 0.0, slots)
        seconds, calls_at_once = anyio.run(_work_through, copied(prepared, path), LATENCY_S, slots)
        of_ideal = (at_once_s + LATENCY_S) / seconds
        table.row(
            slots=slots,
            workflows=size.workflows,
            latency_ms=LATENCY_S * 1000,
            runs_per_s=size.workflows / seconds,
            ideal_per_s=size.workflows / (at_once_s + LATENCY_S),
            of_ideal=of_ideal,
            calls_at_once=calls_at_once,
            if_a_call_held_a_slot_per_s=slots / LATENCY_S,
            load=load,
        )
        words = f"throughput with a slow service and {slots} slots at least {GOAL_OF_IDEAL} of the ideal"
        report.goal("slow service", words, of_ideal, of_ideal >= GOAL_OF_IDEAL)


async def _work_through(path: Path, latency_s: float, slots: int) -> tuple[float, int]:
    shop = SlowShop(latency_s)
    async with keep_actors.open(path, connectors=[shop], runs_max=slots) as keep:
        started = time.perf_counter()
        await keep.wait_idle()
        return time.perf_counter() - started, shop.waiting_max


def _fairness(report: Report, size: Size, prepared: Path, path: Path) -> None:
    title = "Workflows that are due at once: from the opening to the end of the first run of each"
    table = report.table("fairness", title, FAIR)
    ids = workflow_ids(prepared)
    busy = f"{size.busy} of them {size.events_of_busy + 1} times"
    for due, more in (("each once", 0), (busy, size.events_of_busy)):
        report.progress(f"{size.workflows:,} workflows due at once, {due}")
        load = machine.load()
        publish(copied(prepared, path), ids[: size.busy], more)
        waits = _waits(path)
        ratio = waits[-1] / statistics.median(waits)
        table.row(
            due=due,
            workflows=size.workflows,
            p10_ms=_quantile(waits, 0.1),
            p50_ms=_quantile(waits, 0.5),
            p90_ms=_quantile(waits, 0.9),
            p99_ms=_quantile(waits, 0.99),
            max_ms=waits[-1],
            max_by_median=ratio,
            load=load,
        )
        words = f"longest wait of {size.workflows:,} workflows, due {due}, at most {GOAL_FAIRNESS:g} times the median"
        report.goal("fairness", words, ratio, ratio <= GOAL_FAIRNESS)


def _waits(path: Path) -> list[float]:
    """The wait of each workflow in milliseconds, shortest first."""
    with machine.own_garbage_only(), runtime.metered() as meter:
        started = anyio.run(_all, path)
    first: dict[str, float] = {}
    for end in meter.ends:
        first.setdefault(end.workflow_id, end.at)
    return sorted(1000 * (at - started) for at in first.values())


async def _all(path: Path) -> float:
    async with keep_actors.open(path, connectors=[SlowShop(0.0)]) as keep:
        started = time.perf_counter()
        await keep.wait_idle()
        return started


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]
