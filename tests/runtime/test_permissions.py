"""What a workflow may call: granted at deploy, checked at every call, limited, taken back."""

from typing import Any

import pytest

from keep_actors import DeployRefused, Grant, Keep, PermissionsNeeded, Rejected
from keep_actors.testing import lose_the_answer
from keep_storage.model import FailureClass
from tests.runtime.fakes import Fake
from tests.runtime.world import DAY, MINUTE, TimedBox, script, world

pytestmark = pytest.mark.anyio

PLAIN = """export default Keep.workflow({ name: "flow", topics: { in: {} }, consumers: { file: Keep.consumer({
  subscribe: ["in"],
  async prepare(ctx) {
    const [first] = await ctx.peek("in");
    if (!first) return { reservations: [] };
    await ctx.fake.search({ query: first.messageId });
    return { reservations: [{ topic: "in", ids: [first.messageId] }], data: { id: first.messageId } };
  },
  async mutate(ctx, prepared) { await ctx.fake.add({ text: prepared.data.id }); },
}) } });"""

HIDDEN = script(mutate="await c.fake.add({ text: prepared.data.id });")
"""Calls what it does not name, so that nothing is known of it at deploy."""


async def test_a_script_that_needs_permissions_is_not_deployed_without_them() -> None:
    async with world(Fake(), grants="explicit") as box:
        with pytest.raises(PermissionsNeeded) as refused:
            await box.keep.deploy(PLAIN)
        assert [(each.permission, each.risk, each.mutates) for each in refused.value.needed] == [
            ("fake.add", "medium", True),
            ("fake.search", "low", False),
        ]
        assert "fake.add (risk medium, changes the outside): ctx.fake.add" in str(refused.value)
        assert await box.keep.workflows() == []


async def test_what_is_granted_by_name_may_be_called_and_who_granted_it_is_known() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(PLAIN, grants=["fake.add", Grant("fake.search", per_run=5)], by="ann")
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.texts == ["one"]
        assert [(each.permission, each.granted_by) for each in await box.keep.grants("flow")] == [
            ("fake.add", "ann"),
            ("fake.search", "ann"),
        ]


async def test_part_of_what_is_needed_is_not_enough() -> None:
    async with world(Fake(), grants="explicit") as box:
        with pytest.raises(PermissionsNeeded, match=r"fake\.search"):
            await box.keep.deploy(PLAIN, grants=["fake.add"])


async def test_declared_grants_what_is_named_and_nothing_else() -> None:
    fake = Fake()
    async with world(fake, grants="declared") as box:
        await box.keep.deploy(PLAIN)
        assert [each.permission for each in await box.keep.grants("flow")] == ["fake.add", "fake.search"]


async def blocked(box: TimedBox, fake: Fake) -> None:
    await box.keep.deploy(HIDDEN, grants=[])
    await box.publish("flow", "in", "one")
    await box.settle()
    assert fake.calls == []


async def test_a_call_outside_the_envelope_is_stopped_before_anything_is_sent_and_says_what_is_missing() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await blocked(box, fake)
        workflow = await box.keep.workflow("flow")
        assert workflow.error_class is FailureClass.PERMISSION
        assert "'fake.add'" in workflow.error
        assert await box.statuses("flow", "in") == {"one": "pending"}
        assert await box.keep.outputs("flow") == []
        [run] = await box.keep.runs("flow")
        assert run.status == "paused:approval"
        [needs] = await box.keep.attention()
        assert (needs.kind, needs.workflow) == ("error", "flow")


async def test_granting_what_is_missing_lets_it_go_on() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await blocked(box, fake)
        await box.keep.grant("flow", "fake.add", by="ann")
        await box.settle()
        assert fake.texts == ["one"]
        assert (await box.keep.workflow("flow")).error == ""


async def test_a_permission_that_was_taken_back_is_missing_from_the_next_call_on() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(HIDDEN)
        await box.keep.revoke("flow", "fake.add", by="ann")
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.calls == []
        with pytest.raises(Rejected, match=r"fake\.add"):
            await box.keep.revoke("flow", "fake.add", by="ann")


async def test_a_grant_for_so_many_calls_a_run_ends_the_run_that_wants_more() -> None:
    fake = Fake()
    greedy = script(
        prepare='for (const q of ["a", "b", "c"]) await c.fake.search({ query: q }); return { reservations: [] };'
    )
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(greedy, grants=[Grant("fake.search", per_run=2)])
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.calls == ["search a", "search b"]
        assert "2 calls per run" in (await box.keep.workflow("flow")).error


async def test_a_grant_for_so_many_calls_a_day_holds_over_runs_and_restarts(tmp_path: object) -> None:
    fake = Fake()
    path = f"{tmp_path}/keep.db"
    async with world(fake, path=path, grants="explicit") as box:
        await box.keep.deploy(HIDDEN, grants=[Grant("fake.add", per_day=2)])
        await box.publish("flow", "in", "one", "two")
        await box.settle()
        time = box.time
    async with world(fake, path=path, grants="explicit", time=time) as box:
        await box.publish("flow", "in", "three")
        await box.settle()
        assert fake.texts == ["one", "two"]
        assert (await box.keep.workflow("flow")).error_class is FailureClass.PERMISSION
        assert await box.statuses("flow", "in") == {"one": "consumed", "two": "consumed", "three": "pending"}
        box.time.advance(DAY)
        await box.keep.clear_error("flow", by="ann")
        await box.settle()
        assert fake.texts == ["one", "two", "three"]


async def test_a_minor_version_keeps_the_envelope_and_a_major_one_asks_again() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(PLAIN, grants="declared")
        assert (await box.keep.deploy(PLAIN + "\n", workflow="flow")).version == "1.1"
        with pytest.raises(PermissionsNeeded):
            await box.keep.deploy(PLAIN + "\n\n", major=True, workflow="flow")
        assert (await box.keep.deploy(PLAIN + "\n\n", major=True, grants="declared", workflow="flow")).version == "2.0"


async def test_a_stricter_grant_is_not_loosened_by_accepting_what_a_script_names() -> None:
    async with world(Fake(), grants="declared") as box:
        await box.keep.deploy(PLAIN, grants=[Grant("fake.add", policy="ask"), "fake.search"])
        await box.keep.deploy(PLAIN + "\n", workflow="flow")
        assert {each.permission: str(each.policy) for each in await box.keep.grants("flow")}["fake.add"] == "ask"


async def test_a_method_that_does_not_exist_is_a_problem_with_its_place() -> None:
    async with world(Fake()) as box:
        with pytest.raises(DeployRefused) as refused:
            await box.keep.deploy(PLAIN.replace("ctx.fake.add", "ctx.fake.ad").replace("fake.search", "mail.search"))
        assert [(problem.code, problem.place and problem.place.line) for problem in refused.value.problems] == [
            ("method-unknown", 9),
            ("method-unknown", 6),
        ]
        assert "ctx.fake.add" in refused.value.problems[0].hint


async def approvals(keep: Keep) -> list[str]:
    return [question.params for question in await keep.approvals()]


TOLD = script(mutate="await c.fake.add({ text: prepared.data.id });", next_="return result;")
"""The same, and keeps what `next` is told."""


async def asked(box: TimedBox, *message_ids: str, source: str = HIDDEN) -> str:
    """Deploy what asks first, and have it ask about one event, or the first of several."""
    await box.keep.deploy(source, grants=[Grant("fake.add", policy="ask")])
    await box.publish("flow", "in", *message_ids)
    await box.settle()
    return (await box.keep.approvals())[0].approval_id


async def test_ask_holds_each_recorded_call_and_its_event_until_a_person_has_answered() -> None:
    fake = Fake()
    async with world(fake) as box:
        await asked(box, "one", "two")
        assert fake.calls == []
        assert await box.statuses("flow", "in") == {"one": "reserved", "two": "reserved"}
        questions = await box.keep.approvals("flow")
        assert [(each.call, each.params) for each in questions] == [
            ("fake.add", '{"text":"one"}'),
            ("fake.add", '{"text":"two"}'),
        ]
        assert [needs.kind for needs in await box.keep.attention()] == ["approval", "approval"]
        workflow = await box.keep.workflow("flow")
        assert (workflow.error, workflow.pending_retry_run_id) == ("", None)


async def test_a_question_that_is_answered_goes_on_while_the_others_wait() -> None:
    fake = Fake()
    async with world(fake) as box:
        await asked(box, "one", "two", "three")
        [_, second, _] = await box.keep.approvals()
        await box.keep.approve(second.approval_id, by="ann")
        await box.settle()
        assert fake.texts == ["two"]
        assert await box.statuses("flow", "in") == {"one": "reserved", "two": "consumed", "three": "reserved"}
        assert await approvals(box.keep) == ['{"text":"one"}', '{"text":"three"}']


async def test_approving_makes_exactly_the_recorded_call_once_and_goes_on_at_next() -> None:
    fake = Fake()
    async with world(fake) as box:
        approval_id = await asked(box, "one")
        await box.keep.approve(approval_id, by="ann", why="fine")
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        with pytest.raises(Rejected, match="ann"):
            await box.keep.approve(approval_id, by="bob")
        with pytest.raises(Rejected, match="ann"):
            await box.keep.reject(approval_id, by="bob")


async def test_what_a_person_approves_is_what_was_shown_though_the_script_was_replaced_since() -> None:
    fake = Fake()
    async with world(fake) as box:
        approval_id = await asked(box, "one")
        other = script(mutate='await c.fake.add({ text: "something else" });')
        assert (await box.keep.deploy(other, workflow="flow")).version == "1.1"
        await box.keep.approve(approval_id, by="ann")
        await box.settle()
        assert fake.texts == ["one"]


async def test_rejecting_with_retry_releases_the_event_and_a_fresh_run_asks_again() -> None:
    fake = Fake()
    async with world(fake) as box:
        first = await asked(box, "one")
        await box.keep.reject(first, by="ann", why="not now", retry=True)
        await box.settle()
        assert fake.calls == []
        [again] = await box.keep.approvals()
        assert (again.approval_id == first, again.params) == (False, '{"text":"one"}')
        assert [run.status for run in await box.keep.runs("flow")] == ["paused:approval", "paused:approval"]


async def test_rejecting_is_a_no_that_skips_the_event_tells_next_why_and_is_not_asked_again() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.reject(await asked(box, "one", source=TOLD), by="ann", why="spam")
        await box.settle()
        assert fake.calls == []
        assert await box.statuses("flow", "in") == {"one": "skipped"}
        [told, stopped] = await box.keep.runs("flow")
        assert (told.status, told.retry_of, stopped.status) == ("committed", stopped.id, "paused:approval")
        assert told.output_state == '{"status":"skipped","reason":"spam"}'
        await box.advance(30 * DAY)
        assert await box.keep.approvals() == []
        assert await box.keep.attention() == []


async def test_a_question_that_nobody_answers_is_asked_again_twice_and_then_the_answer_is_no() -> None:
    fake = Fake()
    async with world(fake, policy=None) as box:
        seen = [await asked(box, "one", source=TOLD)]
        for _ in range(2):
            await box.advance(7 * DAY - MINUTE)
            assert [each.approval_id for each in await box.keep.approvals()] == seen[-1:]
            await box.leap(2 * MINUTE)
            [again] = await box.keep.approvals()
            assert (again.approval_id in seen, again.params) == (False, '{"text":"one"}')
            seen.append(again.approval_id)
        await box.advance(7 * DAY)
        assert await box.keep.approvals() == []
        [call] = await box.keep.outputs("flow")
        assert (call.status, call.params) == ("failed", '{"text":"one"}')
        assert await box.statuses("flow", "in") == {"one": "skipped"}
        reason = "no answer in time, asked 3 times"
        assert (await box.last_run("flow", "file")).output_state == f'{{"status":"skipped","reason":"{reason}"}}'
        [said] = await box.keep.attention()
        assert (said.kind, reason in said.words) == ("expired", True)
        assert fake.calls == []


async def test_an_approved_call_whose_outcome_is_unknown_is_never_made_again() -> None:
    fake = Fake()
    async with world(fake) as box:
        approval_id = await asked(box, "one")
        fake.plan("add", lose_the_answer)
        await box.keep.approve(approval_id, by="ann")
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "reserved"}
        assert (await box.keep.runs("flow"))[0].status == "paused:reconciliation"
        [needs] = await box.keep.attention()
        assert needs.kind == "unknown"


async def test_no_grants_means_none_even_where_everything_is_accepted() -> None:
    async with world(Fake(), grants="all") as box:
        await box.keep.deploy(HIDDEN, grants=[])
        assert await box.keep.grants("flow") == []


async def test_a_permission_that_no_method_asks_for_is_a_slip_of_the_pen() -> None:
    async with world(Fake(), grants="explicit") as box:
        with pytest.raises(ValueError, match=r"fake\.ad'"):
            await box.keep.deploy(HIDDEN, grants=["fake.ad"])
        assert await box.keep.workflows() == []


@pytest.mark.parametrize("wrong", [{"policy": "aks"}, {"per_run": 0}, {"per_day": -1}])
async def test_a_grant_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="grant"):
        Grant("fake.add", **wrong)


async def test_another_permission_can_be_granted_while_a_call_waits_for_approval() -> None:
    async with world(Fake()) as box:
        await asked(box, "one")
        await box.keep.grant("flow", "fake.search", by="ann")
        assert len(await box.keep.approvals()) == 1


async def test_archiving_refuses_what_waits_for_approval_and_who_approves_it_later_is_told() -> None:
    fake = Fake()
    async with world(fake) as box:
        approval_id = await asked(box, "one")
        await box.keep.archive("flow", by="bob")
        assert (await box.keep.approvals(), await box.keep.attention()) == ([], [])
        with pytest.raises(Rejected, match="already rejected, by bob: the workflow was archived"):
            await box.keep.approve(approval_id, by="ann")
        assert fake.calls == []
        assert await box.statuses("flow", "in") == {"one": "pending"}


async def test_going_back_to_the_running_script_after_a_refused_proposal_is_no_new_version() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(PLAIN)
        await box.keep.deploy(PLAIN + "\n", workflow="flow")
        await box.keep.rollback("flow", "1.0")
        assert (await box.keep.deploy(PLAIN)).version == "1.0"
