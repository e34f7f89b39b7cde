"""The judge of a torture can fail: every promise is broken once, in a record or in a copy of the file, and is found."""

import random
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest

import keep_actors
from keep_actors.notices import Notice, Webhook
from keep_storage.model import Says
from tests.torture.__main__ import report
from tests.torture.audit import Audit
from tests.torture.child import POLICY, deploy
from tests.torture.mender import Mender
from tests.torture.outside import Outbox
from tests.torture.person import Person
from tests.torture.receiver import SECRET, Receiver
from tests.torture.records import Answers, Effects, Halts, Notices, Published, append, lines
from tests.torture.stories import in_order_with, is_job, name_of
from tests.torture.torture import Told

ORDERS = {"ask-0": 3, "item-0": 2, "wait-0": 2, "mend-0": 3}
"""The second of `ask-0` is prepared once more and the third refused, and so is the second call of the second item of
`wait-0`; the second item of `item-0` takes two calls; `mend-0` is repaired after its first order."""


class Luck(random.Random):
    """Nothing goes wrong."""

    def random(self) -> float:
        return 0.5


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a torture in which nothing was killed."""
    folder = tmp_path_factory.mktemp("quiet")
    notices = Notices(folder / "notices.txt")
    receiver, person = Receiver(notices, Luck()), Person(folder, notices, Luck())
    with pytest.MonkeyPatch.context() as patch, receiver.listening(), person.at_work():
        patch.setenv("NO_PROXY", "127.0.0.1")
        anyio.run(a_quiet_life, folder, receiver.url)
    assert [*receiver.problems, *person.problems] == []
    return folder


async def a_quiet_life(folder: Path, url: str) -> None:
    published, halts = Published(folder / "published.txt"), Halts(folder / "halts.txt")
    async with keep_actors.open(
        folder / "keep.db",
        connectors=[Outbox(Effects(folder / "outside.txt"), None, published, halts)],
        policy=POLICY,
        maintainer=Mender(Luck()),
        notices=Webhook(url, secret=SECRET, name="pager"),
        sandbox="thread",
        control=True,
    ) as keep:
        for name, count in ORDERS.items():
            for number in range(count):
                published.note("wanted", f"{name}/{number}")
            await deploy(keep, name)
        for order in published.wanted:
            if not is_job(order):
                payload = {"order": in_order_with(order)}
                await keep.publish(name_of(order), "in", message_id=order, title=order, payload=payload)
            published.note("acknowledged", order)
        with anyio.fail_after(60):
            while Audit(folder).unfinished():
                await keep.wait_idle()
                await anyio.sleep(0.05)


@pytest.fixture
def folder(quiet: Path, tmp_path: Path) -> Path:
    """A copy in which something can be broken."""
    return Path(shutil.copytree(quiet, tmp_path / "copy", ignore=shutil.ignore_patterns("*-control")))


def test_a_quiet_life_is_found_to_be_right_and_counted(folder: Path) -> None:
    audit = Audit(folder)
    assert (audit.wrong(), audit.unfinished()) == ([], [])
    figures = audit.figures()
    assert figures["effects outside"] == 2 + 3 + 2 + 3
    assert (figures["items done"], figures["items skipped"]) == (3, 1)
    # Each of the two that are sent back is asked about twice, and the second call of an item by itself.
    assert (figures["approvals asked"], figures["approvals approved"]) == (8, 4)
    assert (figures["approvals rejected"], figures["of these to be prepared again"]) == (4, 2)
    assert figures["notices"] == 2 * figures["approvals asked"]
    assert figures["repairs"] == 1


def test_a_file_that_was_killed_as_it_was_made_is_right_if_nothing_happened(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keep.db").touch()
    assert Audit(tmp_path).wrong() == []
    for each in folder.glob("keep.db*"):
        each.unlink()
    (folder / "keep.db").touch()
    assert len(Audit(folder).wrong()) > len(ORDERS)


def said(folder: Path, label: str) -> str:
    """The key of the first call that was asked about."""
    return next(each.key for each in Answers(folder / "answers.txt").said if each.label == label)


def rewrite(path: Path, change: Callable[[str], str | None]) -> None:
    """Change lines; None takes one away."""
    changed = [change(line) for line in lines(path)]
    path.write_text("".join(f"{line}\n" for line in changed if line is not None))


def change_told(folder: Path, change: Callable[[Notice], Notice | None]) -> None:
    def line(text: str) -> str | None:
        changed = change(msgspec.json.decode(text, type=Notice))
        return None if changed is None else msgspec.json.encode(changed).decode()

    rewrite(folder / "notices.txt", line)


def sql(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "keep.db")) as database, database:
        assert database.execute(statement).rowcount > 0


def test_what_was_rejected_and_is_done_is_found(folder: Path) -> None:
    append(folder / "outside.txt", f"ask-0/2 {said(folder, 'ask-0/2')}")
    assert set(Audit(folder).wrong()) == {
        "ask-0/2: done, and the ledger says failed",
        "ask-0/2: done, and nobody has approved it",
        "ask-0/2: done, and it was rejected",
    }


def test_what_nobody_approved_and_is_done_is_found(folder: Path) -> None:
    rewrite(folder / "answers.txt", lambda line: None if line.endswith(" ask-0/0") else line)
    assert [line for line in Audit(folder).wrong() if line.startswith("ask-0/0")] == [
        "ask-0/0: done, and nobody has approved it"
    ]


def test_an_answer_that_was_acknowledged_and_is_lost_is_found(folder: Path) -> None:
    sql(folder, "UPDATE approvals SET status = 'rejected' WHERE status = 'approved'")
    found = Audit(folder).wrong()
    assert sum(1 for line in found if line.endswith("approve was acknowledged, and is lost")) == 4
    assert sum(1 for line in found if line.endswith("rejected, and the person said approve")) == 4


def test_a_second_call_of_an_item_that_is_done_twice_is_found(folder: Path) -> None:
    rewrite(folder / "outside.txt", lambda line: f"{line}\n{line}" if line.startswith("item-0/1+ ") else line)
    assert Audit(folder).wrong() == ["item-0/1+: done 2 times"]


def test_a_second_call_of_an_item_that_is_missing_is_found(folder: Path) -> None:
    rewrite(folder / "outside.txt", lambda line: None if line.startswith("item-0/1+ ") else line)
    assert '{"event":"item-0/1+"}: the ledger says applied, and nothing was done' in Audit(folder).wrong()
    assert Audit(folder).unfinished() == ["item-0/1+: nothing was done"]


def test_an_event_of_an_item_that_is_lost_is_found(folder: Path) -> None:
    sql(folder, "UPDATE events SET title = 'gone' WHERE title = 'applied: item-0/0'")
    assert Audit(folder).wrong() == [
        "applied: item-0/0: its item is done, and the event is lost",
        "gone: published by an item that is not done",
    ]


def test_an_event_that_is_published_twice_is_found(folder: Path) -> None:
    sql(folder, "UPDATE events SET title = 'applied: item-0/1' WHERE title = 'applied: item-0/1+'")
    assert "applied: item-0/1: published 2 times" in Audit(folder).wrong()


def test_an_event_of_an_item_that_was_refused_is_found(folder: Path) -> None:
    sql(folder, "UPDATE events SET title = 'applied: wait-0/1' WHERE title = 'applied: wait-0/0'")
    assert "applied: wait-0/1: published by an item that is not done" in Audit(folder).wrong()
    assert "applied: wait-0/1: should not have been published" in Audit(folder).unfinished()


def test_an_item_that_is_not_what_it_should_be_is_found(folder: Path) -> None:
    sql(folder, "UPDATE items SET state = 'done' WHERE item_id = 'wait-0/1'")
    assert "wait-0/1: the item is [<ItemState.DONE: 'done'>], not skipped" in Audit(folder).unfinished()


def test_a_script_that_was_never_repaired_is_found(folder: Path) -> None:
    sql(folder, "UPDATE workflows SET maintenance = 1, maintenance_run_id = 'run_x' WHERE name = 'mend-0'")
    assert "mend-0: in maintenance" in Audit(folder).unfinished()


def test_a_question_that_nobody_was_told_of_is_found(folder: Path) -> None:
    notices = Notices(folder / "notices.txt").told
    first = notices[0]
    change_told(folder, lambda notice: None if notice.id == first.id else notice)
    found = Audit(folder).wrong()
    assert f"{first.matter}: the file says that needs_person was told, and it was not" in found
    assert f"{first.matter}-settled: told that it is settled, and not before that somebody was needed" in found
    change_told(folder, lambda notice: None if notice.matter == first.matter else notice)
    assert f"{first.about}: answered, and nobody was told of it" in Audit(folder).wrong()
    assert f"{first.matter}: approval of {first.about}, nobody was told settled" in Audit(folder).unfinished()


def test_a_notice_that_comes_again_with_another_id_is_found(folder: Path) -> None:
    first = Notices(folder / "notices.txt").told[0]
    other = msgspec.structs.replace(first, id="ntc_x.needs_person", matter="ntc_x")
    Notices(folder / "notices.txt").note(other)
    assert Audit(folder).wrong() == [
        f"{first.about}: told as {first.matter} and as ntc_x",
        "ntc_x.needs_person: told, and the file has no such notice",
    ]


def test_a_notice_that_comes_again_with_the_same_id_is_no_problem_unless_it_tells_something_else(folder: Path) -> None:
    first = Notices(folder / "notices.txt").told[0]
    Notices(folder / "notices.txt").note(first)
    assert Audit(folder).wrong() == []
    assert Audit(folder).figures()["notices told again"] == 1
    Notices(folder / "notices.txt").note(msgspec.structs.replace(first, says=Says.SETTLED))
    assert Audit(folder).wrong() == [f"{first.id}: told with two meanings"]


def test_a_request_that_nobody_has_signed_is_a_problem_and_half_a_request_is_none(tmp_path: Path) -> None:
    receiver = Receiver(Notices(tmp_path / "notices.txt"), Luck())
    with receiver.listening():
        assert posted(receiver, b"Keep-Timestamp: 1\r\nKeep-Signature: v1=0\r\nContent-Length: 9\r\n\r\n{") == b""
        assert receiver.problems == []
        reply = posted(receiver, b"Keep-Timestamp: 1\r\nKeep-Signature: v1=0\r\nContent-Length: 2\r\n\r\n{}")
    assert reply.startswith(b"HTTP/1.0 400")
    assert [problem.partition(":")[0] for problem in receiver.problems] == ["a notice that cannot be believed"]
    assert Notices(tmp_path / "notices.txt").told == []


def posted(receiver: Receiver, rest: bytes) -> bytes:
    """What is answered to a request of which nothing more will come."""
    with socket.create_connection(("127.0.0.1", receiver.server_port), 10) as connection:
        connection.sendall(b"POST /told HTTP/1.0\r\n" + rest)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def test_calls_that_begin_after_a_person_has_stopped_the_workflow_are_found(folder: Path) -> None:
    halts = Halts(folder / "halts.txt")
    halts.note("halted", "item-0")
    halts.note("began", "item-0/0")
    halts.note("began", "mend-0/0")
    # It was in the ledger before.
    assert Audit(folder).wrong() == []
    halts.note("began", "item-0/1")
    found = ["item-0/0, item-0/1: began while a person had stopped the workflow"]
    assert Audit(folder).wrong() == found
    halts.note("going", "item-0")
    halts.note("began", "item-0/1+")
    assert Audit(folder).wrong() == found


def test_a_violation_is_printed_with_its_place_and_makes_the_exit_code_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = Audit(folder).figures()
    assert report(Told([], figures), 7, folder) == 0
    assert capsys.readouterr().out.endswith("seed 7: nothing lost, repeated or untrue\n")
    append(folder / "outside.txt", f"ask-0/2 {said(folder, 'ask-0/2')}")
    assert report(Told(Audit(folder).wrong(), figures), 7, folder) == 1
    printed = capsys.readouterr().out
    assert "WRONG  ask-0/2: done, and it was rejected\n" in printed
    assert printed.endswith(f"seed 7: 3 WRONG, see {folder}\n")
