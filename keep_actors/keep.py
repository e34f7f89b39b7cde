"""`Keep`: what an embedding service holds. Everything that can be asked of a runtime, and nothing that it is made of.

Workflows are named by their id or by the name that their script declares. What is refused raises `Rejected` with a
reason, and then nothing changed.
"""

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from keep_actors import deployment, views
from keep_actors.host import Host
from keep_actors.kernel import ActorStopped, Clock, Directory
from keep_actors.messages import Deploy, Do, Message
from keep_actors.signal import Signal
from keep_actors.views import Explanation, Input, Output
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.model import PEEK_DEFAULT, Event, JournalEntry, Run, ScriptVersion, Workflow
from keep_storage.operations import (
    ArchiveWorkflow,
    ClearWorkflowError,
    Operation,
    PauseWorkflow,
    Publish,
    PublishEvents,
    ResumeWorkflow,
    RunNow,
    SkipEvent,
)
from keep_storage.transaction import Queries

T = TypeVar("T")


class Deployed(msgspec.Struct, frozen=True):
    """Which version of which workflow runs now."""

    workflow_id: str
    name: str
    version: str
    """`major.minor`."""


class Keep:
    """A running runtime. Made by `keep_actors.open`."""

    def __init__(self, host: Host, directory: Directory[Message], clock: Clock, committed: Signal) -> None:
        self._host = host
        self._directory = directory
        self._clock = clock
        self._committed = committed
        self._naming = anyio.Lock()

    # What people want.

    async def deploy(
        self,
        source: str,
        *,
        workflow: str | None = None,
        timezone: str = "UTC",
        major: bool = False,
        start: bool = True,
        by: str = "",
    ) -> Deployed:
        """Check a script and make it the one that runs. Waits for the run that is under way, if there is one.

        The first script with a name makes a new workflow, version 1.0, and starts it unless `start` is false; a changed
        script becomes the next minor version (the next major one with `major`), and the same script again changes
        nothing. Events and states stay. A repaired script ends the maintenance of its workflow. Raises `DeployRefused`
        with every problem, and then nothing changed.

        ```python
        deployed = await keep.deploy(Path("mail_to_sheets.js").read_text())
        print(deployed.workflow_id, deployed.version)
        ```
        """
        host = self._host
        inspection = await host.pool.inspect(source, host.catalog.kinds())
        name = (inspection.declaration.name if inspection.declaration else None) or ""
        declaration = deployment.checked(inspection, timezone, host.policy_of(name), host.time.now())
        message = Deploy(source, declaration, timezone=timezone, is_major=major, start=start, by=by)
        workflow_id, version = await self._hand_over(workflow, name, message)
        return Deployed(workflow_id, name, f"{version.major}.{version.minor}")

    async def pause(self, workflow: str, *, by: str = "") -> Workflow:
        """Start no more runs. A run that is under way comes to its end; events are kept.

        ```python
        await keep.pause("mail to sheets", by="alice")
        ```
        """
        return await self._do(workflow, lambda workflow_id: PauseWorkflow(workflow_id, by))

    async def resume(self, workflow: str, *, by: str = "") -> Workflow:
        """Run again. An error that waits for a person is not cleared by this.

        ```python
        await keep.resume("mail to sheets", by="alice")
        ```
        """
        return await self._do(workflow, lambda workflow_id: ResumeWorkflow(workflow_id, by))

    async def archive(self, workflow: str, *, by: str = "") -> Workflow:
        """End a workflow for good. Its history stays readable, and its name is free again.

        ```python
        await keep.archive("mail to sheets", by="alice")
        ```
        """
        return await self._do(workflow, lambda workflow_id: ArchiveWorkflow(workflow_id, by))

    async def run_now(self, workflow: str, *, by: str = "") -> Workflow:
        """Queue every producer, whatever its schedule. Refused while a run is active.

        ```python
        await keep.run_now("mail to sheets", by="alice")
        await keep.wait_idle()
        ```
        """
        return await self._do(workflow, lambda workflow_id: RunNow(workflow_id, by))

    async def skip_event(self, workflow: str, topic: str, message_id: str, *, by: str = "", why: str = "") -> Event:
        """Skip a pending event: no run will take it. An event that a run holds is refused.

        ```python
        await keep.skip_event("mail to sheets", "email.received", "m-17", by="alice", why="spam")
        ```
        """
        return await self._do(workflow, lambda workflow_id: SkipEvent(workflow_id, topic, message_id, by, why))

    async def clear_error(self, workflow: str, *, by: str, why: str = "") -> Workflow:
        """Say "I fixed it": the workflow goes on. Refused while the error is a question about a mutation's outcome.

        ```python
        await keep.clear_error("mail to sheets", by="alice", why="signed in again")
        ```
        """
        return await self._do(workflow, lambda workflow_id: ClearWorkflowError(workflow_id, by, why))

    async def publish(
        self, workflow: str, topic: str, *, message_id: str, title: str, payload: object = None
    ) -> tuple[Event, ...]:
        """Put an event into a topic from outside, as a webhook of the embedding service would.

        A message id that exists already is the same event: while it is pending its title and payload are replaced.

        ```python
        await keep.publish("orders", "order.paid", message_id="o-1", title="Order o-1", payload={"total": 12})
        ```
        """
        found = await self._find(workflow)
        encoded = msgspec.json.encode(payload).decode()
        limit = self._host.policy_of(found.name).payload_bytes_max
        if len(encoded.encode()) > limit:
            raise ValueError(f"the payload of {message_id!r} has more than {limit} bytes; publish an id instead")
        event = Publish(self._host.ids.new("evt"), topic, message_id, title, encoded)
        return await self._directory.ask(found.id, Do(PublishEvents(found.id, (event,))))

    # What people see.

    async def workflows(self) -> list[Workflow]:
        """Every workflow, oldest first.

        ```python
        for workflow in await keep.workflows():
            print(workflow.name, workflow.status, workflow.error)
        ```
        """
        return await self._host.reading.read(reads.workflows)

    async def workflow(self, workflow: str) -> Workflow:
        """One workflow.

        ```python
        print((await keep.workflow("mail to sheets")).error)
        ```
        """
        return await self._find(workflow)

    async def runs(self, workflow: str, *, limit: int = PEEK_DEFAULT, before: str | None = None) -> list[Run]:
        """Its runs, newest first. `before` is the id of the last one seen.

        ```python
        for run in await keep.runs("mail to sheets", limit=10):
            print(run.id, run.handler, run.phase, run.status)
        ```
        """
        workflow_id = (await self._find(workflow)).id
        cursor = {"before": before} if before else {}
        return await self._host.reading.read(lambda q: reads.runs(q, workflow_id, limit=limit, **cursor))

    async def events(self, workflow: str, topic: str, *, limit: int = PEEK_DEFAULT, after: int = 0) -> list[Event]:
        """The events of a topic, oldest first, whatever became of them. `after` is the `seq` of the last one seen.

        ```python
        for event in await keep.events("mail to sheets", "email.received"):
            print(event.message_id, event.title, event.status)
        ```
        """
        workflow_id = (await self._find(workflow)).id
        return await self._host.reading.read(
            lambda q: reads.events(q, workflow_id, topic, limit=limit, after=after),
        )

    async def inputs(self, workflow: str, *, limit: int = PEEK_DEFAULT, before: int | None = None) -> list[Input]:
        """What came in, newest first, each with what was done about it. `before` is the `seq` of the last seen.

        ```python
        for each in await keep.inputs("mail to sheets"):
            print(each.title, each.status, [output.title for output in each.outputs])
        ```
        """
        found = await self._find(workflow)
        stale_before = self._host.time.now() - self._host.policy_of(found.name).stale_after_ms
        return await self._host.reading.read(lambda q: views.inputs(q, found.id, limit, before, stale_before))

    async def outputs(self, workflow: str, *, limit: int = PEEK_DEFAULT, before: str | None = None) -> list[Output]:
        """What was done outside, or was to be, newest first. `before` is the `mutation_id` of the last seen.

        ```python
        for each in await keep.outputs("mail to sheets"):
            print(each.title, each.call, each.params, each.status)
        ```
        """
        workflow_id = (await self._find(workflow)).id
        return await self._host.reading.read(lambda q: views.outputs(q, workflow_id, limit, before))

    async def explain(self, run_id: str) -> Explanation:
        """Why a run is where it is: what it selected, what it attempted, why it is stuck, and what can be done.

        ```python
        [run] = await keep.runs("mail to sheets", limit=1)
        print((await keep.explain(run.id)).why)
        ```
        """
        found = await self._host.reading.read(lambda q: views.explain(q, run_id))
        if found is None:
            raise Rejected(Reason.RUN_NOT_FOUND, f"There is no run {run_id!r}.")
        return found

    async def watch(
        self, workflow: str | None = None, *, after: int | None = None
    ) -> AsyncGenerator[JournalEntry, None]:
        """The journal as it is written: everywhere, or in one workflow; from now on, or after a sequence number.

        Ends when the runtime does. Who stops before that closes it, with `contextlib.aclosing`.

        ```python
        async for entry in keep.watch("mail to sheets"):
            print(entry.operation, entry.changed)
        ```
        """
        host = self._host
        workflow_id = (await self._find(workflow)).id if workflow is not None else None
        seen = await host.reading.read(reads.journal_end) if after is None else after
        while not host.is_closed:
            more = self._committed.next
            last = seen

            def read(q: Queries, last: int = last) -> list[JournalEntry]:
                return reads.journal(q, workflow_id=workflow_id, after=last)

            try:
                entries = await host.reading.read(read)
            except ActorStopped:
                return
            for entry in entries:
                seen = entry.seq
                yield entry
            if not entries:
                await more.wait()

    async def wait_idle(self) -> None:
        """Return once nothing is running and nothing is due: everything there was to do now is done, or waits.

        ```python
        await keep.wait_idle()
        ```
        """
        while True:
            await self._directory.wait_empty()
            due = self._clock.next_at
            if not len(self._directory) and (due is None or due > self._host.time.now()):
                return
            await checkpoint()

    # How.

    async def _do(self, workflow: str, operation: Callable[[str], Operation[T]]) -> T:
        found = await self._find(workflow)
        return await self._directory.ask(found.id, Do(operation(found.id)))

    async def _find(self, workflow: str) -> Workflow:
        found = await self._host.reading.read(
            lambda q: reads.workflow(q, workflow) or reads.workflow_by_name(q, workflow)
        )
        if found is None:
            raise Rejected(Reason.WORKFLOW_NOT_FOUND, f"There is no workflow {workflow!r}.")
        return found

    async def _hand_over(self, workflow: str | None, name: str, message: Deploy) -> tuple[str, ScriptVersion]:
        """Give the script to its workflow's actor. Of two with one new name, the second finds the first's."""
        if workflow is None:
            async with self._naming:
                if (known := await self._host.reading.read(lambda q: reads.workflow_by_name(q, name))) is None:
                    workflow_id = self._host.ids.new("wf")
                    return workflow_id, await self._directory.ask(workflow_id, message)
            workflow_id = known.id
        else:
            workflow_id = (await self._find(workflow)).id
        return workflow_id, await self._directory.ask(workflow_id, message)
