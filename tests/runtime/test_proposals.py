"""Proposed scripts in a running runtime: shown beside what runs, accepted with the grants that a person gives."""

from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from keep_actors import DeployRefused, Grant, PermissionsNeeded, Rejected
from keep_storage.errors import EventsWouldWait, Reason
from keep_storage.ids import Ids, wall_clock
from keep_storage.limits import PROPOSAL_OPEN_MS
from keep_storage.model import ScriptProposal
from tests.runtime.fakes import Fake
from tests.runtime.world import TimedBox, script, world

pytestmark = pytest.mark.anyio

OURS = script(mutate="await ctx.fake.add({ text: prepared.data.id });")
THEIRS = script(mutate="await ctx.fake.add({ text: prepared.data.id + '!' });")
WIDER = script(mutate="await ctx.fake.put({ text: prepared.data.id });")
_ids = Ids(wall_clock)


async def propose(box: TimedBox, source: str = THEIRS, *, name: str = "flow", new: bool = False) -> ScriptProposal:
    fields: dict[str, Any] = {}
    if not new:
        workflow = await box.keep.workflow(name)
        fields = {"workflow_id": workflow.id, "base_version_id": workflow.active_version_id}
    return await box.keep.propose(proposal_id=_ids.new("prp"), name=name, source=source, by="assistant", **fields)


def reason(refusal: pytest.ExceptionInfo[Rejected]) -> Reason:
    return refusal.value.reason


async def ran(box: TimedBox, fake: Fake) -> list[str]:
    await box.publish("flow", "in", "one")
    await box.settle()
    return fake.texts


async def test_a_proposal_runs_nothing_until_a_person_accepts_it() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(OURS, grants=["fake.add"])
        proposal = await propose(box)
        [matter] = await box.keep.attention()
        assert (matter.kind, matter.about, matter.workflow) == ("proposal", proposal.id, "flow")
        assert await ran(box, fake) == ["one"]
        deployed = await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        assert deployed.version == "2.0"
        assert await box.keep.attention() == []
        await box.publish("flow", "in", "two")
        await box.settle()
        assert fake.texts == ["one", "two!"]


async def test_it_is_shown_with_the_difference_and_what_is_new() -> None:
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(OURS, grants=["fake.add"])
        both = THEIRS.replace(
            "await ctx.fake.add", "if (prepared.data.id) await ctx.fake.get({ entryId: 'x' }); await ctx.fake.add"
        )
        proposal = await propose(box, both)
        found = await box.keep.proposed_script(proposal.id)
        assert (found.version, found.is_outdated, found.is_open) == ("1.0", False, True)
        assert [each.permission for each in found.needs or ()] == ["fake.add", "fake.get"]
        assert [each.permission for each in found.new] == ["fake.get"]
        assert [line[0] for line in found.diff.split("\n")[3:]].count("+") == 1


async def test_a_new_workflow_is_made_and_started_with_the_author_and_its_grants() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        proposal = await propose(box, THEIRS, new=True)
        found = await box.keep.proposed_script(proposal.id)
        assert (found.version, found.workflow_id, len(found.new)) == (None, None, 1)
        with pytest.raises(PermissionsNeeded):
            await box.keep.accept_proposal(proposal.id, by="ann")
        assert await box.keep.workflows() == []
        deployed = await box.keep.accept_proposal(proposal.id, grants=["fake.add"], by="ann")
        [version] = await box.keep.versions("flow")
        assert (deployed.version, version.author) == ("1.0", "assistant")
        assert await ran(box, fake) == ["one!"]


async def test_the_name_of_a_new_workflow_may_be_taken_meanwhile() -> None:
    async with world(Fake()) as box:
        proposal = await propose(box, THEIRS, new=True)
        await box.keep.deploy(OURS)
        assert (await box.keep.proposed_script(proposal.id)).is_outdated
        with pytest.raises(DeployRefused, match="already exists"):
            await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        assert [each.source for each in await box.keep.versions("flow")] == [OURS]


async def test_it_is_refused_once_another_script_runs() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS)
        proposal = await propose(box)
        await box.keep.deploy(WIDER, workflow="flow")
        assert (await box.keep.proposed_script(proposal.id)).is_outdated
        with pytest.raises(Rejected) as refusal:
            await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        assert reason(refusal) is Reason.PROPOSAL_IS_OUTDATED
        assert [each.source for each in await box.keep.versions("flow")] == [WIDER, OURS]


async def test_the_old_script_does_not_bring_its_permissions_back() -> None:
    """The text of a version that could do more is a new version, and gets what is given now."""
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(WIDER, grants=["fake.put"])
        await box.keep.deploy(OURS, workflow="flow", grants=["fake.add"], major=True)
        proposal = await propose(box, WIDER)
        with pytest.raises(PermissionsNeeded):
            await box.keep.accept_proposal(proposal.id, by="ann")
        assert {each.permission for each in await box.keep.grants("flow")} == {"fake.add"}


async def test_what_the_workflow_has_keeps_its_limits_and_whether_it_asks() -> None:
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(OURS, grants=[Grant("fake.add", policy="ask", per_day=3)])
        proposal = await propose(box)
        await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        [grant] = await box.keep.grants("flow")
        assert (grant.major, str(grant.policy), grant.limits) == (2, "ask", '{"per_day":3}')


async def test_a_limit_that_is_set_while_a_proposal_is_being_accepted_is_kept() -> None:
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(OURS, grants=["fake.add"])
        proposal = await propose(box)
        await box.freeze("flow")

        async def until_asked(count: int) -> None:
            with anyio.fail_after(20):
                while len(await box.mailbox("flow")) < count:
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(box.keep.grant, "flow", Grant("fake.add", policy="ask"), by="bob"))
            await until_asked(1)
            tasks.start_soon(partial(box.keep.accept_proposal, proposal.id, grants="declared", by="ann"))
            await until_asked(2)
            await box.thaw()
        [grant] = await box.keep.grants("flow")
        assert (grant.major, str(grant.policy)) == (2, "ask")


async def test_grants_that_are_named_replace_those_that_were_there() -> None:
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(OURS, grants=[Grant("fake.add", policy="ask")])
        proposal = await propose(box)
        await box.keep.accept_proposal(proposal.id, grants=["fake.add"], by="ann")
        assert {str(each.policy) for each in await box.keep.grants("flow")} == {"allow"}


async def test_only_the_first_decision_counts() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS)
        proposal = await propose(box)
        await box.keep.reject_proposal(proposal.id, by="bob", why="no")
        for decide in (
            box.keep.accept_proposal(proposal.id, grants="declared", by="ann"),
            box.keep.reject_proposal(proposal.id, by="ann", why="no"),
        ):
            with pytest.raises(Rejected) as refusal:
                await decide
            assert reason(refusal) is Reason.PROPOSAL_ALREADY_DECIDED
        found = await box.keep.proposed_script(proposal.id)
        assert (str(found.status), found.needs, found.is_open) == ("rejected", None, False)


async def test_one_that_has_expired_is_not_accepted() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS)
        proposal = await propose(box)
        await box.advance(PROPOSAL_OPEN_MS)
        assert [each.kind for each in await box.keep.attention()] == []
        assert str((await box.keep.proposed_script(proposal.id)).status) == "expired"
        with pytest.raises(Rejected) as refusal:
            await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        assert reason(refusal) is Reason.PROPOSAL_HAS_EXPIRED
        assert [each.source for each in await box.keep.versions("flow")] == [OURS]


async def test_events_in_a_topic_that_it_no_longer_declares_are_settled_by_the_person() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS, start=False)
        await box.publish("flow", "out", "one")
        proposal = await propose(box, script(topics=["in"], mutate="await ctx.fake.add({ text: 'x' });"))
        with pytest.raises(EventsWouldWait):
            await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        await box.keep.accept_proposal(proposal.id, grants="declared", drop=["out"], by="ann")
        assert await box.statuses("flow", "out") == {"one": "skipped"}


async def test_a_script_that_has_another_name_than_it_was_proposed_under_is_refused() -> None:
    async with world(Fake()) as box:
        proposal = await propose(box, THEIRS, name="letters", new=True)
        [problem] = (await box.keep.proposed_script(proposal.id)).problems
        assert "named 'flow'" in problem
        with pytest.raises(DeployRefused, match="is named 'flow'"):
            await box.keep.accept_proposal(proposal.id, grants="declared", by="ann")
        assert await box.keep.workflows() == []


async def test_a_script_that_could_not_be_deployed_says_why() -> None:
    async with world(Fake()) as box:
        proposal = await propose(box, THEIRS.replace("fake.add", "fake.addd"), new=True)
        found = await box.keep.proposed_script(proposal.id)
        assert "does not exist here" in found.problems[0]


@pytest.mark.parametrize("by", ["", "\u202eann", "a\x1b[2J"])
async def test_a_name_that_cannot_be_shown_proposes_nothing(by: str) -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS)
        with pytest.raises((ValueError, Rejected)):
            await box.keep.propose(proposal_id=_ids.new("prp"), name="new", source=OURS, by=by)
        assert await box.keep.proposals() == []
