"""May these calls be made? Several are answered at once, with and without a runtime, and by a grant."""

import json
import shlex
import shutil
import threading
from pathlib import Path

import msgspec
import pytest

from keep_actors import Grant, Keep
from keep_actors.cli.exit_codes import Exit
from keep_actors.control.protocol import ReplyLine, encode
from keep_storage import Store, reads
from keep_storage.model import Mutation
from tests.cli.at_work import Desk, Office, at_work, order, refunds
from tests.cli.operating import impostor, script

ASKS = Grant("shop.ship", policy="ask")


async def three_that_ask(keep: Keep) -> None:
    """`asks` wants to ship a, b and c; `other` d, and `refunds` e."""
    await keep.deploy(script("asks"), grants=[ASKS])
    await order(keep, "asks", "a", "b", "c")


async def many_that_ask(keep: Keep) -> None:
    await three_that_ask(keep)
    await keep.deploy(script("other"), grants=[ASKS])
    await order(keep, "other", "d")
    await keep.deploy(refunds("refunds"), grants=[Grant("shop.money", policy="ask")])
    await order(keep, "refunds", "e", "f")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("asked") / "keep.db"
    at_work(db, many_that_ask, lambda _: None)
    return db


@pytest.fixture
def desk(filled: Path, tmp_path: Path) -> Desk:
    for file in filled.parent.glob("keep.db*"):
        if not file.is_socket():
            shutil.copy(file, tmp_path)
    return Desk(tmp_path / "keep.db")


# With a runtime.


def test_several_are_approved_by_id_and_one_that_was_answered_does_not_stop_the_rest(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        first, second, third = office.asked("asks")
        office.run("reject", second, "--by", "ann", "--why", "not that one")
        [said] = office.objects("approve", first[:24], second, third, third, "--by", "bob", code=Exit.WRONG)
        assert [each["status"] for each in said["done"]] == ["in_flight", "in_flight"]
        assert list(said["refused"]) == [second]
        assert "already rejected, by ann" in said["refused"][second]
        office.settle()
        again = office.run("approve", first, second, code=Exit.WRONG)
        assert again.stdout == ""
        assert f"{first}: Approval '{first}' is already approved, by bob." in again.stderr
        assert "0 answered, 2 refused." in again.stderr
        assert office.states("asks") == {"a": "consumed", "b": "skipped", "c": "consumed"}

    assert at_work(tmp_path / "keep.db", three_that_ask, act).shipped == ["a", "c"]


def test_all_is_every_call_of_a_workflow_and_a_method_and_nothing_else(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        done = office.run("approve", "--all", "--workflow", "asks", "--yes", "--by", "bob")
        assert done.stdout.count("is approved by bob, and is being made.") == 3
        assert "3 answered, 0 refused." in done.stderr
        office.settle()
        assert office.shop.shipped == ["a", "b", "c"]
        assert office.run("reject", "--all", "--call", "shop.refund", "--yes").stdout.count("is refused by") == 2
        assert len(office.asked("other")) == 1
        [said] = office.objects("approve", "--all", "--yes")
        assert (len(said["done"]), said["refused"]) == (1, {})
        assert office.objects("approve", "--all", "--yes") == [{"done": [], "refused": {}}]

    assert at_work(tmp_path / "keep.db", many_that_ask, act).shipped == ["a", "b", "c", "d"]


def test_attention_says_how_to_answer_several_at_once_and_that_works(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        waiting = office.objects("attention", code=Exit.WAITING)
        assert {each["workflow"]: len(each["together"]) for each in waiting} == {"asks": 2, "other": 0, "refunds": 2}
        text = office.run("attention", code=Exit.WAITING).stdout
        assert "6 calls wait for approval. To answer several at once" in text
        for each in waiting:
            for command in each["together"]:
                assert text.count(command) == 1
        [approves, rejects] = next(each["together"] for each in waiting if each["workflow"] == "asks")
        [_, *words] = shlex.split(approves)
        assert "Approve 3 calls (3 of shop.ship in asks)?" in office.run(*words, code=Exit.USAGE).stderr
        office.run(*words, "--yes")
        [_, *words] = shlex.split(rejects.replace("TEXT", "late"))
        assert "No such call waits for approval." in office.run(*words).stderr

    assert at_work(tmp_path / "keep.db", many_that_ask, act).shipped == ["a", "b", "c"]


# Without one.


def test_several_are_rejected_in_the_file_and_that_is_said_once(desk: Desk) -> None:
    first, second, third = desk.asked("asks")
    done = desk.run("reject", first, second, "--by", "bob", "--why", "no")
    assert done.stdout.count("is refused by bob.") == 2
    assert done.stderr.count("this was written into") == 1
    assert desk.states("asks") == {"a": "skipped", "b": "skipped", "c": "reserved"}
    [said] = desk.objects("reject", third, second, "--retry", code=Exit.WRONG)
    assert ([each["status"] for each in said["done"]], list(said["refused"])) == (["failed"], [second])
    assert desk.states("asks")["c"] == "pending", "with --retry a fresh run prepares it anew"


def test_to_approve_several_needs_a_runtime(desk: Desk) -> None:
    done = desk.run("approve", *desk.asked("asks"), "--json", code=Exit.NO_RUNTIME)
    assert done.stdout == ""
    assert len(desk.asked("asks")) == 3


def test_all_needs_a_yes_where_nobody_can_be_asked_and_says_what_it_is_about(desk: Desk) -> None:
    said = desk.run("reject", "--all", code=Exit.USAGE).stderr
    assert "Reject 6 calls (3 of shop.ship in asks, 2 of shop.refund in refunds, 1 of shop.ship in other)?" in said
    assert "Their events or items are skipped." in said
    assert "add --yes" in said
    assert "A fresh run prepares again." in desk.run("reject", "--all", "--retry", code=Exit.USAGE).stderr
    assert len(desk.asked("asks")) == 3


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 3)])
def test_on_a_terminal_all_says_how_many_and_asks(desk: Desk, answer: str, code: int, left: int) -> None:
    done = desk.type(answer, "reject", "--all", "--workflow", "asks")
    assert "Reject 3 calls (3 of shop.ship in asks)?" in done.stderr
    assert (done.returncode, len(desk.asked("asks"))) == (code, left)


def test_what_does_not_fit_together_is_wrong_usage(desk: Desk) -> None:
    [first, *_] = desk.asked("asks")
    assert "Name the approvals or use --all" in desk.run("reject", first, "--all", code=Exit.USAGE).stderr
    assert "--call needs --all" in desk.run("reject", first, "--call", "shop.ship", code=Exit.USAGE).stderr
    assert "Which call?" in desk.run("reject", code=Exit.USAGE).stderr
    several = desk.run("reject", "--workflow", "asks", code=Exit.USAGE).stderr
    assert "There is more than one call of 'asks' that waits for approval. Name it, or use --all" in several
    assert "There is no approval 'none'" in desk.run("reject", first, "none", code=Exit.WRONG).stderr
    assert len(desk.asked("asks")) == 3


def test_when_the_runtime_goes_away_in_the_middle_what_was_answered_is_said(desk: Desk) -> None:
    ids = desk.asked("asks")
    with Store.open(desk.db) as store:
        approval = reads.approval(store.queries(), ids[0])
        assert approval is not None
        made = reads.mutation(store.queries(), approval.mutation_id)
    assert isinstance(made, Mutation)
    heard: list[bytes] = []
    with impostor(desk.db) as listener:

        def die() -> None:
            for answer in (encode(ReplyLine(answer=json_of(made))), b""):
                connection, _ = listener.accept()
                with connection:
                    heard.append(connection.recv(65_536))
                    connection.sendall(answer)

        runtime = threading.Thread(target=die)
        runtime.start()
        done = desk.run("approve", *ids, "--json", code=Exit.UNKNOWN)
        runtime.join()
    assert [json.loads(each)["approval_id"] for each in heard] == ids[:2], "the third is not asked any more"
    assert [each["id"] for each in json.loads(done.stdout)["done"]] == [made.id]
    assert "before you try again" in done.stderr


def json_of(value: Mutation) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


# A grant that no longer asks.


@pytest.mark.parametrize(("flag", "shipped"), [("--approve", ["refund of e", "refund of f"]), ("--no-approve", [])])
def test_a_grant_that_allows_approves_what_waits_under_it_if_it_is_said(
    tmp_path: Path, flag: str, shipped: list[str]
) -> None:
    def act(office: Office) -> None:
        done = office.run("grant", "refunds", "shop.money", flag, "--by", "bob")
        assert "refunds may call shop.money." in done.stdout
        assert done.stdout.count("is approved by bob") == len(shipped)
        office.settle()
        assert len(office.asked("refunds")) == 2 - len(shipped)
        assert len(office.asked("asks")) == 3, "another permission"

    assert at_work(tmp_path / "keep.db", many_that_ask, act).shipped == shipped


def test_without_a_terminal_what_waits_under_a_grant_stays_open_and_the_command_to_approve_is_said(
    tmp_path: Path,
) -> None:
    def act(office: Office) -> None:
        done = office.run("grant", "refunds", "shop.money")
        assert "2 calls wait for approval under it, as before." in done.stderr
        assert len(office.asked("refunds")) == 2
        command = f"keep approve --db {office.db} --all --workflow refunds --call shop.refund"
        assert command in done.stderr
        office.run(*shlex.split(command)[1:], "--yes")
        office.settle()
        assert office.run("grant", "refunds", "shop.money").stderr == "", "nothing waits any more"
        assert office.run("grant", "asks", "shop.ship", "--ask").stderr == "", "it still asks"
        wrong = office.run("grant", "asks", "shop.ship", "--ask", "--approve", code=Exit.USAGE)
        assert "approves nothing by itself" in wrong.stderr

    assert at_work(tmp_path / "keep.db", many_that_ask, act).shipped == ["refund of e", "refund of f"]


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 3)])
def test_on_a_terminal_a_grant_asks_whether_to_approve_what_it_covers(tmp_path: Path, answer: str, left: int) -> None:
    def act(office: Office) -> None:
        done = office.type(answer, "grant", "asks", "shop.ship")
        assert "3 calls wait for approval under shop.ship. Approve?" in done.stderr
        assert done.returncode == 0
        office.settle()
        assert len(office.asked("asks")) == left

    at_work(tmp_path / "keep.db", three_that_ask, act)


def test_a_grant_with_a_limit_approves_no_more_than_that_and_says_which_were_refused(tmp_path: Path) -> None:
    def act(office: Office) -> None:
        words = ("grant", "asks", "shop.ship", "--per-day", "2", "--approve")
        [workflow, said] = office.objects(*words, code=Exit.WRONG)
        assert (workflow["name"], len(said["done"]), len(said["refused"])) == ("asks", 2, 1)
        office.settle()
        assert office.asked("asks") == list(said["refused"])

    assert len(at_work(tmp_path / "keep.db", three_that_ask, act).shipped) == 2
