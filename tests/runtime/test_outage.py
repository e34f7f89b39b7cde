"""An outage: what may pass by itself is tried for a day, people are told after a quarter of an hour, and then asked."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from keep_actors import Backoff, Grant, Keep, Policy
from keep_actors.connectors import Transient
from keep_actors.kernel import VirtualTime
from keep_actors.run.failures import Before, Failure, stop_for
from keep_storage.model import FailureClass, RunStatus, Says
from tests.runtime.fakes import Fake, Step, ok, raises
from tests.runtime.pager import Pager, calm, until
from tests.runtime.world import DAY, MINUTE, SECOND, START, TAKE, TimedBox, script, world

pytestmark = pytest.mark.anyio

HOUR = 60 * MINUTE
READ = "await c.fake.search({});"
ADD = "await c.fake.add({ text: prepared.data.id });"
KINDS = {
    "a producer": ("poll", script(producer=READ)),
    "prepare": ("file", script(prepare=READ + TAKE, mutate=ADD)),
    "a mutation": ("file", script(mutate=ADD)),
    "a job": ("sweep", script(job=READ)),
}
STEADY = Policy(retry=Backoff(jitter=0))


class Service(Fake):
    """A fake that is out of order while `is_down`."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self.is_down = True
        self.asked_at: list[int] = []
        """In seconds since the start."""
        self._time = time

        self.otherwise = self._answers_if_up

    def _answers_if_up(self, _: str) -> Step:
        self.asked_at.append((self._time.now() - START) // SECOND)
        return raises(Transient("503")) if self.is_down else ok


async def passes(box: TimedBox, ms: int, step_ms: int = 5 * MINUTE) -> None:
    """Let time pass in steps, and let happen in each what is due."""
    until = box.time.now() + ms
    while box.time.now() < until:
        box.time.advance_to(min(box.time.now() + step_ms, until))
        await box.settle()


async def begins(box: TimedBox, source: str) -> None:
    await box.keep.deploy(source, workflow="flow")
    await box.publish("flow", "in", "a")
    await box.settle()


async def is_asked(keep: Keep) -> bool:
    """Whether the workflow stands still until a person has said something."""
    return bool((await keep.workflow("flow")).error)


async def kinds(keep: Keep) -> list[str]:
    return [each.kind for each in await keep.attention()]


@pytest.mark.parametrize(("kind", "hours"), [*((kind, 1) for kind in KINDS), ("a mutation", 23)])
async def test_an_outage_of_an_hour_or_of_23_is_no_question_and_passes_by_itself(kind: str, hours: int) -> None:
    handler, source = KINDS[kind]
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time) as box:
        await begins(box, source)
        for _ in range(hours):
            await passes(box, HOUR)
            assert not await is_asked(box.keep)
            assert not (await box.keep.workflow("flow")).maintenance
        service.is_down = False
        await passes(box, 11 * MINUTE)
        assert (await box.last_run("flow", handler)).status == "committed"
        assert await kinds(box.keep) == []
        assert service.done_twice == []


@pytest.mark.parametrize("kind", ["a producer", "a mutation"])
async def test_after_a_day_of_trying_the_workflow_stops_and_a_person_is_asked_once(kind: str) -> None:
    _, source = KINDS[kind]
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time) as box:
        await begins(box, source)
        await passes(box, DAY - 1)
        assert not await is_asked(box.keep)
        await passes(box, 1)
        workflow = await box.keep.workflow("flow")
        assert (str(workflow.error_class), await kinds(box.keep)) == ("transient", ["error"])
        assert "24 hours" in workflow.error
        assert "503" in workflow.error
        tried = len(service.asked_at)
        await passes(box, HOUR)
        assert len(service.asked_at) == tried

        # "I fixed it" starts over.
        service.is_down = False
        await box.keep.clear_error("flow", by="alice")
        await box.settle()
        assert (await box.keep.runs("flow"))[0].status == "committed"


async def test_it_is_tried_later_and_later_and_at_least_every_ten_minutes() -> None:
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, policy=STEADY, time=time) as box:
        await begins(box, KINDS["a producer"][1])
        await passes(box, HOUR, step_ms=10 * SECOND)
        waits = [later - earlier for earlier, later in zip(service.asked_at, service.asked_at[1:], strict=False)]
        # The 270 are a try at the moment at which people are told: they hear of nothing that has passed.
        assert waits == [10, 20, 40, 80, 160, 320, 270, 600, 600, 600, 600]


@pytest.mark.parametrize("minutes", [14, 16])
async def test_people_who_look_see_it_from_a_quarter_of_an_hour_on_with_why(minutes: int) -> None:
    time = VirtualTime(START)
    async with world(Service(time), time=time) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, minutes * MINUTE)
        found = [each for each in await box.keep.attention() if each.kind == "failing"]
        assert len(found) == (minutes > 15)
        for each in found:
            assert (each.about, each.workflow) == ("file", "flow")
            assert "has failed for 16 minutes" in each.words
            assert "503" in each.words
            assert "tried again by itself" in each.can_do


async def told(box: TimedBox, pager: Pager) -> list[tuple[str, str, str]]:
    await calm(box)
    return [(each.says, each.kind, each.about) for each in pager.got]


async def test_a_notice_goes_out_once_after_a_quarter_of_an_hour_and_another_when_it_has_passed() -> None:
    time = VirtualTime(START)
    service, pager = Service(time), Pager()
    async with world(service, time=time, notices=pager) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, 15 * MINUTE - SECOND)
        assert await told(box, pager) == []
        await passes(box, 2 * SECOND)
        assert await told(box, pager) == [("needs_person", "error", "file")]
        await passes(box, 20 * HOUR)
        assert len(await told(box, pager)) == 1
        service.is_down = False
        await passes(box, 11 * MINUTE)
        assert await told(box, pager) == [("needs_person", "error", "file"), ("settled", "error", "file")]
        [first] = pager.said(Says.NEEDS_PERSON)
        assert "503" in first.words


async def test_a_service_that_asks_for_an_hour_delays_the_next_try_and_not_the_notice() -> None:
    time = VirtualTime(START)
    fake, pager = Fake(), Pager()
    fake.plan("add", raises(Transient("429", retry_after_ms=HOUR)))
    async with world(fake, time=time, notices=pager) as box:
        await begins(box, KINDS["a mutation"][1])
        await calm(box)
        await passes(box, 15 * MINUTE - SECOND)
        assert await told(box, pager) == []
        await passes(box, 2 * SECOND)
        await until(box, lambda: bool(pager.got))
        assert (await told(box, pager), fake.calls) == ([("needs_person", "error", "file")], ["add a"])
        await passes(box, HOUR)
        assert ([each[0] for each in await told(box, pager)], fake.texts) == (["needs_person", "settled"], ["a"])


async def test_an_outage_that_passes_before_that_is_told_to_nobody() -> None:
    time = VirtualTime(START)
    service, pager = Service(time), Pager()
    async with world(service, time=time, notices=pager) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, 14 * MINUTE)
        service.is_down = False
        await passes(box, 2 * MINUTE)
        assert (await told(box, pager), await box.statuses("flow", "in")) == ([], {"a": "consumed"})


@pytest.mark.parametrize(("minutes", "expected"), [(15, []), (35, ["failing"])])
async def test_while_it_is_being_tried_people_know_what_they_knew_before(minutes: int, expected: list[str]) -> None:
    time = VirtualTime(START)
    service, pager = Service(time), Pager()
    async with world(service, time=time, policy=STEADY, notices=pager) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, (minutes - 5) * MINUTE)
        service.is_down = False
        hang = service.hang("add")
        box.time.advance(5 * MINUTE)
        await hang.reached.wait()
        await box.until_idle()
        box.time.advance(SECOND)
        await box.until_idle()
        assert await box.statuses("flow", "in") == {"a": "reserved"}
        assert await kinds(box.keep) == expected
        assert len(pager.got) == len(expected)
        hang.release()
        assert len(await told(box, pager)) == 2 * len(expected)


async def test_when_it_is_given_up_people_are_told_that_they_are_asked() -> None:
    time = VirtualTime(START)
    service, pager = Service(time), Pager()
    async with world(service, time=time, notices=pager) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, DAY)
        run = await box.last_run("flow", "file")
        assert await told(box, pager) == [
            ("needs_person", "error", "file"),
            ("settled", "error", "file"),
            ("needs_person", "error", run.id),
        ]
        [tried] = pager.said(Says.SETTLED)
        assert tried.outcome == "given up: a person is asked"


async def test_how_patient_a_workflow_is_can_be_said_for_each() -> None:
    time = VirtualTime(START)
    hasty = Policy(give_up_after_ms=HOUR, notice_after_ms=5 * MINUTE)
    async with world(Service(time), time=time, policies={"flow": hasty}) as box:
        await begins(box, KINDS["a mutation"][1])
        await box.keep.deploy(script(name="other", mutate=ADD))
        await box.publish("other", "in", "a")
        await passes(box, 5 * MINUTE)
        assert [(each.workflow, each.kind) for each in await box.keep.attention()] == [("flow", "failing")]
        await passes(box, 55 * MINUTE)
        assert sorted((each.workflow, each.kind) for each in await box.keep.attention()) == [
            ("flow", "error"),
            ("other", "failing"),
        ]


async def test_a_commit_begins_the_count_anew() -> None:
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, 23 * HOUR)
        service.is_down = False
        await passes(box, 11 * MINUTE)
        service.is_down = True
        await box.publish("flow", "in", "b")
        await box.settle()
        await passes(box, 23 * HOUR)
        assert not await is_asked(box.keep)
        await passes(box, HOUR)
        assert await is_asked(box.keep)


async def test_while_one_handler_is_tried_in_vain_the_others_work() -> None:
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time) as box:
        source = script(producer='await c.publish("out", { title: "T" });', mutate=ADD, schedule='{ interval: "1h" }')
        await begins(box, source)
        await passes(box, 3 * HOUR)
        assert len(await box.statuses("flow", "out")) == 4


# Time in which nothing was tried is no outage.


async def test_a_pause_of_two_days_is_no_outage_of_two_days() -> None:
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, MINUTE)
        await box.keep.pause("flow")
        await passes(box, 2 * DAY)
        assert await kinds(box.keep) == []
        await box.keep.resume("flow")
        await passes(box, HOUR)
        assert not await is_asked(box.keep)
        service.is_down = False
        await passes(box, 11 * MINUTE)
        assert await box.statuses("flow", "in") == {"a": "consumed"}


async def test_a_process_that_was_off_for_two_days_has_not_tried_for_two_days(tmp_path: Path) -> None:
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time, path=tmp_path / "keep.db") as box:
        await begins(box, KINDS["a mutation"][1])
    later = VirtualTime(START + 2 * DAY)
    async with world(service, time=later, path=tmp_path / "keep.db") as box:
        await passes(box, 10 * MINUTE)
        assert (await is_asked(box.keep), await kinds(box.keep)) == (False, [])
        await passes(box, 23 * HOUR)
        assert (await is_asked(box.keep), await kinds(box.keep)) == (False, ["failing"])
        await passes(box, HOUR)
        assert await is_asked(box.keep)


async def test_a_failure_of_another_kind_before_is_not_part_of_an_outage() -> None:
    """A call was in doubt for two days; that was no time in which it was tried."""
    fake = Fake()
    fake.plan("add", raises(ConnectionError("lost")), raises(Transient("503")))
    async with world(fake) as box:
        await begins(box, KINDS["a mutation"][1])
        [doubt] = await box.keep.unknowns()
        await passes(box, 2 * DAY)
        await box.keep.resolve(doubt.mutation_id, "did_not_happen", by="alice")
        await box.settle()
        assert (await box.last_run("flow", "file")).status == "paused:transient"
        await passes(box, MINUTE)
        assert await box.statuses("flow", "in") == {"a": "consumed"}


async def test_days_without_an_event_are_no_outage_of_days() -> None:
    time = VirtualTime(START)
    async with world(Service(time), time=time) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, 20 * MINUTE)
        await box.keep.skip_event("flow", "in", "a", by="alice")
        await passes(box, 2 * DAY, HOUR)
        await box.publish("flow", "in", "b")
        await box.settle()
        await passes(box, 23 * HOUR)
        assert not await is_asked(box.keep)
        await passes(box, HOUR)
        assert await is_asked(box.keep)


async def test_days_in_which_another_handler_stopped_the_workflow_are_no_outage_of_days() -> None:
    fake = Fake()
    fake.plan("search", *[raises(Transient("503"))] * 20)
    fake.plan("add", raises(ConnectionError("lost")))
    async with world(fake) as box:
        await box.keep.deploy(script(producer=READ, mutate=ADD))
        await passes(box, MINUTE)
        await box.publish("flow", "in", "a")
        await box.settle()
        [doubt] = await box.keep.unknowns()
        await passes(box, 2 * DAY, HOUR)
        await box.keep.resolve(doubt.mutation_id, "did_not_happen", by="alice")
        await box.settle()
        assert (await box.last_run("flow", "poll")).status == "paused:transient"
        assert (await is_asked(box.keep), await kinds(box.keep)) == (False, [])


async def skip(box: TimedBox) -> None:
    await box.keep.skip_event("flow", "in", "a", by="alice")


async def pause(box: TimedBox) -> None:
    await box.keep.pause("flow")


async def archive(box: TimedBox) -> None:
    await box.keep.archive("flow")


@pytest.mark.parametrize("act", [skip, pause, archive], ids=lambda each: each.__name__)
async def test_what_is_not_tried_any_more_is_not_failing_and_people_are_told_so(
    act: Callable[[TimedBox], Awaitable[None]],
) -> None:
    time = VirtualTime(START)
    pager = Pager()
    async with world(Service(time), time=time, notices=pager) as box:
        await begins(box, KINDS["a mutation"][1])
        await passes(box, 20 * MINUTE)
        assert await kinds(box.keep) == ["failing"]
        await act(box)
        assert await kinds(box.keep) == []
        assert [each[0] for each in await told(box, pager)] == ["needs_person", "settled"]


async def test_a_handler_that_comes_as_far_as_to_a_question_is_not_failing() -> None:
    time = VirtualTime(START)
    service = Service(time)
    async with world(service, time=time) as box:
        await box.keep.deploy(KINDS["prepare"][1], grants=[Grant("fake.search"), Grant("fake.add", policy="ask")])
        await box.publish("flow", "in", "a")
        await passes(box, 20 * MINUTE)
        assert await kinds(box.keep) == ["failing"]
        service.is_down = False
        await passes(box, 11 * MINUTE)
        assert await kinds(box.keep) == ["approval"]


# The rule itself.


def stop_after(ms: int, policy: Policy) -> RunStatus:
    before = Before(3, START)
    return stop_for(Failure(FailureClass.TRANSIENT, "503"), before, policy, START + ms, random.Random(1)).status


def test_it_is_given_up_at_the_very_end_of_the_time_that_the_policy_gives() -> None:
    policy = Policy(give_up_after_ms=HOUR)
    assert stop_after(HOUR - 1, policy) is RunStatus.PAUSED_TRANSIENT
    assert stop_after(HOUR, policy) is RunStatus.PAUSED_APPROVAL


def test_what_no_process_tried_for_longer_than_the_longest_wait_was_not_tried() -> None:
    policy = Policy()
    assert policy.tried_since(START, None, START + DAY) == START
    assert policy.tried_since(START, START + HOUR, START + HOUR + 10 * MINUTE) == START
    assert policy.tried_since(START, START + HOUR, START + 3 * HOUR) == START + 2 * HOUR
