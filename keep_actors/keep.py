"""`Keep`: what an embedding service holds. Everything that can be asked of a runtime, and nothing that it is made of.

Workflows are named by their id or by the name that their script declares. What is refused raises `Rejected` with a
reason, and then nothing changed.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from keep_actors import deployment, permissions
from keep_actors.host import Host
from keep_actors.keep_reads import KeepReads, version_number
from keep_actors.kernel import Clock, Directory
from keep_actors.messages import Activate, Approve, Deploy, Do, Message
from keep_actors.permissions import Accepted, Grant, Needed
from keep_actors.signal import Signal
from keep_actors.verdicts import Verdict, operation_for
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.model import Event, FailureClass, Item, Mutation, ScriptVersion, Workflow
from keep_storage.operations import (
    ArchiveWorkflow,
    ClearWorkflowError,
    NoteRepairAttempt,
    Operation,
    PauseWorkflow,
    Publish,
    PublishEvents,
    RejectMutation,
    ReprocessItem,
    ResumeWorkflow,
    RevokePermission,
    RunNow,
    SkipEvent,
    SkipItem,
    Together,
)

T = TypeVar("T")


class Deployed(msgspec.Struct, frozen=True):
    """Which version of which workflow runs now."""

    workflow_id: str
    name: str
    version: str
    """`major.minor`."""


class Keep(KeepReads):
    """A running runtime. Made by `keep_actors.open`."""

    def __init__(
        self,
        host: Host,
        directory: Directory[Message],
        clock: Clock,
        committed: Signal,
        accepted: Accepted,
    ) -> None:
        super().__init__(host, committed)
        self._directory = directory
        self._clock = clock
        self._accepted: Accepted = accepted
        self._naming = anyio.Lock()

    # What people want.

    async def deploy(
        self,
        source: str,
        *,
        workflow: str | None = None,
        grants: Iterable[str | Grant] | Accepted | None = None,
        timezone: str | None = None,
        major: bool = False,
        start: bool = True,
        by: str = "",
    ) -> Deployed:
        """Check a script and make it the one that runs. Waits for the run that is under way, if there is one.

        The first script with a name makes a new workflow, version 1.0, and starts it unless `start` is false; a changed
        script becomes the next minor version (the next major one with `major`), and the same script again is no new
        version. Events and states stay. Whatever is deployed ends the maintenance of its workflow: it is tried again.
        `timezone` is that of cron schedules, UTC unless it is said. `grants` are the
        permissions it is given (`"declared"`: those that it names, `"all"`: every one there is); a minor version keeps
        those of its major one.

        Raises `DeployRefused` with every problem, or `PermissionsNeeded` with the list to accept; then nothing changed.

        ```python
        deployed = await keep.deploy(Path("mail_to_sheets.js").read_text(), grants=["gmail.search", "sheets.appendRow"])
        print(deployed.workflow_id, deployed.version)
        ```
        """
        host = self._host
        inspection = await host.pool.inspect(source, host.catalog.kinds())
        name = (inspection.declaration.name if inspection.declaration else None) or ""
        now, policy = host.time.now(), host.policy_of(name)
        declared = deployment.checked(inspection, host.catalog.methods, timezone or "UTC", policy, now)
        needed = permissions.needed((use.name for use in inspection.uses), host.catalog)
        accepted = self._accepted if grants is None else grants
        named = [] if isinstance(accepted, str) else [permissions.as_grant(each) for each in accepted]
        permissions.check_known(named, host.catalog)
        message = Deploy(
            source,
            declared,
            needed=needed,
            grants=named,
            accepted=self._accepts(accepted, needed),
            timezone=timezone,
            is_major=major,
            start=start,
            by=by,
        )
        workflow_id, version = await self._hand_over(workflow, name, message)
        return Deployed(workflow_id, name, f"{version.major}.{version.minor}")

    async def rollback(self, workflow: str, version: str, *, by: str = "") -> Deployed:
        """Make an earlier version of the script run again. Events and states stay; what is pending goes on with it.

        ```python
        await keep.rollback("mail to sheets", "1.0", by="alice")
        ```
        """
        return await self._activate(workflow, version_number(version), by)

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

    async def grant(self, workflow: str, grant: str | Grant, *, by: str) -> Workflow:
        """Give a workflow a permission, for the major version that runs. An error about a permission is cleared.

        ```python
        await keep.grant("mail to sheets", Grant("sheets.appendRow", policy="ask", per_day=100), by="alice")
        ```
        """
        found = await self._find(workflow)
        major = await self._major(found)
        given = [permissions.as_grant(grant)]
        permissions.check_known(given, self._host.catalog)
        writes = permissions.operations_for(found.id, major, given, by)
        asked = await self._host.reading.read(lambda q: reads.open_approvals(q, found.id))
        waits = found.error != "" and found.error_class is FailureClass.PERMISSION and not asked
        clear = (ClearWorkflowError(found.id, by, "a permission was granted"),) if waits else ()
        await self._directory.ask(found.id, Do(Together((*writes, *clear))))
        return await self._find(found.id)

    async def revoke(self, workflow: str, permission: str, *, by: str) -> Workflow:
        """Take a permission back. What it covered is refused from the next run on; a call that waits for a person's
        approval can still be approved.

        ```python
        await keep.revoke("mail to sheets", "sheets.appendRow", by="alice")
        ```
        """
        found = await self._find(workflow)
        major = await self._major(found)
        await self._directory.ask(found.id, Do(RevokePermission(found.id, major, permission, by)))
        return await self._find(found.id)

    async def approve(self, approval_id: str, *, by: str, why: str = "") -> Mutation:
        """Allow a recorded call: exactly it is made. Returns when that is settled, not when it is done.

        The first answer wins; a later one is refused and told who was first.

        ```python
        [question] = await keep.approvals()
        await keep.approve(question.approval_id, by="alice")
        ```
        """
        return await self._directory.ask(await self._asked_by(approval_id), Approve(approval_id, by, why))

    async def reject(self, approval_id: str, *, by: str, why: str = "", skip: bool = False) -> Mutation:
        """Refuse a recorded call: its events are released, or with `skip` skipped, and `next` is told so.

        ```python
        [question] = await keep.approvals()
        await keep.reject(question.approval_id, by="alice", why="wrong amount", skip=True)
        ```
        """
        refuse = RejectMutation(approval_id, by, why, skip=skip)
        return await self._directory.ask(await self._asked_by(approval_id), Do(refuse))

    async def resolve(
        self,
        mutation_id: str,
        verdict: Verdict,
        *,
        by: str,
        why: str = "",
        result: object = None,
        version: int | None = None,
    ) -> Mutation:
        """Say what became of a call whose outcome nobody knows: the workflow goes on from there.

        `happened` (with the `result` that `next` is given), `did_not_happen` (the events are released, and a fresh run
        takes them), `skip` (the events are skipped, and `next` is told so) or `try_again` (the connector is asked anew,
        if it can tell). `version` is that of the mutation you looked at: if it has changed since, or if somebody was
        first, this is refused.

        ```python
        [question] = await keep.unknowns("mail to sheets")
        await keep.resolve(question.mutation_id, "happened", by="alice", result={"rowId": "r7"})
        ```
        """
        found = await self._host.reading.read(lambda q: reads.mutation(q, mutation_id))
        if found is None:
            raise Rejected(Reason.MUTATION_NOT_FOUND, f"There is no mutation {mutation_id!r}.")
        now = self._host.time.now()
        operation = operation_for(found.id, verdict, by, why, result, version, now)
        return await self._directory.ask(found.workflow_id, Do(operation))

    async def skip_item(self, workflow: str, item_id: str, *, by: str = "", why: str = "") -> Item:
        """Skip a logical item of a job: like one that is done, it changes nothing outside any more.

        ```python
        await keep.skip_item("digest", "customer-7", by="alice")
        ```
        """
        return await self._do(workflow, lambda workflow_id: SkipItem(workflow_id, item_id, by, why))

    async def reprocess_item(self, workflow: str, item_id: str, *, by: str = "", why: str = "") -> Item:
        """Have a logical item processed anew: the next attempt shares nothing with those before.

        ```python
        await keep.reprocess_item("digest", "customer-7", by="alice", why="the address was wrong")
        ```
        """
        return await self._do(workflow, lambda workflow_id: ReprocessItem(workflow_id, item_id, by, why))

    async def accept_repair(self, workflow: str, *, by: str) -> Deployed:
        """Let the proposed repair run. Look at `proposal` first.

        ```python
        await keep.accept_repair("mail to sheets", by="alice")
        ```
        """
        return await self._activate(workflow, None, by)

    async def refuse_repair(self, workflow: str, *, by: str, why: str) -> Workflow:
        """Send the proposed repair back, with the reason. It counts as an attempt.

        ```python
        await keep.refuse_repair("mail to sheets", by="alice", why="it drops the amount")
        ```
        """
        found = await self._find(workflow)
        if await self.proposal(found.id) is None:
            raise Rejected(Reason.VERSION_NOT_FOUND, f"No repair of workflow {found.name!r} waits for a person.")
        problem = f"refused by {by}: {why}"
        await self._directory.ask(found.id, Do(NoteRepairAttempt(found.id, problem, self._host.time.now(), by)))
        return await self._find(found.id)

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

    def _accepts(self, accepted: object, needed: list[Needed]) -> list[str]:
        """The permissions that are granted without being named one by one."""
        match accepted:
            case "declared":
                return [each.permission for each in needed]
            case "all":
                return sorted({method.permission for method in self._host.catalog.methods.values()})
            case _:
                return []

    async def _activate(self, workflow: str, number: tuple[int, int] | None, by: str) -> Deployed:
        found = await self._find(workflow)
        version = await self._directory.ask(found.id, Activate(number, by))
        return Deployed(found.id, found.name, f"{version.major}.{version.minor}")

    async def _major(self, workflow: Workflow) -> int:
        version_id = workflow.active_version_id
        version = await self._host.reading.read(lambda q: reads.version(q, version_id) if version_id else None)
        if version is None:
            raise Rejected(Reason.VERSION_NOT_FOUND, f"Workflow {workflow.name!r} has no script yet.")
        return version.major

    async def _asked_by(self, approval_id: str) -> str:
        """The workflow that asks."""
        found = await self._host.reading.read(lambda q: reads.approval(q, approval_id))
        if found is None:
            raise Rejected(Reason.APPROVAL_NOT_FOUND, f"There is no approval {approval_id!r}.")
        return found.workflow_id

    async def _hand_over(self, workflow: str | None, name: str, message: Deploy) -> tuple[str, ScriptVersion]:
        """Give the script to its workflow's actor. Of two with one new name, the second finds the first's."""
        if workflow is None:
            async with self._naming:
                if (known := await self._host.reading.read(lambda q: reads.workflow_by_name(q, name))) is None:
                    workflow_id = self._host.ids.new("wf")
                    return workflow_id, await self._directory.ask(workflow_id, message)
        else:
            known = await self._find(workflow)
            if known.name != name:
                raise deployment.other_name(name, known)
        return known.id, await self._directory.ask(known.id, message)
