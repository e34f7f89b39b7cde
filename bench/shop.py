"""The workflows that `bench runtime` and `bench scale` measure, and the outside service that they call."""

import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

import keep_actors
from keep_actors import Connector
from keep_actors.connectors import mutation
from keep_storage import Ids, Millis, Operation, Store, reads, wall_clock
from keep_storage.model import Handler, HandlerKind, ScriptVersion, StoredGrant
from keep_storage.operations import (
    ActivateScript,
    AddScriptVersion,
    CreateWorkflow,
    GrantPermission,
    HandlerSpec,
    Publish,
    PublishEvents,
    ResumeWorkflow,
)

_DAY_MS: Final = 24 * 60 * 60 * 1000
_BATCH: Final = 200


class Shop(Connector):
    """An outside service that answers at once, and counts."""

    name = "shop"

    def __init__(self) -> None:
        self.filed = 0

    @mutation
    async def file(self, order: int, customer: str) -> str:
        """File an order."""
        self.filed += 1
        return f"{customer}: {order}"


TOPIC: Final = "orders"
SCRIPT: Final = """
export default Keep.workflow({
  name: "orders",
  topics: { "orders": {} },
  producers: {
    poll: {
      schedule: { interval: "1d" },
      async handler(ctx, state) { return { polls: (state?.polls ?? 0) + 1 }; },
    },
  },
  consumers: {
    fileOrder: Keep.consumer({
      subscribe: ["orders"],
      async prepare(ctx, state) {
        const [event] = await ctx.peek("orders", { limit: 1 });
        return {
          reservations: [{ topic: "orders", ids: [event.messageId] }],
          data: { ...event.payload, before: state?.filed ?? 0 },
          ui: { title: `File order ${event.payload.order}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.shop.file({ order: prepared.data.order, customer: prepared.data.customer });
      },
      async next(ctx, prepared, mutation) {
        return { filed: prepared.data.before + 1, last: mutation.result };
      },
    }),
  },
});
"""
"""A producer that polls once a day, and a consumer that files one order at a time."""


class Template(NamedTuple):
    """The rows that the runtime writes for the script."""

    version: ScriptVersion
    handlers: list[Handler]
    grants: list[StoredGrant]


def fill(path: Path, workflows: int, events_each: int) -> None:
    """Write deployed workflows into a new file: one is deployed elsewhere, and its rows are repeated.

    Their producers are due tomorrow; their events are pending.
    """
    template, ids, tomorrow = anyio.run(_deploy_once), Ids(wall_clock), wall_clock() + _DAY_MS
    with Store.open(path) as store:
        for first in range(0, workflows, _BATCH):
            names = [f"orders {number}" for number in range(first, min(first + _BATCH, workflows))]
            batch = [each for name in names for each in _repeated(template, name, events_each, ids, tomorrow)]
            for outcome in store.commit(batch):
                outcome.unwrap()


async def _deploy_once() -> Template:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.db"
        async with keep_actors.open(path, connectors=[Shop()], sandbox="thread") as keep:
            workflow_id = (await keep.deploy(SCRIPT, grants="declared", start=False)).workflow_id
        with Store.open(path) as store:
            q = store.queries()
            version = reads.latest_version(q, workflow_id)
            assert version is not None, "it has just been deployed"
            return Template(version, reads.handlers(q, workflow_id), reads.grants(q, workflow_id, version.major))


def _repeated(template: Template, name: str, events: int, ids: Ids, tomorrow: Millis) -> list[Operation[Any]]:
    workflow_id, version_id, version = ids.new("wf"), ids.new("ver"), template.version
    handlers = tuple(_spec(handler, tomorrow) for handler in template.handlers)
    grants = (GrantPermission(workflow_id, version.major, each.permission, each.policy) for each in template.grants)
    return [
        CreateWorkflow(workflow_id, name),
        AddScriptVersion(version_id, workflow_id, version.major, version.minor, version.source, version.declaration),
        ActivateScript(version_id, (TOPIC,), handlers),
        *grants,
        ResumeWorkflow(workflow_id),
        PublishEvents(workflow_id, tuple(_order(number, ids) for number in range(events))),
    ]


def _spec(handler: Handler, tomorrow: Millis) -> HandlerSpec:
    if handler.kind is HandlerKind.CONSUMER:
        return HandlerSpec(handler.name, handler.kind, subscribe=(TOPIC,))
    return HandlerSpec(handler.name, handler.kind, schedule=handler.schedule, first_run_at=tomorrow)


def _order(number: int, ids: Ids) -> Publish:
    payload = (
        f'{{"order":{number},"customer":"Jane Doe","lines":[{{"sku":"A-1","count":2}},{{"sku":"B-7","count":1}}]}}'
    )
    return Publish(ids.new("evt"), "orders", f"order-{number}", f"Order {number}", payload)
