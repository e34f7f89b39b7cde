"""What can be seen and said when no runtime runs: the file is looked into, and single answers are written into it."""

import json
import os
import shutil
import threading
from pathlib import Path

import anyio
import pytest

import keep_actors
from keep_actors import Connector, Grant, Policy, mutation
from keep_actors.cli.exit_codes import Exit
from keep_actors.connectors import AuthRequired
from keep_storage import Store
from keep_storage.doctor import examine
from tests.cli.at_work import Desk, copied
from tests.cli.operating import HOSTILE, Shell, impostor, script


class Shop(Connector):
    name = "shop"

    @mutation(check_hint="Look into the parcels.")
    async def ship(self, order: str) -> str:
        match order:
            case "lost":
                raise ConnectionError("the line went dead")
            case "signed out":
                raise AuthRequired("sign in again")
            case _:
                return order


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which everything waits that can wait: `lost`, `asks`, `signed out`, `broken`. And `idle`."""
    db = tmp_path_factory.mktemp("stopped") / "keep.db"

    async def fill() -> None:
        async with keep_actors.open(db, connectors=[Shop()], sandbox="thread") as keep:
            for name in ("lost", "asks", "signed out", "idle"):
                grant = Grant("shop.ship", policy="ask" if name == "asks" else "allow")
                await keep.deploy(script(name), grants=[grant], by="ann")
                if name != "idle":
                    await keep.publish(name, "orders", message_id=f"m-{name}", title=HOSTILE, payload=name)
            broken = script("broken").replace("await ctx.shop.ship", 'throw new Error("no"); await ctx.shop.ship')
            await keep.deploy(broken, grants="declared")
            await keep.publish("broken", "orders", message_id="m-broken", title="x", payload="x")
            await keep.wait_idle()

    anyio.run(fill)
    return db


@pytest.fixture
def box(stopped: Path, tmp_path: Path) -> Desk:
    return copied(stopped, tmp_path)


# Looking.


def test_status_says_that_nothing_runs_and_who_needs_a_person(box: Desk) -> None:
    done = box.run("status")
    assert "Runtime: not running." in done.stderr
    needs = {each["name"]: each["needs_a_person"] for each in box.objects("status")}
    assert needs == {"lost": True, "asks": True, "signed out": True, "broken": True, "idle": False}
    assert "what waits for a person" in done.stdout.lower()


def test_one_workflow_is_shown_in_detail(box: Desk) -> None:
    [detail] = box.objects("status", "lost")
    assert (detail["version"], detail["workflow"]["unsettled"]) == ("1.0", 1)
    assert [each["kind"] for each in detail["attention"]] == ["unknown"]
    text = box.run("status", "asks").stdout
    assert "waits for a person (approval)" in text
    assert "may call  shop.ship  ask {}, by ann" in text


def test_attention_has_everything_and_what_to_type(box: Desk) -> None:
    waiting = {each["workflow"]: each for each in box.objects("attention", code=Exit.WAITING)}
    kinds = {name: each["kind"] for name, each in waiting.items()}
    assert kinds == {"lost": "unknown", "asks": "approval", "signed out": "error", "broken": "maintenance"}
    for name, command in {
        "lost": "resolve",
        "asks": "approve",
        "signed out": "clear-error",
        "broken": "deploy",
    }.items():
        assert waiting[name]["commands"][0].split()[:2] == ["keep", command]
    text = box.run("attention", code=Exit.WAITING).stdout
    assert 'parameters                  by name: no running runtime knows their order\n    order  "asks"\n' in text
    assert "Ship lost\ufffd[2J" in text
    assert box.run("attention", "--workflow", "idle").stdout == "Nothing waits for a person.\n"


def test_lists_are_paged_by_what_they_show(box: Desk) -> None:
    [run] = box.objects("runs", "lost")
    assert box.objects("runs", "lost", "--before", run["id"]) == []
    [came] = box.objects("inputs", "lost")
    assert box.objects("inputs", "lost", "--before", str(came["seq"])) == []
    [went] = box.objects("outputs", "lost")
    assert box.objects("outputs", "lost", "--before", went["mutation_id"]) == []
    for command in ("runs", "inputs"):
        assert len(box.run(command, "lost").stdout.splitlines()) == 2
    assert box.run("outputs", "lost").stdout.splitlines()[2:] == ['    order  "lost"']


def test_the_journal_is_shown_from_its_end_or_from_where_one_was(box: Desk) -> None:
    first = box.objects("log", "--after", "0", "--limit", "3")
    assert [each["seq"] for each in first] == [1, 2, 3]
    last = box.objects("log", "--limit", "2")
    assert last[1]["seq"] == last[0]["seq"] + 1
    assert box.objects("log", "--after", str(last[1]["seq"])) == []
    of_one = box.objects("log", "lost", "--limit", "1000")
    assert len({each["workflow_id"] for each in of_one}) == 1
    assert len(box.run("log", "--limit", "5").stdout.splitlines()) == 5


@pytest.mark.parametrize("what", ["run", "mutation", "approval", "event", "message"])
def test_everything_that_has_an_id_is_explained_by_it_or_its_beginning(box: Desk, what: str) -> None:
    [asked] = box.objects("attention", "--workflow", "asks", code=Exit.WAITING)
    [of_event] = box.objects("explain", "m-asks")
    ids = {
        "run": asked["run_id"],
        "mutation": of_event["event"]["done"][0]["id"],
        "approval": asked["about"],
        "event": of_event["event"]["at"]["event"]["id"],
        "message": "m-asks",
    }
    [story] = box.objects("explain", ids[what])
    assert story["run"]["run"]["id"] == asked["run_id"]
    assert story["kind"] == what.replace("message", "event")
    if what != "message":
        assert box.objects("explain", ids[what][:-1])[0]["kind"] == story["kind"]
    assert "paused:approval in mutating" in box.run("explain", ids[what]).stdout


def test_what_is_not_there_or_not_clear_is_said_to_be(box: Desk) -> None:
    assert "There is no run, mutation, approval or event 'x9'" in box.run("explain", "x9", code=Exit.WRONG).stderr
    assert "more than one id" in box.run("explain", "run_", code=Exit.WRONG).stderr
    assert "There is no workflow 'lots'" in (said := box.run("inputs", "lots", code=Exit.WRONG).stderr)
    assert "There are: 'lost'" in said
    assert "Which workflow?" in box.run("inputs", code=Exit.USAGE).stderr
    assert "more than one mutation" in box.run("resolve", "mut_", "skip", code=Exit.WRONG).stderr
    assert "No repair" in box.run("repair", "show", "broken", code=Exit.WRONG).stderr


def test_each_parked_call_is_a_question_of_its_own(tmp_path: Path) -> None:
    box = Desk(tmp_path / "keep.db")

    async def fill() -> None:
        policy = Policy(on_unknown="park")
        async with keep_actors.open(box.db, connectors=[Shop()], sandbox="thread", policy=policy) as keep:
            await keep.deploy(script("parks"), grants="declared")
            for number in range(2):
                await keep.publish("parks", "orders", message_id=f"m{number}", title="x", payload="lost")
            await keep.wait_idle()

    anyio.run(fill)
    waiting = box.objects("attention", code=Exit.WAITING)
    assert [each["unknown"]["is_parked"] for each in waiting] == [True, True]
    assert len({each["about"] for each in waiting}) == 2
    [line] = box.objects("status")
    assert (line["status"], line["error"], line["needs_a_person"], line["unsettled"]) == ("active", "", True, 2)
    assert "There is more than one call" in box.run("resolve", "--workflow", "parks", "skip", code=Exit.USAGE).stderr
    box.run("resolve", waiting[0]["about"], "skip")
    assert sorted(box.states("parks").values()) == ["reserved", "skipped"]


def test_a_name_that_a_shell_would_obey_is_not_what_is_to_be_typed(tmp_path: Path) -> None:
    box = Desk(tmp_path / "keep.db")

    async def fill() -> None:
        async with keep_actors.open(box.db, connectors=[Shop()], sandbox="thread") as keep:
            await keep.deploy(script("$(reboot); --help"), grants="declared")
            await keep.publish("$(reboot); --help", "orders", message_id="m", title="x", payload="signed out")
            await keep.wait_idle()

    anyio.run(fill)
    [waiting] = box.objects("attention", code=Exit.WAITING)
    assert waiting["workflow"] == "$(reboot); --help"
    assert not any("reboot" in command for command in waiting["commands"])
    box.run("clear-error", waiting["workflow_id"])


# Saying.


def test_a_verdict_is_written_into_the_file_and_the_next_start_goes_on(box: Desk) -> None:
    done = box.run("resolve", "--workflow", "lost", "happened", "--by", "bob", "--result", '{"p":1}')
    assert "is applied, says bob" in done.stdout
    assert "this was written into" in done.stderr
    late = box.run("resolve", box.objects("outputs", "lost")[0]["mutation_id"], "skip", code=Exit.WRONG)
    assert "(user_assert_applied by bob)" in late.stderr

    async def go_on() -> None:
        async with keep_actors.open(box.db, connectors=[Shop()], sandbox="thread") as keep:
            await keep.wait_idle()

    anyio.run(go_on)
    assert list(box.states("lost").values()) == ["consumed"]
    assert examine(box.db).is_healthy


def test_a_verdict_of_each_kind_does_what_it_says(box: Desk, tmp_path: Path) -> None:
    assert list(box.states("lost").values()) == ["reserved"]
    copy = Desk(tmp_path / "copy.db")
    shutil.copy(box.db, copy.db)
    box.run("resolve", "--workflow", "lost", "did-not-happen")
    assert list(box.states("lost").values()) == ["pending"]
    copy.run("resolve", "--workflow", "lost", "skip")
    assert list(copy.states("lost").values()) == ["skipped"]
    refused = copy.run("resolve", copy.objects("outputs", "lost")[0]["mutation_id"], "try-again", code=Exit.WRONG)
    assert "already failed (user_skip" in refused.stderr


def test_a_stale_verdict_and_one_that_makes_no_sense_are_refused(box: Desk) -> None:
    words = ("resolve", "--workflow", "lost")
    assert "it changed since you looked" in box.run(*words, "skip", "--version", "7", code=Exit.WRONG).stderr
    assert "has no way to check" in box.run(*words, "try-again", code=Exit.WRONG).stderr
    assert "--result is only valid with `happened`" in box.run(*words, "skip", "--result", "1", code=Exit.USAGE).stderr
    assert "is not JSON" in box.run(*words, "happened", "--result", "{", code=Exit.USAGE).stderr
    assert "cannot be read" in box.run(*words, "happened", "--result", "@none", code=Exit.USAGE).stderr
    assert "one of happened" in box.run(*words, "perhaps", code=Exit.USAGE).stderr
    assert "Which call?" in box.run("resolve", "skip", code=Exit.USAGE).stderr
    assert "There is no call of 'idle'" in box.run("resolve", "--workflow", "idle", "skip", code=Exit.WRONG).stderr
    assert list(box.states("lost").values()) == ["reserved"]


def test_a_call_that_waits_can_be_refused_but_not_approved(box: Desk) -> None:
    assert "No runtime is running" in box.run("approve", "--workflow", "asks", code=Exit.NO_RUNTIME).stderr
    assert "is refused by bob" in box.run("reject", "--workflow", "asks", "--by", "bob").stdout
    assert list(box.states("asks").values()) == ["skipped"]


def test_a_call_that_is_refused_with_retry_is_pending_again(box: Desk) -> None:
    box.run("reject", "--workflow", "asks", "--retry", "--why", "the amount")
    assert list(box.states("asks").values()) == ["pending"]


def test_pausing_resuming_and_clearing_an_error_need_no_runtime(box: Desk) -> None:
    assert box.objects("pause", "idle")[0]["status"] == "paused"
    assert box.objects("resume", "idle")[0]["status"] == "active"
    assert box.objects("clear-error", "signed out", "--why", "signed in")[0]["error"] == ""
    assert "mutation_outcome_unknown" in box.run("clear-error", "lost", code=Exit.WRONG).stderr
    [entry] = box.objects("log", "signed out", "--limit", "1")
    assert (entry["operation"], entry["why"]) == ("clear_workflow_error", "signed in")


NEEDS_A_RUNTIME = [
    ("deploy", "SCRIPT"),
    ("rollback", "idle", "1.0"),
    ("archive", "idle", "--yes"),
    ("run-now", "idle"),
    ("stop", "idle"),
    ("grant", "idle", "shop.ship"),
    ("revoke", "idle", "shop.ship"),
    ("publish", "idle", "orders", "m"),
    ("skip-event", "idle", "orders", "m"),
    ("skip-item", "idle", "i"),
    ("reprocess-item", "idle", "i"),
    ("repair", "accept", "idle", "1.1"),
    ("repair", "refuse", "idle", "--why", "no"),
    ("log", "--follow"),
]


@pytest.mark.parametrize("words", NEEDS_A_RUNTIME, ids=lambda words: " ".join(words[:2]))
def test_what_needs_a_runtime_says_so_and_how_to_start_one(box: Desk, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "idle.js").write_text(script("idle"), "utf-8")
    before = box.objects("log", "--limit", "1")
    said = box.run(*(str(tmp_path / "idle.js") if each == "SCRIPT" else each for each in words), code=Exit.NO_RUNTIME)
    assert f"Start one: keep run --db {box.db}" in said.stderr
    assert box.objects("log", "--limit", "1") == before


def test_a_runtime_that_does_not_listen_is_told_apart_from_none(box: Desk) -> None:
    with Store.open(box.db):
        for words in (("run-now", "idle"), ("pause", "idle")):
            said = box.run(*words, code=Exit.NO_RUNTIME)
            assert "cannot be reached" in said.stderr
            assert "control=True" in said.stderr
        assert "Runtime: running" in box.run("status").stderr


@pytest.mark.parametrize("last_words", [b"", b'{"v":1,"answer":', b"nonsense\n", b'{"v":9,"answer":1}\n'])
def test_when_the_runtime_goes_away_before_it_answers_nobody_claims_to_know(box: Desk, last_words: bytes) -> None:
    before = box.objects("log", "--limit", "1")
    heard: list[bytes] = []
    with impostor(box.db) as listener:

        def die() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(65_536))
                connection.sendall(last_words)

        runtime = threading.Thread(target=die)
        runtime.start()
        said = box.run("pause", "idle", code=Exit.UNKNOWN)
        runtime.join()
    assert json.loads(heard[0])["do"] == "pause"
    assert "check (`keep status`, `keep log`) before you try again" in said.stderr
    assert box.objects("log", "--limit", "1") == before


def test_a_file_that_is_not_there_or_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    none, noise, empty = Desk(tmp_path / "none.db"), Desk(tmp_path / "noise.db"), Desk(tmp_path / "empty.db")
    noise.db.write_bytes(b"noise" * 1000)
    empty.db.touch()
    for words in (("status",), ("attention",), ("log",), ("pause", "x"), ("backup", str(tmp_path / "b.db"))):
        assert "there is no such file" in none.run(*words, code=Exit.WRONG).stderr
        assert "not a database" in noise.run(*words, code=Exit.WRONG).stderr
        assert "empty database" in empty.run(*words, code=Exit.WRONG).stderr
    assert not none.db.exists()
    assert not (tmp_path / "b.db").exists()


def test_a_call_that_a_killed_process_left_behind_can_be_settled_without_a_runtime(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    os.mkfifo(tmp_path / "gate")
    with shell.running(shell.write("hangs")) as process:
        shell.keep("publish", "hangs", "orders", "h1", "--payload", '"hangs1"')
        shell.until(process, "create_mutation")
        process.kill()
    box = Desk(shell.db)
    looked = box.run("attention")
    assert "1 run of the last runtime did not finish" in looked.stderr
    assert "is applied" in box.run("resolve", "--workflow", "hangs", "happened").stdout
    assert shell.shipped == ["hangs1"]
    assert list(box.states("hangs").values()) == ["reserved"], "its `next` runs with the next start"
    with shell.running() as process:
        shell.until(process, "commit_consumer")
        shell.end(process)
    assert list(box.states("hangs").values()) == ["consumed"]
    assert shell.shipped == ["hangs1"]
