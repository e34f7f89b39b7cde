"""The unit on keep-actors: one workflow, with a script of its own, per unit in flight; the default sandbox.

The steps are `prepare`, `mutate` and `next`. An event is published when the one before it in its workflow is consumed.
"""

import importlib.metadata
import logging
import sys
import time
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

import keep_actors
from bench.peers.unit import ANSWER, PATIENCE_S, SENDERS, Plan, Stopwatch, Task, order, say, told
from bench.runtime import CountingVfs, Meter, counted_syncs, metered
from keep_actors import Backoff, Connector, Keep, MutationCall, Policy, mutation
from keep_actors.connectors import Applied, NotApplied
from keep_actors.host.fault_points import Point
from keep_storage.model import EventStatus, MutationStatus

TOPIC: Final = "orders"
POLICY: Final = Policy(retry=Backoff(first_ms=10, cap_ms=50), reconcile=Backoff(first_ms=50, cap_ms=500))
TIMEOUT_MS: Final = 1_000 * PATIENCE_S
"""Only after this time does a missing line prove that a call of a killed process did not happen."""
_TOGETHER: Final = 50
_LOOK_S: Final = 0.02


class PaymentConnector(Connector):
    """Pays, and can tell later whether it has paid."""

    name = "bank"

    def __init__(self, plan: Plan) -> None:
        self._outside = plan.outside

    @mutation(timeout_ms=TIMEOUT_MS)
    async def pay(self, order: str, call: MutationCall) -> str:
        self._outside.pay(order, call.idempotency_key)
        return ANSWER

    @pay.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        found = any(line.split()[1] == call.idempotency_key for line in self._outside.payments())
        return Applied(ANSWER) if found else NotApplied()


def script(number: int) -> str:
    """The script of a workflow. No two have the same text."""
    return f"""
export default Keep.workflow({{
  name: "{workflow(number)}",
  topics: {{ "{TOPIC}": {{}} }},
  consumers: {{
    pay: Keep.consumer({{
      subscribe: ["{TOPIC}"],
      async prepare(ctx) {{
        const [order] = await ctx.peek("{TOPIC}", {{ limit: 1 }});
        return {{
          reservations: [{{ topic: "{TOPIC}", ids: [order.messageId] }}],
          data: {{ order: order.messageId, customer: "Jane Doe", desk: {number} }},
        }};
      }},
      async mutate(ctx, prepared) {{ await ctx.bank.pay({{ order: prepared.data.order }}); }},
      async next(ctx, prepared, paid) {{ return {{ last: paid.result, desk: {number} }}; }},
    }}),
  }},
}});
"""


def workflow(number: int) -> str:
    return f"orders {number}"


class Ends:
    """Tells who waits for a workflow that its run has ended: a fault point of the runtime, which does nothing else."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}

    def __call__(self, point: Point, whose: str) -> None:
        if point is Point.ENDED and whose in self._waiting:
            self._waiting.pop(whose).set()

    def of(self, workflow_id: str) -> anyio.Event:
        """The end of the next run of a workflow."""
        return self._waiting.setdefault(workflow_id, anyio.Event())


async def live(plan: Plan, syncs: CountingVfs, meter: Meter) -> None:
    ends = Ends()
    database = Path(plan.folder) / "keep.db"
    async with keep_actors.open(database, connectors=[PaymentConnector(plan)], policy=POLICY, faults=ends) as keep:
        keep_actors.tune_process()  # as `keep run` does
        match plan.task:
            case Task.PREPARE:
                await _deploy(keep, plan.in_flight)
                say(done=True)
            case Task.MEASURE:
                say(ready=True, version=importlib.metadata.version("keep-actors"))
                if await anyio.to_thread.run_sync(told, "go"):
                    await _measure(plan, keep, ends, syncs, meter)
                    await anyio.to_thread.run_sync(told, "end")
            case Task.ACCEPT:
                say(ready=True)
                if await anyio.to_thread.run_sync(told, "go"):
                    await _send(keep, plan)
                    await anyio.to_thread.run_sync(sys.stdin.readline)
            case Task.FINISH:
                await _send(keep, plan)
                asked = await _finish(keep, plan)
                say(done=True, asked=asked)


async def _deploy(keep: Keep, workflows: int) -> None:
    async def deploy(number: int) -> None:
        await keep.deploy(script(number), grants="declared")

    for first in range(0, workflows, _TOGETHER):
        async with anyio.create_task_group() as tasks:
            for number in range(first, min(first + _TOGETHER, workflows)):
                tasks.start_soon(deploy, number)


async def _measure(plan: Plan, keep: Keep, ends: Ends, syncs: CountingVfs, meter: Meter) -> None:
    ids = {each.name: each.id for each in await keep.workflows()}
    before, watch = syncs.count, Stopwatch()

    async def work(number: int) -> None:
        for unit in range(number, plan.units, plan.in_flight):
            started, ended = time.perf_counter(), ends.of(ids[workflow(number)])
            await _publish(keep, workflow(number), unit)
            await ended.wait()
            watch.unit_took(time.perf_counter() - started)

    async with anyio.create_task_group() as tasks:
        for number in range(plan.in_flight):
            tasks.start_soon(work, number)
    assert len(meter.ends) == plan.units, "every unit was committed before it counted as done"
    watch.say(syncs=syncs.count - before)
    await keep.wait_idle()


async def _send(keep: Keep, plan: Plan) -> None:
    units = plan.client.open_units()

    async def send(first: int) -> None:
        for unit in units[first::SENDERS]:
            await _publish(keep, workflow(unit % plan.in_flight), unit)
            plan.client.accepted(unit)

    async with anyio.create_task_group() as tasks:
        for first in range(SENDERS):
            tasks.start_soon(send, first)


async def _publish(keep: Keep, name: str, unit: int) -> None:
    await keep.publish(name, TOPIC, message_id=order(unit), title=f"Order {unit}")


async def _finish(keep: Keep, plan: Plan) -> int:
    """Wait until every event is consumed or a person is asked. Return the number of questions."""
    ids = {each.name: each.id for each in await keep.workflows()}
    open_names = [workflow(number) for number in range(plan.in_flight)]
    while True:
        await keep.wait_idle()
        asked = {
            each.workflow_id for each in await keep.unknowns() if each.status is not MutationStatus.NEEDS_RECONCILE
        }
        open_names = [name for name in open_names if ids[name] not in asked and await _has_open_events(keep, name)]
        if not open_names:
            return len(asked)
        await anyio.sleep(_LOOK_S)


async def _has_open_events(keep: Keep, name: str) -> bool:
    return any(event.status is not EventStatus.CONSUMED for event in await keep.events(name, TOPIC))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # interrupted runs and unknown outcomes are expected here
    with counted_syncs() as counted, metered() as measured:
        anyio.run(live, Plan.parse(sys.argv[1]), counted, measured)
