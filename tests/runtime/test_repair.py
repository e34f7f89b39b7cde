"""Repair: a logic error is evidence for a maintainer, whose proposals are validated, counted, held or refused."""

from collections.abc import Callable

import anyio
import pytest

from keep_actors import Policy, Rejected
from keep_actors.maintenance import Proposal, RepairFailed, RepairTask
from keep_storage.model import FailureClass
from tests.runtime.fakes import Fake
from tests.runtime.world import MINUTE, TimedBox, script, world

pytestmark = pytest.mark.anyio

MUTATE = "await c.fake.add({ text: prepared.data.id });"
BROKEN = script(mutate=MUTATE, next_='console.log("so far"); null.x;')
MENDED = script(mutate=MUTATE, next_='await c.publish("out", { title: "done", payload: result });')
BROKEN_PREPARE = script(prepare="null.x;", mutate=MUTATE)

Answer = Proposal | Exception | Callable[[], Proposal]


class Mechanic:
    """A maintainer that answers what it was told to, and keeps what it was asked."""

    is_automatic = True

    def __init__(self, *answers: Proposal | Exception) -> None:
        self.answers = list(answers)
        self.tasks: list[RepairTask] = []

    async def repair(self, task: RepairTask) -> Proposal:
        self.tasks.append(task)
        answer = self.answers.pop(0) if self.answers else RepairFailed("no idea")
        if isinstance(answer, Exception):
            raise answer
        return answer


class Hanging:
    is_automatic = True

    async def repair(self, task: RepairTask) -> Proposal:
        await anyio.sleep_forever()
        raise AssertionError(task)


async def run_one(box: TimedBox, source: str = BROKEN) -> None:
    await box.keep.deploy(source)
    await box.publish("flow", "in", "one")
    await box.settle()


async def pass_time(box: TimedBox, times: int = 10) -> None:
    for _ in range(times):
        await box.advance(15 * MINUTE)


async def test_a_next_that_failed_after_its_mutation_is_repaired_and_given_the_stored_result() -> None:
    fake, mechanic = Fake(), Mechanic(Proposal(MENDED, "safe"))
    async with world(fake, maintainer=mechanic) as box:
        await run_one(box)
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        [event] = await box.keep.events("flow", "out")
        assert event.payload == '{"status":"applied","result":{"id":"add_1","text":"one"}}'
        assert [f"{each.major}.{each.minor}" for each in await box.keep.versions("flow")] == ["1.1", "1.0"]
        workflow = await box.keep.workflow("flow")
        assert (workflow.maintenance, workflow.error) == (False, "")


async def test_a_repair_is_by_the_author_of_the_script_that_it_repairs_and_has_the_grants_of_that() -> None:
    fake = Fake()
    async with world(fake, maintainer=Mechanic(Proposal(MENDED, "safe"))) as box:
        await box.keep.deploy(BROKEN, author="ann")
        await box.publish("flow", "in", "one")
        await box.settle()
        assert [(each.minor, each.author) for each in await box.keep.versions("flow")] == [(1, "ann"), (0, "ann")]
        # What she changes in it is hers too.
        assert (await box.keep.deploy(f"{MENDED}// more", workflow="flow", author="ann")).version == "1.2"
        assert (await box.keep.deploy(f"{MENDED}// else", workflow="flow", author="bob")).version == "2.0"


async def test_a_maintainer_is_given_the_evidence() -> None:
    mechanic = Mechanic(Proposal(MENDED, "safe"))
    async with world(Fake(), maintainer=mechanic) as box:
        await run_one(box)
        [task] = mechanic.tasks
        assert (task.workflow_name, task.version, task.handler, task.source) == ("flow", "1.0", "file", BROKEN)
        assert "TypeError" in task.error
        assert task.place
        assert task.logs == ["so far"]
        assert any(each.startswith("fake.add") for each in task.requests)
        assert task.prepare_result
        assert (task.attempt, task.attempts_max) == (1, 3)
        assert {each.full_name for each in task.methods} >= {"fake.add", "fake.search"}


@pytest.mark.parametrize(
    "bad",
    [
        Proposal("not a script", "safe"),
        Proposal(BROKEN, "safe"),
        Proposal(script(name="other", mutate=MUTATE, next_="return;"), "safe"),
        Proposal(script(producer="return;"), "safe"),
        Proposal(MENDED.replace('"out": {}', '"other": {}').replace('"out"', '"other"'), "safe"),
        Proposal(MENDED.replace("Keep.workflow({", "Keep.workflow({ jobs: { extra: async (ctx) => {} },", 1), "safe"),
        RepairFailed("no idea"),
        ValueError("a bug of its own"),
    ],
    ids=[
        "garbage",
        "the same",
        "another name",
        "no consumer",
        "a renamed topic",
        "one more handler",
        "no proposal",
        "raises",
    ],
)
async def test_a_bad_answer_counts_and_after_the_budget_a_person_is_asked(bad: Proposal | Exception) -> None:
    fake, mechanic = Fake(), Mechanic(*[bad] * 9)
    async with world(fake, maintainer=mechanic) as box:
        await run_one(box)
        await pass_time(box)
        assert len(mechanic.tasks) == 3
        assert [task.attempt for task in mechanic.tasks] == [1, 2, 3]
        assert mechanic.tasks[1].earlier_problems
        workflow = await box.keep.workflow("flow")
        assert workflow.error_class is FailureClass.LOGIC
        assert "3 attempts" in workflow.error
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "reserved"}
        assert len(await box.keep.runs("flow")) == 1


async def test_a_person_can_still_mend_it_after_the_budget() -> None:
    fake = Fake()
    async with world(fake, maintainer=Mechanic()) as box:
        await run_one(box)
        await pass_time(box)
        await box.keep.deploy(MENDED, by="ann", workflow="flow")
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        assert (await box.keep.workflow("flow")).error == ""


async def test_a_maintainer_that_hangs_is_cut_off_and_counted() -> None:
    policy = Policy(repair_timeout_ms=1)
    async with world(Fake(), maintainer=Hanging(), policy=policy) as box:
        await run_one(box)
        await pass_time(box)
        assert "no answer within 1 ms" in (await box.keep.workflow("flow")).error


async def test_a_workflow_that_always_fails_is_repaired_only_so_often() -> None:
    answers = [Proposal(BROKEN_PREPARE + "\n// " + "x" * each, "safe") for each in range(1, 9)]
    mechanic = Mechanic(*answers)
    async with world(Fake(), maintainer=mechanic) as box:
        await run_one(box, BROKEN_PREPARE)
        await pass_time(box)
        assert len(mechanic.tasks) == 3
        assert len(await box.keep.runs("flow")) == 4
        assert await box.statuses("flow", "in") == {"one": "pending"}
        workflow = await box.keep.workflow("flow")
        assert workflow.maintenance
        assert [needs.kind for needs in await box.keep.attention()] == ["maintenance"]


async def test_a_proposal_with_impact_waits_for_a_person_who_sees_the_diff_and_what_was_touched() -> None:
    fake = Fake()
    async with world(fake, maintainer=Mechanic(Proposal(MENDED, "potentially_impactful"))) as box:
        await run_one(box)
        assert (await box.keep.workflow("flow")).maintenance
        assert len(await box.keep.runs("flow")) == 1
        proposed = await box.keep.proposal("flow")
        assert proposed is not None
        assert proposed.version == "1.1"
        assert "null.x" in proposed.diff
        assert [event.message_id for event in proposed.blast_radius.events] == ["one"]
        assert [mutation.call for mutation in proposed.blast_radius.mutations] == ["fake.add"]
        assert [needs.kind for needs in await box.keep.attention()] == ["repair"]
        with pytest.raises(Rejected, match=r"version 1\.1, not 1\.0: look at that one first"):
            await box.keep.accept_repair("flow", "1.0", by="ann")
        assert (await box.keep.accept_repair("flow", proposed.version, by="ann")).version == "1.1"
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        assert await box.keep.attention() == []


async def test_a_proposal_that_a_person_refuses_counts_and_the_next_one_knows_why() -> None:
    mechanic = Mechanic(Proposal(MENDED), Proposal(f"{MENDED}// better", "safe"))
    async with world(Fake(), maintainer=mechanic) as box:
        await run_one(box)
        await box.keep.refuse_repair("flow", by="ann", why="it drops the amount")
        await box.settle()
        assert "it drops the amount" in mechanic.tasks[1].earlier_problems[0]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_what_a_person_has_refused_does_not_run_because_a_machine_now_calls_it_safe() -> None:
    mechanic = Mechanic(Proposal(MENDED), Proposal(MENDED, "safe"), Proposal(f"{MENDED}// better", "safe"))
    async with world(Fake(), maintainer=mechanic) as box:
        await run_one(box)
        await box.keep.refuse_repair("flow", by="ann", why="it drops the amount")
        await box.settle()
        assert (await box.keep.workflow("flow")).maintenance
        assert [each.activated_at is not None for each in await box.keep.versions("flow")] == [False, True]
        await pass_time(box)
        assert "did not want" in mechanic.tasks[2].earlier_problems[0]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_without_a_maintainer_the_script_waits_for_a_person() -> None:
    fake = Fake()
    async with world(fake) as box:
        await run_one(box)
        await pass_time(box)
        [needs] = await box.keep.attention()
        assert needs.kind == "maintenance"
        assert "TypeError" in needs.words


async def test_a_version_can_be_brought_back_and_what_is_pending_goes_on_with_it() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(MENDED)
        await box.keep.deploy(BROKEN, workflow="flow")
        await box.publish("flow", "in", "one")
        await box.settle()
        assert (await box.keep.rollback("flow", "1.0", by="ann")).version == "1.0"
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_every_repair_waits_for_a_person_if_the_policy_says_so() -> None:
    policy = Policy(repair_approval="always")
    async with world(Fake(), maintainer=Mechanic(Proposal(MENDED, "safe")), policy=policy) as box:
        await run_one(box)
        assert await box.keep.proposal("flow") is not None


async def test_a_repair_that_begins_to_change_the_outside_is_not_safe_whatever_it_says() -> None:
    harmless = script(prepare="null.x;")
    async with world(Fake(), maintainer=Mechanic(Proposal(script(mutate=MUTATE), "safe"))) as box:
        await run_one(box, harmless)
        assert await box.keep.proposal("flow") is not None


async def test_a_repair_that_names_a_call_the_script_did_not_make_is_not_safe_whatever_it_says() -> None:
    head = 'export default Keep.workflow({ name: "flow", topics: {}, jobs: { sweep: async (ctx) => {'
    bold = 'await ctx.withItem("a", "A", async (ctx) => { await ctx.fake.add({ text: "a" }); });'
    plain, broken, bold = head, "null.x; } } });", f"{bold} }} }} }});"
    async with world(Fake(), maintainer=Mechanic(Proposal(plain + bold, "safe", "it sends now"))) as box:
        await box.keep.deploy(plain + broken)
        await box.settle()
        proposed = await box.keep.proposal("flow")
        assert proposed is not None
        assert proposed.note == "it sends now"


async def test_only_a_proposal_that_waits_can_be_refused() -> None:
    async with world(Fake(), maintainer=Mechanic()) as box:
        await run_one(box)
        with pytest.raises(Rejected, match="No repair"):
            await box.keep.refuse_repair("flow", by="ann", why="no")


async def test_a_person_does_not_wait_for_a_maintainer_that_hangs() -> None:
    fake = Fake()
    async with world(fake, maintainer=Hanging()) as box:
        await box.keep.deploy(BROKEN)
        await box.publish("flow", "in", "one")
        await box.until_idle()
        await box.keep.deploy(MENDED, by="ann", workflow="flow")
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
