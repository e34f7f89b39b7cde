"""Notices: people are told when something needs one of them and when it is settled, whatever the sinks do."""

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

import keep_actors
from keep_actors import Grant, Policy
from keep_actors.connectors import Retry
from keep_actors.host.fault_points import Point
from keep_actors.kernel import VirtualTime
from keep_actors.maintenance import Proposal, RepairFailed, RepairTask
from keep_actors.notices import GiveUp, Hook, Notice, Webhook
from keep_actors.notices.actor import LOOK_EVERY_MS
from keep_actors.notices.sink import chosen
from keep_actors.policy import Backoff
from keep_storage import notice_reads, reads, wall_clock
from keep_storage.errors import StorageUnavailable
from keep_storage.model import DeliveryStatus, NoticeKind, Says
from tests.runtime.fakes import Attempt, Fake, applies_and_raises
from tests.runtime.pager import QUICK, Pager, Step, calm, fails, hangs, until
from tests.runtime.world import MINUTE, SECOND, START, TimedBox, left_in, script, world

pytestmark = pytest.mark.anyio

ADD = "await c.fake.add({ text: prepared.data.id });"
ADDS = script(mutate=ADD)
PUTS = script(mutate="await c.fake.put({ text: prepared.data.id });")
BROKEN = script(prepare="null.x;", mutate=ADD)
ASKS = [Grant("fake.add", policy="ask")]
ROOT = Path(__file__).parents[2]
LOST = ConnectionError("lost")
LOOKED = START + LOOK_EVERY_MS
"""When the second look is: at the first there is nothing yet."""
SECRET = "whsec_aHVzaC0wMTIzNDU2Nzg5YWJjZGVmMDEyMw=="


async def asks(box: TimedBox, *message_ids: str, name: str = "flow") -> str:
    """A workflow whose call waits for a person. The approval."""
    await box.keep.deploy(script(name=name, mutate=ADD), grants=ASKS)
    await box.publish(name, "in", *message_ids or ("customer-7",))
    await box.settle()
    return (await box.keep.approvals(name))[0].approval_id


async def in_doubt(box: TimedBox, fake: Fake) -> str:
    """A workflow with a call of which nobody can find out whether it happened. The mutation."""
    fake.plan("add", applies_and_raises(LOST))
    await box.keep.deploy(ADDS)
    await box.publish("flow", "in", "customer-7")
    await box.settle()
    return (await box.keep.unknowns())[0].mutation_id


# What is told.


async def test_a_question_is_told_when_it_is_asked_and_when_it_is_answered() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager, grants="explicit") as box:
        approval_id = await asks(box)
        await calm(box)
        [asked] = pager.got
        assert (asked.says, asked.kind, asked.workflow, asked.about) == (
            "needs_person",
            "approval",
            "flow",
            approval_id,
        )
        assert (asked.call, asked.settled_at, asked.outcome) == ("fake.add", None, "")
        assert "Approve it" in asked.can_do
        await box.keep.approve(approval_id, by="alice")
        await calm(box)
        [_, settled] = pager.got
        assert (settled.says, settled.matter, settled.outcome) == ("settled", asked.matter, "approved (alice)")
        assert settled.settled_at is not None
        assert settled.id != asked.id


async def test_an_unknown_outcome_is_told_with_its_mutation_and_its_call() -> None:
    pager, fake = Pager(), Fake()
    async with world(fake, notices=pager) as box:
        mutation_id = await in_doubt(box, fake)
        await calm(box)
        [told] = pager.got
        assert (told.kind, told.about, told.call) == ("unknown", mutation_id, "fake.add")
        await box.keep.resolve(mutation_id, "happened", by="alice", result={"id": "x", "text": "one"})
        await calm(box)
        assert [each.outcome for each in pager.said(Says.SETTLED)] == ["it happened (alice)"]


async def test_each_parked_doubt_is_a_matter_of_its_own() -> None:
    pager, fake = Pager(), Fake()
    fake.plan("add", applies_and_raises(LOST), applies_and_raises(LOST))
    async with world(fake, notices=pager, policy=Policy(on_unknown="park")) as box:
        await box.keep.deploy(ADDS)
        await box.publish("flow", "in", "one", "two", "three")
        await calm(box)
        doubts = {each.mutation_id for each in await box.keep.unknowns()}
        assert len(doubts) == 2
        assert {each.about for each in pager.said(Says.NEEDS_PERSON)} == doubts
        first = pager.got[0].about
        await box.keep.resolve(first, "happened", by="alice", result={"id": "x", "text": "one"})
        await calm(box)
        assert [each.about for each in pager.said(Says.SETTLED)] == [first]


async def test_the_parameters_of_a_call_are_in_no_notice() -> None:
    pager, fake = Pager(), Fake()
    async with world(fake, notices=pager) as box:
        mutation_id = await in_doubt(box, fake)
        await calm(box)
        await box.keep.resolve(mutation_id, "skip", by="alice")
        await asks(box, "customer-7", name="other")
        await calm(box)
        assert {each.kind for each in pager.got} == {NoticeKind.UNKNOWN, NoticeKind.APPROVAL}
        assert b"customer-7" not in msgspec.json.encode(pager.got)
        assert "customer-7" in (await box.keep.attention())[0].words


async def test_nobody_is_called_while_a_connector_is_still_being_asked() -> None:
    pager, fake = Pager(), Fake()

    async def later(_: Attempt) -> Retry:
        return Retry("ask me later")

    fake.plan("put", applies_and_raises(LOST))
    fake.plan("reconcile", later, later, later)
    policy = Policy(reconcile=Backoff(first_ms=MINUTE, cap_ms=MINUTE, attempts_max=3))
    async with world(fake, notices=pager, policy=policy) as box:
        await box.keep.deploy(PUTS)
        await box.publish("flow", "in", "one")
        await calm(box)
        assert [each.kind for each in await box.keep.attention()] == ["unknown"]
        assert pager.got == []
        for _ in range(3):
            await box.advance(2 * MINUTE)
        await calm(box)
        assert [(each.says, each.kind) for each in pager.got] == [("needs_person", "unknown")]


class Mechanic:
    """Never has an idea."""

    is_automatic = True

    async def repair(self, task: RepairTask) -> Proposal:
        raise RepairFailed(f"no idea about {task.workflow_name}")


async def test_nobody_is_called_for_a_broken_script_before_the_maintainer_has_given_up() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager, maintainer=Mechanic()) as box:
        await box.keep.deploy(BROKEN)
        await box.publish("flow", "in", "one")
        await calm(box)
        assert [each.kind for each in await box.keep.attention()] == ["maintenance"]
        assert pager.got == []
        for _ in range(8):
            await box.advance(15 * MINUTE)
        await calm(box)
        [told] = pager.got
        assert (told.kind, "no idea" in told.words) == ("maintenance", True)


async def test_a_broken_script_is_told_once_and_settled_by_the_one_that_replaces_it() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager) as box:
        await box.keep.deploy(BROKEN)
        await box.publish("flow", "in", "one")
        await calm(box)
        await box.advance(15 * MINUTE)
        await calm(box)
        run = await box.last_run("flow", "file")
        assert [(each.says, each.kind, each.about) for each in pager.got] == [("needs_person", "maintenance", run.id)]
        await box.keep.deploy(ADDS, workflow="flow")
        await calm(box)
        assert [each.says for each in pager.got] == ["needs_person", "settled"]


async def test_the_same_trouble_again_is_another_matter() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager) as box:
        await box.keep.deploy(BROKEN)
        await box.publish("flow", "in", "one")
        await calm(box)
        await box.keep.deploy(BROKEN)
        await calm(box)
        assert len({each.matter for each in pager.got}) == 2
        assert [each.says for each in pager.got] == ["needs_person", "settled", "needs_person"]


async def test_an_archived_workflow_needs_nobody() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager) as box:
        await asks(box)
        await calm(box)
        await box.keep.archive("flow", by="alice")
        await calm(box)
        assert [each.says for each in pager.got] == ["needs_person", "settled"]


# How it is delivered.


async def test_a_sink_that_fails_is_tried_again_later_and_later() -> None:
    pager = Pager(fails(OSError("no route")), fails(OSError("no route")))
    async with world(Fake(), notices=pager) as box:
        await asks(box)
        await calm(box)
        [told] = await box.keep.notices()
        [sent] = told.sent
        assert (sent.status, sent.attempts, sent.problem) == (DeliveryStatus.WAITING, 1, "OSError: no route")
        assert sent.next_attempt_at == LOOKED + SECOND
        box.time.advance_to(LOOKED + SECOND - 1)
        await box.until_idle()
        assert len(pager.asked) == 1
        box.time.advance(1)
        await box.until_idle()
        assert len(pager.asked) == 2
        box.time.advance(2 * SECOND)
        await box.until_idle()
        assert ([each.id for each in pager.asked], len(pager.got)) == ([told.notice.id] * 3, 1)
        [told] = await box.keep.notices()
        assert [(each.status, each.attempts, each.at) for each in told.sent] == [("delivered", 3, LOOKED + 3 * SECOND)]


async def test_what_cannot_be_delivered_is_given_up_where_people_can_see_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pager = Pager(always=fails(OSError("no route")))
    async with world(Fake(), notices=pager) as box:
        await asks(box)
        await calm(box)
        for _ in range(4):
            box.time.advance(8 * SECOND)
            await box.until_idle()
        [told] = await box.keep.notices("flow")
        [sent] = told.sent
        assert (sent.status, sent.attempts, sent.problem) == ("given_up", QUICK.attempts_max, "OSError: no route")
        assert (sent.at is not None, len(pager.asked)) == (True, QUICK.attempts_max)
        journal = [each.operation for each in (await box.keep.explain(told.notice.run_id or "")).journal]
        assert journal.count("note_delivery") == QUICK.attempts_max
    lines = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [told.notice.matter in each.getMessage() for each in lines] == [True]
    assert "no route" not in caplog.text


async def test_a_sink_may_say_that_it_is_no_use_trying_again() -> None:
    pager = Pager(fails(GiveUp("unsubscribed")))
    async with world(Fake(), notices=pager) as box:
        await asks(box)
        await calm(box)
        [told] = await box.keep.notices()
        assert [(each.status, each.attempts) for each in told.sent] == [("given_up", 1)]


async def test_the_end_is_not_told_before_the_beginning_however_late_that_is() -> None:
    pager = Pager(fails(OSError("no route")))
    async with world(Fake(), notices=pager) as box:
        approval_id = await asks(box)
        await calm(box)
        await box.keep.reject(approval_id, by="alice")
        await calm(box)
        assert (pager.got, len(pager.asked)) == ([], 1)
        [told] = await box.keep.notices()
        waiting = [(each.says, each.status, each.next_attempt_at) for each in told.sent]
        assert waiting == [("needs_person", "waiting", LOOKED + SECOND), ("settled", "waiting", None)]
        box.time.advance(SECOND)
        await box.until_idle()
        assert [each.says for each in pager.got] == ["needs_person", "settled"]
        assert pager.got[0].settled_at == pager.got[1].settled_at is not None


@pytest.mark.parametrize("trouble", [hangs, fails(OSError("no")), fails(ExceptionGroup("two", [OSError(), OSError()]))])
async def test_a_broken_sink_does_not_hold_up_another(trouble: Step) -> None:
    broken, pager = Pager(name="broken", always=trouble, timeout_ms=20), Pager()
    async with world(Fake(), notices=[broken, pager], shutdown_grace_ms=1) as box:
        approval_id = await asks(box)
        await box.keep.reject(approval_id, by="alice")
        await asks(box, "two")
        with anyio.fail_after(20):
            while len(pager.got) < 1:
                await calm(box)
        assert [each.says for each in pager.got][:1] == ["needs_person"]
        with anyio.fail_after(20):
            while not (await box.keep.notices())[-1].sent[0].problem:
                await box.until_idle()
        sent = {
            each.sink: str(each.status) for each in (await box.keep.notices())[-1].sent if each.says == "needs_person"
        }
        assert sent == {"broken": "waiting", "pager": "delivered"}


def cancelled_group() -> BaseException:
    """What code that cancels its own work may let out."""
    return BaseExceptionGroup("mixed", [anyio.get_cancelled_exc_class()(), OSError("no")])


async def test_a_hundred_runs_go_on_while_a_sink_hangs_and_another_raises_all_it_can(anyio_backend_name: str) -> None:
    # Trio lets nobody make a cancellation of their own.
    worst = cancelled_group() if anyio_backend_name == "asyncio" else ExceptionGroup("deep", [OSError("no")])
    hanging, raising = Pager(name="hanging", always=hangs), Pager(name="raising", always=fails(worst))
    fake = Fake()
    async with world(fake, notices=[hanging, raising], shutdown_grace_ms=1) as box:
        await asks(box, name="asking")
        await calm(box)
        assert len(hanging.asked) == 1
        await box.keep.deploy(ADDS)
        await box.publish("flow", "in", *[f"m{number}" for number in range(100)])
        await box.settle()
        assert len(fake.texts) == 100
        assert set((await box.statuses("flow", "in")).values()) == {"consumed"}
        assert len(await box.runs("flow", "file")) == 100
        await calm(box)
        assert (len(hanging.asked), len(raising.asked) >= 1) == (1, True)
        sent = {each.sink: each for each in (await box.keep.notices())[0].sent}
        assert (sent["raising"].status, "group" in sent["raising"].problem.lower()) == ("waiting", True)


async def test_a_sink_that_breaks_the_actor_ends_notices_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    bug, fake, time = Pager(), Fake(), VirtualTime(START)
    bug.timeout_ms = "soon"  # type: ignore[assignment]
    async with world(fake, notices=bug, time=time, shutdown_grace_ms=1) as box:
        await asks(box, name="asking")
        for _ in range(20):
            box.time.advance(10 * SECOND)
            await box.until_idle()
        await box.keep.deploy(ADDS)
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.texts == ["one"]
    assert "No notices are sent any more" in caplog.text


async def test_a_disk_that_cannot_write_delays_the_note_of_a_delivery_and_repeats_nothing() -> None:
    is_full = False

    def faults(point: Point, _: str) -> None:
        if is_full and point is Point.COMMIT:
            raise StorageUnavailable("the disk is full")

    async def fills() -> None:
        nonlocal is_full
        is_full = True

    pager = Pager(fills)
    async with world(Fake(), notices=pager, faults=faults) as box:
        await asks(box)
        await calm(box)
        assert [each.status for told in await box.keep.notices() for each in told.sent] == ["waiting"]
        box.time.advance(MINUTE)
        await box.until_idle()
        is_full = False
        box.time.advance(MINUTE)
        await box.until_idle()
        [told] = await box.keep.notices()
        assert [(each.status, each.attempts) for each in told.sent] == [("delivered", 1)]
    assert len(pager.asked) == 1


# What a restart does.


async def test_what_was_delivered_and_not_noted_is_delivered_again_with_the_same_id(tmp_path: Path) -> None:
    path, time = tmp_path / "keep.db", VirtualTime(START)
    cut_off = Pager(always=hangs)
    async with world(Fake(), path=path, notices=cut_off, time=time, shutdown_grace_ms=1) as box:
        await asks(box)
        await until(box, lambda: len(cut_off.asked) == 1)
    pager = Pager()
    async with world(Fake(), path=path, notices=pager, time=time) as box:
        await until(box, lambda: len(pager.got) == 1)
    assert [each.id for each in pager.got] == [each.id for each in cut_off.asked]


async def test_a_process_that_is_killed_between_a_delivery_and_its_note_delivers_again(tmp_path: Path) -> None:
    path, lines = tmp_path / "keep.db", tmp_path / "told"
    command = [sys.executable, "-m", "tests.runtime.notices_child", str(path), str(lines)]
    with anyio.fail_after(60):
        killed = await anyio.run_process(command, cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    pager = Pager()
    async with world(Fake(), path=path, notices=pager, time=VirtualTime(wall_clock())) as box:
        await until(box, lambda: len(pager.got) == 1)
    assert [each.id for each in pager.got] == lines.read_text().split()
    with left_in(path) as q:
        [sent] = notice_reads.deliveries(q, pager.got[0].matter)
        assert (sent.status, sent.attempts) == (DeliveryStatus.DELIVERED, 1)


async def test_what_happened_while_nobody_was_to_be_told_is_told_by_the_next_start(tmp_path: Path) -> None:
    path, time = tmp_path / "keep.db", VirtualTime(START)
    async with world(Fake(), path=path, time=time) as box:
        await asks(box)
        await asks(box, name="other")
    pager = Pager()
    async with world(Fake(), path=path, notices=pager, time=time) as box:
        await until(box, lambda: len(pager.got) == 2)
        assert {each.workflow for each in pager.got} == {"flow", "other"}
    async with world(Fake(), path=path, time=time) as box:
        for question in await box.keep.approvals("flow"):
            await box.keep.reject(question.approval_id, by="alice")
    async with world(Fake(), path=path, notices=pager, time=time) as box:
        await until(box, lambda: len(pager.got) == 3)
    assert [(each.workflow, each.outcome) for each in pager.said(Says.SETTLED)] == [("flow", "rejected (alice)")]


async def test_a_new_sink_and_one_that_was_given_up_are_told_what_is_open(tmp_path: Path) -> None:
    path, time = tmp_path / "keep.db", VirtualTime(START)
    gone = Pager(always=fails(GiveUp("gone")))
    async with world(Fake(), path=path, notices=gone, time=time) as box:
        await asks(box)
        await until(box, lambda: len(gone.asked) == 1)
    mended, new = Pager(), Pager(name="new")
    async with world(Fake(), path=path, notices=[mended, new], time=time) as box:
        await until(box, lambda: len(mended.got) == len(new.got) == 1)
        [told] = await box.keep.notices()
    assert {each.id for each in (*gone.asked, *mended.got, *new.got)} == {told.notice.id}


async def test_what_is_due_at_the_end_is_still_told_but_a_sink_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    path, time = tmp_path / "keep.db", VirtualTime(START)
    pager = Pager()
    async with world(Fake(), path=path, notices=pager, time=time) as box:
        await asks(box)
    assert [each.says for each in pager.got] == ["needs_person"]
    with anyio.fail_after(20):
        async with world(Fake(), path=path, notices=Pager(name="other", always=hangs), time=time):
            pass
    with left_in(path) as q:
        [told] = notice_reads.notices(q)
        assert [(each.sink, each.status) for each in notice_reads.deliveries(q, told.id)] == [
            ("other", "waiting"),
            ("pager", "delivered"),
        ]


async def test_without_sinks_nothing_is_written(tmp_path: Path) -> None:
    path, time = tmp_path / "keep.db", VirtualTime(START)
    async with world(Fake(), path=path, time=time) as box:
        approval_id = await asks(box)
        await box.advance(MINUTE)
        assert await box.keep.notices() == []
        await box.keep.reject(approval_id, by="alice")
        await box.settle()
    with left_in(path) as q:
        assert notice_reads.notices(q) == []
        written = {each.operation for each in reads.journal(q)}
        assert not any("notice" in each or "delivery" in each for each in written)


async def test_commits_that_come_together_are_looked_at_together() -> None:
    pager = Pager()
    async with world(Fake(), notices=pager) as box:
        await calm(box)
        await asks(box)
        await box.until_idle()
        assert pager.got == []
        box.time.advance(LOOK_EVERY_MS)
        await box.until_idle()
        assert len(pager.got) == 1


# Which sinks there are.


async def page(notice: Notice) -> None:
    """A plain function."""


def test_a_sink_is_a_function_a_hook_or_a_webhook_and_each_has_its_name() -> None:
    sinks = chosen(
        [page, Hook(lambda notice: page(notice), name="chat"), Webhook("https://a.example/x", secret=SECRET)]
    )
    assert [sink.name for sink in sinks] == ["page", "chat", "a.example"]
    assert chosen(page)[0].name == "page"
    assert chosen(()) == ()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: chosen([page, page]), "two sinks of notices are called 'page'"),
        (lambda: chosen(lambda notice: page(notice)), "is an async function"),
        (lambda: Hook(lambda notice: page(notice)), "needs a name"),
        (lambda: Hook(page, timeout_ms=0), "timeout_ms must be > 0"),
        (lambda: Webhook("example.com", secret=SECRET), "such as https://"),
        (lambda: Webhook("https://a.example", secret="a-long-random-secret"), "new_secret"),
        (lambda: Webhook("https://a.example", secret="whsec_c2hvcnQ="), "24 to 64 random bytes"),
        (lambda: Webhook("https://a.example", secret="whsec_" + "!" * 40), "24 to 64 random bytes"),
        (lambda: Webhook("https://a.example", secret=()), "needs a secret"),
    ],
)
def test_what_cannot_be_a_sink_is_refused_with_words(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        wrong()


async def test_a_runtime_is_not_opened_with_sinks_that_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="two sinks"):
        async with keep_actors.open(":memory:", notices=[page, page]):
            raise AssertionError("it did open")


def test_neither_the_address_nor_the_secret_of_a_webhook_is_shown() -> None:
    webhook = Webhook("https://a.example/T0/token", secret=SECRET)
    assert "token" not in repr(webhook) + webhook.name
    assert SECRET not in repr(vars(webhook))


def test_a_receiver_loads_no_runtime() -> None:
    look = "import sys, keep_actors.notices; print([each for each in sys.modules if each in sys.argv])"
    heavy = ["keep_actors.runtime.opening", "keep_actors.host.host", "keep_sandbox", "httpx"]
    done = subprocess.run([sys.executable, "-c", look, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
