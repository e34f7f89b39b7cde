"""Unknown outcomes: the connector is asked at once, then again and again, then a person; and nothing is done twice."""

import logging
from pathlib import Path

import pytest

from keep_actors import Policy, Rejected
from keep_actors.connectors import PreconditionFailed, Retry, Transient
from keep_actors.kernel import VirtualTime
from keep_actors.policy import Backoff
from keep_storage.model import MutationStatus
from tests.runtime.fakes import Attempt, Fake, applies_and_raises, raises
from tests.runtime.world import MINUTE, SECOND, START, TimedBox, script, world

pytestmark = pytest.mark.anyio

LOST = ConnectionError("the line is dead")
SCRIPT = script(
    mutate="await c.fake.put({ text: prepared.data.id });",
    next_='await c.publish("out", { title: "told", messageId: prepared.data.id, payload: result });',
)
UNCHECKABLE = script(mutate="await c.fake.add({ text: prepared.data.id });", next_="return { last: result.status };")


async def cannot_tell(_: Attempt) -> object:
    return Retry("the index lags")


async def start(box: TimedBox, source: str = SCRIPT, *message_ids: str) -> None:
    await box.keep.deploy(source)
    await box.publish("flow", "in", *(message_ids or ("one",)))
    await box.settle()


async def status(box: TimedBox) -> MutationStatus:
    return (await box.keep.outputs("flow"))[0].status


async def test_a_lost_answer_is_found_at_once_and_the_run_goes_on_without_a_pause() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    async with world(fake) as box:
        await start(box)
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        [told] = await box.keep.events("flow", "out")
        assert '"status":"applied"' in told.payload
        assert [run.status for run in await box.keep.runs("flow")] == ["committed"]


async def test_a_lost_request_is_not_found_when_its_time_is_over_and_a_fresh_run_makes_the_call() -> None:
    fake = Fake()
    fake.plan("put", raises(LOST))
    async with world(fake) as box:
        await start(box)
        assert fake.texts == []
        assert await box.statuses("flow", "in") == {"one": "reserved"}
        await box.advance(MINUTE)
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_while_the_connector_cannot_tell_the_event_is_held_and_the_call_is_not_made_again() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", cannot_tell, cannot_tell, cannot_tell)
    async with world(fake) as box:
        await start(box)
        for _ in range(2):
            assert await box.statuses("flow", "in") == {"one": "reserved"}
            assert await status(box) == "needs_reconcile"
            assert (await box.keep.workflow("flow")).error
            await box.advance(30 * SECOND)
        await box.advance(5 * MINUTE)
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        assert (await box.keep.workflow("flow")).error == ""


class SetBack(VirtualTime):
    """A clock that is set back by an hour when it has been read so many times."""

    reads_left = -1
    """Below nothing: it is not set."""

    def now(self) -> int:
        if self.reads_left == 0:
            self._now -= 60 * MINUTE
        self.reads_left -= 1
        return super().now()


@pytest.mark.parametrize("reads", range(8))
async def test_a_clock_that_is_set_back_as_a_doubt_falls_due_crashes_nobody(
    reads: int, caplog: pytest.LogCaptureFixture
) -> None:
    fake, time = Fake(), SetBack(START)
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", cannot_tell)
    async with world(fake, time=time) as box:
        await start(box)
        time.reads_left = reads
        await box.advance(MINUTE)
        await box.advance(120 * MINUTE)
        assert time.reads_left < 0
        assert await box.statuses("flow", "in") == {"one": "consumed"}
    assert fake.texts == ["one"]
    assert "crashed" not in caplog.text


async def test_after_so_many_checks_a_person_is_asked_and_nothing_is_checked_any_more() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", *[cannot_tell] * 99)
    policy = Policy(reconcile=Backoff(attempts_max=4, jitter=0))
    async with world(fake, policy=policy) as box:
        await start(box)
        for _ in range(20):
            await box.advance(10 * MINUTE)
        assert fake.calls.count("reconcile one") == 4
        assert await status(box) == "indeterminate"
        assert await box.statuses("flow", "in") == {"one": "reserved"}
        [needs] = await box.keep.attention()
        assert needs.kind == "unknown"


async def test_checks_go_on_after_a_restart(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", cannot_tell)
    async with world(fake, path=tmp_path / "keep.db") as box:
        await start(box)
        time = box.time
        assert await status(box) == "needs_reconcile"
    time.advance(MINUTE)
    async with world(fake, path=tmp_path / "keep.db", time=time) as box:
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_a_check_that_raises_is_a_check_that_could_not_tell() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", raises(ValueError("a bug")))
    async with world(fake) as box:
        await start(box)
        assert await status(box) == "needs_reconcile"


async def test_a_runtime_without_the_connector_cannot_tell_and_guesses_nothing(tmp_path: Path) -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", cannot_tell)
    async with world(fake, path=tmp_path / "keep.db") as box:
        await start(box)
        time = box.time
    time.advance(MINUTE)
    async with world(path=tmp_path / "keep.db", time=time) as box:
        await box.settle()
        assert await status(box) == "needs_reconcile"
        assert await box.statuses("flow", "in") == {"one": "reserved"}


async def unknown(box: TimedBox, fake: Fake, source: str = UNCHECKABLE) -> str:
    fake.plan("add", applies_and_raises(LOST))
    await start(box, source)
    [output] = await box.keep.outputs("flow")
    assert output.status == "indeterminate"
    return output.mutation_id


async def test_a_person_who_says_that_it_happened_lets_next_run_with_the_result() -> None:
    fake = Fake()
    async with world(fake) as box:
        mutation_id = await unknown(box, fake)
        await box.keep.resolve(mutation_id, "happened", by="ann", why="I looked", result={"id": "x", "text": "one"})
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}
        assert (await box.keep.runs("flow"))[0].output_state == '{"last":"applied"}'


async def test_a_person_who_says_that_it_did_not_happen_lets_a_fresh_run_make_the_call() -> None:
    fake = Fake()
    async with world(fake) as box:
        mutation_id = await unknown(box, fake)
        fake.world.effects.clear()
        await box.keep.resolve(mutation_id, "did_not_happen", by="ann")
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_a_person_who_skips_ends_the_event_and_next_is_told() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.resolve(await unknown(box, fake), "skip", by="ann")
        await box.settle()
        assert await box.statuses("flow", "in") == {"one": "skipped"}
        assert (await box.keep.runs("flow"))[0].output_state == '{"last":"skipped"}'


async def test_only_what_can_be_checked_can_be_tried_again() -> None:
    fake = Fake()
    async with world(fake) as box:
        with pytest.raises(Rejected, match="no way to check"):
            await box.keep.resolve(await unknown(box, fake), "try_again", by="ann")


async def test_trying_again_asks_the_connector_anew_with_a_fresh_count() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", cannot_tell)
    async with world(fake, policy=Policy(reconcile=Backoff(attempts_max=1))) as box:
        await start(box)
        [output] = await box.keep.outputs("flow")
        assert output.status == "indeterminate"
        await box.keep.resolve(output.mutation_id, "try_again", by="ann")
        await box.settle()
        assert fake.texts == ["one"]
        assert await box.statuses("flow", "in") == {"one": "consumed"}


async def test_of_two_answers_the_first_wins_and_the_second_is_told_who_was_first() -> None:
    fake = Fake()
    async with world(fake) as box:
        mutation_id = await unknown(box, fake)
        await box.keep.resolve(mutation_id, "happened", by="ann", result={"id": "x", "text": "one"})
        with pytest.raises(Rejected, match="ann"):
            await box.keep.resolve(mutation_id, "did_not_happen", by="bob")


async def test_a_verdict_on_what_has_changed_since_is_refused() -> None:
    fake = Fake()
    async with world(fake) as box:
        mutation_id = await unknown(box, fake)
        with pytest.raises(Rejected, match="version"):
            await box.keep.resolve(mutation_id, "skip", by="ann", version=99)


async def test_the_question_to_a_person_says_what_was_tried_and_what_can_be_said() -> None:
    fake = Fake()
    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", cannot_tell, cannot_tell)
    async with world(fake, policy=Policy(reconcile=Backoff(attempts_max=2, jitter=0))) as box:
        await start(box)
        [asked] = await box.keep.unknowns()
        assert (asked.call, asked.params, asked.status) == ("fake.put", '{"text":"one"}', "needs_reconcile")
        assert asked.can_check
        assert asked.next_check_at == box.time.now() + 10 * SECOND
        assert [each.verdict for each in asked.verdicts] == ["happened", "did_not_happen", "skip"]
        await box.advance(10 * SECOND)
        [asked] = await box.keep.unknowns("flow")
        assert asked.status == "indeterminate"
        assert "the index lags" in asked.why
        assert [each.verdict for each in asked.verdicts] == ["happened", "did_not_happen", "skip", "try_again"]
        assert [each.what.partition(":")[0] for each in asked.tried] == [
            "in_flight",
            "needs_reconcile",
            "needs_reconcile",
            "indeterminate",
        ]
        await box.keep.resolve(
            asked.mutation_id, "happened", by="ann", result={"id": "x", "text": "one"}, version=asked.version
        )
        await box.settle()
        assert await box.keep.unknowns() == []


async def test_without_its_connector_the_question_is_still_there(tmp_path: Path) -> None:
    fake = Fake()
    async with world(fake, path=tmp_path / "keep.db") as box:
        await unknown(box, fake)
    async with world(path=tmp_path / "keep.db") as box:
        [asked] = await box.keep.unknowns()
        assert (asked.call, asked.target, asked.how_to_check) == ("fake.add", '{"text":"one"}', "")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Transient("\ud800"), "paused:transient"),
        (PreconditionFailed("\ud800"), "paused:approval"),
        (ValueError("\ud800"), "paused:reconciliation"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else each,
)
async def test_words_that_no_database_keeps_do_not_keep_what_is_known_out_of_it(
    error: Exception, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A report of this test travels between processes, and such words cannot: what is logged of them stays out of it.
    caplog.set_level(logging.CRITICAL, logger="keep_actors")
    fake = Fake()
    fake.plan("put", raises(error))
    fake.plan("reconcile", raises(Transient("\udfff")))
    async with world(fake) as box:
        await start(box)
        assert [run.status for run in await box.keep.runs("flow")] == [expected]
