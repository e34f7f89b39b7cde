"""One process of a keep-actors runtime on a real file. `python -m bench.effects.keep_life PLAN`, a JSON object.

A process that will be killed publishes the order and works on it. The other one only opens the file, works until
nothing is left to do, prints what it found, and then passes on a person's verdict about a call of unknown outcome.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

import keep_actors
from bench.effects.job import ANSWER, LATENCY_S, ORDER, Kill, Moment
from bench.outside import PaymentFile
from keep_actors import Backoff, Connector, Keep, MutationCall, Policy, mutation
from keep_actors.connectors import Applied, NotApplied
from keep_actors.host.fault_points import Point
from keep_actors.sandbox_pool.pool import PoolMode
from keep_storage.model import EventStatus, MutationStatus

WORKFLOW: Final = "orders"
TOPIC: Final = "order.paid"
POLICY: Final = Policy(
    retry=Backoff(first_ms=10, cap_ms=50), reconcile=Backoff(first_ms=10, cap_ms=50, attempts_max=12)
)
"""Short waits, so that the benchmark does not wait ten seconds for each retry."""
TIMEOUT_MS: Final = 1_000
"""Many times as long as a call takes. Only after this time does a missing payment prove that it did not happen."""
PATIENCE_S: Final = 20


class Plan(msgspec.Struct, frozen=True):
    """The options of the process."""

    folder: str
    can_check: bool
    sandbox: PoolMode
    publish: bool = False
    moment: Moment | None = None
    after_s: float | None = None


class PaymentConnector(Connector):
    """Two ways to pay: the outcome of one can be checked later, that of the other cannot."""

    name = "bank"

    def __init__(self, outside: PaymentFile, kill: Kill) -> None:
        self._outside = outside
        self._kill = kill

    @mutation(timeout_ms=TIMEOUT_MS)
    async def pay_by_transfer(self, order: str, call: MutationCall) -> str:
        return await self._pay(order, call)

    @pay_by_transfer.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        found = any(line.split()[1] == call.idempotency_key for line in self._outside.payments())
        return Applied(ANSWER) if found else NotApplied()

    @mutation(check_hint="Look into the file.")
    async def pay_in_cash(self, order: str, call: MutationCall) -> str:
        return await self._pay(order, call)

    async def _pay(self, order: str, call: MutationCall) -> str:
        await anyio.sleep(LATENCY_S)
        self._kill.reached(Moment.IN_CALL)
        await anyio.to_thread.run_sync(self._outside.pay, order, call.idempotency_key)
        self._kill.reached(Moment.EFFECT)
        await anyio.sleep(LATENCY_S)
        return ANSWER


class KillAt:
    """The runtime's own fault points, as the moments of this benchmark."""

    def __init__(self, kill: Kill) -> None:
        self._kill = kill
        self._is_answered = False

    def __call__(self, point: Point, _: str) -> None:
        match point:
            case Point.RECORD:
                self._kill.reached(Moment.BEFORE_RECORD)
            case Point.RECORDED:
                self._kill.reached(Moment.RECORDED)
                self._kill.call_begins()
            case Point.ANSWERED:
                self._kill.reached(Moment.ANSWERED)
                self._is_answered = True
            case Point.COMMITTED if self._is_answered:
                # The first commit after the answer contains it: no other run is active in this runtime.
                self._kill.reached(Moment.AFTER_RECORD)
            case _:
                pass


def script(can_check: bool) -> str:
    method = "payByTransfer" if can_check else "payInCash"
    return f"""
export default Keep.workflow({{
  name: "{WORKFLOW}",
  topics: {{ "{TOPIC}": {{}} }},
  consumers: {{
    pay: Keep.consumer({{
      subscribe: ["{TOPIC}"],
      async prepare(ctx) {{
        const [order] = await ctx.peek("{TOPIC}", {{ limit: 1 }});
        return {{ reservations: [{{ topic: "{TOPIC}", ids: [order.messageId] }}], data: {{ id: order.messageId }} }};
      }},
      async mutate(ctx, prepared) {{ await ctx.bank.{method}({{ order: prepared.data.id }}); }},
      async next(ctx, prepared, paid) {{ return {{ last: paid.result }}; }},
    }}),
  }},
}});
"""


async def live(plan: Plan) -> None:
    folder, kill = Path(plan.folder), Kill(plan.moment, plan.after_s)
    bank = PaymentConnector(PaymentFile(folder / "outside.txt"), kill)
    async with keep_actors.open(
        folder / "keep.db", connectors=[bank], policy=POLICY, sandbox=plan.sandbox, faults=KillAt(kill)
    ) as keep:
        if plan.publish:
            await keep.deploy(script(plan.can_check), grants="declared")
            await keep.publish(WORKFLOW, TOPIC, message_id=ORDER, title=ORDER)
        await settle(keep)
        say(await state(keep))
        while verdict := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
            for question in await keep.unknowns():
                assert verdict in ("happened", "did_not_happen"), f"not a verdict: {verdict!r}"
                result = ANSWER if verdict == "happened" else None
                await keep.resolve(question.mutation_id, verdict, by="ann", result=result)
            await settle(keep)
            say(await state(keep))


async def settle(keep: Keep) -> None:
    """Wait until nothing is left to do, including retries that are due soon, but at most `PATIENCE_S`."""
    with anyio.move_on_after(PATIENCE_S):
        while True:
            await keep.wait_idle()
            [workflow] = await keep.workflows()
            events = await keep.events(WORKFLOW, TOPIC)
            is_asking = any(each.status is MutationStatus.NEEDS_RECONCILE for each in await keep.unknowns())
            is_over = workflow.error or all(event.status is EventStatus.CONSUMED for event in events)
            if is_over and not is_asking:
                return
            await anyio.sleep(0.01)


async def state(keep: Keep) -> dict[str, Any]:
    """The status of the event, and the number of questions to a person."""
    events = {event.message_id: event.status for event in await keep.events(WORKFLOW, TOPIC)}
    return {"event": events.get(ORDER), "questions": len(await keep.unknowns())}


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # interrupted runs and unknown outcomes are expected here
    anyio.run(live, msgspec.json.decode(sys.argv[1], type=Plan))
