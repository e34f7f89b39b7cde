"""What the command says of verdicts: the shape of a result, what is wrong with one, and what is settled by now."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

import keep_actors
from keep_actors import Policy
from tests.cli.operating import Shell, script
from tests.cli.terminal_session import terminal
from tests.cli.test_without_runtime import Shop


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def doubted_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which one call of the workflow `lost` is a question."""
    db = tmp_path_factory.mktemp("doubted") / "keep.db"

    async def fill() -> None:
        async with keep_actors.open(db, connectors=[Shop()], sandbox="thread") as keep:
            await keep.deploy(script("lost"), grants="declared")
            await keep.publish("lost", "orders", message_id="m1", title="One", payload="lost")
            await keep.wait_idle()

    anyio.run(fill)
    return db


@pytest.fixture
def doubted(doubted_file: Path, shell: Shell) -> Shell:
    """A folder with a copy of it, in which no runtime runs."""
    for file in doubted_file.parent.glob("keep.db*"):
        shutil.copy(file, shell.folder)
    return shell


def mutation_of(shell: Shell) -> dict[str, Any]:
    [output] = shell.objects("outputs", "lost")
    [explained] = shell.objects("explain", output["mutation_id"])
    found: dict[str, Any] = explained["mutation"]
    return found


# A running runtime knows the types.


def test_attention_shows_the_shape_with_an_example_and_what_it_says_to_type_works(doubted: Shell) -> None:
    with doubted.running():
        text = doubted.keep("attention", code=4)
        assert 'returns                     string, for example "text"' in text
        [waiting] = doubted.objects("attention", code=4)
        assert (waiting["unknown"]["result_type"], waiting["unknown"]["result_example"]) == ("string", '"text"')
        typed = next(each for each in waiting["commands"] if " happened " in each)
        assert typed.endswith("""--result '"text"'""")
        said = doubted.keep(*shlex.split(typed.replace('"text"', '"p-1"'))[1:])
        assert 'is applied, says olga. It returned "p-1".' in said


def test_a_missing_or_wrong_result_is_refused_with_what_to_add_and_nothing_is_written(doubted: Shell) -> None:
    with doubted.running():
        words = ("resolve", "--workflow", "lost", "happened")
        before = mutation_of(doubted)
        missing = doubted.refused(*words, code=1)
        assert "The result of shop.ship does not fit: expected string, got null." in missing
        assert """Expected string, for example "text". Add it: --result '"text"'""" in missing
        wrong = doubted.refused(*words, "--result", '{"parcel": 1}', code=1)
        assert "expected string, got object" in wrong
        assert "Add it" not in wrong
        assert mutation_of(doubted) == before


def test_on_a_terminal_a_missing_result_is_asked_for_until_it_fits(doubted: Shell) -> None:
    with doubted.running(), terminal(doubted.folder) as window:
        window.tmux("send-keys", "-l", "keep resolve --workflow lost happened --db keep.db; echo ENDED:$?")
        window.tmux("send-keys", "Enter")
        window.wait_for(r"Expected string, for example \"text\"\.\s+Result, as JSON: *$")
        for typed, answered in (("p-1", r"is not JSON[\s\S]+Result, as JSON: *$"), ("7", r"got number[\s\S]+JSON: *$")):
            window.tmux("send-keys", "-l", typed)
            window.tmux("send-keys", "Enter")
            window.wait_for(answered)
        window.tmux("send-keys", "-l", '"p-1"')
        window.tmux("send-keys", "Enter")
        window.wait_for(r"^ENDED:0$")
        assert 'It returned "p-1".' in window.screen()


def test_a_result_is_amended_through_the_runtime_until_next_has_used_it(doubted: Shell) -> None:
    with doubted.running() as process:
        doubted.keep("pause", "lost")
        doubted.keep("resolve", "--workflow", "lost", "happened", "--result", '"p-1"')
        mutation_id = mutation_of(doubted)["id"]
        assert "got number" in doubted.refused("amend", mutation_id, "--result", "7", code=1)
        said = doubted.keep("amend", mutation_id, "--result", '"p-2"', "--by", "ann", "--why", "misread")
        assert 'returned "p-2", says ann.' in said
        amended = mutation_of(doubted)
        assert (amended["result"], amended["resolved_who"], amended["resolved_why"]) == ('"p-2"', "ann", "misread")
        doubted.keep("resume", "lost")
        doubted.until(process, "commit_consumer")
        late = doubted.refused("amend", mutation_id, "--result", '"p-3"', code=1)
        assert "has used the result" in late
        assert "result_already_used" in late


# Without one, nobody does, unless the connectors are named.


def test_without_a_runtime_a_result_is_written_unchecked_and_that_is_said(doubted: Shell) -> None:
    done = doubted.call("resolve", "--workflow", "lost", "happened", "--result", "7")
    assert done.returncode == 0
    assert "The result 7 was not checked" in done.stderr
    mutation = mutation_of(doubted)
    assert mutation["result"] == "7"
    assert f"keep amend {mutation['id']} --result JSON --db keep.db" in done.stderr
    done = doubted.call("amend", mutation["id"], "--result", '"p-1"', "--why", "misread")
    assert (done.returncode, mutation_of(doubted)["result"]) == (0, '"p-1"')
    [entry] = doubted.objects("log", "lost", "--limit", "1")
    assert (entry["operation"], entry["why"]) == ("amend_result", "misread")


def test_without_a_runtime_named_connectors_check_a_result(doubted: Shell) -> None:
    words = ("--workflow", "lost", "happened", "--connectors", "shop:Shop")
    before = mutation_of(doubted)
    assert """Add it: --result '"text"'""" in doubted.refused("resolve", *words, code=1)
    assert "got number" in doubted.refused("resolve", *words, "--result", "7", code=1)
    other = ("--connectors", "examples.connectors:demo", "--result", "7")
    none = doubted.call("resolve", "--workflow", "lost", "happened", *other, PYTHONPATH=str(Path(__file__).parents[2]))
    assert (none.returncode, "None of these connectors has shop.ship" in none.stderr) == (2, True)
    assert mutation_of(doubted) == before
    done = doubted.call("resolve", *words, "--result", '"p-1"')
    assert (done.returncode, mutation_of(doubted)["result"]) == (0, '"p-1"')
    assert "not checked" not in done.stderr
    assert "got number" in doubted.refused("amend", before["id"], "--result", "7", "--connectors", "shop:Shop", code=1)


# What is settled is not called uncertain, nor what is over under way.


@pytest.mark.parametrize("verdict", ["happened", "did-not-happen", "skip"])
def test_a_run_whose_question_is_answered_is_resolved_and_nothing_of_it_is_uncertain(
    doubted: Shell, verdict: str
) -> None:
    [run] = doubted.objects("runs", "lost")
    assert (run["standing"], run["settled"]) == ("paused:reconciliation", "")
    assert "uncertain" in run["error_message"]
    doubted.keep("resolve", "--workflow", "lost", verdict, "--why", "I rang them")

    [run] = doubted.objects("runs", "lost")
    assert (run["standing"], run["status"], run["error_message"]) == ("resolved", "paused:reconciliation", "")
    assert run["settled"].startswith("shop.ship is ")
    assert run["settled"].endswith("by olga: I rang them)")
    text = doubted.keep("runs", "lost")
    assert "  resolved  " in text
    assert "paused" not in text
    [explained] = doubted.objects("explain", run["id"])
    assert (explained["run"]["run"]["standing"], explained["run"]["can_do"]) == ("resolved", [])
    assert explained["run"]["why"].startswith("It stopped in ")
    told = doubted.keep("explain", run["id"]).splitlines()
    shown = [*told[: next(n for n, line in enumerate(told) if "create_session" in line or "create_run" in line)]]
    for line in (*shown, text, doubted.keep("outputs", "lost"), doubted.keep("status", "lost")):
        assert "uncertain" not in line
    assert mutation_of(doubted)["error"] == ""
    assert doubted.objects("status", "lost")[0]["runs"][0]["standing"] == "resolved"


def test_a_run_that_a_killed_process_left_is_interrupted_and_not_running(shell: Shell) -> None:
    os.mkfifo(shell.folder / "gate")
    with shell.running(shell.write("hangs")) as process:
        shell.keep("publish", "hangs", "orders", "h1", "--payload", '"hangs1"')
        shell.until(process, "create_mutation")
        [line] = shell.objects("status")
        assert (line["is_running"], line["is_interrupted"]) == (True, False)
        assert "  running  " in shell.keep("status")
        process.kill()
        process.wait()
        [line] = shell.objects("status")
        assert (line["is_running"], line["is_interrupted"]) == (False, True)
        text = shell.keep("status") + shell.keep("status", "hangs")
        assert "  interrupted  " in text
        assert "  running  " not in text
        [run] = shell.objects("runs", "hangs")
        assert (run["standing"], run["status"]) == ("interrupted", "active")
        told = shell.keep("explain", run["id"])
        assert "Its process ended while it was active." in told
        assert "Start a runtime" in told


def test_once_exits_as_attention_does_when_something_is_parked(shell: Shell) -> None:
    async def fill() -> None:
        policy = Policy(on_unknown="park")
        async with keep_actors.open(shell.db, connectors=[Shop()], sandbox="thread", policy=policy) as keep:
            await keep.deploy(script("parks"), grants="declared")
            await keep.publish("parks", "orders", message_id="m1", title="One", payload="lost")
            await keep.wait_idle()

    anyio.run(fill)
    once = ("run", "--once", "--connectors", "shop:Shop")
    done = shell.call(*once)
    assert done.returncode == 4, done.stderr
    assert "parks: Mutation outcome uncertain" in done.stderr
    assert shell.call("attention").returncode == 4
    shell.keep("resolve", "--workflow", "parks", "skip")
    assert shell.call(*once).returncode == 0
