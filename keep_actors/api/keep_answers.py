"""Answers to the questions of a runtime, about permissions, recorded calls and repairs. Part of `Keep`."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

import anyio

from keep_actors import permissions
from keep_actors.api import commands
from keep_actors.api.commands import Answered, Deployed
from keep_actors.api.keep_items import KeepItems
from keep_actors.api.views import ApprovalQuestion
from keep_actors.authoring.admission import version_number
from keep_actors.permissions import Grant
from keep_actors.workflow.messages import Activate, Approve, Do
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.model import Mutation, Workflow
from keep_storage.operations import NoteRepairAttempt, RevokePermission, Together

T = TypeVar("T")


class KeepAnswers(KeepItems):
    """Answers to what a runtime asks."""

    # Permissions.

    async def grant(self, workflow: str, grant: str | Grant, *, by: str, approve: bool = False) -> Workflow:
        """Give a workflow a permission, for the major version that runs. An error about that permission is cleared.

        With `approve`, and if the grant allows without asking, the calls that wait for approval under it are approved.

        ```python
        await keep.grant("mail to sheets", Grant("sheets.appendRow", policy="ask", per_day=100), by="alice")
        ```
        """
        found = await self._find(workflow)
        major = await self._major(found)
        given = permissions.as_grant(grant)
        permissions.check_known([given], self._host.catalog)
        writes = permissions.operations_for(found.id, major, [given], by)
        await self._directory.ask(found.id, Do(Together((*writes, *permissions.errors_settled_by(writes)))))
        if approve and given.policy == "allow":
            covered = await self.approvals(found.id, permission=given.permission)
            await self._answer_all(covered, partial(self.approve, by=by))
        return await self._find(found.id)

    async def revoke(self, workflow: str, permission: str, *, by: str) -> Workflow:
        """Take a permission back. What it covered is refused from the next call on; a call that waits for a person's
        approval can still be approved.

        ```python
        await keep.revoke("mail to sheets", "sheets.appendRow", by="alice")
        ```
        """
        found = await self._find(workflow)
        major = await self._major(found)
        await self._directory.ask(found.id, Do(RevokePermission(found.id, major, permission, by)))
        return await self._find(found.id)

    # Approvals.

    async def approve(self, approval_id: str, *, by: str, why: str = "") -> Mutation:
        """Allow a recorded call: exactly this call is made. Returns once the answer is recorded, before the call is
        done. The first answer wins; a later one is refused, and names the first.

        ```python
        for question in await keep.approvals():
            await keep.approve(question.approval_id, by="alice")
        ```
        """
        return await self._directory.ask(await self._asked_by(approval_id), Approve(approval_id, by, why))

    async def reject(self, approval_id: str, *, by: str, why: str = "", retry: bool = False) -> Mutation:
        """Refuse a recorded call: its events (or its item) are skipped, and `next` receives the reason.

        With `retry` the events are released instead, and a fresh run prepares again.

        ```python
        for question in await keep.approvals():
            await keep.reject(question.approval_id, by="alice", why="wrong amount")
        ```
        """
        command = commands.RejectCall(approval_id=approval_id, by=by, why=why, retry=retry)
        operation = command.operation(self._host.time.now())
        return await self._directory.ask(await self._asked_by(approval_id), Do(operation))

    async def approve_all(
        self, workflow: str | None = None, *, call: str | None = None, by: str, why: str = ""
    ) -> Answered:
        """Allow every call that waits: everywhere or in one workflow, of every method or of one (`call`).

        ```python
        answered = await keep.approve_all("mail to sheets", call="sheets.appendRow", by="alice")
        print(len(answered.done), answered.refused)
        ```
        """
        return await self._answer_all(await self._asked(workflow, call), partial(self.approve, by=by, why=why))

    async def reject_all(
        self, workflow: str | None = None, *, call: str | None = None, by: str, why: str = "", retry: bool = False
    ) -> Answered:
        """Refuse every call that waits, as `reject` does: everywhere or in one workflow, of every method or of one.

        ```python
        await keep.reject_all("mail to sheets", call="sheets.appendRow", by="alice", why="the wrong sheet")
        ```
        """
        refuse = partial(self.reject, by=by, why=why, retry=retry)
        return await self._answer_all(await self._asked(workflow, call), refuse)

    async def _asked(self, workflow: str | None, call: str | None) -> list[ApprovalQuestion]:
        return [each for each in await self.approvals(workflow) if call in (None, each.call)]

    async def _answer_all(
        self, asked: Iterable[ApprovalQuestion], answer: Callable[[str], Awaitable[Mutation]]
    ) -> Answered:
        """Each question is answered alone: one that another person has answered meanwhile does not stop the rest. In
        each workflow the oldest first, and no workflow waits for another."""
        answered = Answered([], {})
        by_workflow: dict[str, list[str]] = {}
        for each in asked:
            by_workflow.setdefault(each.workflow_id, []).append(each.approval_id)

        async def in_one(approval_ids: list[str]) -> None:
            for approval_id in approval_ids:
                try:
                    answered.done.append(await answer(approval_id))
                except Rejected as error:
                    answered.refused[approval_id] = error.message

        async with anyio.create_task_group() as tasks:
            for approval_ids in by_workflow.values():
                tasks.start_soon(in_one, approval_ids)
        return answered

    async def _asked_by(self, approval_id: str) -> str:
        """The workflow that asks."""
        found = await self._host.reading.read(lambda q: reads.approval(q, approval_id))
        if found is None:
            raise Rejected(Reason.APPROVAL_NOT_FOUND, f"There is no approval {approval_id!r}.")
        return found.workflow_id

    # Repairs.

    async def accept_repair(self, workflow: str, version: str, *, by: str) -> Deployed:
        """Deploy the proposed repair. `version` is that of the `proposal` that you saw: any other is refused.

        ```python
        if (proposed := await keep.proposal("mail to sheets")) is not None:
            await keep.accept_repair("mail to sheets", proposed.version, by="alice")
        ```
        """
        return await self._activate(workflow, Activate(version_number(version), by, is_proposal=True))

    async def refuse_repair(self, workflow: str, *, by: str, why: str) -> Workflow:
        """Refuse the proposed repair, with the reason. It counts as an attempt.

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

    # How.

    async def _activate(self, workflow: str, message: Activate) -> Deployed:
        found = await self._find(workflow)
        version = await self._directory.ask(found.id, message)
        return Deployed(found.id, found.name, f"{version.major}.{version.minor}")

    async def _major(self, workflow: Workflow) -> int:
        version_id = workflow.active_version_id
        version = await self._host.reading.read(lambda q: reads.version(q, version_id) if version_id else None)
        if version is None:
            raise Rejected(Reason.VERSION_NOT_FOUND, f"Workflow {workflow.name!r} has no script yet.")
        return version.major
