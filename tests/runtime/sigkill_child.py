"""A process to be killed: a whole runtime, jailed, that works through the events of many workflows.

Its outside is a file that no database knows of: one line for each effect, synced before the answer. It says on its
standard output what the journal says, as soon as that is durable.

python -m tests.runtime.sigkill_child DATABASE LEDGER
"""

import os
import sys
from pathlib import Path

import anyio
import anyio.to_thread

import keep_actors
from keep_actors import Connector, Keep
from keep_actors.connectors import Applied, MutationCall, NotApplied, mutation

EVENTS = 6
WORKFLOWS = tuple(f"{method}-{number:02}" for number in range(18) for method in ("post", "send"))
"""Each is named after the method that it mutates by."""
AT_A_TIME = 8
LATENCY_S = 0.005
"""How long a call is under way before its effect, and how long its answer is after it."""


class Outbox(Connector):
    """Does what it is asked as often as it is asked: whoever asks twice is found out."""

    name = "outbox"

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    @mutation
    async def send(self, event: str, call: MutationCall) -> None:
        """Leaves no way to find out whether it happened."""
        await self._do(event, call)

    @mutation
    async def post(self, event: str, call: MutationCall) -> None:
        """Can be looked up afterwards."""
        await self._do(event, call)

    @post.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        return Applied() if call.idempotency_key in self._ledger.read_text().split() else NotApplied()

    async def _do(self, event: str, call: MutationCall) -> None:
        await anyio.sleep(LATENCY_S)
        await anyio.to_thread.run_sync(self._append, event, call.idempotency_key)
        await anyio.sleep(LATENCY_S)

    def _append(self, event: str, key: str) -> None:
        file = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{event} {key}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)


def script(name: str, events: int = EVENTS) -> str:
    """A producer that brings so many events once, and a consumer that has one effect for each."""
    method = name.partition("-")[0]
    return f"""
    export default Keep.workflow({{
      name: "{name}",
      topics: {{ "in": {{}}, "done": {{}} }},
      producers: {{
        bring: {{
          schedule: {{ interval: "1d" }},
          async handler(ctx) {{
            for (let i = 0; i < {events}; i++) {{
              await ctx.publish("in", {{ messageId: `{name}/${{i}}`, title: `Event ${{i}}`, payload: {{ i }} }});
            }}
          }},
        }},
      }},
      consumers: {{
        work: Keep.consumer({{
          subscribe: ["in"],
          async prepare(ctx) {{
            const [event] = await ctx.peek("in", {{ limit: 1 }});
            return {{ reservations: [{{ topic: "in", ids: [event.messageId] }}], data: {{ event: event.messageId }} }};
          }},
          async mutate(ctx, {{ data }}) {{
            await ctx.outbox.{method}({{ event: data.event }});
          }},
          async next(ctx, {{ data }}, mutation) {{
            await ctx.publish("done", {{ messageId: data.event, title: `Done: ${{data.event}}`, payload: mutation }});
            return {{ last: data.event }};
          }},
        }}),
      }},
    }});
    """


async def work(path: Path, ledger: Path) -> None:
    """Deploy what is not deployed yet, and do what there is to do."""
    async with (
        keep_actors.open(path, connectors=[Outbox(ledger)], runs_max=AT_A_TIME) as keep,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(say_what_happens, keep)
        for name in WORKFLOWS:
            await keep.deploy(script(name), grants="declared")
        await keep.wait_idle()
        tasks.cancel_scope.cancel()


async def say_what_happens(keep: Keep) -> None:
    async for entry in keep.watch():
        os.write(sys.stdout.fileno(), f"{entry.operation}\n".encode())


if __name__ == "__main__":
    anyio.run(work, Path(sys.argv[1]), Path(sys.argv[2]))
