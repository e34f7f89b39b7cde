"""`open`: what a program calls to run the workflows of a database file."""

import os
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from keep_actors.api.keep import Keep
from keep_actors.connectors import Catalog, Connector
from keep_actors.control.place import listening, place_of
from keep_actors.control.server import Server
from keep_actors.host.fault_points import Faults, no_faults
from keep_actors.kernel import RestartPolicy, Time, WallTime, WorkerThread
from keep_actors.maintenance import Maintainer
from keep_actors.notices import Sinks
from keep_actors.notices.sink import chosen as chosen_sinks
from keep_actors.permissions import Accepted
from keep_actors.policy import Policy
from keep_actors.runtime.assembly import assemble
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_actors.sandbox_pool.policy import PoolPolicy, Sharing
from keep_actors.sandbox_pool.pool import PoolMode
from keep_actors.telemetry import Wanted, chosen
from keep_sandbox.limits import Limits
from keep_storage import Store
from keep_storage.ids import Millis


@asynccontextmanager
async def open(  # noqa: A001  # `keep_actors.open(...)` is how it is called
    path: str | os.PathLike[str],
    *,
    connectors: Iterable[Connector] = (),
    policy: Policy | None = None,
    policies: Mapping[str, Policy] | None = None,
    grants: Accepted = "explicit",
    maintainer: Maintainer | None = None,
    notices: Sinks = (),
    sandbox: PoolMode = "jailed",
    limits: Limits | None = None,
    pool_policy: PoolPolicy | None = None,
    sharing: Sharing | None = None,
    runs_max: int = 256,
    restart: RestartPolicy | None = None,
    telemetry: Wanted = None,
    control: bool | str | os.PathLike[str] = False,
    file_mode: int = 0o600,
    shutdown_grace_ms: Millis = 10_000,
    time: Time | None = None,
    rng: random.Random | None = None,
    faults: Faults = no_faults,
) -> AsyncIterator[Keep]:
    """Open a database file and run the workflows in it, for as long as the block lasts.

    ```python
    async with keep_actors.open("keep.db", connectors=[Gmail(), Sheets()]) as keep:
        await keep.deploy(Path("mail_to_sheets.js").read_text(), grants=["gmail.search", "sheets.appendRow"])
        await keep.wait_idle()
    ```

    Work that a dead process left behind is settled first. When the block ends, active runs have `shutdown_grace_ms` to
    finish; runs that are cut off then, or at once when the block is cancelled, are settled by the next start. With the
    path `":memory:"` nothing is kept.

    With `grants="declared"` a deployed script is granted the methods it names, with `"all"` every method; by default
    `deploy` must be given them. `maintainer` repairs scripts; without one a person does. `notices` receive a notice
    when something needs a person and when it is settled: async functions, and webhooks of `keep_actors.notices`.
    `sandbox` is `"jailed"` for every script that is not trusted. `sharing` says which workflows may run in one process
    of it: those of one `"owner"` (the default), `"all"`, or `"none"`. `telemetry` is one or several of
    `keep_actors.telemetry`, or `"auto"`: OpenTelemetry if it is installed. With `control` the command line can talk to
    the runtime, over a socket beside the file (`FILE-control`) or at the given path, for this user and root only. A new
    file is for this user alone, unless `file_mode` says otherwise (`0o640`). `time`, `rng` and `faults` are for tests.

    Raises what `Store.open` raises (`StorageOwned` when another runtime has the file), `SandboxUnavailable`,
    `ConnectorNotOpened` and `ControlUnavailable`.
    """
    catalog, telemetry, sinks = Catalog(connectors), chosen(telemetry), chosen_sinks(notices)
    now = time or WallTime()
    async with AsyncExitStack() as stack:
        in_memory = os.fspath(path) == ":memory:"
        store = Store.in_memory(now.now) if in_memory else Store.open(path, now.now, file_mode=file_mode)
        stack.callback(store.close)
        reader = store.reader()
        stack.callback(reader.close)
        pool = await stack.enter_async_context(
            SandboxPool.open(mode=sandbox, limits=limits or RUN_LIMITS, policy=_pool_policy(pool_policy, sharing))
        )
        await stack.enter_async_context(catalog.opened())
        thread = WorkerThread()
        runtime = assemble(
            store,
            reader,
            pool,
            catalog,
            time=now,
            rng=rng or random.Random(),  # noqa: S311  # seeds of scripts and jitter, no secrets
            thread=thread,
            # A database in memory is one connection: its reads and its writes take turns in one thread.
            reading_thread=thread if in_memory else None,
            policy=policy,
            policies=policies,
            grants=grants,
            maintainer=maintainer,
            sinks=sinks,
            server=await _server(_place_of_control(path, control), stack),
            restart=restart,
            runs_max=runs_max,
            telemetry=telemetry,
            faults=faults,
        )
        async with runtime.running(shutdown_grace_ms) as keep:
            yield keep


def _pool_policy(policy: PoolPolicy | None, sharing: Sharing | None) -> PoolPolicy:
    policy = policy or PoolPolicy()
    return policy if sharing is None else replace(policy, sharing=sharing)


async def _server(place: Path | None, stack: AsyncExitStack) -> Server | None:
    """Make the control socket. The file is ours by now, so a socket at that place is a dead runtime's."""
    return Server(await stack.enter_async_context(listening(place))) if place is not None else None


def _place_of_control(path: str | os.PathLike[str], control: bool | str | os.PathLike[str]) -> Path | None:
    if isinstance(control, bool):
        if control and os.fspath(path) == ":memory:":
            raise ValueError("a database in memory has no place for a control socket; say where: control=PATH")
        return place_of(Path(path)) if control else None
    return Path(control).absolute()
