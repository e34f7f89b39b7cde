"""What has waited for long: who looks sees what fails and since when, what is stale, and what nobody answered."""

import os
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

import keep_actors
from keep_actors import Grant, Keep, Policy
from keep_actors.cli.exit_codes import Exit
from tests.cli.at_work import Desk, Office, Shop, at_work, order
from tests.cli.operating import Shell, script

DAY_MS = 86_400_000


def changed(db: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(statement, values)


def test_status_says_since_when_a_handler_fails_and_when_it_is_tried_again(tmp_path: Path) -> None:
    async def fill(keep: Keep) -> None:
        for name in ("busy", "fine"):
            await keep.deploy(script(name), grants="declared")
            await order(keep, name, f"{name} 1")

    def act(office: Office) -> None:
        fine, busy = sorted(office.objects("status"), key=lambda each: len(each["failing"]))
        assert (fine["failing"], busy["needs_a_person"]) == ([], False)
        [failing] = busy["failing"]
        assert (failing["handler"], failing["times"]) == ("ship", 1)
        assert failing["retry_at"] > failing["since"]
        listed, detail = office.run("status").stdout, office.run("status", "busy").stdout
        assert "busy      failing" in listed
        assert "fine      active" in listed
        for text in (listed, detail):
            [line] = [each for each in text.splitlines() if "fails since 20" in each]
            assert ", once, tried again at 20" in line
            assert "(in " in line
        assert "not before" not in detail, "it is said once"
        office.run("pause", "busy")
        assert "fails since" not in office.run("status").stdout, "nothing is tried again while it is paused"
        office.run("resume", "busy")

    db = tmp_path / "keep.db"
    at_work(db, fill, act)
    assert "once, tried again once a runtime runs." in Desk(db).run("status").stdout


def test_attention_says_what_has_failed_for_long_with_what_to_type(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")

    async def fill(keep: Keep) -> None:
        await keep.deploy(script("busy"), grants="declared")
        await order(keep, "busy", "busy 1")

    at_work(desk.db, fill, lambda _: None)
    desk.run("attention")
    changed(desk.db, "UPDATE handlers SET failing_since = failing_since - ?", DAY_MS // 24)
    [waiting] = desk.objects("attention", code=Exit.WAITING)
    assert (waiting["kind"], waiting["about"]) == ("failing", "ship")
    words = "ship has failed for 60 minutes, 1 times in a row, the last time with: shop.ship: come back later"
    assert waiting["words"] == words
    assert "fails since" in desk.run(*shlex.split(waiting["commands"][0])[1:]).stdout


def test_attention_lists_what_came_in_long_ago_and_was_not_taken(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")

    async def fill(keep: Keep) -> None:
        await keep.deploy(script("flow"), grants="declared")
        await keep.pause("flow")
        await order(keep, "flow", "m1", "m2")

    at_work(desk.db, fill, lambda _: None)
    desk.run("attention")
    changed(desk.db, "UPDATE events SET created_at = created_at - ? WHERE message_id = 'm1'", 9 * DAY_MS)
    [waiting] = desk.objects("attention", code=Exit.WAITING)
    assert (waiting["kind"], waiting["words"]) == ("stale", "Event 'm1' of 'orders' has been pending for 9 days.")
    assert waiting["commands"] == [f"keep skip-event --db {desk.db} flow orders MESSAGE_ID --why TEXT"]
    assert "pending (stale)" in desk.run("inputs", "flow").stdout
    assert "type" in desk.run("attention", code=Exit.WAITING).stdout


def test_attention_says_that_a_question_nobody_answered_is_a_no_by_policy(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    policy = Policy(approval_expires_ms=1, approval_reminders=0)

    async def expire() -> None:
        async with keep_actors.open(desk.db, connectors=[Shop()], sandbox="thread", policy=policy) as keep:
            await keep.deploy(script("asks"), grants=[Grant("shop.ship", policy="ask")])
            await order(keep, "asks", "a")
            with anyio.fail_after(30):
                async for entry in keep.watch(after=0):
                    if entry.operation == "reject_mutation":
                        break
            await keep.wait_idle()

    anyio.run(expire)
    [waiting] = desk.objects("attention", code=Exit.WAITING)
    assert waiting["kind"] == "expired"
    assert waiting["words"].endswith("shop.ship was not made, refused by policy: no answer in time, asked once.")
    explained = desk.run(*shlex.split(waiting["commands"][0])[1:]).stdout
    assert "approval_expired" in explained
    assert desk.states("asks") == {"a": "skipped"}


def test_once_exits_as_attention_does_when_approvals_are_parked(tmp_path: Path) -> None:
    shell = Shell(tmp_path)

    async def fill(keep: Keep) -> None:
        await keep.deploy(script("asks"), grants=[Grant("shop.ship", policy="ask")])
        await order(keep, "asks", "a", "b")

    at_work(shell.db, fill, lambda _: None)
    once = ("run", "--once", "--connectors", "shop:Shop")
    done = shell.call(*once)
    assert (done.returncode, shell.call("attention").returncode) == (4, 4)
    assert done.stderr.count("asks: Ship ") == 2
    assert shell.call("status").stdout.count("active") == 1, "the questions are parked, and the workflow works"
    shell.keep("reject", "--all", "--yes")
    assert shell.call(*once).returncode == 0


def test_a_call_of_an_archived_workflow_that_a_killed_process_left_is_not_said_to_be_made(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    os.mkfifo(tmp_path / "gate")
    with shell.running(shell.write("hangs")) as process:
        shell.keep("publish", "hangs", "orders", "h1", "--payload", '"hangs1"')
        shell.until(process, "create_mutation")
        shell.keep("archive", "hangs", "--yes")
        [waiting] = shell.objects("attention", code=4)
        assert "shop.ship is being made" in waiting["words"]
        process.kill()
        process.wait()
    [waiting] = shell.objects("attention", code=4)
    assert "was being made when its process ended: it may have happened." in waiting["words"]
    assert "is being made" not in shell.keep("attention", code=4) + shell.keep("status", "hangs")
    typed = next(each for each in waiting["commands"] if " skip " in each)
    shell.keep(*shlex.split(typed.replace("TEXT", "gone"))[1:])
    assert shell.objects("attention") == []


def test_an_item_that_a_killed_process_left_is_interrupted_and_no_run_is_at_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    os.mkfifo(tmp_path / "gate")
    source = """
      export default Keep.workflow({ name: "sends", jobs: { send: { schedule: { interval: "1d" }, async handler(ctx) {
        await ctx.withItem("i1", "One", async (ctx) => { await ctx.shop.ship({ order: "hangs1" }); });
      } } } });
    """
    (tmp_path / "sends.js").write_text(source, "utf-8")
    with shell.running("sends.js") as process:
        shell.until(process, "create_mutation")
        assert "processing (a run is active)" in shell.keep("items", "sends")
        process.kill()
        process.wait()
    assert "processing (interrupted)" in shell.keep("items", "sends")
    one = shell.keep("items", "sends", "i1")
    assert "interrupted run" in one
    assert "a run is inside" not in one
