"""A process to be killed: a whole runtime, jailed, with a publisher, and a person who answers questions truthfully.

`python -m tests.torture.child FOLDER SEED [--finish]`. It says `ready` when it has opened the file. With `--finish` it
publishes nothing new, and ends when all is done.
"""

import logging
import random
import sys
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

import keep_actors
from keep_actors import Backoff, DeployRefused, Keep, Policy
from keep_actors.escalation import Escalation
from keep_actors.verdicts import Verdict
from keep_storage.errors import Rejected
from tests.torture.audit import Audit
from tests.torture.outside import Outbox, Outside, Published, in_order_with

KINDS: Final = ("post", "send", "read", "park", "item", "risk")
"""What a workflow's name begins with says what its script does."""
WORKFLOWS: Final = tuple(f"{kind}-{number}" for number in range(4) for kind in KINDS)
BACKLOG: Final = 4
"""So many events of a workflow are published, and not done: a longer rest would only make the end longer."""
RUNS_MAX: Final = 8
POLICY: Final = Policy(
    retry=Backoff(first_ms=10, cap_ms=100, attempts_max=1_000_000),
    reconcile=Backoff(first_ms=10, cap_ms=100, attempts_max=3),
)
"""Nobody gives up, and whoever cannot find out soon asks the person."""
PARKS: Final = replace(POLICY, on_unknown="park", parked_max=3)
PATIENCE_S: Final = 120

_CALLS: Final = {"post": "post", "send": "send", "read": "post", "park": "send", "item": "post", "risk": "send"}


def script(name: str) -> str:
    """`post` can be looked up, `send` cannot; `read` looks outside first; `park` goes on beside a doubt; else jobs."""
    kind = name.partition("-")[0]
    return (_JOB if kind in ("item", "risk") else _CONSUMER) % {
        "name": name,
        "call": _CALLS[kind],
        "look": f'await ctx.outbox.orders({{ book: "{name}" }});' if kind == "read" else "",
    }


_CONSUMER: Final = """
export default Keep.workflow({
  name: "%(name)s",
  topics: { "in": {}, "done": {} },
  consumers: {
    work: Keep.consumer({
      subscribe: ["in"],
      orderingKey: "order",
      async prepare(ctx) {
        const [event] = await ctx.peek("in", { limit: 1 });
        if (!event) return { reservations: [] };
        %(look)s
        return { reservations: [{ topic: "in", ids: [event.messageId] }], data: { event: event.messageId } };
      },
      async mutate(ctx, { data }) {
        await ctx.outbox.%(call)s({ event: data.event });
      },
      async next(ctx, { data }, mutation) {
        await ctx.publish("done", { messageId: data.event, title: `Done: ${data.event}`, payload: mutation });
        return { last: data.event };
      },
    }),
  },
});
"""

_JOB: Final = """
export default Keep.workflow({
  name: "%(name)s",
  jobs: {
    work: {
      schedule: { interval: "1s" },
      async handler(ctx, state) {
        const orders = await ctx.outbox.orders({ book: "%(name)s" });
        const done = state?.done ?? 0;
        for (const order of orders.slice(done, done + 10)) {
          await ctx.withItem(order, `Do ${order}`, async () => {
            if (!ctx.item.isDone) await ctx.outbox.%(call)s({ event: order });
          });
        }
        return { done: Math.min(orders.length, done + 10) };
      },
    },
  },
});
"""


class World:
    """One life."""

    def __init__(self, keep: Keep, outside: Outside, published: Published, rng: random.Random, finish: bool) -> None:
        self._keep = keep
        self._outside = outside
        self._published = published
        self._rng = rng
        self._finish = finish

    async def publish(self, name: str) -> None:
        """Keep a workflow busy. What was wanted and not acknowledged is published again: it may not have been."""
        mine = [event for event in self._published.wanted if event.startswith(f"{name}/")]
        heard = set(self._published.acknowledged)
        for event in mine:
            if event not in heard:
                await self._publish(name, event)
        while not self._finish:
            while sum(1 for event in mine if not self._outside.done_about[event]) >= BACKLOG:
                await self._outside.something_happened.wait()
            event = f"{name}/{len(mine)}"
            mine.append(event)
            self._published.note("wanted", event)
            await self._publish(name, event)

    async def _publish(self, name: str, event: str) -> None:
        if not is_job(name):  # a job finds by itself what is wanted
            payload = {"order": in_order_with(event)}
            await self._keep.publish(name, "in", message_id=event, title=f"Event {event}", payload=payload)
        self._published.note("acknowledged", event)

    async def answer(self) -> None:
        """A person looks outside now and then, and says what is there. Others may have found out first."""
        while True:
            for question in await self._keep.unknowns():
                if question.verdicts:  # nobody can tell before the call has ended
                    await self._say(question)
            await anyio.sleep(self._rng.uniform(0.01, 0.1))

    async def _say(self, question: Escalation) -> None:
        event: str = msgspec.json.decode(question.params)["event"]
        happened = event in {done for done, _ in self._outside.effects()}
        verdict: Verdict = "happened" if happened else "did_not_happen"
        result = event if happened else None
        try:
            await self._keep.resolve(question.mutation_id, verdict, by="ann", result=result, version=question.version)
        except Rejected:  # somebody was quicker
            return

    async def all_done(self, folder: Path) -> None:
        """Wait until nothing is left to do, as the audit sees it."""
        with anyio.fail_after(PATIENCE_S):
            while await anyio.to_thread.run_sync(lambda: Audit(folder).unfinished()):
                await self._keep.wait_idle()
                await anyio.sleep(0.1)


def is_job(name: str) -> bool:
    return name.startswith(("item", "risk"))


async def deploy(keep: Keep, name: str) -> None:
    """A worker may be killed as it looks at the script, and then nothing is deployed: whoever deploys does so again."""
    while True:
        try:
            await keep.deploy(script(name), grants="declared")
        except DeployRefused as refused:
            if "WorkerLost" not in str(refused):
                raise
        else:
            return


async def live(folder: Path, seed: str, finish: bool) -> None:
    rng = random.Random(seed)
    outside, published = Outside(folder / "outside.txt"), Published(folder / "published.txt")
    outbox = Outbox(outside, rng, published)
    policies = {name: PARKS for name in WORKFLOWS if name.startswith("park")}
    async with keep_actors.open(
        folder / "keep.db", connectors=[outbox], policy=POLICY, policies=policies, runs_max=RUNS_MAX
    ) as keep:
        print("ready", flush=True)
        world = World(keep, outside, published, rng, finish)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.answer)
            there = {workflow.name for workflow in await keep.workflows()}
            for name in WORKFLOWS:
                if name not in there:
                    await deploy(keep, name)
                tasks.start_soon(world.publish, name)
            if finish:
                await world.all_done(folder)
                tasks.cancel_scope.cancel()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # everything that can be logged here happens here
    anyio.run(live, Path(sys.argv[1]), sys.argv[2], "--finish" in sys.argv[3:])
