"""Proposals: scripts from outside, held until a person decides. Nothing runs because something was proposed.

An open proposal never changes: a later one takes its place, under another id. It is accepted as the version that runs,
in the commit that activates it.
"""

from typing import NoReturn

from msgspec.structs import replace

from keep_storage import limits, proposal_reads, proposal_rows, rows, workflows
from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.journal import Change, changed
from keep_storage.model import ProposalStatus, ScriptProposal
from keep_storage.operations import DecideProposal, ProposeScript
from keep_storage.transaction import Queries, Transaction

_DAY_MS = 86_400_000


def propose_script(tx: Transaction, op: ProposeScript, now: Millis) -> Change[ScriptProposal]:
    _has_its_size(op)
    _is_for_what_runs(tx, op)
    if known := proposal_rows.rejected_proposal(tx, op.workflow_id, op.name, op.source):
        why = f": {known.reason}" if known.reason else "."
        reject(
            Reason.PROPOSAL_WAS_REJECTED,
            f"A person has rejected this very script ({known.id!r}, by {known.decided_by}){why}",
        )
    earlier = proposal_rows.open_proposal(tx, op.workflow_id, op.name)
    _leaves_room(tx, earlier, now)
    proposal = ScriptProposal(
        id=op.id,
        workflow_id=op.workflow_id,
        base_version_id=op.base_version_id,
        name=op.name,
        source=op.source,
        note=op.note,
        proposed_by=op.proposed_by,
        status=ProposalStatus.OPEN,
        proposed_at=now,
        expires_at=now + limits.PROPOSAL_OPEN_MS,
        decided_at=None,
        decided_by="",
        reason="",
        version_id=None,
    )
    if proposal_rows.proposal(tx, op.id):
        reject(Reason.ID_TAKEN, f"There is already a proposal {op.id!r}; ids are made once.")
    proposal_rows.expire_proposals(tx, now)
    is_replaced = earlier is not None and earlier.expires_at > now
    if earlier is not None and is_replaced:
        dropped = replace(earlier, status=ProposalStatus.REPLACED, source="", decided_at=now, decided_by=op.proposed_by)
        proposal_rows.decide_proposal(tx, dropped)
    proposal_rows.insert_proposal(tx, proposal)
    return changed(
        proposal,
        op.workflow_id,
        None,
        op.note,
        proposal=op.id,
        name=op.name,
        by=op.proposed_by,
        replaces=earlier.id if earlier is not None and is_replaced else None,
    )


def decide_proposal(tx: Transaction, op: DecideProposal, now: Millis) -> Change[ScriptProposal]:
    proposal = proposal_reads.waiting(tx, op.proposal_id, now)
    status, workflow_id, source = ProposalStatus.REJECTED, proposal.workflow_id, proposal.source
    if op.version_id is not None:
        status, workflow_id, source = ProposalStatus.ACCEPTED, _workflow_that_runs(tx, proposal, op.version_id), ""
    decided = replace(
        proposal,
        status=status,
        workflow_id=workflow_id,
        source=source,
        decided_at=now,
        decided_by=op.by,
        reason=op.why,
        version_id=op.version_id,
    )
    proposal_rows.decide_proposal(tx, decided)
    return changed(
        decided,
        workflow_id,
        None,
        op.why,
        proposal=proposal.id,
        status=[proposal.status, status],
        version=op.version_id,
        by=op.by,
    )


def _has_its_size(op: ProposeScript) -> None:
    most = {
        "source": (op.source, 1, limits.PROPOSAL_SOURCE_CHARS_MAX),
        "name": (op.name, 1, limits.PROPOSAL_NAME_CHARS_MAX),
        "proposed_by": (op.proposed_by, 1, limits.PROPOSAL_NAME_CHARS_MAX),
        "note": (op.note, 0, limits.PROPOSAL_NOTE_CHARS_MAX),
    }
    for what, (text, least, most_chars) in most.items():
        if not least <= len(text) <= most_chars:
            reject(
                Reason.PROPOSAL_INVALID,
                f"The {what} of a proposal has {least} to {most_chars:,} characters, and this one {len(text):,}.",
            )


def _is_for_what_runs(q: Queries, op: ProposeScript) -> None:
    if op.workflow_id is None:
        active = None
    else:
        workflow = workflows.living(q, op.workflow_id)
        if workflow.name != op.name:
            reject(
                Reason.PROPOSAL_INVALID,
                f"The script is named {op.name!r}, and workflow {workflow.id!r} {workflow.name!r}; give it that name.",
            )
        active = rows.version(q, workflow.active_version_id) if workflow.active_version_id else None
    if proposal_reads.is_outdated(op.base_version_id, active):
        number = f"{active.major}.{active.minor}" if active else "none"
        reject(
            Reason.PROPOSAL_IS_OUTDATED,
            f"It was made from another version than the one that runs ({number}). Read that script, and propose again.",
        )
    if active is not None and active.source == op.source:
        reject(Reason.PROPOSAL_IS_ACTIVE, f"This very script runs already, as version {active.major}.{active.minor}.")


def _leaves_room(q: Queries, earlier: ScriptProposal | None, now: Millis) -> None:
    if proposal_rows.count_open(q, now, earlier.id if earlier else "") >= limits.PROPOSALS_OPEN_MAX:
        reject(
            Reason.PROPOSALS_TOO_MANY,
            f"{limits.PROPOSALS_OPEN_MAX} proposals wait for a person already. Wait until some are decided.",
        )
    if proposal_rows.count_new(q, now - _DAY_MS) >= limits.PROPOSALS_A_DAY_MAX:
        reject(
            Reason.PROPOSALS_TOO_MANY,
            f"{limits.PROPOSALS_A_DAY_MAX} proposals were made in 24 hours. Check and dry-run before the next one.",
        )


def _workflow_that_runs(q: Queries, proposal: ScriptProposal, version_id: str) -> str:
    """The workflow in which this version of the proposed script is active."""
    version = rows.version(q, version_id) or reject(
        Reason.VERSION_NOT_FOUND, f"There is no script version {version_id!r}."
    )
    workflow = workflows.existing(q, version.workflow_id)
    if proposal.workflow_id not in (None, workflow.id):
        _not_deployed(proposal, "it is a version of another workflow")
    if version.source != proposal.source:
        _not_deployed(proposal, "it is another script")
    if workflow.active_version_id != version.id:
        _not_deployed(proposal, "it does not run")
    return workflow.id


def _not_deployed(proposal: ScriptProposal, why: str) -> NoReturn:
    reject(
        Reason.PROPOSAL_NOT_DEPLOYED,
        f"Proposal {proposal.id!r} cannot be accepted as this version: {why}. Activate its script in the same commit.",
    )
