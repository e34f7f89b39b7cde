"""Proposals of scripts: one declaration for each action, as in `commands`, which has them in its table."""

from typing import Annotated, Literal

from msgspec import Meta, field

from keep_actors.api.command import Command, Right, StorageCommand
from keep_actors.api.deployed import Deployed
from keep_actors.api.proposal_views import ProposedScript
from keep_actors.policy import Grant
from keep_storage.ids import Millis
from keep_storage.model import ScriptProposal
from keep_storage.operations import DecideProposal, ProposeScript

_Proposal = Annotated[str, Meta(description="The proposal, by its id.")]


class Propose(StorageCommand[ScriptProposal], frozen=True, kw_only=True, tag="propose"):
    """Propose a script. It is held until a person accepts or rejects it, and runs nothing."""

    right = Right.PROPOSE
    needs_runtime = False
    proposal_id: str
    """Made by whoever proposes, who can look for it if the answer is lost. A second one with this id is refused."""
    name: str
    source: str
    workflow_id: str | None = None
    """None: a new workflow."""
    base_version_id: str | None = None
    """The version that it was made from, which has to be the one that runs."""
    by: Annotated[str, Meta(description="The name of whoever proposes, for the person who decides.")]
    note: Annotated[str, Meta(description="A few words about it, for the person who decides.")] = ""

    def operation(self, _: Millis) -> ProposeScript:
        return ProposeScript(
            self.proposal_id, self.name, self.source, self.by, self.note, self.workflow_id, self.base_version_id
        )


class ShowProposedScript(Command[ProposedScript], frozen=True, kw_only=True, tag="proposed_script"):
    """Show a proposal beside the script that runs. Only a runtime has the connectors, which say what it needs."""

    right = Right.READ
    proposal_id: _Proposal


class AcceptProposal(Command[Deployed], frozen=True, kw_only=True, tag="accept_proposal"):
    """Deploy a proposed script, with the permissions that are granted here and no others.

    It is a new workflow, or the next major version of one. Refused if another script runs since it was proposed.
    """

    right = Right.DEPLOY
    proposal_id: _Proposal
    grants: list[Grant] | Literal["declared"] = field(default_factory=list)
    """`declared`: everything that the script names. What its workflow has keeps its limits, and whether it asks."""
    drop: Annotated[
        list[str], Meta(description="Skip the events that wait in a topic that the script no longer declares.")
    ] = field(default_factory=list)
    move: Annotated[
        dict[str, str], Meta(description="Move the events of such a topic to one that the script declares.")
    ] = field(default_factory=dict)
    by: Annotated[str, Meta(description="The person's name, for the journal.")]


class RejectProposal(StorageCommand[ScriptProposal], frozen=True, kw_only=True, tag="reject_proposal"):
    """Reject a proposed script, with a reason that whoever proposed it can read."""

    right = Right.DEPLOY
    needs_runtime = False
    proposal_id: _Proposal
    by: Annotated[str, Meta(description="The person's name, for the journal.")]
    why: Annotated[str, Meta(description="The reason, for whoever proposed it and for the journal.")]

    def operation(self, _: Millis) -> DecideProposal:
        return DecideProposal(self.proposal_id, self.by, self.why)
