"""A process to be killed: a whole runtime, jailed, with a publisher, people inside it, and a way out for notices.

`python -m tests.torture.child FOLDER SEED URL [--finish]`. It says `ready` when it has opened the file. With `--finish`
it publishes nothing new, and ends when all is done. The URL is where notices go.
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
from keep_actors import Backoff, DeployRefused, Grant, Keep, Policy
from keep_actors.api.escalation import Escalation
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.notices import Webhook
from keep_storage.errors import Reason, Rejected
from tests.torture.audit import Audit
from tests.torture.boss import Boss
from tests.torture.mender import Mender
from tests.torture.outside import Outbox
from tests.torture.receiver import SECRET
from tests.torture.records import Effects, Halts, Published
from tests.torture.stories import WORKFLOWS, asks, call_of, in_order_with, is_job, is_refused, kind_of, name_of, script

BACKLOG: Final = 4
"""So many orders of a workflow are published, and not done: a longer rest would only make the end longer."""
RUNS_MAX: Final = 8
QUICK: Final = Backoff(first_ms=10, cap_ms=100, attempts_max=1_000_000)
POLICY: Final = Policy(
    retry=QUICK, reconcile=Backoff(first_ms=10, cap_ms=100, attempts_max=3), repairs_max=1_000_000, parked_max=3
)
"""Nobody gives up, and whoever cannot find out soon asks the person."""
PARKS: Final = replace(POLICY, on_unknown="park")
PATIENCE_S: Final = 120
MOMENT_S: Final = 0.02


class EmbeddingService:
    """The service around a runtime, for one life."""

    def __init__(self, keep: Keep, outside: Effects, published: Published, rng: random.Random, finish: bool) -> None:
        self._keep = keep
        self._outside = outside
        self._published = published
        self._rng = rng
        self._finish = finish

    async def publish(self, name: str) -> None:
        """Keep a workflow busy. What was wanted and not acknowledged is published again: it may not have been."""
        mine = [order for order in self._published.wanted if name_of(order) == name]
        heard = set(self._published.acknowledged)
        for order in mine:
            if order not in heard:
                await self._publish(name, order)
        while not self._finish:
            while sum(1 for order in mine if not (self._outside.done_about[order] or is_refused(order))) >= BACKLOG:
                await self._outside.something_happened.wait()
            order = f"{name}/{len(mine)}"
            mine.append(order)
            self._published.note("wanted", order)
            await self._publish(name, order)

    async def _publish(self, name: str, order: str) -> None:
        while not is_job(name):  # a job finds by itself what is wanted
            payload = {"order": in_order_with(order)}
            try:
                await self._keep.publish(name, "in", message_id=order, title=f"Order {order}", payload=payload)
            except Rejected as rejected:
                if rejected.reason is not Reason.WORKFLOW_STATUS_REFUSED:
                    raise
                await anyio.sleep(MOMENT_S)  # it is archived, and will be back
            else:
                break
        self._published.note("acknowledged", order)

    async def answer(self) -> None:
        """A person looks outside now and then, and says what is there. Others may have found out first."""
        while True:
            for question in await self._keep.unknowns():
                if question.verdicts:  # nobody can tell before the call has ended
                    await self._say(question)
            await anyio.sleep(self._rng.uniform(0.01, 0.1))

    async def _say(self, question: Escalation) -> None:
        label: str = msgspec.json.decode(question.params)["event"]
        happened = label in {done for done, _ in self._outside.effects()}
        verdict: PersonVerdict = "happened" if happened else "did_not_happen"
        result = label if happened else None
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


async def deploy(keep: Keep, name: str) -> None:
    """A worker may be killed as it looks at the script, and then nothing is deployed: whoever deploys does so again."""
    reads = ["outbox.orders"] if kind_of(name) == "read" or is_job(name) else []
    call = Grant(call_of(name), policy="ask" if asks(name) else "allow")
    while True:
        try:
            await keep.deploy(script(name), workflow=name, grants=[*reads, call])
        except DeployRefused as refused:
            if "WorkerLost" not in str(refused):
                raise
        else:
            return


async def live(folder: Path, seed: str, url: str, finish: bool) -> None:
    rng = random.Random(seed)
    outside, published, halts = (
        Effects(folder / "outside.txt"),
        Published(folder / "published.txt"),
        Halts(folder / "halts.txt"),
    )
    outbox = Outbox(outside, rng, published, halts)
    policies = {name: PARKS for name in WORKFLOWS if kind_of(name) == "park"}
    async with keep_actors.open(
        folder / "keep.db",
        connectors=[outbox],
        policy=POLICY,
        policies=policies,
        runs_max=RUNS_MAX,
        maintainer=Mender(rng),
        notices=Webhook(url, secret=SECRET, name="pager", backoff=QUICK, timeout_ms=1_000),
        control=True,
    ) as keep:
        print("ready", flush=True)
        service, boss = EmbeddingService(keep, outside, published, rng, finish), Boss(keep, outside, halts, rng)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.answer)
            if not finish:
                tasks.start_soon(boss.meddle)
            there = {workflow.name for workflow in await keep.workflows()}
            for name in WORKFLOWS:
                if name not in there:
                    await deploy(keep, name)
                tasks.start_soon(service.publish, name)
            if finish:
                await boss.let_all_go_on()
                await service.all_done(folder)
                tasks.cancel_scope.cancel()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # everything that can be logged here happens here
    anyio.run(live, Path(sys.argv[1]), sys.argv[2], sys.argv[3], "--finish" in sys.argv[4:])
