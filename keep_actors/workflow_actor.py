"""One workflow: everything that can change it passes through this mailbox, one thing at a time.

Handler code and external calls run in a task beside the mailbox; every transition they want comes back as a message. So
a person can pause or look while a call is pending, and there is never more than one run. What to do next is `plan`'s.
"""

from functools import partial
from typing import Any, Protocol, assert_never

import anyio
import msgspec
from anyio.abc import TaskGroup

from keep_actors import deployment
from keep_actors.context import RunContext
from keep_actors.execution import Execution
from keep_actors.host import Host
from keep_actors.kernel import Actor
from keep_actors.messages import Advance, Deploy, Do, Message, RunEnded, Tick
from keep_actors.plan import Rest, StartRetry, StartRun, Step, plan
from keep_actors.record import Record, patiently
from keep_storage import reads
from keep_storage.errors import Reason, Rejected, StorageUnavailable
from keep_storage.ids import Millis
from keep_storage.model import Handler, HandlerKind, Phase, Run
from keep_storage.operations import (
    CreateRetryRun,
    CreateRun,
    CreateSession,
    FinishSession,
    Operation,
    RecoverCrashedRuns,
    RecoverMaintenanceMode,
    RecoverUnfinishedSessions,
    RunNow,
    SkipEvent,
    Together,
)
from keep_storage.reads import Snapshot
from keep_storage.transaction import Queries


class Home(Protocol):
    """Where a workflow actor lives: who wakes it later, and who lets it go."""

    def wake_at(self, workflow_id: str, at: Millis | None) -> None:
        """Send a `Tick` then; None: not before something happens."""

    def let_go(self, actor: "WorkflowActor") -> bool:
        """There is nothing to do. False if a message has come meanwhile."""


def recovery(workflow_id: str | None = None) -> Together:
    """What settles what a dead process or a dead actor left behind: in one workflow, or everywhere."""
    return Together(
        (
            RecoverCrashedRuns(workflow_id),
            RecoverUnfinishedSessions(workflow_id),
            RecoverMaintenanceMode(workflow_id),
        )
    )


class WorkflowActor(Actor[Message]):
    """Made when a message comes for its workflow, let go when there is nothing to do."""

    def __init__(self, workflow_id: str, host: Host, home: Home, *, restarted: bool) -> None:
        super().__init__(workflow_id, mailbox_capacity=10_000)
        self._host = host
        self._home = home
        self._restarted = restarted
        self._running: RunContext | None = None
        self._deploys: list[Deploy] = []
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Begin with recovery if the last incarnation crashed, then process messages. A run dies with its actor."""
        async with anyio.create_task_group() as self._tasks:
            if self._restarted:
                await self._write(recovery(self.name))
                await self._go_on()
            await super().run()
            self._tasks.cancel_scope.cancel()

    async def receive(self, message: Message) -> None:
        match message:
            case Advance():
                if self._is_running(message.run_id):
                    await self._apply(message, Together(message.operations))
                return
            case Do():
                await self._do(message)
            case Deploy():
                self._deploys.append(message)
            case RunEnded():
                if not self._is_running(message.run_id):
                    return
                self._running = None
            case Tick():
                pass
            case _:
                assert_never(message)
        await self._go_on()

    def _is_running(self, run_id: str) -> bool:
        """False for what the run of a crashed incarnation has left in the mailbox: recovery has settled that run."""
        return self._running is not None and self._running.run_id == run_id

    # What people and runs ask for.

    async def _do(self, message: Do[Any]) -> None:
        operation = message.operation
        if isinstance(operation, RunNow) and self._running is not None:
            text = f"Run {self._running.run_id!r} of workflow {self.name!r} is still active; try again when it ends."
            message.fail(Rejected(Reason.RUN_ALREADY_ACTIVE, text))
            return
        if isinstance(operation, SkipEvent) and self._running is not None:
            self._running.event_was_skipped = True
        await self._apply(message, operation)

    async def _apply(self, message: Do[Any] | Advance, operation: Operation[Any]) -> None:
        try:
            message.answer(await self._host.storage.apply(operation))
        except (Rejected, StorageUnavailable) as error:
            message.fail(error)

    async def _deploy(self, message: Deploy) -> None:
        workflow, latest = await self._host.read(
            lambda q: (reads.workflow(q, self.name), reads.latest_version(q, self.name))
        )
        version_id, operations = deployment.operations_for(
            workflow_id=self.name,
            workflow=workflow,
            latest=latest,
            source=message.source,
            declaration=message.declaration,
            timezone=message.timezone,
            is_major=message.is_major,
            start=message.start,
            by=message.by,
            ids=self._host.ids,
            now=self._host.time.now(),
        )
        try:
            await self._host.storage.apply(Together(operations))
        except (Rejected, StorageUnavailable) as error:
            message.fail(error)
            return
        version = await self._host.read(lambda q: reads.version(q, version_id))
        assert version is not None, "it has just been written"
        message.answer(version)

    # What to do next.

    async def _go_on(self) -> None:
        """Carry out the next step, if no run is under way: its end comes back here."""
        if self._running is not None:
            return
        while self._deploys:
            await self._deploy(self._deploys.pop(0))
        now = self._host.time.now()
        outlook = await self._host.read(lambda q: look(q, self.name, now))
        if outlook is not None and not isinstance(outlook.step, Rest) and not self._host.is_closing:
            await self._start(outlook, outlook.step)
            return
        if outlook is not None and outlook.snapshot.open_session_id is not None:
            await self._write(FinishSession(outlook.snapshot.open_session_id))
        if outlook is not None and isinstance(outlook.step, Rest):
            self._home.wake_at(self.name, outlook.step.until)
        self._home.let_go(self)

    async def _start(self, outlook: "Outlook", step: StartRun | StartRetry) -> None:
        workflow, handler = outlook.snapshot.workflow, outlook.handler
        assert workflow.active_version_id is not None, "what is active has a script"
        assert handler is not None, "what is planned is declared"
        script = await self._host.script(workflow.active_version_id)
        run_id, session_id = self._host.ids.new("run"), outlook.snapshot.open_session_id
        opening: list[Operation[Any]] = []
        if session_id is None:
            session_id = self._host.ids.new("ses")
            opening.append(CreateSession(session_id, workflow.id, step.trigger))
        if isinstance(step, StartRetry):
            opening.append(CreateRetryRun(run_id, step.run_id, session_id))
        else:
            phase = Phase.PREPARING if handler.kind is HandlerKind.CONSUMER else Phase.PENDING
            opening.append(CreateRun(run_id, session_id, handler.name, phase, _writes(outlook, handler)))
        record = Record(tuple(opening), partial(self._advance, run_id), self._host.time)
        self._running = RunContext(self._host, workflow, script, handler.name, handler.kind, run_id, record)
        execution = Execution(self._running, handler.state, handler.failures, outlook.retried)
        assert self._tasks is not None, "messages are received inside `run`"
        self._tasks.start_soon(self._carry_out, execution, run_id)

    async def _carry_out(self, execution: Execution, run_id: str) -> None:
        await execution.run()
        self.mailbox.put_first([RunEnded(run_id)])

    async def _advance(self, run_id: str, operations: tuple[Operation[Any], ...]) -> tuple[Any, ...]:
        """Called in the task of a run. Its steps go first: they are one at a time, and others may fill the mailbox."""
        step = Advance(run_id, operations)
        self.mailbox.put_first([step])
        await step.wait()
        return step.result()

    async def _write(self, operation: Operation[Any]) -> None:
        await patiently(lambda: self._host.storage.apply(operation), self._host.time)


class Outlook(msgspec.Struct, frozen=True):
    """What the actor has to know to go on, read in one piece."""

    snapshot: Snapshot
    step: Step
    handler: Handler | None = None
    retried: Run | None = None


def _writes(outlook: Outlook, handler: Handler) -> int:
    """The run may be written down only after it has looked at its topics; what comes in between is news to it."""
    return next(each.writes for each in outlook.snapshot.handlers if each.name == handler.name)


def look(q: Queries, workflow_id: str, now: Millis) -> Outlook | None:
    """What is there, and what follows from it. None if there is no such workflow."""
    snapshot = reads.snapshot(q, workflow_id)
    if snapshot is None:
        return None
    step = plan(snapshot, now)
    if isinstance(step, Rest):
        return Outlook(snapshot, step)
    retried = reads.run(q, step.run_id) if isinstance(step, StartRetry) else None
    return Outlook(snapshot, step, reads.handler(q, workflow_id, step.handler), retried)
