"""Resident memory per workflow, idle and active, in a process for each: `python -m bench.scale.memory`."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import anyio

import keep_actors
from bench import machine
from bench.report import Column, Report
from bench.shop import fill
from keep_actors import Connector
from keep_actors.connectors import mutation

FEW: Final = 10
COLUMNS: Final = (
    Column("state", "state"),
    Column("workflows", "workflows"),
    Column("host_mb", "host MB", 1),
    Column("few_host_mb", f"with {FEW}", 1),
    Column("kib_each", "KiB each", 1),
)
_TIME_LIMIT_S: Final = 120
_ROOT: Final = Path(__file__).parents[2]


class PatientShop(Connector):
    """A service that answers only when all calls that are expected wait for it."""

    name = "shop"

    def __init__(self, expected: int) -> None:
        self._left = expected
        self.all_wait = anyio.Event()
        self.answer = anyio.Event()

    @mutation
    async def file(self, order: int, customer: str) -> str:
        """File an order."""
        self._left -= 1
        if self._left == 0:
            self.all_wait.set()
        await self.answer.wait()
        return f"{customer}: {order}"


def run(report: Report, idle: int, active: int, folder: Path) -> None:
    table = report.table("memory", "Resident memory of the host process per workflow", COLUMNS)
    for state, workflows, events in (("idle", idle, 0), ("active", active, 1)):
        report.progress(f"the memory of {workflows:,} {state} workflows")
        few, many = (_resident(folder / f"{state}-{count}.db", count, events) for count in (FEW, workflows))
        table.row(
            state=state,
            workflows=workflows,
            host_mb=many / 1e6,
            few_host_mb=few / 1e6,
            kib_each=(many - few) / (workflows - FEW) / 1024,
        )


def _resident(path: Path, workflows: int, events: int) -> int:
    """The resident bytes of a process that has the file open, with every workflow idle or in its call."""
    fill(path, workflows, events)
    command = [sys.executable, "-m", "bench.scale.memory", str(path), str(workflows * events)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True, timeout=_TIME_LIMIT_S)
    resident: int = json.loads(done.stdout)
    return resident


async def _hold(path: Path, calls: int) -> int:
    shop = PatientShop(calls)
    async with keep_actors.open(path, connectors=[shop]) as keep:
        if calls == 0:
            await keep.wait_idle()
            return machine.resident_bytes()
        with anyio.fail_after(_TIME_LIMIT_S):
            await shop.all_wait.wait()
        resident = machine.resident_bytes()
        shop.answer.set()
        await keep.wait_idle()
        return resident


if __name__ == "__main__":
    started = time.perf_counter()
    print(anyio.run(_hold, Path(sys.argv[1]), int(sys.argv[2])))
    print(f"{time.perf_counter() - started:.1f} s", file=sys.stderr)
