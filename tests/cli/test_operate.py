"""Those who operate a runtime: the command in one process, the runtime in another, over its control socket."""

import json
import os
import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.operating import Shell


class Operated(Shell):
    """A shop whose runtime runs, for all tests of this module: each has a workflow of its own."""

    process: "subprocess.Popen[str]"
    workflows = 0

    def deploy(self, *words: str) -> str:
        """A new workflow."""
        self.workflows += 1
        name = f"shop {self.workflows}"
        self.keep("deploy", self.write(name), *(words or ("--accept",)))
        return name

    def order(self, workflow: str, order: str) -> None:
        self.keep("publish", workflow, "orders", order, "--payload", json.dumps(order))

    def waits(self, workflow: str) -> dict[str, Any]:
        """What waits for a person, once it does."""
        self.until(self.process, "update_handler_run_status", "paused")
        [waiting] = self.objects("attention", "--workflow", workflow, code=4)
        assert isinstance(waiting, dict)
        return waiting


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    operated = Operated(tmp_path_factory.mktemp("shop"))
    with operated.running(operated.write("first")) as operated.process:
        yield operated
        operated.end(operated.process)
    assert not (operated.folder / "keep.db-control").exists(), "a runtime that has ended takes its socket away"


def test_the_socket_is_for_this_user_only(shell: Operated) -> None:
    found = (shell.folder / "keep.db-control").stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, os.getuid())
    assert [each.name for each in shell.folder.glob(".*")] == []


def test_status_says_who_runs_and_what_is_there(shell: Operated) -> None:
    done = shell.call("status")
    assert f"Runtime: running (process {shell.process.pid})." in done.stderr
    assert "first" in done.stdout
    [line] = [each for each in shell.objects("status") if each["name"] == "first"]
    assert (line["status"], line["pending"], line["needs_a_person"]) == ("active", 0, False)


def test_a_script_is_deployed_and_what_comes_in_goes_out(shell: Operated) -> None:
    workflow = shell.deploy()
    shell.order(workflow, "o1")
    shell.until(shell.process, "commit_consumer")
    [came] = shell.objects("inputs", workflow)
    assert (came["message_id"], came["status"], came["outputs"][0]["call"]) == ("o1", "consumed", "shop.ship")
    [went] = shell.objects("outputs", workflow)
    assert (went["params"], went["status"]) == ('{"order":"o1"}', "applied")
    [run] = shell.objects("runs", workflow)
    [explained] = shell.objects("explain", run["id"][:20])
    assert explained["run"]["run"]["id"] == run["id"]
    [of_event] = shell.objects("explain", went["mutation_id"])
    assert of_event["mutation"]["params"] == '{"order":"o1"}'
    [detail] = shell.objects("status", workflow)
    assert (detail["version"], [each["permission"] for each in detail["grants"]]) == ("1.0", ["shop.ship"])
    for command in ("inputs", "outputs", "runs", "status"):
        assert "\x1b" not in shell.keep(command, workflow)


def test_a_script_that_is_refused_is_said_to_be_with_every_problem(shell: Operated) -> None:
    (shell.folder / "bad.js").write_text("export default 1;", "utf-8")
    assert "bad.js: the script has 1 problem " in shell.refused("deploy", "bad.js", code=1)
    needs = shell.refused("deploy", shell.write("needy"), code=1)
    assert "shop.ship (risk" in needs
    assert "Accept them all with --accept" in needs


def test_an_unknown_outcome_is_shown_with_all_that_is_known_and_settled_once(shell: Operated) -> None:
    workflow = shell.deploy()
    shell.order(workflow, "lost1")
    waiting = shell.waits(workflow)
    unknown = waiting["unknown"]
    assert (waiting["kind"], unknown["call"], unknown["target"]) == ("unknown", "shop.ship", '{"order":"lost1"}')
    assert unknown["link"] == "https://shop.example/lost1", "the runtime was asked: it has the connectors"
    text = shell.keep("attention", "--workflow", workflow, code=4)
    assert text.isascii() or "\x9b" not in text
    assert "\x1b" not in text
    assert "Ship lost1\ufffd[2J" in text, "titles are stored without what a terminal would obey"
    assert "title (the script's words)" in text
    assert r"Look into the parcels.\x1b[31m" in text
    for command in waiting["commands"]:
        assert command in text

    # What it says to type is what works.
    typed = next(each for each in waiting["commands"] if " happened " in each)
    words = shlex.split(typed.replace("TEXT", "seen"))[1:]
    assert "is applied, says olga" in shell.keep(*words)
    shell.until(shell.process, "commit_consumer")

    late = shell.refused("resolve", unknown["mutation_id"], "skip", "--by", "ann", code=1)
    assert "already applied (user_assert_applied by olga)" in late
    assert "mutation_already_settled" in late
    [explained] = shell.objects("explain", unknown["mutation_id"])
    assert (explained["mutation"]["resolved_who"], explained["mutation"]["resolved_why"]) == ("olga", "seen")
    assert shell.objects("attention", "--workflow", workflow) == []


def test_a_verdict_on_something_that_has_changed_since_is_refused(shell: Operated) -> None:
    workflow = shell.deploy()
    shell.order(workflow, "lost2")
    version = shell.waits(workflow)["unknown"]["version"]
    words = ("resolve", "--workflow", workflow, "did-not-happen", "--version")
    assert "it changed since you looked" in shell.refused(*words, str(version - 1), code=1)
    shell.keep("pause", workflow)
    assert "is failed, says olga" in shell.keep(*words, str(version))


def test_of_two_who_answer_at_once_one_wins_and_the_other_is_told_who(shell: Operated) -> None:
    workflow = shell.deploy()
    shell.order(workflow, "lost3")
    mutation = shell.waits(workflow)["about"]
    both = [shell.start("resolve", mutation, "skip", "--by", who) for who in ("ann", "bob")]
    said = {who: process.communicate() for who, process in zip(("ann", "bob"), both, strict=True)}
    codes = {who: process.returncode for who, process in zip(("ann", "bob"), both, strict=True)}
    assert sorted(codes.values()) == [0, 1]
    winner = min(codes, key=lambda who: codes[who])
    loser = max(codes, key=lambda who: codes[who])
    assert f"(user_skip by {winner})" in said[loser][1]


def test_a_call_that_asks_first_is_approved_or_refused_by_name(shell: Operated) -> None:
    workflow = shell.deploy("--ask", "shop.ship")
    shell.order(workflow, "asks1")
    waiting = shell.waits(workflow)
    assert (waiting["kind"], waiting["call"]["params"]) == ("approval", '{"order":"asks1"}')
    assert "asks1" not in shell.shipped
    assert "is approved by olga" in shell.keep("approve", "--workflow", workflow)
    shell.until(shell.process, "commit_consumer")
    assert "asks1" in shell.shipped
    assert "already approved, by olga" in shell.refused("reject", waiting["about"], code=1)

    shell.order(workflow, "asks2")
    waiting = shell.waits(workflow)
    assert "is refused by olga" in shell.keep("reject", waiting["about"][:24], "--why", "no")
    shell.until(shell.process, "commit_consumer")
    assert [each["status"] for each in shell.objects("inputs", workflow)] == ["skipped", "consumed"]


def test_what_people_want_of_a_workflow_is_done_and_said(shell: Operated) -> None:
    workflow = shell.deploy()
    assert shell.keep("pause", workflow) == f"{workflow} is paused.\n"
    shell.order(workflow, "o9")
    assert shell.keep("skip-event", workflow, "orders", "o9", "--why", "spam") == "o9 is skipped.\n"
    assert shell.keep("resume", workflow) == f"{workflow} is active.\n"
    assert shell.keep("run-now", workflow) == f"The producers and jobs of {workflow} are due now.\n"
    assert "if a person approves each call" in shell.keep("grant", workflow, "shop.ship", "--ask", "--per-day", "5")
    assert "may no longer call shop.ship" in shell.keep("revoke", workflow, "shop.ship")
    assert "no method needs the permission" in shell.refused("grant", workflow, "shop.shop", code=1)
    assert "workflow_has_no_error" in shell.refused("clear-error", workflow, code=1)
    assert "No repair of workflow" in shell.refused("repair", "accept", workflow, "1.1", code=1)
    assert "has no version 7.0" in shell.refused("rollback", workflow, "7.0", code=1)
    assert "item_not_found" in shell.refused("skip-item", workflow, "none", code=1)
    assert "item_not_found" in shell.refused("reprocess-item", workflow, "none", code=1)
    [archived] = shell.objects("archive", workflow, "--yes")
    assert archived["status"] == "archived"
    assert "is archived" in shell.refused("pause", workflow, code=1)


def test_the_log_is_followed_as_it_is_written(shell: Operated) -> None:
    workflow = shell.deploy()
    with shell.start("log", workflow, "--follow", "--json") as follower:
        assert shell.until(follower, "activate_script")["workflow_id"].startswith("wf_")
        shell.order(workflow, "o5")
        assert shell.until(follower, "publish_events")["seq"] < shell.until(follower, "commit_consumer")["seq"]
        follower.send_signal(signal.SIGINT)
        assert follower.wait() == 0


def test_a_backup_of_a_running_database_is_whole_and_healthy(shell: Operated) -> None:
    [report] = shell.objects("backup", "copy.db")
    assert report["healthy"]
    there = {each["name"] for each in shell.objects("status", "--db", "copy.db", "--all")}
    assert there == {each["name"] for each in shell.objects("status", "--all")}
    assert sorted(each.name for each in shell.folder.glob("copy.db*")) == ["copy.db", "copy.db-shm", "copy.db-wal"] or [
        each.name for each in shell.folder.glob("copy.db*")
    ] == ["copy.db"]
    assert "exists already" in shell.refused("backup", "copy.db", code=1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_may_not_talk_to_the_runtime(shell: Operated) -> None:
    folders = [shell.folder, *shell.folder.parents]
    modes = {each: each.stat().st_mode for each in folders}
    for each in folders:
        if each.stat().st_uid == 0:
            each.chmod(modes[each] | 0o055)
    socket = shell.folder / "keep.db-control"
    try:
        for mode, words in ((0o600, "Permission denied"), (0o666, "User 65534 may not talk to this runtime")):
            # Whatever is done to the file afterwards: the system says who it is.
            socket.chmod(mode)
            said = _as_somebody_else(socket)
            assert words in said
    finally:
        socket.chmod(0o600)
        for each in folders:
            if each.stat().st_uid == 0:
                each.chmod(modes[each])


KNOCK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as knocking:
    try:
        knocking.connect(sys.argv[1])
        print(knocking.makefile().readline())
    except OSError as error:
        print(error)
"""


def _as_somebody_else(socket: Path) -> str:
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", KNOCK, socket],
        user=65534,
        group=65534,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
