"""`on_unknown="park"`: a doubt holds what it is about, and the rest of the workflow goes on."""

from typing import Any

import pytest

from keep_actors import DeployRefused, Keep, Policy
from keep_actors.policy import Backoff
from keep_storage import invariants
from keep_storage.model import MutationStatus, RunStatus
from tests.runtime.fakes import Fake, applies_and_raises, raises
from tests.runtime.world import MINUTE, TAKE, TimedBox, left_in, script, world

pytestmark = pytest.mark.anyio

PARKS = Policy(on_unknown="park")


def filing(call: str, ordering: str = "") -> str:
    """Files each event with one call; `next` tells that it did."""
    plain = script(
        prepare=TAKE,
        mutate=f"await c.fake.{call}({{ text: prepared.data.id }});",
        next_="if (prepared.data) await c.publish('out', { messageId: prepared.data.id, title: result.status });",
    )
    return plain.replace('subscribe: ["in"],', f'subscribe: ["in"], {ordering}')


async def publish(box: TimedBox, **events: Any) -> None:
    for message_id, customer in events.items():
        await box.publish("flow", "in", message_id, payload={"customer": {"id": customer}})


async def parked(keep: Keep) -> list[str]:
    return [each.mutation_id for each in await keep.unknowns() if each.is_parked]


async def test_the_rest_of_the_workflow_goes_on_while_an_outcome_is_unknown() -> None:
    fake = Fake()
    fake.plan("add", applies_and_raises(OSError("gone")))
    async with world(fake, policy=PARKS) as box:
        await box.keep.deploy(filing("add"))
        await publish(box, m1=1, m2=1, m3=2)
        await box.settle()
        assert await box.statuses("flow", "in") == {"m1": "reserved", "m2": "consumed", "m3": "consumed"}
        assert (await box.keep.workflow("flow")).error == ""
        [question] = await box.keep.unknowns()
        assert question.is_parked
        [need] = await box.keep.attention()
        assert (need.kind, need.about) == ("unknown", question.mutation_id)

        await box.keep.resolve(question.mutation_id, "happened", by="ann", result={"id": "add_1", "text": "m1"})
        await box.settle()
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
        assert await box.keep.attention() == []
    assert fake.done_twice == []
    assert sorted(fake.texts) == ["m1", "m2", "m3"]


async def test_events_of_the_same_ordering_key_wait_in_their_order() -> None:
    fake = Fake()
    fake.plan("add", raises(OSError("gone")))
    async with world(fake, policy=PARKS) as box:
        await box.keep.deploy(filing("add", 'orderingKey: "customer.id",'))
        await publish(box, m1=1, m2=1, m3=2, m4="x")
        await box.settle()
        waiting = {"m1": "reserved", "m2": "pending", "m3": "consumed", "m4": "consumed"}
        assert await box.statuses("flow", "in") == waiting
        await box.advance(MINUTE)
        assert await box.statuses("flow", "in") == waiting
        [mutation_id] = await parked(box.keep)
        await box.keep.resolve(mutation_id, "did_not_happen", by="ann")
        await box.settle()
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
    assert fake.texts == ["m3", "m4", "m1", "m2"]


async def test_an_event_that_is_given_a_held_key_while_it_is_prepared_waits_and_the_script_is_not_blamed() -> None:
    fake = Fake()
    fake.plan("add", raises(OSError("gone")))
    async with world(fake, policy=PARKS) as box:
        looks = filing("add", 'orderingKey: "customer.id",').replace(
            "if (!first)", "await c.fake.search({}); if (!first)"
        )
        await box.keep.deploy(looks)
        await publish(box, m1=1)
        await box.settle()
        search = fake.hang("search")
        await publish(box, m2=2)
        await search.reached.wait()
        await publish(box, m2=1)
        search.release()
        await box.settle()
        assert await box.statuses("flow", "in") == {"m1": "reserved", "m2": "pending"}
        found = await box.keep.workflow("flow")
        assert (found.maintenance, found.error) == (False, "")
        [mutation_id] = await parked(box.keep)
        await box.keep.resolve(mutation_id, "did_not_happen", by="ann")
        await box.advance(MINUTE)
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
    assert fake.texts == ["m1", "m2"]


@pytest.mark.parametrize("verdict", ["happened", "did_not_happen", "skip"])
async def test_a_verdict_on_a_parked_run_is_the_end_of_it(verdict: Any) -> None:
    fake = Fake()
    fake.plan("add", raises(OSError("gone")))
    async with world(fake, policy=PARKS) as box:
        await box.keep.deploy(filing("add", 'orderingKey: "customer.id",'))
        await publish(box, m1=1, m2=1)
        await box.settle()
        [mutation_id] = await parked(box.keep)
        await box.keep.resolve(mutation_id, verdict, by="ann", result={"id": "x", "text": "m1"})
        await box.settle()
        first = {"happened": "consumed", "did_not_happen": "consumed", "skip": "skipped"}[verdict]
        assert await box.statuses("flow", "in") == {"m1": first, "m2": "consumed"}
        told = {event.message_id: event.title for event in await box.keep.events("flow", "out")}
    assert told == {"m1": "skipped" if verdict == "skip" else "applied", "m2": "applied"}


async def test_the_connector_is_asked_beside_the_runs_that_go_on() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(OSError("gone")))
    fake.plan("reconcile", raises(OSError("still gone")))
    async with world(fake, policy=PARKS) as box:
        await box.keep.deploy(filing("put"))
        await publish(box, m1=1, m2=1)
        await box.settle()
        assert await box.statuses("flow", "in") == {"m1": "reserved", "m2": "consumed"}
        await box.advance(MINUTE)
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
    assert fake.texts == ["m1", "m2"]


async def test_when_too_much_is_parked_the_next_doubt_stops_the_workflow() -> None:
    fake = Fake()
    fake.plan("add", *[raises(OSError("gone"))] * 3)
    async with world(fake, policy=Policy(on_unknown="park", parked_max=2)) as box:
        await box.keep.deploy(filing("add"))
        await publish(box, m1=1, m2=1, m3=1, m4=1)
        await box.settle()
        assert await box.statuses("flow", "in") == {
            "m1": "reserved",
            "m2": "reserved",
            "m3": "reserved",
            "m4": "pending",
        }
        assert len(await parked(box.keep)) == 2
        assert (await box.keep.workflow("flow")).error
        for question in await box.keep.unknowns():
            await box.keep.resolve(question.mutation_id, "did_not_happen", by="ann")
            await box.settle()
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
    assert fake.done_twice == []


async def test_what_is_parked_survives_a_restart(tmp_path: Any) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    fake.plan("add", applies_and_raises(OSError("gone")))
    async with world(fake, policy=PARKS, path=path) as box:
        await box.keep.deploy(filing("add", 'orderingKey: "customer.id",'))
        await publish(box, m1=1)
        await box.settle()
    async with world(fake, path=path) as box:
        await publish(box, m2=1, m3=2)
        await box.settle()
        assert await box.statuses("flow", "in") == {"m1": "reserved", "m2": "pending", "m3": "consumed"}
        [mutation_id] = await parked(box.keep)
        await box.keep.resolve(mutation_id, "happened", by="ann", result={"id": "add_1", "text": "m1"})
        await box.settle()
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
        [stopped] = [run for run in await box.keep.runs("flow") if run.status is RunStatus.PAUSED_RECONCILIATION]
        assert not stopped.parked
        assert (await box.keep.explain(stopped.id)).attempted[0].status is MutationStatus.APPLIED
    assert fake.texts == ["m1", "m3", "m2"]
    with left_in(path) as q:
        assert not invariants.check(q, deep=True)


async def test_a_job_stops_its_workflow_whatever_the_policy() -> None:
    fake = Fake()
    fake.plan("add", raises(OSError("gone")))
    job = script(job="await c.withItem('i1', 'Item', async (i) => { await i.fake.add({ text: 'x' }); });")
    async with world(fake, policy=PARKS) as box:
        await box.keep.deploy(job)
        await box.settle()
        assert (await box.keep.workflow("flow")).error
        assert await parked(box.keep) == []


async def test_a_bad_ordering_key_is_refused_with_words() -> None:
    async with world(Fake()) as box:
        with pytest.raises(DeployRefused, match=r"orderingKey: \"customer.id\""):
            await box.keep.deploy(filing("add", "orderingKey: 7,"))


def test_a_policy_parks_at_least_one_run() -> None:
    with pytest.raises(ValueError, match="parked_max must be >= 1"):
        Policy(on_unknown="park", parked_max=0, retry=Backoff())
