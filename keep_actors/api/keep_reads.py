"""Questions to a runtime that change nothing: the reading half of `Keep`."""

from collections.abc import AsyncGenerator, Iterable

from keep_actors.api import attention, item_views, views
from keep_actors.api.attention import Attention
from keep_actors.api.delivery_log import Told, told
from keep_actors.api.escalation import Escalation, escalations
from keep_actors.api.item_views import ItemHistory, ItemView
from keep_actors.api.overdue import moment_of
from keep_actors.api.standing import RunView
from keep_actors.api.views import ApprovalQuestion, BlastRadius, Explanation, Input, Output, Proposed
from keep_actors.authoring.admission import version_number
from keep_actors.host.host import Host
from keep_actors.kernel import ActorStopped
from keep_actors.kernel.signal import Signal
from keep_actors.script import Script
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import (
    Event,
    ItemState,
    JournalEntry,
    ScriptVersion,
    StoredGrant,
    Workflow,
    WorkflowStatus,
)
from keep_storage.transaction import Queries


class KeepReads:
    """Reads of a running runtime."""

    def __init__(self, host: Host, committed: Signal) -> None:
        self._host = host
        self._committed = committed

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

    async def runs(self, workflow: str, *, limit: int = PEEK_DEFAULT, before: str | None = None) -> list[RunView]:
        """Its runs, newest first. `before` is the id of the last one seen. `standing` is `resolved` for a run whose
        reason for a pause is settled by now; its `status` stays.

        ```python
        for run in await keep.runs("mail to sheets", limit=10):
            print(run.id, run.handler, run.phase, run.standing)
        ```
        """
        found = await self._find(workflow)
        return await self._host.reading.read(lambda q: views.runs(q, found, limit, before))

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
        """Events that came in, newest first, each with the calls that it led to. `before` is the `seq` of the last
        seen.

        ```python
        for each in await keep.inputs("mail to sheets"):
            print(each.title, each.status, [output.title for output in each.outputs])
        ```
        """
        found = await self._find(workflow)
        stale_before = self._host.time.now() - self._host.policy_of(found.name).stale_after_ms
        return await self._host.reading.read(lambda q: views.inputs(q, found.id, limit, before, stale_before))

    async def outputs(self, workflow: str, *, limit: int = PEEK_DEFAULT, before: str | None = None) -> list[Output]:
        """Calls that change something outside, newest first. `before` is the `mutation_id` of the last seen.

        ```python
        for each in await keep.outputs("mail to sheets"):
            print(each.title, each.call, each.params, each.status)
        ```
        """
        workflow_id = (await self._find(workflow)).id
        return await self._host.reading.read(lambda q: views.outputs(q, workflow_id, limit, before))

    async def items(
        self,
        workflow: str,
        *,
        state: ItemState | str | None = None,
        limit: int = PEEK_DEFAULT,
        after: str | None = None,
    ) -> list[ItemView]:
        """The items of its jobs, by item id: all of them, or those in one state. `after` is the `item_id` of the last
        seen.

        ```python
        for each in await keep.items("digest", state="failed"):
            print(each.item_id, each.title, each.attempt, each.error)
        ```
        """
        workflow_id = (await self._find(workflow)).id
        wanted = None if state is None else ItemState(state)
        return await self._host.reading.read(lambda q: item_views.items(q, workflow_id, wanted, limit, after))

    async def item(self, workflow: str, item_id: str) -> ItemHistory:
        """One item with every attempt at it, and the calls of each.

        ```python
        for attempt in (await keep.item("digest", "customer-7")).attempts:
            print(attempt.attempt, attempt.state, [(call.call, call.status) for call in attempt.calls])
        ```
        """
        workflow_id = (await self._find(workflow)).id
        return await self._host.reading.read(lambda q: item_views.history(q, workflow_id, item_id))

    async def explain(self, run_id: str) -> Explanation:
        """Explain a run: what it selected, what it attempted, why it is stuck, and what can be done.

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

        Ends with the runtime. To stop earlier, close it with `contextlib.aclosing`.

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

    async def versions(self, workflow: str) -> list[ScriptVersion]:
        """The versions of its script, newest first.

        ```python
        for version in await keep.versions("mail to sheets"):
            print(f"{version.major}.{version.minor}", version.activated_at)
        ```
        """
        workflow_id = (await self._find(workflow)).id
        return await self._host.reading.read(lambda q: reads.versions(q, workflow_id))

    async def grants(self, workflow: str) -> list[StoredGrant]:
        """Permissions of a workflow, with limits, who granted it and when.

        ```python
        for grant in await keep.grants("mail to sheets"):
            print(grant.permission, grant.policy, grant.granted_by)
        ```
        """
        version_id = (await self._find(workflow)).active_version_id
        return await self._host.reading.read(lambda q: reads.envelope(q, version_id) if version_id else [])

    async def missing_methods(self) -> list[tuple[str, list[str]]]:
        """The workflows whose script names methods that no connector of this runtime has, and which. Not the archived.

        ```python
        for workflow, methods in await keep.missing_methods():
            print(workflow, "needs", methods)
        ```
        """
        known = self._host.catalog.methods

        def look(q: Queries) -> list[tuple[str, list[str]]]:
            found = [
                (each.name, [name for name in _uses(q, each.active_version_id) if name not in known])
                for each in reads.workflows(q)
                if each.status is not WorkflowStatus.ARCHIVED and each.active_version_id is not None
            ]
            return [each for each in found if each[1]]

        return await self._host.reading.read(look)

    async def attention(self) -> list[Attention]:
        """All that waits for a person, in all workflows.

        ```python
        for each in await keep.attention():
            print(each.workflow, each.kind, each.words, each.can_do)
        ```
        """
        at = moment_of(self._host)
        return await self._host.reading.read(lambda q: attention.attention(q, at))

    async def notices(
        self, workflow: str | None = None, *, limit: int = PEEK_DEFAULT, before: str | None = None
    ) -> list[Told]:
        """Notices that were sent, newest first: of one workflow, or of all. `before` is the `matter` of the last seen.

        ```python
        for told in await keep.notices():
            for sent in told.sent:
                print(told.notice.words, sent.sink, sent.says, sent.status, sent.problem)
        ```
        """
        workflow_id = (await self._find(workflow)).id if workflow is not None else None
        return await self._host.reading.read(lambda q: told(q, workflow_id, limit, before))

    async def unknowns(self, workflow: str | None = None) -> list[Escalation]:
        """The calls whose outcome is unknown, with all a person needs to find out and to say so.

        ```python
        for question in await keep.unknowns():
            print(question.call, question.params, question.why, question.how_to_check)
        ```
        """
        workflow_id = (await self._find(workflow)).id if workflow is not None else None
        catalog = self._host.catalog
        return await self._host.reading.read(lambda q: escalations(q, catalog, workflow_id))

    async def approvals(self, workflow: str | None = None, *, permission: str | None = None) -> list[ApprovalQuestion]:
        """The recorded calls that wait for a person, oldest first, with the parameters that the host saw: of all
        workflows or of one, all or those that need this `permission`.

        ```python
        for question in await keep.approvals():
            await keep.approve(question.approval_id, by="alice")
        ```
        """
        workflow_id = (await self._find(workflow)).id if workflow is not None else None
        asked = await self._host.reading.read(lambda q: views.approvals(q, workflow_id))
        if permission is None:
            return asked
        methods = self._host.catalog.methods
        return [each for each in asked if each.call in methods and methods[each.call].permission == permission]

    async def parameter_names(self, calls: Iterable[str]) -> dict[str, list[str]]:
        """The parameters of these methods (`mail.send`), in the order of their signatures, to show a call by. Methods
        that no connector here has are left out.

        ```python
        for question in await keep.approvals():
            print(question.call, (await keep.parameter_names([question.call])).get(question.call))
        ```
        """
        found = {call: self._host.catalog.get(call) for call in calls}
        return {call: method.signature.names for call, method in found.items() if method is not None}

    async def proposal(self, workflow: str) -> Proposed | None:
        """The repair that waits for a person: what would change, and what the failing version has touched.

        ```python
        if (proposed := await keep.proposal("mail to sheets")) is not None:
            print(proposed.diff, len(proposed.blast_radius.mutations))
        ```
        """
        workflow_id = (await self._find(workflow)).id
        return await self._host.reading.read(lambda q: views.proposal(q, workflow_id))

    async def blast_radius(self, workflow: str, version: str) -> BlastRadius:
        """Every event, mutation and item that runs of a version have touched.

        ```python
        radius = await keep.blast_radius("mail to sheets", "1.2")
        ```
        """
        workflow_id = (await self._find(workflow)).id
        number = version_number(version)
        return await self._host.reading.read(lambda q: views.blast_radius(q, workflow_id, number))

    async def _look_for(self, workflow: str) -> Workflow | None:
        return await self._host.reading.read(
            lambda q: (
                reads.workflow(q, workflow)
                or reads.workflow_by_name(q, workflow)
                or reads.archived_by_name(q, workflow)
            )
        )

    async def _find(self, workflow: str) -> Workflow:
        if (found := await self._look_for(workflow)) is None:
            raise Rejected(Reason.WORKFLOW_NOT_FOUND, f"There is no workflow {workflow!r}.")
        return found


def _uses(q: Queries, version_id: str) -> list[str]:
    """The methods that a version of a script names."""
    version = reads.version(q, version_id)
    assert version is not None, "a version is never deleted"
    return Script.of(version).uses
