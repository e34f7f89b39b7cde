"""One life of a keep-actors runtime on a real file. `python -m bench.effects.keep_life PLAN`, a JSON object.

A life that is to die publishes the order and works on it. Any other only opens the file and works until nothing is left
to do, says what it found, and then passes on what a person says about a call of which nobody knows whether it happened.
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
from bench.effects.job import ANSWER, LATENCY_S, ORDER, Kill, Moment, Outside
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
"""Whoever waits for a table does not wait ten seconds for a second attempt, nor for a second look."""
TIMEOUT_MS: Final = 1_000
"""Many times as long as a call takes. What a bank does not have is believed only after that, counted from the start."""
PATIENCE_S: Final = 20


class Plan(msgspec.Struct, frozen=True):
    """What a life is told."""

    folder: str
    can_check: bool
    sandbox: PoolMode
    publish: bool = False
    moment: Moment | None = None
    after_s: float | None = None


class Bank(Connector):
    """Two ways to pay: after one the bank can be asked whether it happened, after the other it cannot."""

    name = "bank"

    def __init__(self, outside: Outside, kill: Kill) -> None:
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
                # The first commit after the answer holds it: nothing else is under way in this runtime.
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
    bank = Bank(Outside(folder / "outside.txt"), kill)
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
                assert verdict in ("happened", "did_not_happen"), f"a person says whether it happened, not {verdict!r}"
                result = ANSWER if verdict == "happened" else None
                await keep.resolve(question.mutation_id, verdict, by="ann", result=result)
            await settle(keep)
            say(await state(keep))


async def settle(keep: Keep) -> None:
    """Wait until nothing is left to do. A second attempt is due a moment later; one that never comes is not awaited."""
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
    """What a person would see."""
    events = {event.message_id: event.status for event in await keep.events(WORKFLOW, TOPIC)}
    return {"event": events.get(ORDER), "questions": len(await keep.unknowns())}


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # that a run was cut off and an outcome is unknown is what the table says
    anyio.run(live, msgspec.json.decode(sys.argv[1], type=Plan))
