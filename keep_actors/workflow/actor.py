"""One workflow: everything that can change it passes through this mailbox, one thing at a time.

Handler code and external calls run in a task beside the mailbox; every transition they want comes back as a message. So
a person can pause or look while a call is pending, and there is never more than one run. What to do next is `plan`'s.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar, assert_never

import anyio
from anyio.abc import TaskGroup

from keep_actors.authoring import admission
from keep_actors.host.fault_points import Point
from keep_actors.host.host import Host
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import Actor
from keep_actors.maintenance import Maintainer
from keep_actors.permissions import Envelope, PermissionsNeeded
from keep_actors.run.drive import RunDriver, StoredRun, drive_run
from keep_actors.run.effects import EventSkipped, GrantsChanged, RunEffect, StopRequested, Writes
from keep_actors.run.machine import RunMachine
from keep_actors.run.schedule import next_run_at
from keep_actors.run.state import RunFacts
from keep_actors.telemetry import names
from keep_actors.telemetry.logs import begin_work
from keep_actors.workflow import deployment
from keep_actors.workflow.active_work import ActiveWork
from keep_actors.workflow.messages import Activate, Advance, Approve, Deploy, Do, Ended, Message, Stop, Tick, WhenIdle
from keep_actors.workflow.new_run import new_run
from keep_actors.workflow.outlook import Outlook, approved, before_deployment, look, times_asked, wanted_version
from keep_actors.workflow.plan import ExpireApproval, Reconcile, Repair, Rest, StartRetry, StartRun
from keep_actors.workflow.repair import repair
from keep_storage import reads
from keep_storage.errors import Reason, Rejected, StorageUnavailable
from keep_storage.ids import Millis
from keep_storage.model import HandlerKind, Mutation, ScriptVersion, Workflow, WorkflowStatus
from keep_storage.operations import (
    AmendResult,
    ApproveMutation,
    ArchiveWorkflow,
    AskAgain,
    FinishSession,
    GrantPermission,
    Operation,
    PauseWorkflow,
    RejectMutation,
    RevokePermission,
    RunNow,
    SkipEvent,
    StopRun,
    Together,
)
from keep_storage.recovery import recovery

T = TypeVar("T")

_TURNS_IN_A_ROW: Final = 4
"""A workflow with more to do keeps its run slot for this many runs while others wait for one."""


class WakeUps(Protocol):
    """The home of a workflow actor, which wakes it later and lets it go."""

    def wake_at(self, workflow_id: str, at: Millis | None) -> None:
        """Send a `Tick` then; None: not before something happens."""

    def let_go(self, actor: "WorkflowActor") -> bool:
        """There is nothing to do. False if a message has come meanwhile."""


class WorkflowActor(Actor[Message]):
    """Made when a message comes for its workflow, let go when there is nothing to do."""

    def __init__(
        self,
        workflow_id: str,
        host: Host,
        home: WakeUps,
        *,
        maintainer: Maintainer | None = None,
        restarted: bool = False,
    ) -> None:
        super().__init__(workflow_id, mailbox_capacity=10_000)
        self._host = host
        self._home = home
        self._maintainer = maintainer
        self._restarted = restarted
        self._turns = 0
        """How many runs this incarnation has started."""
        self._active = ActiveWork(workflow_id, host, lambda message: self.mailbox.put_first([message]))
        self._repairing: anyio.CancelScope | None = None
        self._between: deque[WhenIdle | Do[Any]] = deque()
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Begin with recovery if the last incarnation crashed, then process messages. A run ends with its actor."""
        # This task has the context of whoever sent the first message: perhaps a run of another workflow.
        begin_work(self.name)
        self._host.telemetry.count(names.ACTIVE.name)
        try:
            async with anyio.create_task_group() as self._tasks:
                if self._restarted:
                    await self._write(recovery(self.name))
                    await self._go_on()
                await super().run()
                self._tasks.cancel_scope.cancel()
        finally:
            self._host.telemetry.count(names.ACTIVE.name, -1)

    async def receive(self, message: Message) -> None:
        self._host.reach(Point.RECEIVED, self.name)
        self._host.telemetry.observe(names.MAILBOX_MESSAGES.name, len(self.mailbox))
        match message:
            case Advance():
                self._active.let_pass(message)
            case Ended():
                self._active.end(message)
            case Do():
                await self._active.between_steps()
                await self._do(message)
            case Stop():
                await self._active.between_steps()
                await self._stop(message)
            case Deploy() | Activate() | Approve():
                self._between.append(message)
                # A person's script does not wait for the proposal of a machine.
                if self._repairing is not None:
                    self._repairing.cancel()
            case Tick():
                pass
            case _:
                assert_never(message)
        await self._go_on()

    # What people and runs ask for.

    async def _do(self, message: Do[Any]) -> None:
        operation = message.operation
        if isinstance(operation, RunNow) and self._active.run is not None:
            run_id = self._active.run.facts.run_id
            text = f"Run {run_id!r} of workflow {self.name!r} is still active; try again when it ends."
            message.fail(Rejected(Reason.RUN_ALREADY_ACTIVE, text))
            return
        if isinstance(operation, AmendResult) and self._active.run is not None:
            # `next` may be ahead of the file, with the result that is to be amended: wait for the end of the run.
            self._between.append(message)
            return
        if isinstance(operation, SkipEvent) and self._active.run is not None:
            self._active.run.told(EventSkipped())
        try:
            answer = await self._written(operation)
        except (Rejected, StorageUnavailable) as error:
            message.fail(error)
            return
        await self._tell_the_run(operation)
        message.answer(answer)

    async def _tell_the_run(self, operation: Operation[Any]) -> None:
        """A person's action counts for the next call of the active run. The storage checks it too, in the
        transaction that would record a call."""
        if self._active.run is None:
            return
        match operation:
            case Together():
                for each in operation.operations:
                    await self._tell_the_run(each)
            case PauseWorkflow():
                self._active.run.told(StopRequested("the workflow was paused"))
            case ArchiveWorkflow():
                self._active.run.told(StopRequested("the workflow was archived"))
            case GrantPermission() | RevokePermission():
                version_id = self._active.run.facts.script.version_id
                grants = await self._host.read(lambda q: reads.envelope(q, version_id))
                self._active.run.told(GrantsChanged(Envelope(grants)))
            case _:
                pass

    async def _stop(self, message: Stop) -> None:
        run = self._active.run
        if run is None or message.run_id not in (None, run.facts.run_id):
            what = f"Run {message.run_id!r}" if message.run_id else "No run"
            words = f"{what} of workflow {self.name!r} is {'not ' if message.run_id else ''}active."
            message.fail(Rejected(Reason.RUN_NOT_ACTIVE, words))
            return
        run_id = run.facts.run_id
        stop = StopRun(run_id, self._put_off_until(run.facts), message.by, message.why)
        # A run that is not in the file has called nothing yet: its end is written with its stop.
        is_open = run.state.is_open
        try:
            if is_open:
                await self._written(stop)
        except (Rejected, StorageUnavailable) as error:
            message.fail(error)
            return
        why = f"{message.by or 'a person'} has stopped it{f': {message.why}' if message.why else ''}"
        run.told(StopRequested(why, None if is_open else stop))
        message.answer(run_id)

    def _put_off_until(self, facts: RunFacts) -> Millis:
        """When the handler of a stopped run runs again: at its next time, or after the longest wait of a retry."""
        now, policy = self._host.time.now(), facts.policy
        if facts.kind is HandlerKind.CONSUMER:
            return now + policy.retry.cap_ms
        schedule = facts.script.schedule_of(facts.handler)
        return next_run_at(schedule, facts.workflow.timezone, policy.producer_interval_ms, now)

    async def _do_between(self, message: WhenIdle | Do[Any]) -> None:
        """Process a message that waited until the workflow was idle."""
        try:
            match message:
                case Do():
                    await self._do(message)
                case Deploy():
                    message.answer(await self._deploy(message))
                case Activate():
                    message.answer(await self._activate(message))
                case Approve():
                    message.answer(await self._approve(message))
                case _:
                    assert_never(message)
        except (Rejected, StorageUnavailable, PermissionsNeeded, admission.DeployRefused) as error:
            message.fail(error)

    async def _deploy(self, message: Deploy) -> ScriptVersion:
        found = await self._host.read(lambda q: before_deployment(q, self.name))
        now = self._host.time.now()
        version_id, writes = deployment.operations_for(message, self.name, found, self._host.ids, now)
        await self._written(Together(writes))
        return await self._version(version_id)

    async def _activate(self, message: Activate) -> ScriptVersion:
        workflow, version = await self._host.read(lambda q: wanted_version(q, self.name, message))
        declaration = (await self._host.script(version.id)).declaration
        now = self._host.time.now()
        activate = deployment.activation(version.id, declaration, workflow, now, wanted=message)
        await self._written(Together((activate, *deployment.after_activation(workflow, message.by))))
        return version

    async def _approve(self, message: Approve) -> Mutation:
        """From here on the call may have been made, so it is made by a task that outlives this message."""
        host = self._host
        workflow, use = await host.read(
            lambda q: approved(q, self.name, message.approval_id, host.catalog, host.time.now())
        )
        mutation = await self._host.storage.apply(ApproveMutation(message.approval_id, message.by, message.why, use))
        machine = self._call_machine(workflow, mutation)
        self._start_call(machine, mutation, "call", lambda: machine.start_approved(mutation, self._host.time.now()))
        return mutation

    async def _version(self, version_id: str) -> ScriptVersion:
        version = await self._host.read(lambda q: reads.version(q, version_id))
        assert version is not None, "it has just been written"
        return version

    # What to do next.

    async def _go_on(self) -> None:
        """Carry out the next step, if nothing is active: its end comes back here."""
        while not self._active:
            if self._between:
                await self._do_between(self._between.popleft())
                continue
            outlook = await self._look()
            if outlook is None or self._host.is_closing:
                await self._rest(outlook, None)
                return
            match outlook.step:
                case StartRun() | StartRetry():
                    await self._start(outlook, outlook.step)
                case Repair():
                    await self._repair(outlook, outlook.step)
                case Reconcile():
                    self._reconcile(outlook)
                case ExpireApproval():
                    await self._expire(outlook.snapshot.workflow, outlook.step.approval_id)
                case Rest():
                    await self._rest(outlook, outlook.step)
                    return
                case _:
                    assert_never(outlook.step)

    async def _look(self) -> Outlook | None:
        now, host = self._host.time.now(), self._host
        return await host.read(lambda q: look(q, self.name, now, host.repairs_max))

    async def _rest(self, outlook: Outlook | None, rest: Rest | None) -> None:
        if outlook is not None and outlook.snapshot.open_session_id is not None:
            await self._write(FinishSession(outlook.snapshot.open_session_id))
        if rest is not None:
            self._home.wake_at(self.name, rest.until)
        self._home.let_go(self)

    async def _start(self, outlook: Outlook, step: StartRun | StartRetry) -> None:
        version_id = outlook.snapshot.workflow.active_version_id
        assert version_id is not None, "what is active has a script"
        run = new_run(outlook, step, await self._host.script(version_id), self._host)
        write = partial(self._active.write, run.facts.run_id)
        # Depth before breadth: its script and its rows are warm. Then others have waited long enough.
        goes_on = self._turns % _TURNS_IN_A_ROW != 0
        self._turns += 1
        self._start_beside(run.facts.run_id, lambda: drive_run(run, self._host, write, goes_on=goes_on), run)

    async def _repair(self, outlook: Outlook, step: Repair) -> None:
        workflow, maintainer = outlook.snapshot.workflow, self._maintainer
        assert workflow.active_version_id is not None, "what failed was a script"
        assert maintainer is not None, "a repair is planned only if there is somebody to do it"
        script = await self._host.script(workflow.active_version_id)

        async def carry_out() -> None:
            writes: Writes = ()
            with anyio.CancelScope() as self._repairing:
                try:
                    writes = await repair(self._host, maintainer, workflow, script)
                finally:
                    self._repairing = None
            if writes:
                await self._write_repair(step.task_id, writes)

        self._start_side_task(workflow, step.task_id, "repair", carry_out)

    async def _write_repair(self, task_id: str, writes: Writes) -> None:
        try:
            await retry_while_unavailable(lambda: self._active.write(task_id, writes)(), self._host.time)
        except Rejected as error:
            # A person has archived the workflow: the repair is of no use any more.
            if error.reason is not Reason.WORKFLOW_STATUS_REFUSED:
                raise

    def _reconcile(self, outlook: Outlook) -> None:
        doubt = outlook.doubt
        assert doubt is not None, "what is due was read with the time at which it is"
        machine = self._call_machine(outlook.snapshot.workflow, doubt)
        self._start_call(machine, doubt, "reconcile", lambda: machine.start_reconcile(doubt, self._host.time.now()))

    def _call_machine(self, workflow: Workflow, mutation: Mutation) -> RunMachine:
        """For a call whose run has stopped: an approved one, or one to be looked for."""
        host = self._host
        facts = RunFacts.of_call(workflow, mutation, host.policy_of(workflow.name), host.catalog)
        return RunMachine.new(facts, Envelope(()), host.ids, host.rng)

    def _start_call(self, machine: RunMachine, mutation: Mutation, what: str, start: Callable[[], RunEffect]) -> None:
        async def carry_out() -> None:
            write = partial(self._active.write, mutation.id)
            storage = StoredRun(self._host, mutation.workflow_id, "", write)
            await RunDriver(machine, self._host, storage).drive(start())

        self._start_side_task(machine.facts.workflow, mutation.id, what, carry_out)

    async def _expire(self, workflow: Workflow, approval_id: str) -> None:
        """Ask again after an expired question, as often as the policy wants; then the answer is no."""
        now, policy = self._host.time.now(), self._host.policy_of(workflow.name)
        asked = await self._host.read(lambda q: times_asked(q, approval_id))
        if asked <= policy.approval_reminders and workflow.status is not WorkflowStatus.ARCHIVED:
            until = policy.approval_expires_ms
            new_id = self._host.ids.new("apr")
            await self._write(AskAgain(approval_id, new_id, None if until is None else now + until))
        else:
            why = f"no answer in time, asked {'once' if asked == 1 else f'{asked} times'}"
            await self._write(RejectMutation(approval_id, by="policy", why=why, expired=True))

    # Beside the mailbox.

    def _start_beside(
        self, work_id: str, carry_out: Callable[[], Awaitable[None]], run: RunMachine | None = None
    ) -> None:
        assert self._tasks is not None, "messages are received inside `run`"
        self._active.start(self._tasks, work_id, carry_out, run)

    def _start_side_task(
        self, workflow: Workflow, work_id: str, what: str, carry_out: Callable[[], Awaitable[None]]
    ) -> None:
        async def measured() -> None:
            with self._host.telemetry.span(
                names.ERRAND.name, workflow_id=workflow.id, workflow=workflow.name, errand=what
            ) as span:
                await carry_out()
                span.ends("done")

        self._start_beside(work_id, measured)

    async def _write(self, operation: Operation[Any]) -> None:
        await retry_while_unavailable(lambda: self._written(operation), self._host.time)

    async def _written(self, operation: Operation[T]) -> T:
        answer = await self._host.storage.apply(operation)
        self._active.note(operation, answer)
        return answer
