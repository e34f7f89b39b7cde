"""One life of the demo's runtime: `python -m keep_actors.demo.life FOLDER PACE_S`, until its standard input ends."""

import sys
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

import keep_actors
from keep_actors import Backoff, Policy
from keep_actors.demo.account import INVOICES, URGENT
from keep_actors.demo.services import connectors_in, scripts
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import JailUnavailable

_QUICK: Final = Backoff(first_ms=300, cap_ms=2_000, attempts_max=12, jitter=0)
POLICY: Final = Policy(retry=_QUICK, reconcile=_QUICK, wake_after_min_ms=500)
"""Less patient than the defaults: a person is watching."""


async def live(folder: Path, pace_s: float, mode: PoolMode, *weaker: PoolMode) -> None:
    """Run the workflows in the best sandbox of this machine (the scripts can be trusted), and print its name."""
    connectors = connectors_in(folder, pace_s)
    try:
        async with keep_actors.open(folder / "keep.db", connectors=connectors, policy=POLICY, sandbox=mode) as keep:
            for source in scripts().values():
                await keep.deploy(source, grants="declared")
            sys.stdout.write(f"{mode}\n")
            sys.stdout.flush()
            for number, amount in INVOICES.items():
                # In every life, as a caller does that cannot know if it was heard: it stays one event.
                payload = {"amount": amount, "urgent": number in URGENT, "to": "Main Street 1"}
                title = f"Invoice {number}: {amount} EUR"
                await keep.publish("payments", "invoice.approved", message_id=number, title=title, payload=payload)
            await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    except (JailUnavailable, SandboxUnavailable):
        if not weaker:
            raise
        await live(folder, pace_s, *weaker)


if __name__ == "__main__":
    anyio.run(live, Path(sys.argv[1]), float(sys.argv[2]), "jailed", "wasm", "thread")
