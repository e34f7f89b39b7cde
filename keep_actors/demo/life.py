"""One life of the demo's runtime: `python -m keep_actors.demo.life FOLDER`. Ends in order when its standard input does.

Says on its standard output, in JSON, which sandbox it has. Everything else is in the database, where anybody can look.
"""

import json
import sys
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

import keep_actors
from keep_actors.demo.folder import SCRIPTS, Folder, script
from keep_actors.demo.services import connectors_in
from keep_actors.demo.tricks import INVOICES
from keep_actors.policy import Backoff, Policy
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import JailUnavailable

POLICY: Final = Policy(
    retry=Backoff(first_ms=300, cap_ms=2_000, jitter=0),
    reconcile=Backoff(first_ms=300, cap_ms=2_000, attempts_max=12, jitter=0),
    wake_after_min_ms=500,
)
"""The defaults are patient: seconds and minutes. Here somebody is watching."""

_MODES: Final[tuple[PoolMode, ...]] = ("jailed", "weak", "thread")
"""The best one that this machine has. The demo's own scripts can be trusted."""


async def live(folder: Folder) -> None:
    """Raises what the last mode raised, if none works here."""
    for mode in _MODES:
        try:
            await _live(folder, mode)
        except (JailUnavailable, SandboxUnavailable) as error:
            if mode == _MODES[-1]:
                raise
            sys.stderr.write(f"{mode}: {error}\n")
        else:
            return


async def _live(folder: Folder, mode: PoolMode) -> None:
    async with keep_actors.open(folder.db, connectors=connectors_in(folder), policy=POLICY, sandbox=mode) as keep:
        for name in SCRIPTS:
            await keep.deploy(script(name), grants="declared")
        sys.stdout.write(json.dumps({"sandbox": mode}) + "\n")
        sys.stdout.flush()
        for number, amount, urgent in INVOICES:
            # In every life, as a caller does that does not know whether it was heard: it is one event all the same.
            payload = {"amount": amount, "urgent": urgent, "to": "Main Street 1"}
            title = f"Invoice {number}: {amount} EUR"
            await keep.publish("payments", "invoice.approved", message_id=number, title=title, payload=payload)
        await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(live, Folder(Path(sys.argv[1])))
