"""Questions to a person: each holds only what it is about, a no is a no, and none comes back that was answered."""

from typing import Any

import pytest

from keep_actors import Grant, Policy, Reason, Rejected
from keep_actors.connectors import Transient, Uncertain
from keep_actors.host.fault_points import Point
from keep_actors.testing import Box
from tests.runtime.fakes import Fake, applies_and_raises, raises
from tests.runtime.world import TAKE, script

pytestmark = pytest.mark.anyio

ASKS = [Grant("fake.add", policy="ask")]

FIVE = ("a", "b", "c", "d", "e")

TELLS = 'if (prepared.data) await c.publish("out", { messageId: prepared.data.id, title: JSON.stringify(result) });'


def filing(ordering: str = "", more: str = "") -> str:
    """Files each event with a call that needs an answer; `next` tells what became of it."""
    plain = script(prepare=TAKE, mutate="await c.fake.add({ text: prepared.data.id });", next_=TELLS)
    return plain.replace('subscribe: ["in"],', f'subscribe: ["in"], {ordering}').replace(
        "file: Keep", f"{more} file: Keep"
    )


def sweep(*ids: str) -> str:
    return script(
        job=f"""
          for (const id of {list(ids)}) await c.withItem(id, `Item ${{id}}`, async () => {{
            if (!c.item.isDone) await c.fake.add({{ text: id }});
          }});
        """
    )


async def asked(box: Box, *message_ids: str, source: str = "", **payload: Any) -> dict[str, str]:
    """Deploy it, publish the events, and return the questions by the text that would be sent."""
    await box.deploy(source or filing(), grants=[*ASKS, "fake.put", "fake.search"])
    await box.publish("flow", "in", *message_ids, payload=payload or None)
    await box.until_idle()
    return await questions(box)


async def questions(box: Box) -> dict[str, str]:
    await box.until_idle()
    return {each.params.split('"')[3]: each.approval_id for each in await box.keep.approvals()}


async def told(box: Box) -> dict[str, str]:
    """What `next` was given, by event."""
    return {each.message_id: each.title for each in await box.keep.events("flow", "out")}


# A no is a no.


async def test_a_refused_event_is_skipped_and_next_is_told_the_reason() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, "a")
        await box.keep.reject(found["a"], by="ann", why="wrong amount")
        await box.until_idle()
        assert (fake.calls, await box.statuses("flow", "in")) == ([], {"a": "skipped"})
        assert await told(box) == {"a": '{"status":"skipped","reason":"wrong amount"}'}
        assert (await box.keep.approvals(), await box.keep.attention()) == ([], [])
        [output] = await box.keep.outputs("flow")
        assert output.status == "failed"
        box.check_invariants()


async def test_a_question_that_was_answered_with_no_does_not_come_back() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, "a")
        await box.keep.reject(found["a"], by="ann")
        await box.crash()
        await box.reopen()
        await box.publish("flow", "in", "a")
        await box.advance(days=30)
        assert (await questions(box), fake.calls) == ({}, [])
        assert await box.statuses("flow", "in") == {"a": "skipped"}
        # Another event is another question.
        await box.publish("flow", "in", "a2")
        assert list(await questions(box)) == ["a2"]


async def test_a_no_is_a_no_though_the_process_dies_before_next_has_run() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, "a")
        box.crash_at(Point.INVOKE)
        await box.keep.reject(found["a"], by="ann", why="no")
        await box.crashed()
        await box.reopen()
        assert (await questions(box), fake.calls) == ({}, [])
        assert await told(box) == {"a": '{"status":"skipped","reason":"no"}'}


async def test_a_refused_item_is_skipped_and_the_job_goes_on_with_the_others() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep("a", "b"), grants=ASKS)
        found = await questions(box)
        await box.keep.reject(found["a"], by="ann", why="wrong amount")
        found = await questions(box)
        assert list(found) == ["b"]
        await box.keep.approve(found["b"], by="ann")
        await box.advance(days=3)
        assert {each.item_id: str(each.state) for each in await box.keep.items("flow")} == {"a": "skipped", "b": "done"}
        assert (fake.texts, await questions(box)) == (["b"], {})


async def test_a_refused_item_says_why_also_after_the_job_has_come_by_again() -> None:
    async with Box.open(Fake()) as box:
        await box.deploy(sweep("a"), grants=ASKS)
        await box.keep.reject((await questions(box))["a"], by="ann", why="wrong amount")
        await box.advance(days=3)
        [item] = await box.keep.items("flow")
        assert (str(item.state), item.error) == ("skipped", "wrong amount")
        await box.keep.reprocess_item("flow", "a", by="ann")
        [item] = await box.keep.items("flow")
        assert (str(item.state), item.error) == ("processing", "")


async def test_who_refuses_and_wants_it_prepared_anew_is_asked_again_with_what_is_true_then() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, "a")
        await box.keep.reject(found["a"], by="ann", why="the amount was wrong", retry=True)
        again = await questions(box)
        assert (list(again), again["a"] != found["a"]) == (["a"], True)
        runs = await box.keep.runs("flow")
        assert [(run.handler, run.retry_of) for run in runs] == [("file", None), ("file", None)]
        await box.keep.approve(again["a"], by="ann")
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


async def test_who_refuses_an_item_and_wants_it_prepared_anew_is_asked_again() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(sweep("a"), grants=ASKS)
        found = await questions(box)
        await box.keep.reject(found["a"], by="ann", retry=True)
        again = await questions(box)
        assert (list(again), again["a"] != found["a"]) == (["a"], True)
        await box.keep.approve(again["a"], by="ann")
        await box.until_idle()
        assert (fake.texts, len({*fake.keys})) == (["a"], 1)


# Nobody answers.

DAY_MS = 86_400_000


@pytest.mark.parametrize("reminders", [0, 1, 2])
@pytest.mark.parametrize("kind", ["consumer", "job"])
async def test_a_question_is_asked_again_so_often_and_then_it_is_a_no_that_attention_says(
    kind: str, reminders: int
) -> None:
    fake = Fake()
    async with Box.open(fake, policy=Policy(approval_expires_ms=DAY_MS, approval_reminders=reminders)) as box:
        if kind == "consumer":
            await asked(box, "a")
        else:
            await box.deploy(sweep("a"), grants=ASKS)
        seen = {(await questions(box))["a"]}
        for _ in range(reminders):
            await box.advance(days=1)
            assert [str(each.kind) for each in await box.keep.attention()] == ["approval"]
            seen.add((await questions(box))["a"])
        assert len(seen) == reminders + 1
        await box.advance(days=1)
        assert (await questions(box), fake.calls) == ({}, [])
        [needs] = await box.keep.attention()
        assert (needs.kind, needs.workflow) == ("expired", "flow")
        times = "once" if reminders == 0 else f"{reminders + 1} times"
        assert f"no answer in time, asked {times}" in needs.words
        if kind == "consumer":
            assert await box.statuses("flow", "in") == {"a": "skipped"}
            why = f"no answer in time, asked {times}"
            assert await told(box) == {"a": f'{{"status":"skipped","reason":"{why}"}}'}
        else:
            assert [str(each.state) for each in await box.keep.items("flow")] == ["skipped"]
        await box.advance(days=8)
        assert ([str(each.kind) for each in await box.keep.attention()], await questions(box)) == ([], {})


async def test_by_default_a_question_is_asked_three_times_a_week_each() -> None:
    async with Box.open(Fake()) as box:
        await asked(box, "a")
        await box.advance(days=20)
        assert list(await questions(box)) == ["a"]
        await box.advance(days=2)
        assert (await questions(box), await box.statuses("flow", "in")) == ({}, {"a": "skipped"})


async def test_reminders_are_counted_over_restarts() -> None:
    async with Box.open(Fake(), policy=Policy(approval_expires_ms=DAY_MS, approval_reminders=1)) as box:
        await asked(box, "a")
        for _ in range(2):
            await box.crash()
            await box.advance(days=1)
            await box.reopen()
            await box.until_idle()
        assert (await questions(box), await box.statuses("flow", "in")) == ({}, {"a": "skipped"})


async def test_an_answer_to_a_question_that_was_asked_again_is_refused_and_the_new_one_is_answered() -> None:
    fake = Fake()
    async with Box.open(fake, policy=Policy(approval_expires_ms=DAY_MS)) as box:
        old = (await asked(box, "a"))["a"]
        await box.advance(days=1)
        with pytest.raises(Rejected, match="already expired, by policy: not answered in time; asked again"):
            await box.keep.approve(old, by="ann")
        await box.keep.approve((await questions(box))["a"], by="ann")
        await box.until_idle()
        assert fake.texts == ["a"]


# A question blocks only its event.


async def test_five_events_are_five_questions_at_once_and_the_rest_of_the_workflow_works() -> None:
    fake = Fake()
    other = """
      other: Keep.consumer({ subscribe: ["more"],
        prepare: async (ctx) => {
          const [first] = await ctx.peek("more");
          return first ? { reservations: [{ topic: "more", ids: [first.messageId] }], data: first.messageId }
            : { reservations: [] };
        },
        mutate: async (ctx, prepared) => { await hidden(ctx).fake.put({ text: prepared.data }); } }),
    """
    source = filing(more=other).replace('"in": {}', '"in": {}, "more": {}')
    async with Box.open(fake) as box:
        found = await asked(box, *FIVE, source=source)
        assert tuple(found) == FIVE
        assert set((await box.statuses("flow", "in")).values()) == {"reserved"}
        workflow = await box.keep.workflow("flow")
        assert (workflow.error, workflow.pending_retry_run_id) == ("", None)
        assert [str(each.kind) for each in await box.keep.attention()] == ["approval"] * 5
        await box.publish("flow", "more", "m1", "m2")
        await box.until_idle()
        assert fake.texts == ["m1", "m2"]
        box.check_invariants()


@pytest.mark.parametrize("order", ["abcde", "edcba", "cebad"])
async def test_what_is_answered_goes_on_at_once_in_any_order(order: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, *FIVE)
        for number, each in enumerate(order, 1):
            await box.keep.approve(found[each], by="ann")
            await box.until_idle()
            assert fake.texts == list(order[:number])
            assert {key for key, status in (await box.statuses("flow", "in")).items() if status == "consumed"} == {
                *order[:number]
            }
            assert set(await told(box)) == {*order[:number]}
        assert await box.keep.attention() == []


async def test_a_doubt_or_a_failure_of_an_answered_call_leaves_the_other_questions_open() -> None:
    fake = Fake()
    async with Box.open(fake, policy=Policy(on_unknown="park")) as box:
        found = await asked(box, "a", "b", "c")
        fake.plan("add", applies_and_raises(Uncertain("lost")), raises(Transient("503")))
        await box.keep.approve(found["a"], by="ann")
        await box.keep.approve(found["b"], by="ann")
        again = await questions(box)
        assert set(again) == {"b", "c"}, "what did not happen is prepared and asked anew"
        assert again["c"] == found["c"]
        assert [doubt.params for doubt in await box.keep.unknowns()] == ['{"text":"a"}']
        await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert sorted(fake.texts) == ["a", "b", "c"]


async def test_events_with_the_same_ordering_key_are_asked_about_one_after_the_other() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await box.deploy(filing('orderingKey: "customer",'), grants=ASKS)
        for message_id, customer in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")]:
            await box.publish("flow", "in", message_id, payload={"customer": customer})
        found = await questions(box)
        assert set(found) == {"a1", "b1"}
        await box.keep.approve(found["a1"], by="ann")
        found = await questions(box)
        assert set(found) == {"a2", "b1"}
        await box.keep.reject(found["a2"], by="ann")
        found = await questions(box)
        assert set(found) == {"a3", "b1"}
        await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert (fake.texts[0], sorted(fake.texts)) == ("a1", ["a1", "a3", "b1"])


async def test_with_as_many_parked_as_may_be_the_next_question_stops_the_workflow_and_nothing_is_lost() -> None:
    fake = Fake()
    async with Box.open(fake, policy=Policy(parked_max=2)) as box:
        found = await asked(box, *FIVE)
        assert tuple(found) == ("a", "b", "c")
        workflow = await box.keep.workflow("flow")
        assert "Approval required: file wants to call fake.add" in workflow.error
        assert [str(each.kind) for each in await box.keep.attention()] == ["approval"] * 3
        # The parked ones are answered while the workflow stands still, and go on when it does.
        await box.keep.approve(found["a"], by="ann")
        await box.keep.reject(found["b"], by="ann")
        await box.until_idle()
        assert fake.texts == ["a"]
        await box.keep.approve(found["c"], by="ann")
        while more := await questions(box):
            await box.keep.approve(next(iter(more.values())), by="ann")
        assert fake.done_twice == []
        assert sorted(fake.texts) == ["a", "c", "d", "e"]
        assert await box.statuses("flow", "in") == {each: "skipped" if each == "b" else "consumed" for each in FIVE}
        assert (await box.keep.workflow("flow")).error == ""
        box.check_invariants()


async def test_a_job_that_asks_holds_itself_and_not_the_consumer_beside_it() -> None:
    fake = Fake()
    source = script(
        prepare=TAKE,
        mutate="await c.fake.put({ text: prepared.data.id });",
        job='await c.withItem("7", "Item", async () => { if (!c.item.isDone) await c.fake.add({ text: "job" }); });',
    )
    async with Box.open(fake) as box:
        found = await asked(box, "a", source=source)
        assert (list(found), fake.texts) == (["job"], ["a"])
        await box.advance(days=5)
        assert (await questions(box), len(await box.keep.runs("flow"))) == (found, 2), "the same question, asked once"
        await box.keep.approve(found["job"], by="ann")
        await box.until_idle()
        assert fake.texts == ["a", "job"]


async def test_questions_and_answers_outlive_the_process() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, *FIVE)
        await box.keep.approve(found["b"], by="ann")
        await box.keep.reject(found["c"], by="ann")
        await box.until_idle()
        await box.crash()
        await box.reopen()
        assert await questions(box) == {each: found[each] for each in "ade"}
        await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert (sorted(fake.texts), fake.done_twice) == (["a", "b", "d", "e"], [])
        assert await box.keep.attention() == []


@pytest.mark.parametrize("point", [Point.RECORDED, Point.ANSWERED])
async def test_an_approved_call_is_never_made_twice_whenever_the_process_dies(point: Point) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, "a", "b")
        box.crash_at(point, "fake.add")
        await box.keep.approve(found["a"], by="ann")
        await box.crashed()
        await box.reopen()
        await box.until_idle()
        [doubt] = await box.keep.unknowns()
        if fake.texts:
            result = {"id": "add_1", "text": "a"}
            await box.keep.resolve(doubt.mutation_id, "happened", by="ann", result=result)
        else:
            await box.keep.resolve(doubt.mutation_id, "did_not_happen", by="ann")
        await box.until_idle()
        await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert (sorted(fake.texts), fake.done_twice) == (["a", "b"], [])
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "consumed"}


async def test_a_question_is_answered_while_the_workflow_is_paused_and_next_waits() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        found = await asked(box, "a", "b")
        await box.keep.pause("flow")
        await box.keep.approve(found["a"], by="ann")
        await box.keep.reject(found["b"], by="ann")
        await box.until_idle()
        assert (fake.texts, await told(box)) == (["a"], {})
        await box.keep.resume("flow")
        await box.until_idle()
        assert set(await told(box)) == {"a", "b"}
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "skipped"}


# Several at once.


async def test_all_questions_are_approved_or_some_by_workflow_or_call() -> None:
    fake = Fake()
    both = [*ASKS, Grant("fake.put", policy="ask")]
    async with Box.open(fake) as box:
        for name, method in (("one", "add"), ("two", "add"), ("three", "put")):
            source = script(name=name, prepare=TAKE, mutate=f"await c.fake.{method}({{ text: prepared.data.id }});")
            await box.deploy(source, grants=both)
            await box.publish(name, "in", f"{name} 1", f"{name} 2")
        assert len(await questions(box)) == 6
        answered = await box.keep.approve_all(call="fake.put", by="ann")
        assert (len(answered.done), answered.refused) == (2, {})
        await box.until_idle()
        assert fake.texts == ["three 1", "three 2"]
        answered = await box.keep.reject_all("two", by="ann", why="not today")
        assert len(answered.done) == 2
        assert await questions(box) == {key: value for key, value in (await questions(box)).items() if key[:3] == "one"}
        assert (await box.keep.approve_all("two", by="ann")).done == []
        await box.keep.approve_all(by="ann")
        await box.until_idle()
        assert sorted(fake.texts) == ["one 1", "one 2", "three 1", "three 2"]
        assert await box.statuses("two", "in") == {"two 1": "skipped", "two 2": "skipped"}


async def test_a_grant_that_allows_approves_what_it_covers_if_that_is_wanted() -> None:
    fake = Fake()
    source = filing().replace("await c.fake.add", 'await c.fake[prepared.data.id < "c" ? "add" : "put"]')
    async with Box.open(fake) as box:
        await box.deploy(source, grants=[*ASKS, Grant("fake.put", policy="ask")])
        await box.publish("flow", "in", "a", "b", "c", "d")
        assert len(await questions(box)) == 4
        await box.keep.grant("flow", "fake.search", by="ann", approve=True)
        await box.keep.grant("flow", Grant("fake.add", policy="ask"), by="ann", approve=True)
        await box.keep.grant("flow", Grant("fake.add"), by="ann")
        assert len(await questions(box)) == 4
        await box.keep.grant("flow", "fake.add", by="ann", approve=True)
        assert (set(await questions(box)), sorted(fake.texts)) == ({"c", "d"}, ["a", "b"])


async def test_who_answers_an_unknown_question_is_told_so() -> None:
    async with Box.open(Fake()) as box:
        with pytest.raises(Rejected) as refused:
            await box.keep.approve("apr_0", by="ann")
        assert refused.value.reason is Reason.APPROVAL_NOT_FOUND
