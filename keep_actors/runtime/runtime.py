"""`open`: the composition root. Everything that a runtime consists of is made here, started here and ended here."""

import logging
import os
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from keep_actors.api.keep import Keep
from keep_actors.connectors import Catalog, Connector
from keep_actors.control.place import listening, place_of
from keep_actors.control.server import Server
from keep_actors.host.fault_points import Faults, no_faults
from keep_actors.host.host import Host
from keep_actors.host.reading_actor import ReadingActor
from keep_actors.host.run_slots import RunSlots
from keep_actors.host.storage_actor import StorageActor
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import (
    ActorRef,
    Clock,
    Directory,
    Escalated,
    RestartPolicy,
    Supervisor,
    Time,
    WallTime,
    WorkerThread,
)
from keep_actors.kernel.signal import Signal
from keep_actors.maintenance import Maintainer
from keep_actors.notices import Sink, Sinks
from keep_actors.notices import actor as notices_actor
from keep_actors.notices.sink import chosen as chosen_sinks
from keep_actors.permissions import Accepted
from keep_actors.policy import Policy
from keep_actors.run import reconcile
from keep_actors.run.missing import missing_methods
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import limits_for
from keep_actors.sandbox_pool.policy import PoolPolicy
from keep_actors.sandbox_pool.pool import PoolMode
from keep_actors.telemetry import Wanted, chosen
from keep_actors.telemetry.news import tell
from keep_actors.workflow.actor import WorkflowActor
from keep_actors.workflow.messages import Message, Tick
from keep_sandbox.limits import Limits
from keep_storage import Store, reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.operations import ClearWorkflowError, HaltWorkflow, Together
from keep_storage.recovery import assert_no_orphaned_reserved_events, recovery

log = logging.getLogger("keep_actors")

_AFTER_GIVING_UP_MS: Final = 5 * 60_000
"""When a workflow whose actor kept crashing is looked at again."""

_SERVICES = "keep"
"""The supervisor of what everything needs."""

_UNBOUNDED = 1 << 40
"""Inside the runtime a send is never refused: what can be waiting is bounded by the number of workflows."""


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
    runs_max: int = 64,
    restart: RestartPolicy | None = None,
    telemetry: Wanted = None,
    control: bool | str | os.PathLike[str] = False,
    file_mode: int = 0o600,
    shutdown_grace_ms: Millis = 10_000,
    time: Time | None = None,
    rng: random.Random | None = None,
    faults: Faults = no_faults,
) -> AsyncIterator[Keep]:
    """Open a database file and run what is deployed in it, for as long as the block lasts.

    ```python
    async with keep_actors.open("keep.db", connectors=[Gmail(), Sheets()]) as keep:
        await keep.deploy(Path("mail_to_sheets.js").read_text(), grants=["gmail.search", "sheets.appendRow"])
        await keep.wait_idle()
    ```

    What a dead process left behind is settled first. At the end, runs under way have `shutdown_grace_ms` to come to
    theirs; what is cut off then, or at once when the block is cancelled, is settled by the next start. With the path
    `":memory:"` nothing is kept.

    With `grants="declared"` a deployed script is granted what it names, with `"all"` everything; by default `deploy`
    wants to be told. `maintainer` repairs scripts; without one a person does. `notices` are told when something needs a
    person and when it is settled: async functions, and webhooks of `keep_actors.notices`. `sandbox` is `"jailed"` for
    every script that is not trusted. `telemetry` is one or several of `keep_actors.telemetry`, or `"auto"`:
    OpenTelemetry if it is installed. With `control` the command line can talk to it, over a socket beside the file
    (`FILE-control`) or at the path that is given, for this user and root only. A file that is made is for this user
    alone, unless `file_mode` says otherwise (`0o640`). `time`, `rng` and `faults` are for tests.

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
            SandboxPool.open(mode=sandbox, limits=limits or limits_for(sandbox), policy=pool_policy)
        )
        await stack.enter_async_context(catalog.opened())
        committed, thread = Signal(), WorkerThread()
        services = CoreActors(
            StorageActor(
                store,
                mailbox_capacity=_UNBOUNDED,
                thread=thread,
                on_commit=committed.fire,
                telemetry=telemetry,
                faults=faults,
            ),
            # A database in memory is one connection: its reads and its writes take turns in one thread.
            ReadingActor(reader, mailbox_capacity=_UNBOUNDED, thread=thread if in_memory else None),
            now,
        )
        host = Host(
            time=now,
            rng=rng or random.Random(),  # noqa: S311  # seeds of scripts and jitter, no secrets
            storage=services.storage.ref,
            reading=services.reading.ref,
            pool=pool,
            catalog=catalog,
            run_slots=RunSlots(runs_max),
            policy=policy or Policy(),
            policies=policies or {},
            automatic_repairs=maintainer is not None and maintainer.is_automatic,
            telemetry=telemetry,
            faults=faults,
        )
        server = await _server(_place_of_control(path, control), stack)
        runtime = Runtime(host, services, committed, restart or RestartPolicy(), grants, maintainer, sinks, server)
        async with runtime.running(shutdown_grace_ms) as keep:
            yield keep


async def _server(place: Path | None, stack: AsyncExitStack) -> Server | None:
    """The control socket. Made when the file is ours: a socket at its place is a dead runtime's."""
    return Server(await stack.enter_async_context(listening(place))) if place is not None else None


def _place_of_control(path: str | os.PathLike[str], control: bool | str | os.PathLike[str]) -> Path | None:
    if isinstance(control, bool):
        if control and os.fspath(path) == ":memory:":
            raise ValueError("a database in memory has no place for a control socket; say where: control=PATH")
        return place_of(Path(path)) if control else None
    return Path(control).absolute()


def _why_it_ended(group: ExceptionGroup[Exception]) -> Escalated | None:
    """The one error of a runtime. Without the storage a workflow cannot be given up either: the storage comes first."""
    escalated = [each for each in group.exceptions if isinstance(each, Escalated)]
    if len(escalated) < len(group.exceptions):
        return None
    return min(escalated, key=lambda each: each.supervisor != _SERVICES)


class CoreActors:
    """The two actors that everything needs. If one of them fails, so does the runtime."""

    def __init__(self, storage: StorageActor, reading: ReadingActor, time: Time) -> None:
        self.storage = storage
        self.reading = reading
        self.supervisor = Supervisor(_SERVICES, time)
        never = RestartPolicy(restarts_max=0)
        self.supervisor.start("storage", lambda _: storage, policy=never)
        self.supervisor.start("reading", lambda _: reading, policy=never)


class Runtime:
    """Everything that runs: the services, the workflow actors, the clock."""

    def __init__(
        self,
        host: Host,
        services: CoreActors,
        committed: Signal,
        restart: RestartPolicy,
        grants: Accepted,
        maintainer: Maintainer | None = None,
        sinks: tuple[Sink, ...] = (),
        server: Server | None = None,
    ) -> None:
        self._grants = grants
        self._maintainer = maintainer
        self._sinks = sinks
        self._server = server
        self._notices: ActorRef[notices_actor.NoticesMessage] | None = None
        self._host = host
        self._services = services
        self._committed = committed
        self._workflows = Supervisor("workflows", host.time)
        self._directory: Directory[Message] = Directory(
            self._workflows, self._make, policy=restart, given_up=self._give_up
        )
        self._clock = Clock(host.time, self._ring)

    @asynccontextmanager
    async def running(self, grace_ms: Millis) -> AsyncIterator[Keep]:
        """Start, recover, hand out, and come to an end in order."""
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._services.supervisor.run)
                try:
                    await self._recover()
                    self._notices = notices_actor.start(
                        self._services.supervisor, self._host, self._sinks, self._committed
                    )
                    await tasks.start(self._workflows.run)
                    tasks.start_soon(self._clock.run)
                    keep = Keep(self._host, self._directory, self._clock, self._committed, self._grants)
                    if self._server is not None:
                        await tasks.start(self._server.run, keep)
                    yield keep
                except Exception as error:
                    # The caller's own, or why it cannot start: it leaves this block as it came, not in a group of ours.
                    failure = error
                finally:
                    await self._come_to_an_end(grace_ms)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            if (why := _why_it_ended(group)) is not None:
                raise why from why.__cause__
            raise
        if failure is not None:
            raise failure

    async def _recover(self) -> None:
        """Settle what a dead process left behind, look for what cannot be, and find out when everyone is due."""
        settle = recovery()
        tell(settle, await self._host.storage.apply(settle))
        await self._host.reading.read(assert_no_orphaned_reserved_events)
        await self._welcome_back()
        for due in await self._host.reading.read(reads.agenda):
            self._clock.set(due.workflow_id, due.at)

    async def _welcome_back(self) -> None:
        """What waited for a connector that was not there goes on, if it is there now."""
        host = self._host
        for workflow in await host.reading.read(reads.workflows_in_error):
            missing = missing_methods(workflow.error_about)
            # One of several is enough: the next run says which are missing still.
            if back := [name for name in missing if host.catalog.get(name) is not None]:
                clear = ClearWorkflowError(workflow.id, by="runtime", why=f"{', '.join(back)} can be called again")
                tell(clear, await host.storage.apply(clear))
        for doubt in await host.reading.read(reads.doubts):
            method = host.catalog.get(f"{doubt.connector}.{doubt.method}")
            if reconcile.NO_CONNECTOR in doubt.error and method is not None and method.reconcilable:
                again = reconcile.ask_again(doubt, host.time.now())
                tell(again, await host.storage.apply(again))

    async def _come_to_an_end(self, grace_ms: Millis) -> None:
        """Let runs come to theirs, but not for ever. A run that is cut off is settled by the next start."""
        self._host.is_closing = True
        with anyio.move_on_after(grace_ms / 1000, shield=True):
            await self._directory.wait_empty()
        await notices_actor.finish(self._notices, grace_ms)
        self._host.is_closed = True
        self._committed.fire()

    def _make(self, workflow_id: str, restarts: int) -> WorkflowActor:
        return WorkflowActor(workflow_id, self._host, self, maintainer=self._maintainer, restarted=restarts > 0)

    async def _give_up(self, workflow_id: str, error: Exception) -> None:
        """A workflow whose actor keeps crashing stops, durably, with words for a person. Its neighbours go on."""
        why = f"The runtime keeps failing on this workflow, and has stopped it: {type(error).__name__}: {error}"
        halt = Together((*recovery(workflow_id).operations, HaltWorkflow(workflow_id, why)))
        try:
            tell(halt, await retry_while_unavailable(lambda: self._host.storage.apply(halt), self._host.time))
        except Rejected as refused:
            log.error("Workflow %s keeps failing and could not be stopped: %s", workflow_id, refused)
        # Its runs are stopped, its questions are not: a doubt is still looked into, an approval still expires.
        self._clock.set(workflow_id, self._host.time.now() + _AFTER_GIVING_UP_MS)

    def _ring(self, workflow_id: str) -> None:
        # One that is active plans anew when it comes to rest, and then sees what is due.
        if not self._host.is_closing and not self._directory.is_active(workflow_id):
            self._directory.tell(workflow_id, Tick())

    # What a workflow actor calls its home.

    def wake_at(self, workflow_id: str, at: Millis | None) -> None:
        """Send it a `Tick` then; None: not before something happens."""
        if at is None:
            self._clock.clear(workflow_id)
        else:
            self._clock.set(workflow_id, at)

    def let_go(self, actor: WorkflowActor) -> bool:
        """It has nothing to do. False if a message has come meanwhile."""
        return self._directory.passivate(actor.name, actor)
