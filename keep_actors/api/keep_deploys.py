"""Scripts that people have run: deployments, rollbacks and accepted proposals. Part of `Keep`."""

from collections.abc import Iterable, Mapping
from typing import Literal

import anyio

from keep_actors import permissions
from keep_actors.api import proposal_commands, proposal_views
from keep_actors.api.deployed import Deployed
from keep_actors.api.keep_answers import KeepAnswers
from keep_actors.api.proposal_views import ProposedScript
from keep_actors.authoring import admission
from keep_actors.authoring.admission import version_number
from keep_actors.host.host import Host
from keep_actors.kernel import Directory
from keep_actors.kernel.signal import Signal
from keep_actors.permissions import Accepted, Grant, Needed
from keep_actors.workflow.messages import Activate, Deploy, Message
from keep_sandbox.names import unfit_name
from keep_storage import proposal_reads, reads
from keep_storage.errors import Reason, Rejected
from keep_storage.limits import PEEK_DEFAULT
from keep_storage.model import ScriptProposal, ScriptVersion, Workflow


class KeepDeploys(KeepAnswers):
    """Choices of the script that runs."""

    def __init__(self, host: Host, directory: Directory[Message], committed: Signal, accepted: Accepted) -> None:
        super().__init__(host, directory, committed)
        self._accepted: Accepted = accepted
        self._naming = anyio.Lock()

    async def deploy(
        self,
        source: str,
        *,
        workflow: str | None = None,
        new: bool | None = None,
        author: str = "",
        owner: str | None = None,
        grants: Iterable[str | Grant] | Accepted | None = None,
        timezone: str | None = None,
        major: bool = False,
        start: bool = True,
        drop: Iterable[str] = (),
        move: Mapping[str, str] | None = None,
        by: str = "",
    ) -> Deployed:
        """Check a script and make it the one that runs. Waits for the active run, if there is one.

        The first script with a name makes a new workflow, version 1.0, and starts it unless `start` is false. A changed
        script becomes the next minor version (the next major one with `major`) of the `workflow` that is named, by id
        or by name: the name inside of a script is its author's word, and replaces nothing. The script that runs, once
        more, is no new version and needs no `workflow`. `new` says whether there may be one already: true, it is
        refused if there is; false, if there is not.

        `author` is whose words these are, as you know it; a script by another author than the newest version's is a new
        major version. `owner` is the tenant to whom the workflow belongs, as you know it: only workflows of one owner
        share a sandbox process. A new workflow without one belongs to `""`, which is an owner like any other; a later
        deploy that names no owner keeps it, and one that names the workflow and another owner hands it over.

        Events and states stay. Whatever is deployed ends the maintenance of its workflow: it is tried again.
        What has an interval runs at once if it is new or changed, what has cron at its next time; `timezone` is that of
        cron schedules: UTC at first, then what it was. `grants` are the permissions it is given (`"declared"`: those
        that it names, `"all"`: every one there is); a minor version keeps those of its major one.

        Events that wait in a topic that the script does not declare any more are skipped if it is in `drop`, or go to
        another topic with `move` (`{"old": "new"}`).

        Raises `DeployRefused` with every problem, `PermissionsNeeded` with the list to accept, or `EventsWouldWait`
        with the topics to drop or to move; then nothing changed.

        ```python
        deployed = await keep.deploy(Path("mail_to_sheets.js").read_text(), grants=["gmail.search", "sheets.appendRow"])
        print(deployed.workflow_id, deployed.version)
        ```
        """
        if author and (why := unfit_name(author)):
            raise ValueError(f"the author {author!a} {why}")
        if owner and (why := unfit_name(owner)):
            raise ValueError(f"the owner {owner!a} {why}")
        name, message = await self._message(
            source,
            self._accepted if grants is None else grants,
            is_meant=workflow is not None,
            author=author,
            owner=owner,
            timezone=timezone,
            is_major=major,
            start=start,
            by=by,
            drop=tuple(drop),
            move=tuple((move or {}).items()),
        )
        workflow_id, version = await self._hand_over(workflow, new, name, message)
        return Deployed(workflow_id, name, f"{version.major}.{version.minor}")

    async def rollback(
        self,
        workflow: str,
        version: str,
        *,
        drop: Iterable[str] = (),
        move: Mapping[str, str] | None = None,
        by: str = "",
    ) -> Deployed:
        """Make an earlier version of the script run again. Events and states stay; pending events continue with it.

        `drop` and `move` are as for `deploy`. Raises `EventsWouldWait` with the topics to drop or to move.

        ```python
        await keep.rollback("mail to sheets", "1.0", by="alice")
        ```
        """
        activate = Activate(version_number(version), by, tuple(drop), tuple((move or {}).items()))
        return await self._activate(workflow, activate)

    # Proposals.

    async def proposals(self, *, limit: int = PEEK_DEFAULT, before: str | None = None) -> list[ScriptProposal]:
        """Scripts that were proposed, newest first, with what became of each. `before` is the id of the last seen.

        ```python
        for each in await keep.proposals():
            print(each.id, each.name, each.proposed_by, each.status, each.reason)
        ```
        """
        page = {"before": before} if before else {}
        return await self._host.reading.read(lambda q: proposal_reads.proposals(q, limit=limit, **page))

    async def proposed_script(self, proposal_id: str) -> ProposedScript:
        """A proposal beside the script that runs: the difference, the permissions that it needs, and what forbids it.

        ```python
        for each in await keep.proposals():
            found = await keep.proposed_script(each.id)
            print(found.diff, [need.permission for need in found.new], found.problems)
        ```
        """
        host = self._host
        now = host.time.now()
        found = await host.reading.read(lambda q: proposal_views.proposed_script(q, proposal_id, now))
        if not found.is_open:
            return found
        source, kinds = found.proposal.source, host.catalog.kinds()
        script = await admission.inspected(host.pool, source, kinds, "UTC", host.policy_of, now)
        needed = permissions.needed((each.name for each in script.inspection.uses), host.catalog)
        return proposal_views.judged(found, script.name, needed, script.lines)

    async def propose(
        self,
        *,
        proposal_id: str,
        name: str,
        source: str,
        workflow_id: str | None = None,
        base_version_id: str | None = None,
        by: str,
        note: str = "",
    ) -> ScriptProposal:
        """Propose a script, for a workflow or for a new one: it is held until a person decides. Nothing runs.

        ```python
        from keep_storage.ids import Ids, wall_clock

        proposal_id = Ids(wall_clock).new("prp")
        source = Path("letters.js").read_text()
        await keep.propose(proposal_id=proposal_id, name="letters", source=source, by="alice's assistant")
        ```
        """
        if why := unfit_name(by):
            raise ValueError(f"the name {by!a} {why}")
        command = proposal_commands.Propose(
            proposal_id=proposal_id,
            name=name,
            source=source,
            workflow_id=workflow_id,
            base_version_id=base_version_id,
            by=by,
            note=note,
        )
        return await self._host.storage.apply(command.operation(self._host.time.now()))

    async def accept_proposal(
        self,
        proposal_id: str,
        *,
        grants: Iterable[str | Grant] | Literal["declared"] = (),
        drop: Iterable[str] = (),
        move: Mapping[str, str] | None = None,
        by: str,
    ) -> Deployed:
        """Deploy a proposed script: as a new workflow, or as the next major version of one, with these `grants` only.

        Its author is whoever proposed it. `"declared"` grants what the script names; what its workflow has been granted
        keeps its limits, and whether it asks. Refused if another script runs since it was proposed; and as `deploy` is.

        ```python
        for each in await keep.proposals():
            if each.status == "open":
                await keep.accept_proposal(each.id, grants="declared", by="alice")
        ```
        """
        now = self._host.time.now()
        proposal = await self._host.reading.read(lambda q: proposal_reads.waiting(q, proposal_id, now))
        workflow_id = proposal.workflow_id
        name, message = await self._message(
            proposal.source,
            grants,
            is_meant=workflow_id is not None,
            author=proposal.proposed_by,
            is_major=workflow_id is not None,
            by=by,
            drop=tuple(drop),
            move=tuple((move or {}).items()),
            proposal=proposal,
        )
        if name != proposal.name:
            raise admission.other_name(name, proposal.name)
        found, version = await self._hand_over(workflow_id, workflow_id is None, name, message)
        return Deployed(found, name, f"{version.major}.{version.minor}")

    async def reject_proposal(self, proposal_id: str, *, by: str, why: str) -> ScriptProposal:
        """Reject a proposed script, with the reason. The same script is not proposed again.

        ```python
        for each in await keep.proposals():
            if each.status == "open":
                await keep.reject_proposal(each.id, by="alice", why="it drops the amount")
        ```
        """
        command = proposal_commands.RejectProposal(proposal_id=proposal_id, by=by, why=why)
        return await self._host.storage.apply(command.operation(self._host.time.now()))

    # Parts of them.

    async def _message(
        self,
        source: str,
        accepted: Iterable[str | Grant] | Accepted,
        *,
        is_meant: bool,
        author: str,
        by: str,
        drop: tuple[str, ...],
        move: tuple[tuple[str, str], ...],
        owner: str | None = None,
        timezone: str | None = None,
        is_major: bool = False,
        start: bool = True,
        proposal: ScriptProposal | None = None,
    ) -> tuple[str, Deploy]:
        """The name of a script that was inspected, and the message to its workflow."""
        host, zone = self._host, timezone or "UTC"
        script = await admission.inspected(
            host.pool, source, host.catalog.kinds(), zone, host.policy_of, host.time.now()
        )
        declared = script.declared()
        needed = permissions.needed(declared.uses, host.catalog)
        named = [] if isinstance(accepted, str) else [permissions.as_grant(each) for each in accepted]
        permissions.check_known(named, host.catalog)
        return script.name, Deploy(
            source,
            declared,
            is_meant=is_meant,
            author=author,
            owner=owner,
            needed=needed,
            grants=named,
            accepted=self._accepts(accepted, needed),
            timezone=timezone,
            is_major=is_major,
            start=start,
            by=by,
            drop=drop,
            move=move,
            proposal=proposal,
        )

    def _accepts(self, accepted: object, needed: list[Needed]) -> list[str]:
        """The permissions that are granted without being named one by one."""
        match accepted:
            case "declared":
                return [each.permission for each in needed]
            case "all":
                return sorted({method.permission for method in self._host.catalog.methods.values()})
            case _:
                return []

    async def _hand_over(
        self, workflow: str | None, new: bool | None, name: str, message: Deploy
    ) -> tuple[str, ScriptVersion]:
        """Give the script to its workflow's actor. Of two with one new name, the second finds the first's."""
        async with self._naming:
            if (known := await self._meant(workflow, new, name)) is None:
                if workflow is None and self._host.has_own_policy(name):
                    raise admission.has_settings(name)
                workflow_id = self._host.ids.new("wf")
                return workflow_id, await self._directory.ask(workflow_id, message)
        return known.id, await self._directory.ask(known.id, message)

    async def _meant(self, workflow: str | None, new: bool | None, name: str) -> Workflow | None:
        """The workflow that a script is for; None: a new one. Raises `DeployRefused` or `Rejected`."""
        if new and workflow not in (None, name):
            raise admission.other_name(name, workflow or "")
        if workflow is None or new:
            known = await self._host.reading.read(lambda q: reads.workflow_by_name(q, name))
        elif workflow == name and new is None:
            known = await self._look_for(workflow)
        else:
            known = await self._find(workflow)
        if known is None and new is False:
            raise Rejected(Reason.WORKFLOW_NOT_FOUND, f"There is no workflow {name!r}.")
        if known is not None and new:
            raise admission.not_new(known)
        if known is not None and known.name != name:
            raise admission.other_name(name, known.name)
        return known
