"""Proposals in the tables: held, bounded, never changed, and accepted only as what runs."""

from typing import Any

import pytest

from keep_storage import proposal_reads, reads
from keep_storage.errors import Reason, Rejected
from keep_storage.limits import PROPOSAL_OPEN_MS
from keep_storage.model import ProposalStatus, ScriptProposal
from keep_storage.operations import ActivateScript, AddScriptVersion, CreateWorkflow, DecideProposal, Together
from tests.storage.world import HANDLERS, TOPICS, WORKFLOW, World


def proposed(world: World, source: str = "better", **more: Any) -> ScriptProposal:
    workflow = world.workflow()
    fields = {"workflow_id": WORKFLOW, "base_version_id": workflow.active_version_id, **more}
    name = fields.pop("name", workflow.name)
    return world.model.propose_script(world.name("prp"), name, source, "ada's assistant", "It is better.", **fields)


def found(world: World, proposal: ScriptProposal) -> ScriptProposal:
    now = proposal_reads.proposal(world.store.queries(), proposal.id)
    assert now is not None
    return now


def waiting(world: World) -> list[str]:
    return [each.id for each in proposal_reads.open_proposals(world.store.queries(), world.clock.now)]


def accepting(world: World, proposal: ScriptProposal, workflow: str = WORKFLOW, source: str = "better") -> Together:
    version = world.name("ver")
    add = AddScriptVersion(version, workflow, 2, 0, source)
    return Together((add, ActivateScript(version, TOPICS, HANDLERS), DecideProposal(proposal.id, "ada", "", version)))


def test_a_proposal_changes_nothing_about_its_workflow(world: World) -> None:
    before = world.workflow()
    proposal = proposed(world)
    assert world.workflow() == before
    assert [each.source for each in reads.versions(world.store.queries(), WORKFLOW)] != ["better"]
    assert waiting(world) == [proposal.id]


def test_an_accepted_proposal_is_the_version_that_runs(world: World) -> None:
    proposal = proposed(world)
    world.model.execute(accepting(world, proposal))
    decided = found(world, proposal)
    assert (decided.status, decided.decided_by) == (ProposalStatus.ACCEPTED, "ada")
    assert decided.version_id == world.workflow().active_version_id
    assert waiting(world) == []


def test_a_proposal_that_was_decided_meanwhile_activates_nothing(world: World) -> None:
    proposal = proposed(world)
    world.model.decide_proposal(proposal.id, "bob", "not now")
    before = world.workflow()
    with pytest.raises(Rejected) as refusal:
        world.model.execute(accepting(world, proposal))
    assert refusal.value.reason is Reason.PROPOSAL_ALREADY_DECIDED
    assert world.workflow() == before


def test_a_proposal_for_a_new_workflow_names_it_once_it_is_accepted(world: World) -> None:
    proposal = proposed(world, name="invoices", workflow_id=None, base_version_id=None)
    made = accepting(world, proposal, "wf_new")
    world.model.execute(Together((CreateWorkflow("wf_new", "invoices"), *made.operations)))
    assert found(world, proposal).workflow_id == "wf_new"


def test_a_later_proposal_takes_the_place_of_an_open_one(world: World) -> None:
    first = proposed(world)
    second = proposed(world, "best")
    assert waiting(world) == [second.id]
    replaced = found(world, first)
    assert (replaced.status, replaced.source) == (ProposalStatus.REPLACED, "")


def test_proposals_for_two_new_names_wait_beside_each_other(world: World) -> None:
    new: dict[str, Any] = {"workflow_id": None, "base_version_id": None}
    both = [proposed(world, name=name, **new).id for name in ("invoices", "letters")]
    assert waiting(world) == both


def test_the_reason_of_a_rejection_stays_readable(world: World) -> None:
    proposal = proposed(world)
    world.model.decide_proposal(proposal.id, "ada", "it drops the amount")
    rejected = found(world, proposal)
    assert (rejected.status, rejected.reason, rejected.source) == (
        ProposalStatus.REJECTED,
        "it drops the amount",
        "better",
    )


def test_another_script_may_be_proposed_after_a_rejection(world: World) -> None:
    world.model.decide_proposal(proposed(world).id, "ada", "it drops the amount")
    again = proposed(world, "best")
    assert waiting(world) == [again.id]


def test_a_proposal_expires_and_makes_room(world: World) -> None:
    first = proposed(world)
    world.clock.now += PROPOSAL_OPEN_MS
    assert waiting(world) == []
    second = proposed(world, "best")
    assert (found(world, first).status, waiting(world)) == (ProposalStatus.EXPIRED, [second.id])


def test_the_journal_says_who_proposed_and_who_decided(world: World) -> None:
    proposal = proposed(world)
    world.model.decide_proposal(proposal.id, "ada", "not now")
    *_, one, two = reads.journal(world.store.queries(), workflow_id=WORKFLOW)
    assert (one.operation, one.why) == ("propose_script", "It is better.")
    assert '"by":"ada\'s assistant"' in one.changed
    assert (two.operation, two.why) == ("decide_proposal", "not now")
    assert '"by":"ada"' in two.changed


def test_proposals_are_listed_newest_first_a_page_at_a_time(world: World) -> None:
    ids = [proposed(world, f"better {number}").id for number in range(3)]
    q = world.store.queries()
    assert [each.id for each in proposal_reads.proposals(q, limit=2)] == ids[:0:-1]
    assert [each.id for each in proposal_reads.proposals(q, before=ids[1])] == ids[:1]
