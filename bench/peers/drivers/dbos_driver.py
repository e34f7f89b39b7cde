"""The unit on DBOS, with its SQLite system database in WAL mode or with PostgreSQL.

On SQLite one executor thread by default: with more, threads wait for SQLite's lock, and fewer units are done in a
second. The plan may ask for another number.
"""

import importlib.metadata
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowHandle

from bench.peers import unit
from bench.peers.drivers.postgres import running
from bench.peers.unit import ANSWER, NO_LIMIT, SENDERS, Plan, Stopwatch, Task, say, told

SQLITE_THREADS: Final = 1
"""The fastest of 1, 2, 4, 16 and no limit, with 100 units in flight on a machine with 2 cores."""
POSTGRES_THREADS: Final = 16


def registered(plan: Plan) -> Callable[[str], dict[str, str]]:
    outside = plan.outside

    @DBOS.step(name="prepare")
    def prepare(order: str) -> dict[str, str]:
        return unit.prepare(order)

    @DBOS.step(name="pay")
    def pay(prepared: dict[str, str]) -> str:
        assert DBOS.workflow_id, "a step runs in a workflow"
        outside.pay(prepared["order"], DBOS.workflow_id)
        return ANSWER

    @DBOS.step(name="note")
    def note(answer: str) -> dict[str, str]:
        return unit.note(answer)

    @DBOS.workflow(name="order_paid")
    def order_paid(order: str) -> dict[str, str]:
        return note(pay(prepare(order)))

    return order_paid


def live(plan: Plan) -> None:
    folder = Path(plan.folder)
    with ExitStack() as undo:
        if plan.program:
            url, threads = undo.enter_context(running(plan.program, folder)), POSTGRES_THREADS
        else:
            url, threads = _sqlite(folder), SQLITE_THREADS
        config: DBOSConfig = {
            "name": "orders",
            "system_database_url": url,
            "log_level": "CRITICAL",
        }
        if plan.setting != NO_LIMIT:
            config["max_executor_threads"] = threads
        DBOS(config=config)
        order_paid = registered(plan)
        DBOS.launch()
        undo.callback(DBOS.destroy)
        match plan.task:
            case Task.MEASURE:
                say(ready=True, version=importlib.metadata.version("dbos"))
                if told("go"):
                    _measure(plan, order_paid)
                    told("end")
            case Task.ACCEPT:
                say(ready=True)
                if told("go"):
                    _send(plan, order_paid)
                    sys.stdin.readline()
            case Task.FINISH:
                _send(plan, order_paid)
                for number in range(plan.units):
                    DBOS.retrieve_workflow(unit.order(number)).get_result()
                say(done=True, asked=0)
            case Task.PREPARE:
                raise AssertionError("nothing is prepared for DBOS")


def _sqlite(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "dbos.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    return f"sqlite:///{folder / 'dbos.sqlite'}"


def _start(order_paid: Callable[[str], dict[str, str]], order: str) -> WorkflowHandle[dict[str, str]]:
    with SetWorkflowID(order):
        return DBOS.start_workflow(order_paid, order)


def _send(plan: Plan, order_paid: Callable[[str], dict[str, str]]) -> None:
    def send(number: int) -> None:
        _start(order_paid, unit.order(number))
        plan.client.accepted(number)

    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(send, plan.client.open_units()))


def _measure(plan: Plan, order_paid: Callable[[str], dict[str, str]]) -> None:
    """Wait for the oldest unit, and start another one in its place: they are done in the order of their start."""
    watch = Stopwatch()
    started: deque[tuple[float, WorkflowHandle[dict[str, str]]]] = deque()
    for number in range(plan.units):
        if len(started) == plan.in_flight:
            _finish(started, watch)
        started.append((time.perf_counter(), _start(order_paid, unit.order(number))))
    while started:
        _finish(started, watch)
    watch.say(syncs=None)


def _finish(started: deque[tuple[float, WorkflowHandle[dict[str, str]]]], watch: Stopwatch) -> None:
    at, handle = started.popleft()
    handle.get_result()
    watch.unit_took(time.perf_counter() - at)


if __name__ == "__main__":
    live(Plan.parse(sys.argv[1]))
