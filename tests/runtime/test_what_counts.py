"""What people are charged with and what they settle: calls a day, costs, checks, errors, proposals."""

from functools import partial
from typing import Any

import anyio
import pytest

from keep_actors import Backoff, Grant, Policy, Reason, Rejected
from keep_actors.connectors import Retry, Transient, Uncertain
from keep_actors.maintenance import Proposal, RepairTask
from keep_actors.testing import Box
from keep_actors.workflow.messages import Do
from keep_storage import reads
from keep_storage.operations import ClearWorkflowError
from tests.runtime.fakes import Fake, applies_and_raises, raises
from tests.runtime.test_questions import ASKS, FIVE, asked, filing, questions, sweep
from tests.runtime.world import TAKE, script

pytestmark = pytest.mark.anyio


# What is counted.


async def test_refused_calls_do_not_count_against_the_day_and_approved_ones_do() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(filing(), grants=[Grant("fake.add", policy="ask", per_day=2)])
        await box.publish("flow", "in", *FIVE)
        found = await questions(box)
        for each in ("a", "b"):
            await box.keep.reject(found[each], by="ann")
        answered = await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert (sorted(fake.texts), len(answered.done)) == (["c", "d"], 2)
        [words] = answered.refused.values()
        assert "may use 'fake.add' 2 times a day, and has done so" in words
        assert list(await questions(box)) == ["e"], "the question stays, and can be answered tomorrow"
        await box.advance(days=1)
        await box.keep.approve((await questions(box))["e"], by="ann")
        await box.until_idle()
        assert sorted(fake.texts) == ["c", "d", "e"]


async def test_a_question_that_expires_does_not_count_against_the_day() -> None:
    fake = Fake()
    async with Box.open(fake, policy=Policy(approval_expires_ms=60_000, approval_reminders=1)) as box:
        await box.deploy(filing(), grants=[Grant("fake.add", policy="ask", per_day=1)])
        await box.publish("flow", "in", "a")
        await box.advance(minutes=5)
        await box.publish("flow", "in", "b")
        await box.keep.approve((await questions(box))["b"], by="ann")
        await box.until_idle()
        assert fake.texts == ["b"]


@pytest.mark.parametrize("kind", ["consumer", "job"])
async def test_the_cost_of_an_approved_call_is_counted_in_its_run_and_session(kind: str) -> None:
    fake = Fake()
    fake.cost_micros = 700
    async with Box.open(fake) as box:
        if kind == "consumer":
            await asked(box, "a")
        else:
            await box.deploy(sweep("a"), grants=ASKS)
        [question] = (await questions(box)).values()
        await box.keep.approve(question, by="ann")
        await box.until_idle()
        runs = {run.id: run for run in await box.keep.runs("flow")}
        assert sum(run.cost_micros for run in runs.values()) == 700
        [asking] = [run for run in runs.values() if run.cost_micros]
        assert asking.status == "paused:approval"
        session = box.read(lambda q: reads.session(q, asking.session_id))
        assert session is not None
        assert session.cost_micros == 700


async def test_the_cost_of_an_approved_call_that_failed_is_counted_too() -> None:
    fake = Fake()
    fake.cost_micros = 700
    fake.plan("add", raises(Transient("503")))
    async with Box.open(fake) as box:
        await asked(box, "a")
        await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert sum(run.cost_micros for run in await box.keep.runs("flow")) == 700


# Granting clears only its own error.


async def test_granting_one_permission_clears_only_its_own_error() -> None:
    fake = Fake()
    needs_two = script(
        prepare=f"const take = async () => {{ {TAKE} }}; await c.fake.search({{}}); return await take();",
        mutate="await c.fake.add({ text: prepared.data.id });",
    )
    async with Box.open(fake, grants="explicit") as box:
        await box.deploy(needs_two, grants=[])
        await box.publish("flow", "in", "a")
        await box.until_idle()
        assert "'fake.search'" in (await box.keep.workflow("flow")).error
        for other in ("fake.add", "fake.put"):
            await box.keep.grant("flow", other, by="ann")
            await box.until_idle()
            assert "'fake.search'" in (await box.keep.workflow("flow")).error
        assert fake.calls == []
        await box.keep.revoke("flow", "fake.add", by="ann")
        await box.keep.grant("flow", "fake.search", by="ann")
        await box.until_idle()
        assert "'fake.add'" in (await box.keep.workflow("flow")).error
        await box.keep.grant("flow", "fake.add", by="ann")
        await box.until_idle()
        assert (fake.texts, (await box.keep.workflow("flow")).error) == (["a"], "")


async def test_a_grant_does_not_clear_an_error_about_something_else_that_names_it() -> None:
    """Of the question that stopped the workflow: the words in it are the script's."""
    fake = Fake()
    async with Box.open(fake, policy=Policy(parked_max=1)) as box:
        await asked(box, "a", "'fake.put'")
        before = (await box.keep.workflow("flow")).error
        assert "'fake.put'" in before
        await box.keep.grant("flow", "fake.put", by="ann")
        assert ((await box.keep.workflow("flow")).error, len(await box.keep.approvals())) == (before, 2)


NEEDS_ADD = script(prepare=TAKE, mutate="await c.fake.add({ text: prepared.data.id });")


async def test_who_grants_the_same_at_the_same_moment_is_not_refused() -> None:
    fake = Fake()
    async with Box.open(fake, grants="explicit") as box:
        await box.deploy(NEEDS_ADD, grants=[])
        await box.publish("flow", "in", "a")
        await box.until_idle()
        assert "'fake.add'" in (await box.keep.workflow("flow")).error
        async with anyio.create_task_group() as people:
            for name in ("ann", "bob"):
                people.start_soon(partial(box.keep.grant, "flow", "fake.add", by=name))
        await box.until_idle()
        assert (fake.texts, (await box.keep.workflow("flow")).error) == (["a"], "")
        box.journal.has("grant_permission", "clear_workflow_error", "grant_permission", "commit_consumer")


async def test_a_grant_clears_no_error_that_has_come_since_it_was_looked_at() -> None:
    async with Box.open(Fake(), grants="explicit") as box:
        await box.deploy(NEEDS_ADD, grants=[])
        await box.publish("flow", "in", "a")
        await box.until_idle()
        before, entries = await box.keep.workflow("flow"), len(box.journal)
        assert await box.ask("flow", Do(ClearWorkflowError(before.id, "ann", permission="fake.put"))) == before
        assert len(box.journal) == entries


async def test_what_is_granted_with_a_deploy_clears_its_own_error_and_no_other() -> None:
    fake = Fake()
    async with Box.open(fake, grants="explicit") as box:
        await box.deploy(NEEDS_ADD, grants=[])
        await box.publish("flow", "in", "a")
        await box.until_idle()
        await box.deploy(NEEDS_ADD, grants=["fake.put"], by="ann")
        await box.until_idle()
        assert "'fake.add'" in (await box.keep.workflow("flow")).error
        await box.deploy(NEEDS_ADD, grants=["fake.add"], by="ann")
        await box.until_idle()
        assert (fake.texts, (await box.keep.workflow("flow")).error) == (["a"], "")


# Trying again.


async def cannot_tell(_: Any) -> Any:
    """The connector, asked what became of a call."""
    return Retry("not yet")


@pytest.mark.parametrize("checks", [3, 12])
async def test_try_again_starts_the_count_of_checks_and_its_time_anew(checks: int) -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(Uncertain("lost")))
    fake.plan("reconcile", *[cannot_tell] * checks * 3)
    policy = Policy(reconcile=Backoff(jitter=0, cap_ms=3_600_000, attempts_max=checks))
    async with Box.open(fake, policy=policy) as box:
        await box.deploy(script(prepare=TAKE, mutate="await c.fake.put({ text: prepared.data.id });"))
        await box.publish("flow", "in", "a")
        for times in (1, 2, 3):
            await box.advance(days=2)
            assert fake.calls.count("reconcile a") == checks * times
            [doubt] = await box.keep.unknowns()
            assert doubt.status == "indeterminate"
            await box.keep.resolve(doubt.mutation_id, "try_again", by="ann")
        await box.until_idle()
        box.ledger.has("fake.put", "applied")
        assert await box.statuses("flow", "in") == {"a": "consumed"}


async def test_try_again_gives_the_whole_span_of_time_anew() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(Uncertain("lost")))
    fake.plan("reconcile", *[cannot_tell] * 100)
    policy = Policy(reconcile=Backoff(jitter=0, cap_ms=3_600_000), reconcile_for_ms=10 * 3_600_000)
    async with Box.open(fake, policy=policy) as box:
        await box.deploy(script(prepare=TAKE, mutate="await c.fake.put({ text: prepared.data.id });"))
        await box.publish("flow", "in", "a")
        await box.advance(days=2)
        at_first = fake.calls.count("reconcile a")
        [doubt] = await box.keep.unknowns()
        await box.keep.resolve(doubt.mutation_id, "try_again", by="ann")
        await box.advance(hours=9)
        [doubt] = await box.keep.unknowns()
        assert doubt.status == "needs_reconcile"
        await box.advance(days=2)
        assert abs(fake.calls.count("reconcile a") - 2 * at_first) <= 1
        assert (at_first > 10, (await box.keep.unknowns())[0].status) == (True, "indeterminate")


# Proposals.

BROKEN = script(prepare="null.x;")


class Mechanic:
    """Proposes one script after the other, each to be looked at by a person."""

    is_automatic = True

    def __init__(self) -> None:
        self.proposals = 0

    async def repair(self, _: RepairTask) -> Proposal:
        self.proposals += 1
        words = f"// proposal {self.proposals}"
        return Proposal(f"{script(prepare=TAKE, next_='return 1;')}{words}", "potentially_impactful")


async def test_a_proposal_is_accepted_by_the_version_that_was_seen_and_no_other() -> None:
    async with Box.open(Fake(), maintainer=Mechanic()) as box:
        await box.deploy(BROKEN.replace("prepare:", "next: async () => 1, prepare:"))
        await box.publish("flow", "in", "a")
        await box.until_idle()
        seen = await box.keep.proposal("flow")
        assert seen is not None
        assert seen.version == "1.1"
        # Somebody else refuses it meanwhile, and another one takes its place.
        await box.keep.refuse_repair("flow", by="bob", why="it drops the amount")
        await box.advance(minutes=1)
        waiting = await box.keep.proposal("flow")
        assert waiting is not None
        assert waiting.version == "1.2"
        for other in ("1.1", "1.0", "1.3"):
            with pytest.raises(Rejected, match=r"The repair that waits is version 1\.2, not 1\.\d: look at that") as no:
                await box.keep.accept_repair("flow", other, by="ann")
            assert no.value.reason is Reason.VERSION_NOT_FOUND
        assert (await box.keep.workflow("flow")).maintenance
        assert (await box.keep.accept_repair("flow", "1.2", by="ann")).version == "1.2"
        await box.until_idle()
        assert await box.statuses("flow", "in") == {"a": "consumed"}
        with pytest.raises(Rejected, match="No repair of workflow 'flow' waits for a person"):
            await box.keep.accept_repair("flow", "1.2", by="ann")
