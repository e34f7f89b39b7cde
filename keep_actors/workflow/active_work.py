"""The work beside the mailbox of a workflow's actor: a run or a side task, never two at a time.

The work runs in a task of its own. Each of its transitions is a message to the actor, which lets it pass to the
storage; the storage answers the work. So a person can act while the work computes or calls, and always
between two transitions.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from keep_actors.host.fault_points import Point
from keep_actors.host.host import Host
from keep_actors.kernel.waiter import Waiter
from keep_actors.run.drive import Answers
from keep_actors.run.effects import Writes
from keep_actors.run.machine import RunMachine
from keep_actors.telemetry.logs import begin_work
from keep_actors.telemetry.news import tell
from keep_actors.workflow.messages import Advance, Ended
from keep_storage.operations import ActivateScript, Operation, Together


class ActiveWork:
    """`put_first` puts a message before all others in the mailbox of the actor."""

    def __init__(self, workflow_id: str, host: Host, put_first: Callable[[Advance | Ended], None]) -> None:
        self.run: RunMachine | None = None
        """The run, if the work is one."""
        self._workflow_id = workflow_id
        self._host = host
        self._put_first = put_first
        self._id: str | None = None
        self._step: Advance | None = None
        """The transition that is on its way through the storage."""
        self._stepped = Waiter()

    def __bool__(self) -> bool:
        return self._id is not None

    def start(
        self, tasks: TaskGroup, work_id: str, carry_out: Callable[[], Awaitable[None]], run: RunMachine | None = None
    ) -> None:
        """Start the work in a task of its own. Its end comes as `Ended`."""

        async def work() -> None:
            begin_work(self._workflow_id, *((run.facts.run_id, run.facts.handler) if run is not None else ()))
            self._host.reach(Point.STARTED, self._workflow_id)
            await carry_out()
            self._host.reach(Point.ENDED, self._workflow_id)
            self._put_first(Ended(work_id))

        assert self._id is None, "one thing at a time"
        self._id, self.run = work_id, run
        tasks.start_soon(work)

    def end(self, message: Ended) -> None:
        """Take the end of the work. That of an incarnation that crashed is no news: recovery has settled it."""
        if message.work_id == self._id:
            self._id, self.run = None, None

    def let_pass(self, step: Advance) -> None:
        """Let a transition pass to the storage, unless it is one of an incarnation that crashed."""
        if step.work_id == self._id:
            self._step = step
            self._host.storage.pass_on(step)

    def write(self, work_id: str, operations: Writes) -> Answers:
        """Called beside the mailbox. Transitions go first: they are one at a time, and others may fill the mailbox."""
        step = Advance(work_id, operations, self._stepped.wake)
        self._put_first(step)
        return partial(self._answers, step)

    async def between_steps(self) -> None:
        """Wait until the last transition is written, and the run knows it if it waits for that: what a person does
        comes before the transition or after it. `next` runs while its own is written, and may run for long."""
        while (step := self._step) is not None and (step.is_asked or not step.is_answered):
            await self._stepped.wait()

    def note(self, done: Operation[Any], answer: Any) -> None:
        """Take notice of a committed operation."""
        if _activates(done):
            # Another script runs now, or the same with other rights: no process goes on that ran the last one.
            self._host.pool.drop_workers(self._workflow_id)
        tell(done, answer)
        self._host.call_times.note(answer)

    async def _answers(self, step: Advance) -> tuple[Any, ...]:
        """Called beside the mailbox: wait until the transition is written. Logged here, where the run is known."""
        try:
            await step.wait()
            answers = step.result()
        finally:
            if self._step is step:
                self._step = None
            self._stepped.wake()
        self.note(step.operation, answers)
        return answers


def _activates(operation: Operation[Any]) -> bool:
    if isinstance(operation, Together):
        return any(_activates(each) for each in operation.operations)
    return isinstance(operation, ActivateScript)
