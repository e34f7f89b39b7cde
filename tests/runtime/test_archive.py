"""An archive leaves no question behind, forgets nothing that may have happened, and can be taken back."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keep_actors import Backoff, Grant, Policy, Reason, Rejected
from keep_actors.connectors import AuthRequired, Retry, Transient, Uncertain
from keep_actors.host.fault_points import Point
from keep_actors.testing import Box
from tests.runtime.fakes import Fake, applies_and_raises, raises
from tests.runtime.world import TAKE, script

pytestmark = pytest.mark.anyio

STEADY = Policy(retry=Backoff(jitter=0), reconcile=Backoff(jitter=0, cap_ms=3_600_000, attempts_max=3))

ASKS = [Grant("fake.add", policy="ask")]


def consumer(method: str = "add") -> str:
    return script(
        prepare=TAKE,
        mutate=f"await c.fake.{method}({{ text: prepared.data.id }});",
        next_='if (prepared.data) await c.publish("out", { messageId: prepared.data.id, title: result.status });',
    )


def job(method: str = "add") -> str:
    return script(
        job=f"""
          for (const id of ["a", "b"]) await c.withItem(id, `Item ${{id}}`, async () => {{
            if (!c.item.isDone) await c.fake.{method}({{ text: id }});
          }});
        """
    )


KINDS = {"consumer": consumer, "job": job}


async def deployed(box: Box, source: str, **options: Any) -> str:
    """Deploy it, with one event for a consumer; returns its id."""
    workflow_id = (await box.deploy(source, **options)).workflow_id
    if "consumers" in source:
        await box.publish(workflow_id, "in", "a")
    await box.until_idle()
    return workflow_id


async def attention(box: Box) -> list[str]:
    return [str(each.kind) for each in await box.keep.attention()]


async def back(box: Box, workflow_id: str) -> None:
    await box.keep.unarchive(workflow_id, by="ann")
    await box.keep.resume(workflow_id, by="ann")
    await box.until_idle()


RESULT = {"id": "add_1", "text": "a"}


# A call in flight, or unknown.


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_in_flight_that_happens_is_written_down_and_nothing_is_asked(kind: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = fake.hang("add")
        workflow_id = await deployed(box, KINDS[kind]())
        await hang.reached.wait()
        await box.keep.archive("flow", by="ann")
        [needs] = await box.keep.attention()
        assert (needs.kind, needs.can_do.startswith("Wait: the call is being made.")) == ("unknown", True)
        hang.release()
        await box.until_idle()
        box.ledger.has("fake.add", "applied")
        assert (fake.texts, await attention(box)) == (["a"], [])
        await back(box, workflow_id)
        assert fake.texts == (["a"] if kind == "consumer" else ["a", "b"])
        box.check_invariants()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_in_flight_when_the_process_dies_is_still_asked_about(kind: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = fake.hang("add")
        workflow_id = await deployed(box, KINDS[kind]())
        await hang.reached.wait()
        await box.keep.archive("flow", by="ann")
        await box.crash()
        await box.reopen()
        await box.until_idle()
        [needs] = await box.keep.attention()
        assert (needs.kind, needs.workflow_id) == ("unknown", workflow_id)
        [doubt] = await box.keep.unknowns()
        assert needs.about == doubt.mutation_id
        await box.keep.resolve(doubt.mutation_id, "did_not_happen", by="ann")
        await box.until_idle()
        assert (fake.texts, await attention(box), await box.keep.unknowns()) == ([], [], [])
        await back(box, workflow_id)
        assert fake.texts == (["a"] if kind == "consumer" else ["a", "b"])


@pytest.mark.parametrize("policy", ["pause", "park"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verdict", ["happened", "did_not_happen", "skip"])
async def test_a_doubt_that_only_a_person_can_settle_is_in_attention_until_somebody_has(
    kind: str, verdict: Any, policy: Any
) -> None:
    fake = Fake()
    fake.plan("add", raises(Uncertain("lost")))
    async with Box.open(fake, policy=Policy(on_unknown=policy)) as box:
        workflow_id = await deployed(box, KINDS[kind]())
        await box.keep.archive("flow", by="ann")
        await box.until_idle()
        assert await attention(box) == ["unknown"]
        await box.crash()
        await box.reopen()
        await box.advance(days=30)
        assert await attention(box) == ["unknown"]
        [doubt] = await box.keep.unknowns()
        result = RESULT if verdict == "happened" else None
        await box.keep.resolve(doubt.mutation_id, verdict, by="ann", result=result)
        await box.until_idle()
        assert (await attention(box), await box.keep.unknowns(), fake.texts) == ([], [], [])
        await back(box, workflow_id)
        first = ["a"] if verdict == "did_not_happen" else []
        assert fake.texts == first + ([] if kind == "consumer" else ["b"])
        if kind == "consumer":
            assert await box.statuses("flow", "in") == {"a": "skipped" if verdict == "skip" else "consumed"}
        box.check_invariants()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_doubt_that_the_connector_can_settle_is_looked_into_and_settled(kind: str) -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(Uncertain("lost")))
    fake.plan("reconcile", says(Retry("not yet")), says(Retry("not yet")))
    async with Box.open(fake, policy=STEADY) as box:
        workflow_id = await deployed(box, KINDS[kind]("put"))
        await box.keep.archive("flow", by="ann")
        assert await attention(box) == ["unknown"]
        await box.advance(hours=3)
        box.ledger.has("fake.put", "applied")
        assert (await attention(box), fake.texts) == ([], ["a"])
        await back(box, workflow_id)
        assert fake.texts == (["a"] if kind == "consumer" else ["a", "b"])


def says(verdict: Retry) -> Callable[[Any], Awaitable[Any]]:
    async def step(_: Any) -> Any:
        return verdict

    return step


async def test_a_doubt_that_the_connector_cannot_settle_becomes_a_persons() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(Uncertain("lost")))
    fake.plan("reconcile", *[says(Retry("not yet"))] * 3)
    async with Box.open(fake, policy=STEADY) as box:
        await deployed(box, consumer("put"))
        await box.keep.archive("flow", by="ann")
        await box.advance(days=2)
        [doubt] = await box.keep.unknowns()
        assert (doubt.status, await attention(box)) == ("indeterminate", ["unknown"])
        await box.keep.resolve(doubt.mutation_id, "try_again", by="ann")
        await box.until_idle()
        box.ledger.has("fake.put", "applied")
        assert await attention(box) == []


async def test_a_call_that_fails_while_its_workflow_is_archived_leaves_no_error_to_put_right() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        hang = fake.hang("add", raises(AuthRequired("sign in")))
        await deployed(box, consumer())
        await hang.reached.wait()
        await box.keep.archive("flow", by="ann")
        hang.release()
        await box.until_idle()
        assert (await attention(box), await box.statuses("flow", "in")) == ([], {"a": "pending"})
        assert (await box.keep.workflow("flow")).error == ""


@pytest.mark.parametrize("step", [raises(AuthRequired("sign in")), raises(Transient("503"))])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_approved_call_that_fails_while_its_workflow_is_archived_leaves_nothing(kind: str, step: Any) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, KINDS[kind](), grants=ASKS)
        hang = fake.hang("add", step)
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="ann")
        await hang.reached.wait()
        await box.keep.archive("flow", by="ann")
        hang.release()
        await box.until_idle()
        box.ledger.has("fake.add", "failed")
        assert (await attention(box), await box.keep.unknowns()) == ([], [])


# Open approvals.


@pytest.mark.parametrize("kind", KINDS)
async def test_an_open_approval_is_rejected_by_the_archive(kind: str) -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        workflow_id = await deployed(box, KINDS[kind](), grants=ASKS)
        [question] = await box.keep.approvals()
        assert await attention(box) == ["approval"]
        await box.keep.archive("flow", by="ann")
        assert (await box.keep.approvals(), await attention(box)) == ([], [])
        [output] = await box.keep.outputs("flow")
        assert (output.status, fake.calls) == ("failed", [])
        for answer in (box.keep.approve, box.keep.reject):
            with pytest.raises(Rejected, match=r"already rejected, by ann: the workflow was archived") as refused:
                await answer(question.approval_id, by="bob")
            assert refused.value.reason is Reason.APPROVAL_ALREADY_DECIDED
        await box.advance(days=60)
        assert (await attention(box), fake.calls) == ([], [])
        await back(box, workflow_id)
        [again] = await box.keep.approvals()
        assert (again.params, again.approval_id != question.approval_id) == (question.params, True)
        await box.keep.approve(again.approval_id, by="ann")
        await box.until_idle()
        assert fake.texts == ["a"]
        box.check_invariants()


async def test_all_open_approvals_are_rejected_and_every_event_is_released() -> None:
    fake = Fake()
    async with Box.open(fake, policy=Policy(parked_max=2)) as box:
        workflow_id = await deployed(box, consumer(), grants=ASKS)
        await box.publish("flow", "in", "b", "c", "d")
        await box.until_idle()
        # Two are parked, and the third stops the workflow.
        assert len(await box.keep.approvals()) == 3
        await box.keep.archive("flow", by="ann")
        assert set((await box.statuses("flow", "in")).values()) == {"pending"}
        workflow = await box.keep.workflow("flow")
        assert (workflow.error, workflow.pending_retry_run_id, await attention(box)) == ("", None, [])
        box.check_invariants()
        await back(box, workflow_id)
        assert len(await box.keep.approvals()) == 3


async def test_an_archive_while_a_run_is_about_to_ask_leaves_no_question() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        source = consumer().replace("const [first]", "await c.fake.search({}); const [first]")
        await box.deploy(source, grants=[*ASKS, "fake.search"])
        hang = fake.hang("search")
        await box.publish("flow", "in", "a")
        await hang.reached.wait()
        await box.keep.archive("flow", by="ann")
        hang.release()
        await box.until_idle()
        assert (await box.keep.approvals(), await attention(box)) == ([], [])
        assert await box.statuses("flow", "in") == {"a": "pending"}


async def test_an_approval_that_was_given_before_the_archive_is_a_call_in_flight() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        workflow_id = await deployed(box, consumer(), grants=ASKS)
        hang = fake.hang("add")
        [question] = await box.keep.approvals()
        await box.keep.approve(question.approval_id, by="ann")
        await hang.reached.wait()
        await box.keep.archive("flow", by="ann")
        [needs] = await box.keep.attention()
        assert (needs.kind, needs.can_do.startswith("Wait: the call is being made.")) == ("unknown", True)
        hang.release()
        await box.until_idle()
        box.ledger.has("fake.add", "applied")
        assert await attention(box) == []
        await back(box, workflow_id)
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


async def test_an_approved_call_that_the_process_did_not_survive_is_asked_about_after_the_archive() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, consumer(), grants=ASKS)
        [question] = await box.keep.approvals()
        box.crash_at(Point.ANSWERED, "fake.add")
        await box.keep.approve(question.approval_id, by="ann")
        await box.crashed()
        await box.reopen()
        await box.keep.archive("flow", by="ann")
        await box.until_idle()
        assert await attention(box) == ["unknown"]
        [doubt] = await box.keep.unknowns()
        await box.keep.resolve(doubt.mutation_id, "happened", by="ann", result=RESULT)
        assert await attention(box) == []


# Nothing is listed for ever.


@pytest.mark.parametrize("state", ["error", "maintenance", "failing", "stale", "expired"])
async def test_what_waited_for_a_person_is_listed_no_more(state: str) -> None:
    fake = Fake()
    policy = Policy(approval_expires_ms=60_000, approval_reminders=0)
    async with Box.open(fake, policy=policy) as box:
        source = consumer() if state != "maintenance" else consumer().replace(TAKE.strip(), 'throw new Error("no");')
        if state == "failing":
            fake.plan("add", *[raises(Transient("503"))] * 100)
        if state == "error":
            fake.plan("add", raises(AuthRequired("sign in")))
        if state == "stale":
            source = script(prepare="return { reservations: [] };")
        workflow_id = await deployed(box, source, grants=ASKS if state == "expired" else None)
        await box.advance(**({"days": 8} if state == "stale" else {"hours": 2}))
        assert await attention(box) == [state]
        await box.keep.archive(workflow_id, by="ann")
        await box.until_idle()
        assert await attention(box) == []


# Bringing it back.


async def test_a_workflow_that_is_brought_back_is_paused_and_goes_on_where_it_was() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        workflow_id = await deployed(box, consumer())
        await box.keep.pause("flow")
        await box.publish("flow", "in", "b")
        await box.keep.archive("flow", by="ann")
        assert (await box.keep.unarchive("flow", by="ann")).status == "paused"
        await box.advance(days=1)
        assert fake.texts == ["a"]
        await box.keep.resume(workflow_id)
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a", "b"], {"a": "consumed", "b": "consumed"})


async def test_a_retry_of_next_that_was_owed_is_paid_when_it_is_brought_back() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        broken = consumer().replace("if (prepared.data)", 'throw new Error("no"); if (prepared.data)')
        workflow_id = await deployed(box, broken)
        await box.keep.archive("flow", by="ann")
        assert await attention(box) == []
        await box.keep.unarchive(workflow_id, by="ann")
        assert await attention(box) == ["maintenance"]
        await box.deploy(consumer(), workflow=workflow_id)
        await box.keep.resume(workflow_id)
        await box.until_idle()
        assert (fake.texts, await box.statuses("flow", "in")) == (["a"], {"a": "consumed"})


@pytest.mark.parametrize("name", ["flow", "id"])
async def test_it_is_not_brought_back_while_another_one_has_its_name(name: str) -> None:
    async with Box.open(Fake()) as box:
        first = await deployed(box, consumer())
        await box.keep.archive("flow", by="ann")
        second = await deployed(box, consumer("put"))
        assert second != first
        with pytest.raises(Rejected, match=r"Another workflow .* is named 'flow' by now; archive that one first") as no:
            await box.keep.unarchive(first if name == "id" else "flow", by="ann")
        assert no.value.reason is Reason.WORKFLOW_NAME_TAKEN
        await box.keep.archive(second, by="ann")
        assert (await box.keep.unarchive(first, by="ann")).id == first
        assert (await box.keep.workflow("flow")).id == first


async def test_who_is_not_archived_is_not_brought_back() -> None:
    async with Box.open(Fake()) as box:
        await deployed(box, consumer())
        with pytest.raises(Rejected, match="is active, not archived"):
            await box.keep.unarchive("flow", by="ann")


# What is refused meanwhile.


@pytest.mark.parametrize("name", ["flow", "id"])
@pytest.mark.parametrize("what", ["publish", "deploy", "deploy the same", "rollback", "grant", "pause", "resume"])
async def test_nothing_is_added_to_an_archived_workflow_by_name_or_by_id(name: str, what: str) -> None:
    async with Box.open(Fake()) as box:
        workflow_id = await deployed(box, consumer())
        await box.keep.archive("flow", by="ann")
        named = workflow_id if name == "id" else "flow"
        actions: dict[str, Callable[[], Awaitable[Any]]] = {
            "publish": lambda: box.publish(named, "in", "b"),
            "deploy": lambda: box.deploy(consumer("put"), workflow=named),
            "deploy the same": lambda: box.deploy(consumer(), workflow=named),
            "rollback": lambda: box.keep.rollback(named, "1.0"),
            "grant": lambda: box.keep.grant(named, "fake.put", by="ann"),
            "pause": lambda: box.keep.pause(named),
            "resume": lambda: box.keep.resume(named),
        }
        before = len(box.journal)
        with pytest.raises(Rejected, match=r"Workflow 'flow' \(wf_\w+\) is archived.*[Uu]narchive it first") as refused:
            await actions[what]()
        assert refused.value.reason is Reason.WORKFLOW_STATUS_REFUSED
        assert len(box.journal) == before
        assert [each.id for each in await box.keep.workflows()] == [workflow_id]


async def test_a_script_of_the_same_name_is_a_new_workflow_and_the_archived_one_stays_as_it_is() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        first = await deployed(box, consumer())
        await box.keep.archive("flow", by="ann")
        again = await box.deploy(consumer())
        assert (again.version, again.workflow_id != first) == ("1.0", True)
        await box.publish("flow", "in", "b")
        await box.until_idle()
        assert fake.texts == ["a", "b"]
        assert await box.statuses(first, "in") == {"a": "consumed"}
        assert await box.statuses(again.workflow_id, "in") == {"b": "consumed"}
