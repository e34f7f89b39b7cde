"""Tools that propose: a script is checked, and held for a person. What becomes of it can be read."""

import msgspec

from keep_actors import permissions
from keep_actors.api import proposal_views
from keep_actors.api.commands import Propose
from keep_actors.cli.assistant.arguments import PageOfProposals, ScriptToPropose
from keep_actors.cli.assistant.desk import Desk, ToolRefused
from keep_actors.cli.assistant.quoted import SHORT_MAX, TEXT_MAX, Quoted, name, quoted
from keep_actors.cli.assistant.writing import ProblemShown, checked, problem
from keep_actors.cli.proposing import proposal_of
from keep_actors.cli.reader import FileReader
from keep_actors.cli.typed import line
from keep_actors.text import visible
from keep_storage import proposal_reads, reads
from keep_storage.ids import Millis
from keep_storage.model import ScriptProposal


class ProposalShown(msgspec.Struct, frozen=True):
    """A proposal, and what became of it."""

    proposal_id: str
    status: str
    """`open` until a person has decided; `replaced` by a later proposal for the same; `expired` if no person has."""
    workflow_id: str | None
    """None: a new workflow, until it is accepted."""
    workflow: Quoted
    proposed_by: Quoted
    proposed_at: Millis
    expires_at: Millis
    note: Quoted
    decided_at: Millis | None
    decided_by: str
    reason: str
    """Words of the person who rejected it."""


class ProposalPage(msgspec.Struct, frozen=True):
    """Proposals, newest first."""

    proposals: list[ProposalShown]


class ProposalMade(msgspec.Struct, frozen=True):
    """The outcome of proposing a script. It is held for a person, and runs nothing."""

    is_held: bool
    problems: list[ProblemShown]
    """The reasons why it was not proposed: mend them, and propose once more."""
    proposal: ProposalShown | None
    new_permissions: list[str]
    """Permissions that it needs and that its workflow does not have. Only the person can give them."""
    for_the_person: str
    """The command that shows it to the person who decides: tell them."""


async def propose_script(desk: Desk, said: ScriptToPropose) -> ProposalMade:
    found = await checked(desk, said.source)
    if found.problems:
        return ProposalMade(False, [problem(each) for each in found.problems], None, [], "")
    if said.workflow and not said.made_from:
        raise ToolRefused("Say from which version it was made (`made_from`, as read_script returned it).")
    needed = [each.permission for each in permissions.needed(found.uses, desk.catalog)]

    def prepare(reader: FileReader) -> tuple[Propose, list[str]]:
        command = proposal_of(
            reader,
            found.name,
            said.source,
            workflow=said.workflow,
            made_from=said.made_from,
            by=desk.name,
            note=said.note,
        )
        granted = _granted(reader, command.workflow_id)
        return command, [each for each in needed if each not in granted]

    command, new = await desk.read(prepare)
    held = await desk.propose(command)
    return ProposalMade(True, [], _shown(held, held.proposed_at), new, line(desk.db, "proposals", held.id))


async def list_proposals(desk: Desk, said: PageOfProposals) -> ProposalPage:
    def look(reader: FileReader) -> ProposalPage:
        page = {"before": said.before} if said.before else {}
        found = proposal_reads.proposals(reader.q, limit=said.limit, **page)
        return ProposalPage([_shown(each, reader.now) for each in found])

    return await desk.read(look)


def _granted(reader: FileReader, workflow_id: str | None) -> set[str]:
    """The permissions of the version that runs."""
    workflow = reads.workflow(reader.q, workflow_id) if workflow_id is not None else None
    if workflow is None or workflow.active_version_id is None:
        return set()
    return {each.permission for each in reads.envelope(reader.q, workflow.active_version_id)}


def _shown(each: ScriptProposal, now: Millis) -> ProposalShown:
    return ProposalShown(
        proposal_id=each.id,
        status=proposal_views.status_of(each, now),
        workflow_id=each.workflow_id,
        workflow=name(each.name),
        proposed_by=name(each.proposed_by),
        proposed_at=each.proposed_at,
        expires_at=each.expires_at,
        note=quoted(each.note),
        decided_at=each.decided_at,
        decided_by=visible.cut(each.decided_by, SHORT_MAX)[0],
        reason=visible.cut(each.reason, TEXT_MAX)[0],
    )
