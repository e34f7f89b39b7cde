"""A runtime: the actors that everything needs, an actor for each active workflow, and the clock that wakes them."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeAlias

import anyio
from anyio.abc import TaskStatus

from keep_actors.api.keep import Keep
from keep_actors.host.host import Host
from keep_actors.host.reading_actor import ReadingActor
from keep_actors.host.storage_actor import StorageActor
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import ActorRef, Clock, Directory, Escalated, RestartPolicy, Supervisor, Time
from keep_actors.kernel.signal import Signal
from keep_actors.maintenance import Maintainer
from keep_actors.notices import Sink
from keep_actors.notices import actor as notices_actor
from keep_actors.permissions import Accepted
from keep_actors.runtime.recovery import recover
from keep_actors.telemetry.news import tell
from keep_actors.workflow.actor import WorkflowActor
from keep_actors.workflow.messages import Message, Tick
from keep_storage import reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.operations import HaltWorkflow, Together
from keep_storage.recovery import recovery

log = logging.getLogger("keep_actors")

_AFTER_GIVING_UP_MS: Final = 5 * 60_000
"""When a workflow whose actor kept crashing is looked at again."""

_CORE: Final = "keep"
"""The supervisor of the actors that everything needs."""

PaceOf: TypeAlias = Callable[[str], Awaitable[None]]
"""Awaited with a workflow's id before its actor takes a message."""


class Serves(Protocol):
    """Lets others use a `Keep`, as the control server does, until it is cancelled."""

    async def run(self, keep: Keep, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None: ...


class CoreActors:
    """The two actors that everything needs. If one of them fails, so does the runtime."""

    def __init__(self, storage: StorageActor, reading: ReadingActor, time: Time) -> None:
        self.storage = storage
        self.reading = reading
        self.supervisor = Supervisor(_CORE, time)
        never = RestartPolicy(restarts_max=0)
        self.supervisor.start("storage", lambda _: storage, policy=never)
        self.supervisor.start("reading", lambda _: reading, policy=never)


class Runtime:
    """Made by `assemble`. Runs once, for as long as the block of `running` lasts."""

    def __init__(
        self,
        host: Host,
        core: CoreActors,
        committed: Signal,
        *,
        restart: RestartPolicy,
        grants: Accepted,
        maintainer: Maintainer | None,
        sinks: tuple[Sink, ...],
        server: Serves | None,
        pace: PaceOf | None,
    ) -> None:
        self.host = host
        self.core = core
        self.workflows = Supervisor("workflows", host.time)
        self.directory: Directory[Message] = Directory(
            self.workflows, self._make, policy=restart, given_up=self._give_up
        )
        self._committed = committed
        self._grants = grants
        self._maintainer = maintainer
        self._sinks = sinks
        self._server = server
        self._pace = pace
        self._notices: ActorRef[notices_actor.NoticesMessage] | None = None
        self._clock = Clock(host.time, self._ring)

    @asynccontextmanager
    async def running(self, grace_ms: Millis) -> AsyncIterator[Keep]:
        """Start, recover, serve the block, and finish in order."""
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.core.supervisor.run)
                try:
                    await recover(self.host)
                    for due in await self.host.reading.read(reads.agenda):
                        self._clock.set(due.workflow_id, due.at)
                    self._notices = notices_actor.start(self.core.supervisor, self.host, self._sinks, self._committed)
                    await tasks.start(self.workflows.run)
                    tasks.start_soon(self._clock.run)
                    keep = Keep(self.host, self.directory, self._clock, self._committed, self._grants)
                    if self._server is not None:
                        await tasks.start(self._server.run, keep)
                    yield keep
                except Exception as error:
                    # The caller's own, or why it cannot start: it leaves this block as it came, not in a group of ours.
                    failure = error
                finally:
                    await self._finish(grace_ms)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            if (why := _why_it_ended(group)) is not None:
                raise why from why.__cause__
            raise
        if failure is not None:
            raise failure

    async def _finish(self, grace_ms: Millis) -> None:
        """Let active runs finish, but not for ever. A run that is cut off is settled by the next start."""
        self.host.is_closing = True
        with anyio.move_on_after(grace_ms / 1000, shield=True):
            await self.directory.wait_empty()
        await notices_actor.finish(self._notices, grace_ms)
        self.host.is_closed = True
        self._committed.fire()

    def _make(self, workflow_id: str, restarts: int) -> WorkflowActor:
        actor = WorkflowActor(workflow_id, self.host, self, maintainer=self._maintainer, restarted=restarts > 0)
        if self._pace is not None:
            actor.pace = partial(self._pace, workflow_id)
        return actor

    async def _give_up(self, workflow_id: str, error: Exception) -> None:
        """Stop a workflow whose actor keeps crashing, durably, with words for a person. Its neighbours go on."""
        why = f"The runtime keeps failing on this workflow, and has stopped it: {type(error).__name__}: {error}"
        halt = Together((*recovery(workflow_id).operations, HaltWorkflow(workflow_id, why)))
        try:
            tell(halt, await retry_while_unavailable(lambda: self.host.storage.apply(halt), self.host.time))
        except Rejected as refused:
            log.error("Workflow %s keeps failing and could not be stopped: %s", workflow_id, refused)
        # Its runs are stopped, its questions are not: a doubt is still looked into, an approval still expires.
        self._clock.set(workflow_id, self.host.time.now() + _AFTER_GIVING_UP_MS)

    def _ring(self, workflow_id: str) -> None:
        # An active one plans again when it comes to rest, and then sees what is due.
        if not self.host.is_closing and not self.directory.is_active(workflow_id):
            self.directory.tell(workflow_id, Tick())

    # The wake-ups of workflow actors.

    def wake_at(self, workflow_id: str, at: Millis | None) -> None:
        """Send a workflow a `Tick` then; None: not before something happens."""
        if at is None:
            self._clock.clear(workflow_id)
        else:
            self._clock.set(workflow_id, at)

    def let_go(self, actor: WorkflowActor) -> bool:
        """Let an actor with nothing to do go. False if a message has come meanwhile."""
        return self.directory.passivate(actor.name, actor)


def _why_it_ended(group: ExceptionGroup[Exception]) -> Escalated | None:
    """Choose the one error of a runtime. Workflows cannot be given up without the storage: its error comes first."""
    escalated = [each for each in group.exceptions if isinstance(each, Escalated)]
    if len(escalated) < len(group.exceptions):
        return None
    return min(escalated, key=lambda each: each.supervisor != _CORE)
