"""Changes of proposals from outside."""

from keep_storage.model import ScriptProposal
from keep_storage.operations.operation import Operation


class ProposeScript(Operation[ScriptProposal], frozen=True):
    """A script is proposed, for a workflow or for a new one. It is held for a person, and replaces an earlier open
    proposal for the same."""

    id: str
    name: str
    source: str
    proposed_by: str
    note: str = ""
    workflow_id: str | None = None
    base_version_id: str | None = None
    """The script that is active: refused if it is another one by now."""


class DecideProposal(Operation[ScriptProposal], frozen=True):
    """A person rejects a proposal; or accepts it, as the version that was activated just before, in one commit."""

    proposal_id: str
    by: str
    why: str = ""
    version_id: str | None = None
