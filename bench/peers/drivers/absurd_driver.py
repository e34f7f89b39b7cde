"""The unit on Absurd: a task with three steps, its worker processes, and this process as client of the same queue.

Workers are processes of their own, as its documentation recommends. A client learns that a task is done by
`await_task_result`, which asks at growing intervals, from 50 ms on.
"""

import importlib.metadata
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from absurd_sdk import Absurd

from bench.peers import unit
from bench.peers.drivers import postgres
from bench.peers.unit import SENDERS, Plan, Stopwatch, Task, say, told

QUEUE: Final = "orders"
TASK: Final = "order_paid"
WORKERS: Final = 4
"""The fastest of 1, 2 and 4 processes, each with a connection, with 100 units in flight on a machine with 2 cores."""


def live(plan: Plan) -> None:
    with postgres.running(plan.program, Path(plan.folder)) as url:
        if plan.task is not Task.FINISH:
            _make_tables(plan, url)
        with working(plan, url):
            client = Absurd(url, queue_name=QUEUE)
            match plan.task:
                case Task.MEASURE:
                    say(ready=True, version=importlib.metadata.version("absurd-sdk"))
                    if told("go"):
                        _measure(plan, client)
                        told("end")
                case Task.ACCEPT:
                    say(ready=True)
                    if told("go"):
                        _send(plan, url)
                        sys.stdin.readline()
                case Task.FINISH:
                    _send(plan, url)
                    for number in range(plan.units):
                        client.await_task_result(_spawn(client, number))
                    say(done=True, asked=0)
                case Task.PREPARE:
                    raise AssertionError("nothing is prepared for Absurd")


def _make_tables(plan: Plan, url: str) -> None:
    """Let its own tool make the tables, from the SQL that its package has. The tool needs `psql`."""
    tool = Path(sys.executable).with_name("absurdctl")
    paths = {**os.environ, "PATH": f"{plan.program}:{os.environ['PATH']}"}
    for words in (("init",), ("create-queue", QUEUE)):
        subprocess.run([str(tool), *words, "-d", url], env=paths, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def working(plan: Plan, url: str) -> Iterator[None]:
    """Start the workers, as children of this process."""
    command = [sys.executable, "-m", "bench.peers.drivers.absurd_worker", plan.text(), url]
    workers = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for number in range(int(plan.setting or WORKERS))
    ]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()  # it has nothing to finish: all units are done
            worker.wait()


def _spawn(client: Absurd, number: int) -> str:
    """Send a unit. One that was sent by this name before is the same task."""
    name = unit.order(number)
    task: str = client.spawn(TASK, {"order": name}, queue=QUEUE, idempotency_key=name)["task_id"]
    return task


def _send(plan: Plan, url: str) -> None:
    clients: SimpleQueue[Absurd] = SimpleQueue()
    for _ in range(SENDERS):
        clients.put(Absurd(url, queue_name=QUEUE))

    def send(number: int) -> None:
        client = clients.get()
        _spawn(client, number)
        clients.put(client)
        plan.client.accepted(number)

    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(send, plan.client.open_units()))


def _measure(plan: Plan, client: Absurd) -> None:
    """Wait for the oldest unit, and start another one in its place: they are claimed in the order of their start."""
    watch = Stopwatch()
    started: deque[tuple[float, str]] = deque()
    for number in range(plan.units):
        if len(started) == plan.in_flight:
            _finish(client, started, watch)
        started.append((time.perf_counter(), _spawn(client, number)))
    while started:
        _finish(client, started, watch)
    watch.say(syncs=None)


def _finish(client: Absurd, started: deque[tuple[float, str]], watch: Stopwatch) -> None:
    at, task = started.popleft()
    client.await_task_result(task)
    watch.unit_took(time.perf_counter() - at)


if __name__ == "__main__":
    live(Plan.parse(sys.argv[1]))
