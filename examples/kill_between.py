"""Kill a process after an effect and before its record, start again, and see what is known.

A workflow pays and confirms an order. The first process is killed with SIGKILL when the bank has the payment: the bank
can be asked. The second one is killed when the confirmation has been sent: a mail cannot be checked, so a person is
asked. Effects are counted in a file outside the database.
Run it: `python examples/kill_between.py`.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

import keep_actors
from keep_actors import Connector, MutationCall, mutation
from keep_actors.connectors import Applied, NotApplied

SCRIPT = """
export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {}, "order.paid": {} },
  consumers: {
    pay: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.new", { limit: 1 });
        if (!order) return { reservations: [] };
        return { reservations: [{ topic: "order.new", ids: [order.messageId] }], data: { id: order.messageId } };
      },
      async mutate(ctx, prepared) { await ctx.bank.pay({ order: prepared.data.id }); },
      async next(ctx, prepared, paid) {
        const { id } = prepared.data;
        await ctx.publish("order.paid", { messageId: id, title: `Order ${id} is paid`, payload: paid.result });
      },
    }),
    confirm: Keep.consumer({
      subscribe: ["order.paid"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.paid", { limit: 1 });
        if (!order) return { reservations: [] };
        return { reservations: [{ topic: "order.paid", ids: [order.messageId] }], data: { id: order.messageId } };
      },
      async mutate(ctx, prepared) { await ctx.mail.send({ text: `Order ${prepared.data.id} is paid` }); },
    }),
  },
});
"""


class Outside:
    """The outside: a file that survives every process. `deadly` is the effect after which this process is killed."""

    def __init__(self, path: Path, deadly: str) -> None:
        self.path = path
        self._deadly = deadly

    def happened(self, what: str) -> list[str]:
        """The effects of one kind."""
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        return [line for line in lines if line.startswith(what)]

    def do(self, what: str, key: str) -> None:
        """Have an effect, and be killed if it is the deadly one."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{what} {key}\n")
        if what == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)


class Bank(Connector):
    name = "bank"

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    @mutation(risk="high")
    async def pay(self, order: str, call: MutationCall) -> str:
        self._outside.do("payment", call.idempotency_key)
        return f"paid {order}"

    @pay.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        found = any(call.idempotency_key in line for line in self._outside.happened("payment"))
        return Applied(f"paid {call.params['order']}") if found else NotApplied()


class Mail(Connector):
    name = "mail"

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    @mutation(check_hint="Look into the outbox.")
    async def send(self, text: str, call: MutationCall) -> None:
        self._outside.do("mail", f"{call.idempotency_key} {text}")


async def live(folder: Path, deadly: str) -> None:
    """Run the runtime once. It does not return if a deadly effect happens."""
    outside = Outside(folder / "outside.txt", deadly)
    async with keep_actors.open(folder / "keep.db", connectors=[Bank(outside), Mail(outside)]) as keep:
        await keep.deploy(SCRIPT, grants="declared")
        await keep.publish("orders", "order.new", message_id="7", title="Order 7")
        await keep.wait_idle()
        known = {"applied": "the bank was asked: it has it", "indeterminate": "the outcome is unknown"}
        for output in reversed(await keep.outputs("orders")):
            print(f"  {output.call:<10} {output.status}: {known[output.status]}")
        for question in await keep.unknowns():
            print(f"  asked      Did {question.call} {question.params} happen? {question.how_to_check}")
            sent = bool(outside.happened("mail"))
            await keep.resolve(question.mutation_id, "happened" if sent else "did_not_happen", by="ann")
            print(f"  ann        {'It happened.' if sent else 'It did not happen.'}")
            await keep.wait_idle()
            [paid] = await keep.events("orders", "order.paid")
            print(f"  event      {paid.title!r} is {paid.status}")


def main() -> None:
    # Logged warnings about interrupted runs and unknown outcomes are expected here.
    logging.disable(logging.CRITICAL)
    if len(sys.argv) > 1:
        anyio.run(live, Path(sys.argv[1]), sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outside = Outside(folder / "outside.txt", "nothing")
        for number, deadly, words in ((1, "payment", "the bank had the payment"), (2, "mail", "the mail had left")):
            died = subprocess.run([sys.executable, __file__, name, deadly], check=False).returncode
            print(f"Process {number} was killed (exit {died}) after {words}, before that was recorded.")
        print("Process 3 finds:", flush=True)
        subprocess.run([sys.executable, __file__, name, "nothing"], check=True)
        print(
            f"What happened outside: {len(outside.happened('payment'))} payment, {len(outside.happened('mail'))} mail."
        )


if __name__ == "__main__":
    main()
