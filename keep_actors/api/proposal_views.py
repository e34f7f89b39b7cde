"""A proposed script as a person looks at it: beside the script that runs, with the permissions that it needs.

Loads no connector: what a script needs is found out elsewhere, and put in by `judged`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from keep_actors.api.views import version_text
from keep_actors.text.difference import difference
from keep_storage import proposal_reads, reads
from keep_storage.ids import Millis
from keep_storage.model import ProposalStatus, ScriptProposal, StoredGrant
from keep_storage.transaction import Queries

if TYPE_CHECKING:
    from keep_actors.permissions import Needed

NEW = "none"
"""The name of what runs where nothing does."""


class PermissionAsked(msgspec.Struct, frozen=True):
    """A permission that a proposed script needs."""

    permission: str
    risk: str
    mutates: bool
    methods: list[str]
    """The methods that it names for this."""
    granted: StoredGrant | None
    """The grant that its workflow has already; None: it is new."""


class ProposedScript(msgspec.Struct, frozen=True):
    """A proposal, and the script that it would replace."""

    proposal: ScriptProposal
    status: ProposalStatus
    """That of the proposal. One whose time has passed is `expired`, though nothing has written that yet."""
    workflow_id: str | None
    version: str | None
    """The version that runs now; None: it is a new workflow."""
    replaces: str
    """The source of that version."""
    is_outdated: bool
    """Another script runs than the one that it was made from: it cannot be accepted."""
    grants: list[StoredGrant]
    """Grants of the version that runs."""
    needs: list[PermissionAsked] | None = None
    """None: they are not known, because no connectors were there to ask, or it is decided."""
    problems: list[str] = []
    """Whatever forbids to deploy it."""

    @property
    def is_open(self) -> bool:
        """True if it waits for a person."""
        return self.status is ProposalStatus.OPEN

    @property
    def diff(self) -> str:
        """From the script that runs to the proposed one; empty if its source is not kept any more."""
        if not self.proposal.source:
            return ""
        return difference(self.replaces, self.proposal.source, self.version or NEW, self.proposal.id)

    @property
    def new(self) -> list[PermissionAsked]:
        """The permissions that its workflow does not have."""
        return [each for each in self.needs or () if each.granted is None]


def proposed_script(q: Queries, proposal_id: str, now: Millis) -> ProposedScript:
    """A proposal beside the script that runs. Raises `Rejected` if there is none."""
    found = proposal_reads.existing(q, proposal_id)
    if found.workflow_id is None:
        workflow = reads.workflow_by_name(q, found.name)
    else:
        workflow = reads.workflow(q, found.workflow_id)
    active = reads.version(q, workflow.active_version_id) if workflow and workflow.active_version_id else None
    return ProposedScript(
        proposal=found,
        status=status_of(found, now),
        workflow_id=workflow.id if workflow is not None else None,
        version=version_text(active) if active is not None else None,
        replaces=active.source if active is not None else "",
        is_outdated=proposal_reads.is_outdated(found.base_version_id, active),
        grants=reads.grants(q, active.workflow_id, active.major) if active is not None else [],
    )


def status_of(proposal: ScriptProposal, now: Millis) -> ProposalStatus:
    """The state of it by now: it expires by the clock."""
    is_over = proposal.status is ProposalStatus.OPEN and proposal.expires_at <= now
    return ProposalStatus.EXPIRED if is_over else proposal.status


def judged(found: ProposedScript, name: str, needed: "Sequence[Needed]", problems: Sequence[str]) -> ProposedScript:
    """Add the findings of an inspection: its name, the permissions that it needs, and what forbids it."""
    granted = {each.permission: each for each in found.grants}
    needs = [
        PermissionAsked(each.permission, each.risk, each.mutates, each.methods, granted.get(each.permission))
        for each in needed
    ]
    other = [f"the script is named {name!r}, and was proposed as {found.proposal.name!r}"]
    return msgspec.structs.replace(
        found, needs=needs, problems=[*(other if name != found.proposal.name else []), *problems]
    )
