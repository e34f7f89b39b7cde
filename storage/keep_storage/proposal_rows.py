"""Typed access to proposals. Decides nothing; only the operations call what writes."""

from keep_storage.ids import Millis
from keep_storage.model import ScriptProposal
from keep_storage.records import as_params, find
from keep_storage.transaction import Queries, Transaction


def proposal(q: Queries, proposal_id: str) -> ScriptProposal | None:
    return find(q, ScriptProposal, "proposal_by_id", {"id": proposal_id})


def open_proposal(q: Queries, workflow_id: str | None, name: str) -> ScriptProposal | None:
    """The one for a workflow; without one, for a new workflow of this name."""
    if workflow_id is None:
        return find(q, ScriptProposal, "open_proposal_of_name", {"name": name})
    return find(q, ScriptProposal, "open_proposal_of_workflow", {"workflow_id": workflow_id})


def rejected_proposal(q: Queries, workflow_id: str | None, name: str, source: str) -> ScriptProposal | None:
    key = {"workflow_id": workflow_id, "name": name, "source": source}
    return find(q, ScriptProposal, "rejected_proposal", key)


def count_open(q: Queries, now: Millis, replaced: str) -> int:
    row = q.one("count_open_proposals", {"now": now, "replaced": replaced})
    assert row, "an aggregate has one row"
    return int(row[0])


def count_new(q: Queries, since: Millis) -> int:
    row = q.one("count_new_proposals", {"since": since})
    assert row, "an aggregate has one row"
    return int(row[0])


def insert_proposal(tx: Transaction, proposal: ScriptProposal) -> bool:
    """False if there is already a proposal with this id."""
    return tx.one("insert_proposal", as_params(proposal)) is not None


def decide_proposal(tx: Transaction, proposal: ScriptProposal) -> None:
    tx.run("decide_proposal", as_params(proposal))


def expire_proposals(tx: Transaction, now: Millis) -> None:
    tx.run("expire_proposals", {"now": now})
