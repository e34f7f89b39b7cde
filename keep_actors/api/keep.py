"""`Keep`: the runtime as an embedding service holds it, with a method for each action and each question.

Workflows are named by their id or by the name that their script declares. A refused action raises `Rejected`
with a reason, and changes nothing.
"""

from typing import TypeVar

import msgspec
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from keep_actors.api import commands
from keep_actors.api.command import Command
from keep_actors.api.commands import MutationChange
from keep_actors.api.expected import checked_result
from keep_actors.api.keep_deploys import KeepDeploys
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.host.host import Host
from keep_actors.kernel import Clock, Directory
from keep_actors.kernel.signal import Signal
from keep_actors.permissions import Accepted
from keep_actors.workflow.messages import Do, Message, Stop
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.model import Event, Mutation, Workflow
from keep_storage.operations import Publish, PublishEvents

T = TypeVar("T")


class Keep(KeepDeploys):
    """A running runtime. Made by `keep_actors.open`."""

    def __init__(
        self,
        host: Host,
        directory: Directory[Message],
        clock: Clock,
        committed: Signal,
        accepted: Accepted,
    ) -> None:
        super().__init__(host, directory, committed, accepted)
        self._clock = clock

    async def do(self, command: Command[T]) -> T:
        """Carry out a declared command: the method here that has its name, with its fields.

        ```python
        from keep_actors.api.commands import Pause

        await keep.do(Pause(workflow="mail to sheets", by="alice"))
        ```
        """
        answer: T = await getattr(self, command.method)(**command.fields)
        return answer

    # Actions.

    async def pause(self, workflow: str, *, by: str = "") -> Workflow:
        """Start no more runs, and make no more calls: a call that is on its way finishes, and its run stops
        before the next one. Events are kept.

        ```python
        await keep.pause("mail to sheets", by="alice")
        ```
        """
        return await self._change(commands.Pause(workflow=workflow, by=by))

    async def resume(self, workflow: str, *, by: str = "") -> Workflow:
        """Run again. An error that waits for a person is not cleared by this.

        ```python
        await keep.resume("mail to sheets", by="alice")
        ```
        """
        return await self._change(commands.Resume(workflow=workflow, by=by))

    async def archive(self, workflow: str, *, by: str = "") -> Workflow:
        """End a workflow. Its history stays readable, and its name is free again.

        It makes no further call. What waits for a person's approval is refused by this; what may have happened outside
        is still looked into, and asked about. `unarchive` brings it back.

        ```python
        await keep.archive("mail to sheets", by="alice")
        ```
        """
        return await self._change(commands.Archive(workflow=workflow, by=by))

    async def unarchive(self, workflow: str, *, by: str = "") -> Workflow:
        """Bring an archived workflow back, paused. Refused while another one has its name.

        A name is that of the newest archived workflow that has it; the others are named by their id.

        ```python
        await keep.archive("mail to sheets", by="alice")
        await keep.unarchive("mail to sheets", by="alice")
        await keep.resume("mail to sheets", by="alice")
        ```
        """
        archived = await self._host.reading.read(lambda q: reads.archived_by_name(q, workflow))
        named = workflow if archived is None else archived.id
        return await self._change(commands.Unarchive(workflow=named, by=by))

    async def stop_run(self, workflow: str, *, run_id: str | None = None, by: str = "", why: str = "") -> str:
        """End the active run at its next call: what it did stays done. Returns its id.

        Its handler runs again at its next time; a consumer when something new comes, or after the longest wait between
        two tries (`Policy.retry.cap_ms`). Refused if no run is active, or another one than `run_id`.

        ```python
        await keep.stop_run("digest", by="alice", why="the wrong list")
        ```
        """
        found = await self._find(workflow)
        return await self._directory.ask(found.id, Stop(run_id, by, why))

    async def run_now(self, workflow: str, *, by: str = "") -> Workflow:
        """Queue every producer and every job, whatever its schedule. Refused while a run is active.

        ```python
        await keep.run_now("mail to sheets", by="alice")
        await keep.wait_idle()
        ```
        """
        return await self._change(commands.RunAtOnce(workflow=workflow, by=by))

    async def skip_event(self, workflow: str, topic: str, message_id: str, *, by: str = "", why: str = "") -> Event:
        """Skip a pending event: no run will take it. An event that a run holds is refused.

        ```python
        await keep.skip_event("mail to sheets", "email.received", "m-17", by="alice", why="spam")
        ```
        """
        return await self._change(
            commands.SkipPendingEvent(workflow=workflow, topic=topic, message_id=message_id, by=by, why=why)
        )

    async def clear_error(self, workflow: str, *, by: str, why: str = "") -> Workflow:
        """Clear the error of a workflow once its cause is fixed: the workflow continues.

        Refused while the error is a question about a mutation's outcome.

        ```python
        await keep.clear_error("mail to sheets", by="alice", why="signed in again")
        ```
        """
        return await self._change(commands.ClearError(workflow=workflow, by=by, why=why))

    async def resolve(
        self,
        mutation_id: str,
        verdict: PersonVerdict,
        *,
        by: str,
        why: str = "",
        result: object = None,
        version: int | None = None,
    ) -> Mutation:
        """Say whether a call with an unknown outcome happened: the workflow continues from there.

        `happened` (with the `result` that `next` is given), `did_not_happen` (the events are released, and a fresh run
        takes them), `skip` (the events are skipped, and `next` receives that) or `try_again` (the connector is asked
        again, if it can tell). `version` is that of the mutation you looked at: if it has changed since, or another
        verdict was first, this is refused. The `result` has to be what the connector's method returns (`unknowns` shows
        the type and an example): `ResultRefused` says what does not fit, and then nothing was written. It is raised too
        if this runtime has no such connector. Until `next` has used it, `amend` puts it right.

        ```python
        [question] = await keep.unknowns("mail to sheets")
        await keep.resolve(question.mutation_id, "happened", by="alice", result={"rowId": "r7"})
        ```
        """
        return await self._settle(
            commands.Resolve(mutation_id=mutation_id, verdict=verdict, by=by, why=why, result=result, version=version),
            has_result=verdict == "happened",
        )

    async def amend(
        self, mutation_id: str, *, result: object, by: str, why: str = "", version: int | None = None
    ) -> Mutation:
        """Correct the result that a person gave with `happened`, as long as `next` has not used it.

        Checked as in `resolve`, and refused once `next` has run with it, or a run has entered its item again: also for
        a run that is active now, for whose end this waits. The journal has both results, `by` and `why`.

        ```python
        await keep.amend(mutation_id, result={"rowId": "r8"}, by="alice", why="I misread the sheet")
        ```
        """
        return await self._settle(
            commands.Amend(mutation_id=mutation_id, result=result, by=by, why=why, version=version), has_result=True
        )

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

    async def wait_idle(self) -> None:
        """Return once nothing is running and nothing is due: all work that could be done now is done, or waits.

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

    # Parts of them.

    async def _settle(self, command: MutationChange[Mutation], *, has_result: bool) -> Mutation:
        """Write a person's answer about a recorded call. Raises `ResultRefused` if its result is not what it
        returns."""
        found = await self._host.reading.read(lambda q: reads.mutation(q, command.mutation_id))
        if found is None:
            raise Rejected(Reason.MUTATION_NOT_FOUND, f"There is no mutation {command.mutation_id!r}.")
        if has_result:
            call = f"{found.connector}.{found.method}"
            text = checked_result(self._host.catalog.get(call), call, command.result)
            command = replace(command, result=msgspec.Raw(text.encode()))
        return await self._directory.ask(found.workflow_id, Do(command.operation(self._host.time.now())))
