"""Opening a file whose process died while each of its workflows had an unfinished run."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio

import keep_actors
from bench import machine, runtime
from bench.report import Column, Report
from bench.scale.work import workflow_ids
from bench.shop import TOPIC, fill
from keep_actors import Connector
from keep_actors.connectors import Applied, MutationCall, mutation
from keep_storage import Ids, Operation, Store, wall_clock
from keep_storage import operations as ops
from keep_storage.model import Phase

GOAL_S: Final = 5.0

COLUMNS: Final = (
    Column("unfinished", "unfinished"),
    Column("in_flight", "in flight"),
    Column("settled_s", "settled s", 2),
    Column("first_work_s", "first work s", 2),
    Column("all_done_s", "all done s", 2),
    Column("runs", "runs"),
    Column("load", "load", 1),
)

_CONSUMER: Final = "fileOrder"
_PREPARED: Final = (
    '{"reservations":[{"topic":"orders","ids":["order-0"]}],"data":{"order":0,"customer":"Jane Doe","before":0}}'
)
_PARAMS: Final = '{"order":0,"customer":"Jane Doe"}'
_BATCH: Final = 500


class AskedShop(Connector):
    """A service that can say of every call that it happened. (Of one that did not, it could be sure only after the
    call's time limit.)"""

    name = "shop"

    @mutation
    async def file(self, order: int, customer: str) -> str:
        """File an order."""
        return f"{customer}: {order}"

    @file.reconcile
    async def find(self, call: MutationCall) -> Applied:
        return Applied(f"found {call.mutation_id}")


def run(report: Report, unfinished: int, folder: Path) -> None:
    report.progress(f"a process that died with {unfinished:,} unfinished runs")
    path, load = folder / "unfinished.db", machine.load()
    in_flight = leave_unfinished(path, unfinished)
    with machine.own_garbage_only(), runtime.metered() as meter, _quietly():
        started = time.perf_counter()
        settled_s, all_done_s = anyio.run(_recover, path)
    first_work_s, runs = meter.ends[0].at - started, len(meter.ends)
    assert runs == unfinished, "every event was worked through once, by a fresh run or by the `next` of the old one"
    title = "Opening after a crash (seconds from the opening)"
    report.table("recovery", title, COLUMNS).row(
        unfinished=unfinished,
        in_flight=in_flight,
        settled_s=settled_s,
        first_work_s=first_work_s,
        all_done_s=all_done_s,
        runs=runs,
        load=load,
    )
    words = f"{unfinished:,} unfinished runs settled in less than {GOAL_S:g} s"
    report.goal("recovery", words, settled_s, settled_s < GOAL_S, " s")


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the line of the log for each run that was cut off, which is a service's business."""
    log = logging.getLogger("keep_actors")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


async def _recover(path: Path) -> tuple[float, float]:
    """The times until the runtime is open, which it is once recovery is durable, and until nothing is left to do."""
    started = time.perf_counter()
    async with keep_actors.open(path, connectors=[AskedShop()]) as keep:
        settled_s = time.perf_counter() - started
        await keep.wait_idle()
        return settled_s, time.perf_counter() - started


def leave_unfinished(path: Path, workflows: int) -> int:
    """Write a file in which every workflow has an active run; return how many of them have a call in flight."""
    fill(path, workflows, 1)
    ids, crowd = Ids(wall_clock), workflow_ids(path)
    with Store.open(path) as store:
        for first in range(0, workflows, _BATCH):
            batch: list[Operation[Any]] = []
            for number, workflow_id in enumerate(crowd[first : first + _BATCH], first):
                batch += _STAGES[number % len(_STAGES)](workflow_id, ids)
            for outcome in store.commit(batch):
                outcome.unwrap()
    return sum(number % len(_STAGES) == len(_STAGES) - 1 for number in range(workflows))


def _preparing(workflow_id: str, ids: Ids) -> list[Operation[Any]]:
    session_id = ids.new("ses")
    return [
        ops.CreateSession(session_id, workflow_id, "event"),
        ops.CreateRun(ids.new("run"), session_id, _CONSUMER, Phase.PREPARING),
    ]


def _prepared(workflow_id: str, ids: Ids) -> list[Operation[Any]]:
    session, create = _preparing(workflow_id, ids)
    assert isinstance(create, ops.CreateRun)
    reserve = (ops.Reserve(TOPIC, ("order-0",)),)
    return [session, create, ops.UpdateConsumerPhase(create.id, Phase.PREPARED, reserve, _PREPARED, "File an order")]


def _in_flight(workflow_id: str, ids: Ids) -> list[Operation[Any]]:
    session, create, prepared = _prepared(workflow_id, ids)
    assert isinstance(create, ops.CreateRun)
    mutation_id = ids.new("mut")
    call = ops.CreateMutation(mutation_id, create.id, "shop", "file", _PARAMS, mutation_id, True, send=True)
    return [session, create, prepared, ops.Together((ops.UpdateConsumerPhase(create.id, Phase.MUTATING), call))]


_STAGES: Final[tuple[Callable[[str, Ids], list[Operation[Any]]], ...]] = (_preparing, _prepared, _in_flight)
