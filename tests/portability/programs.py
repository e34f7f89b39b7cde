"""Programs that are executed on other systems, by `python -c`."""

EVERY_MODULE = """
import importlib, pkgutil
count = 0
for name in ("keep_storage", "keep_sandbox", "keep_actors"):
    for each in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
            count += 1
print(count)
"""

FIRST = "mcp.server psycopg"
"""Libraries of connectors that choose by `sys.platform`: they are loaded before anything is taken away."""

EMBEDDED = """
import sys
import anyio
import keep_actors

SCRIPT = '''
export default Keep.workflow({
  name: "orders",
  topics: { paid: {} },
  consumers: {
    ship: Keep.consumer({
      subscribe: ["paid"],
      async prepare(ctx) {
        const [order] = await ctx.peek("paid", { limit: 1 });
        if (!order) return { reservations: [] };
        return { reservations: [{ topic: "paid", ids: [order.messageId] }], data: order.payload };
      },
      async mutate(ctx, prepared) { await ctx.shop.ship({ order: prepared.data }); },
      async next(ctx, prepared, result) { return { shipped: result.status }; },
    }),
  },
});
'''

class Shop(keep_actors.Connector):
    name = "shop"

    @keep_actors.mutation(identity=["order"])
    async def ship(self, order: str) -> str:
        print("ships", order)
        return order

async def main(sandbox):
    async with keep_actors.open("keep.db", connectors=[Shop()], sandbox=sandbox) as keep:
        await keep.deploy(SCRIPT, grants="declared", owner="ann")
        await keep.publish("orders", "paid", message_id="o-1", title="Order o-1", payload="o-1")
        await keep.wait_idle()
        [event] = await keep.events("orders", "paid")
        [call] = await keep.outputs("orders")
        print(event.status, call.status, (await keep.workflow("orders")).owner)

anyio.run(main, sys.argv[2], backend=sys.argv[1])
"""
"""Processes an event, in the event loop and the sandbox that are named."""

OWNER = """
import sys
from pathlib import Path
from keep_storage import StorageOwned, Store
from keep_storage.ownership import owner_of

path = Path(sys.argv[1])
try:
    store = Store.open(path)
except StorageOwned as error:
    print("owned", owner_of(path), error)
else:
    print("mine", flush=True)
    sys.stdin.read()
    store.close()
    print(owner_of(path), flush=True)
"""
"""Takes a file until its standard input ends, or says who has it."""
