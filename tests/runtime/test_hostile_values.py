"""Values that a script chooses to hurt those who read them later. None of them reaches the file or an actor."""

import time

import pytest

from keep_actors import DeployRefused
from keep_actors.testing import Box
from keep_actors.workflow.messages import Do
from keep_storage.operations import Publish, PublishEvents
from keep_storage.ordering import ordering_key

pytestmark = pytest.mark.anyio

ORDERED = """
export default Keep.workflow({
  name: "flow",
  topics: ["in"],
  producers: { poll: async (c) => { await c.publish("in", { title: "An event", payload: PAYLOAD }); } },
  consumers: {
    file: { subscribe: ["in"], orderingKey: "customer.id", async prepare(c) { return { reservations: [] } } },
  },
});
"""


async def test_a_number_that_nobody_can_hold_is_no_ordering_key() -> None:
    async with Box.open() as box:
        await box.deploy(ORDERED.replace("PAYLOAD", '{ customer: { id: JSON.rawJSON("1e400") } }'))
        await box.advance(minutes=1)
        # At first this crashed the actor of its workflow, again and again, until it was given up.
        assert (await box.keep.workflow("flow")).error == ""
        [failed] = [run for run in await box.keep.runs("flow") if run.error_message]
        assert "not a function" in failed.error_message
        assert await box.keep.events("flow", "in") == []


async def test_a_file_with_such_a_number_takes_a_script_that_orders_by_it() -> None:
    async with Box.open() as box:
        await box.deploy(ORDERED.replace("PAYLOAD", "1").replace('orderingKey: "customer.id", ', ""))
        # As an earlier version wrote it.
        workflow_id = await box.id_of("flow")
        event = Publish("evt_old", "in", "old", "An old event", '{"customer":{"id":1e400}}')
        await box.ask("flow", Do(PublishEvents(workflow_id, (event,))))
        await box.deploy(ORDERED.replace("PAYLOAD", "1"), workflow="flow")
        [old] = [each for each in await box.keep.events("flow", "in") if each.message_id == "old"]
        assert old.ordering_key is None
        assert (await box.keep.workflow("flow")).error == ""


def test_what_else_is_in_a_payload_costs_its_ordering_key_nothing() -> None:
    slow = ",".join(["5e-324"] * 150_000)
    deep = "[" * 50_000 + "]" * 50_000
    before = time.thread_time()
    # At first all of it was decoded, for more than a second, while everybody else waited.
    assert ordering_key(f'{{"more":[{slow}],"customer":{{"id":7,"more":[{slow}]}}}}', "customer.id") == "7"
    assert time.thread_time() - before < 0.25
    # This raised a `RecursionError`.
    assert ordering_key(f'{{"customer":{{"id":7,"more":{deep}}}}}', "customer.id") is None


JOB = """
export default Keep.workflow({ name: "flow", topics: ["in"], jobs: { sweep: async (c) => { BODY } } });
"""


async def run_job(box: Box, body: str) -> str:
    """What the run of this job failed with; empty if it did not."""
    await box.deploy(JOB.replace("BODY", body))
    await box.advance(minutes=1)
    return (await box.keep.runs("flow"))[0].error_message


@pytest.mark.parametrize("hidden", ["\\u202e", "\\u001b[2J", "\\u3164", "\\n"])
async def test_an_item_has_no_name_that_looks_like_another(hidden: str) -> None:
    async with Box.open() as box:
        assert "characters that can be seen" in await run_job(box, f'await c.withItem("a{hidden}b", "T", () => 1);')


async def test_a_title_is_stored_without_what_a_person_would_not_see() -> None:
    body = """
      await c.withItem("item", "From \\u202eevil\\nto", () => 1);
      await c.publish("in", { messageId: "event", title: "From \\u202eevil\\nto" });
    """
    async with Box.open() as box:
        # The subject of somebody's mail is no reason to stop a workflow.
        assert await run_job(box, body) == ""
        [event] = await box.keep.events("flow", "in")
        [item] = await box.keep.items("flow")
        assert event.title == item.title == "From \ufffdevil to"


async def test_a_script_with_too_many_handlers_is_refused_with_their_number() -> None:
    jobs = ", ".join(f"j{number}: async (c) => {{}}" for number in range(5_000))
    async with Box.open() as box:
        with pytest.raises(DeployRefused, match="5000 handlers; at most 200 are allowed"):
            await box.deploy(f'export default Keep.workflow({{ name: "flow", topics: [], jobs: {{ {jobs} }} }});')
