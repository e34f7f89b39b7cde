"""Proposals from outside: those that wait, and what became of the others. Reads only.

`waiting` is the rule of which ones can still be decided, and `is_outdated` that of which scripts they may replace: for
whoever shows one, and for whoever decides.
"""

from typing import Final

from keep_storage.errors import Reason, reject
from keep_storage.ids import Millis
from keep_storage.limits import PEEK_DEFAULT, PROPOSALS_OPEN_MAX
from keep_storage.model import ProposalStatus, ScriptProposal, ScriptVersion
from keep_storage.proposal_rows import proposal
from keep_storage.records import find_all
from keep_storage.transaction import Queries

__all__ = ["existing", "is_outdated", "open_proposals", "proposal", "proposals", "waiting"]

_LAST_ID: Final = "\x7f"
"""Sorts after every id."""


def existing(q: Queries, proposal_id: str) -> ScriptProposal:
    """A proposal in any state. Raises `Rejected` if there is none."""
    return proposal(q, proposal_id) or reject(Reason.PROPOSAL_NOT_FOUND, f"There is no proposal {proposal_id!r}.")


def waiting(q: Queries, proposal_id: str, now: Millis) -> ScriptProposal:
    """A proposal that can be accepted or rejected now. Raises `Rejected`."""
    found = existing(q, proposal_id)
    if found.status is not ProposalStatus.OPEN:
        who = f", by {found.decided_by}" if found.decided_by else ""
        reject(Reason.PROPOSAL_ALREADY_DECIDED, f"Proposal {proposal_id!r} is already {found.status}{who}.")
    if found.expires_at <= now:
        reject(Reason.PROPOSAL_HAS_EXPIRED, f"Proposal {proposal_id!r} has expired. Have it proposed again.")
    return found


def is_outdated(base_version_id: str | None, active: ScriptVersion | None) -> bool:
    """True if another script runs than the one that a proposal was made from: it would be replaced unseen."""
    return base_version_id != (active.id if active is not None else None)


def open_proposals(q: Queries, now: Millis) -> list[ScriptProposal]:
    """The proposals that wait for a person, oldest first."""
    return find_all(q, ScriptProposal, "open_proposals", {"now": now, "limit": PROPOSALS_OPEN_MAX})


def proposals(q: Queries, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[ScriptProposal]:
    """Proposals, newest first. `before` is the id of the last one seen."""
    return find_all(q, ScriptProposal, "all_proposals", {"limit": limit, "before": before})
