"""The unit on Temporal: its development server on a SQLite file, and this process as worker and client.

With its file in WAL mode the server does four times as many units as with SQLite's default. The three steps are
activities, asynchronous functions in the event loop of the worker. The workflow's code is not in the SDK's sandbox,
which costs time and isolates nothing from an attacker.
"""

import asyncio
import importlib.metadata
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.peers import unit
from bench.peers.unit import ANSWER, PATIENCE_S, SENDERS, Plan, Stopwatch, Task, say, told

QUEUE: Final = "orders"
_START_S: Final = 60
_CALM: Final = timedelta(minutes=5)
"""The time of an attempt of an activity where nothing is killed."""


class Activities:
    """The three steps."""

    def __init__(self, plan: Plan) -> None:
        self._outside = plan.outside

    @activity.defn
    async def prepare(self, order: str) -> dict[str, str]:
        return unit.prepare(order)

    @activity.defn
    async def pay(self, prepared: dict[str, str]) -> str:
        self._outside.pay(prepared["order"], activity.info().activity_id)
        return ANSWER

    @activity.defn
    async def note(self, answer: str) -> dict[str, str]:
        return unit.note(answer)


@workflow.defn
class OrderPaid:
    @workflow.run
    async def run(self, order: str, attempt_s: float) -> dict[str, str]:
        attempt = timedelta(seconds=attempt_s)
        prepared = await workflow.execute_activity_method(Activities.prepare, order, start_to_close_timeout=attempt)
        answer = await workflow.execute_activity_method(Activities.pay, prepared, start_to_close_timeout=attempt)
        noted: dict[str, str] = await workflow.execute_activity_method(
            Activities.note, answer, start_to_close_timeout=attempt
        )
        return noted


async def live(plan: Plan) -> None:
    with running(plan) as address:
        client = await _connected(address)
        steps = Activities(plan)
        async with Worker(
            client,
            task_queue=QUEUE,
            workflows=[OrderPaid],
            activities=[steps.prepare, steps.pay, steps.note],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            match plan.task:
                case Task.MEASURE:
                    say(ready=True, version=_version(plan))
                    if told("go"):
                        await _measure(plan, client)
                        told("end")
                case Task.ACCEPT:
                    say(ready=True)
                    if told("go"):
                        await _send(plan, client)
                        await asyncio.to_thread(sys.stdin.readline)
                case Task.FINISH:
                    await _send(plan, client)
                    for number in range(plan.units):
                        await client.get_workflow_handle(unit.order(number)).result()
                    say(done=True, asked=0)
                case Task.PREPARE:
                    raise AssertionError("nothing is prepared for Temporal")


@contextmanager
def running(plan: Plan) -> Iterator[str]:
    """Start the server on the file of the folder, as a child of this process; yield its address."""
    folder = Path(plan.folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "error")
    command = [plan.program, "server", "start-dev", "--db-filename", str(folder / "temporal.db"), *options]
    with (folder / "temporal.log").open("ab") as log:
        server = subprocess.Popen(
            [*command, "--sqlite-pragma", "journal_mode=wal"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()  # all units are done; it would wait for its parts to end
            server.wait()


async def _connected(address: str) -> Client:
    until = time.monotonic() + _START_S
    while True:
        try:
            return await Client.connect(address)
        except RuntimeError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)


def _version(plan: Plan) -> str:
    """The version of the server and of the SDK."""
    words = subprocess.run([plan.program, "--version"], capture_output=True, text=True, check=True).stdout
    server = words.partition("(Server ")[2].partition(",")[0] or words.strip()
    return f"{server}, SDK {importlib.metadata.version('temporalio')}"


async def _measure(plan: Plan, client: Client) -> None:
    watch = Stopwatch()

    async def work(number: int) -> None:
        for each in range(number, plan.units, plan.in_flight):
            started, name = time.perf_counter(), unit.order(each)
            await client.execute_workflow(
                OrderPaid.run, args=[name, _CALM.total_seconds()], id=name, task_queue=QUEUE, request_eager_start=True
            )
            watch.unit_took(time.perf_counter() - started)

    await asyncio.gather(*(work(number) for number in range(plan.in_flight)))
    watch.say(syncs=None)


async def _send(plan: Plan, client: Client) -> None:
    units = plan.client.open_units()

    async def send(first: int) -> None:
        for each in units[first::SENDERS]:
            await _start(client, unit.order(each))
            plan.client.accepted(each)

    await asyncio.gather(*(send(first) for first in range(SENDERS)))


async def _start(client: Client, name: str) -> None:
    """Send a unit. One that was sent by this name before is not done again."""
    once = WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        await client.start_workflow(
            OrderPaid.run, args=[name, PATIENCE_S], id=name, task_queue=QUEUE, id_reuse_policy=once
        )
    except WorkflowAlreadyStartedError:
        return


if __name__ == "__main__":
    asyncio.run(live(Plan.parse(sys.argv[1])))
