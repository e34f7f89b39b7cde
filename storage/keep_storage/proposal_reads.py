"""Proposals from outside: those that wait, and what became of the others. Reads only."""

from typing import Final

from keep_storage.ids import Millis
from keep_storage.limits import PEEK_DEFAULT, PROPOSALS_OPEN_MAX
from keep_storage.model import ScriptProposal
from keep_storage.proposal_rows import proposal
from keep_storage.records import find_all
from keep_storage.transaction import Queries

__all__ = ["open_proposals", "proposal", "proposals"]

_LAST_ID: Final = "\x7f"
"""Sorts after every id."""


def open_proposals(q: Queries, now: Millis) -> list[ScriptProposal]:
    """The proposals that wait for a person, oldest first."""
    return find_all(q, ScriptProposal, "open_proposals", {"now": now, "limit": PROPOSALS_OPEN_MAX})


def proposals(q: Queries, *, limit: int = PEEK_DEFAULT, before: str = _LAST_ID) -> list[ScriptProposal]:
    """Proposals, newest first. `before` is the id of the last one seen."""
    return find_all(q, ScriptProposal, "all_proposals", {"limit": limit, "before": before})
