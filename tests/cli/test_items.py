"""The items of jobs in a shell: looked at with and without a runtime, changed one or many at a time."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import keep_actors
from keep_actors import Connector, mutation
from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.typed import answers_to_item
from keep_storage import ExecutionModelManager, Store, reads
from keep_storage.model import ItemState
from keep_storage.operations import CloseItem, OpenItem, Together
from tests.cli.at_work import Desk, copied
from tests.cli.operating import KEEP, Shell

SCRIPT = """
export default Keep.workflow({
  name: "NAME",
  jobs: {
    send: {
      schedule: { interval: "1d" },
      async handler(ctx) {
        for (const id of ["o1", "o2", "o3", "سی\\u200cسی"])
          await ctx.withItem(id, `Order ${id}`, async (ctx) => {
            if (!ctx.item.isDone) await ctx.shop.ship({ order: id, note: "NOTE" });
            END
          });
      },
    },
  },
});
"""


class Shop(Connector):
    name = "shop"

    @mutation(identity=["order"])
    async def ship(self, order: str, note: str) -> str:
        return f"{order} {note}"


def script(name: str, note: str = "hi", end: str = "") -> str:
    return SCRIPT.replace("NAME", name).replace("NOTE", note).replace("END", end)


# Looking, without a runtime.


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with `done`, whose items are, and `waits`, whose first item needs a person."""
    db = tmp_path_factory.mktemp("left") / "keep.db"

    async def fill() -> None:
        async with keep_actors.open(db, connectors=[Shop()], sandbox="thread", grants="all") as keep:
            await keep.deploy(script("done"))
            await keep.deploy(script("waits", end='throw new Error("no");'))
            await keep.wait_idle()
            await keep.deploy(script("waits", note="bye"), workflow="waits")
            await keep.wait_idle()
            await keep.reprocess_items("done", ["o1", "o2"], by="ann")
            await keep.run_now("done")
            await keep.wait_idle()
            await keep.reprocess_item("done", "o2", by="ann")

    anyio.run(fill)
    return db


@pytest.fixture
def box(left: Path, tmp_path: Path) -> Desk:
    return copied(left, tmp_path)


def test_items_are_shown_by_id_and_state_in_pages(box: Desk) -> None:
    shown = [(each["item_id"], each["state"], each["attempt"]) for each in box.objects("items", "done")]
    assert shown == [("o1", "done", 2), ("o2", "processing", 3), ("o3", "done", 1), ("سی\u200cسی", "done", 1)]
    assert [each["item_id"] for each in box.objects("items", "done", "--limit", "1", "--after", "o1")] == ["o2"]
    assert [each["item_id"] for each in box.objects("items", "done", "--state", "processing")] == ["o2"]
    assert box.objects("items", "done", "--state", "failed") == []
    lines = box.run("items", "waits").stdout.splitlines()
    assert lines[0].split()[:4] == ["ITEM", "WHEN", "STATE", "ATTEMPT"]
    assert "needs_attention" in lines[1]
    assert "has already been done with other content" in lines[1]


def test_one_item_is_shown_with_every_attempt_and_its_calls(box: Desk) -> None:
    [found] = box.objects("items", "done", "o1")
    assert (found["item"]["state"], [each["state"] for each in found["attempts"]]) == ("done", ["done", "done"])
    assert [[call["params"] for call in each["calls"]] for each in found["attempts"]] == [
        ['{"order":"o1","note":"hi"}']
    ] * 2
    assert [len(each["runs"]) for each in found["attempts"]] == [1, 1]
    text = box.run("items", "done", "o1").stdout
    assert "attempt 2: done" in text
    assert "calls  shop.ship is applied (mut_" in text
    assert '      note   "hi"\n      order  "o1"\n' in text
    assert f"keep reprocess-item --db {box.db} done o1 --why TEXT" in text
    assert "skip-item" not in text, "what is done cannot be skipped"
    assert r"item سی\u{200c}سی" in box.run("items", "done", "سی\u200cسی").stdout
    assert "has no item 'none'" in box.run("items", "done", "none", code=Exit.WRONG).stderr


def test_status_counts_items_by_state(box: Desk) -> None:
    counted = {each["name"]: each["items"] for each in box.objects("status")}
    assert counted == {"done": {"done": 3, "processing": 1}, "waits": {"needs_attention": 1}}
    assert {each["items_are_cut"] for each in box.objects("status")} == {False}
    assert "1 processing, 3 done" in box.run("status").stdout
    assert "items            1 needs_attention" in box.run("status", "waits").stdout


def test_who_waits_for_an_item_is_told_how_to_skip_or_reprocess_it(box: Desk) -> None:
    [waiting] = box.objects("attention", code=Exit.WAITING)
    assert waiting["item"] == "o1"
    expected = [f"keep {each} --db {box.db} waits o1 --why TEXT" for each in ("skip-item", "reprocess-item")]
    assert waiting["commands"][:2] == expected
    assert waiting["commands"][2].startswith("keep clear-error")
    [story] = box.objects("explain", waiting["run_id"])
    assert story["commands"] == expected
    for text in (box.run("attention", code=Exit.WAITING).stdout, box.run("explain", waiting["run_id"]).stdout):
        for each in expected:
            assert each in text


@pytest.mark.parametrize("item_id", ["\x1b[31m", "--yes", "o\n1"])
def test_an_item_whose_id_cannot_be_typed_is_named_by_its_state(item_id: str) -> None:
    commands = answers_to_item(Path("keep.db"), "digest", item_id, ItemState.NEEDS_ATTENTION)
    assert commands[0] == "keep skip-item --db keep.db digest --state needs_attention --why TEXT"
    assert answers_to_item(Path("keep.db"), "digest", "o 1", ItemState.DONE) == [
        "keep reprocess-item --db keep.db digest 'o 1' --why TEXT"
    ]


def test_a_change_needs_items_or_a_state_and_a_yes_where_nobody_can_be_asked(box: Desk) -> None:
    for command in ("skip-item", "reprocess-item"):
        assert "Name the items" in box.run(command, "done", code=Exit.USAGE).stderr
        assert "Name the items" in box.run(command, "done", "o1", "--state", "failed", code=Exit.USAGE).stderr
        assert "There is no such item." in box.run(command, "done", "--state", "failed").stderr
        assert "No runtime is running" in box.run(command, "done", "o1", code=Exit.NO_RUNTIME).stderr
    said = box.run("reprocess-item", "done", "--state", "done", code=Exit.USAGE).stderr
    assert "Reprocess 3 items of done that are done? Everything in them is done again." in said
    assert "add --yes" in said
    assert "'done' is not one of" in box.run("skip-item", "done", "--state", "done", code=Exit.USAGE).stderr


# Changing, with a runtime.


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    operated = Shell(tmp_path_factory.mktemp("shop"))
    shop = (operated.folder / "shop.py").read_text("utf-8")
    (operated.folder / "shop.py").write_text(
        shop.replace("order: str) -> str:", 'order: str, note: str = "") -> str:'), "utf-8"
    )
    (operated.folder / "items.js").write_text(script("items"), "utf-8")
    with operated.running("items.js") as process:
        operated.until(process, "commit_job")
        yield operated
        operated.end(process)


def states(shell: Shell) -> dict[str, str]:
    return {each["item_id"]: f"{each['state']} {each['attempt']}" for each in shell.objects("items", "items")}


def test_many_items_are_skipped_and_processed_anew_over_the_socket(shell: Shell) -> None:
    assert shell.keep("reprocess-item", "items", "o1", "o2") == (
        "Item o1 is processing, attempt 2.\nItem o2 is processing, attempt 2.\n"
    )
    refused = shell.refused("skip-item", "items", "o1", "o3", code=1)
    assert "Item 'o3' is done; there is nothing left to skip." in refused
    assert states(shell)["o1"] == "processing 2", "all or none"
    [first, second] = shell.objects("skip-item", "items", "--state", "processing", "--yes", "--why", "gone")
    assert (first["item_id"], first["state"], second["item_id"]) == ("o1", "skipped", "o2")
    [entry] = shell.objects("log", "items", "--limit", "1")
    assert (entry["operation"], entry["why"]) == ("skip_item", "gone")
    assert "There is no such item." in shell.call("skip-item", "items", "--state", "processing").stderr


@pytest.mark.parametrize(("answer", "code", "state"), [("n", 1, "skipped"), ("y", 0, "processing")])
def test_on_a_terminal_a_person_is_asked_with_the_number(shell: Shell, answer: str, code: int, state: str) -> None:
    shell.keep("reprocess-item", "items", "o3")
    shell.keep("skip-item", "items", "o3")
    keyboard, terminal = os.openpty()
    os.write(keyboard, f"{answer}\n".encode())
    env = os.environ | {"KEEP_DB": "keep.db", "LOGNAME": "olga"}
    words = [str(KEEP), "reprocess-item", "items", "--state", "skipped"]
    done = subprocess.run(
        words, cwd=shell.folder, env=env, stdin=terminal, capture_output=True, text=True, check=False, timeout=60
    )
    os.close(keyboard)
    os.close(terminal)
    assert (done.returncode, "of items that are skipped? Everything in them is done again." in done.stderr) == (
        code,
        True,
    )
    assert states(shell)["o3"].startswith(state)


def test_more_than_a_thousand_items_are_changed_a_thousand_at_a_time(tmp_path: Path) -> None:
    shell = Shell(tmp_path)

    async def at_work(*words: str) -> list[Any]:
        """What a command says while a runtime runs."""
        options: dict[str, Any] = {"connectors": [Shop()], "sandbox": "thread", "grants": "all", "control": True}
        async with keep_actors.open(shell.db, **options) as keep:
            if not await keep.workflows():
                await keep.deploy(script("items"))
                await keep.wait_idle()
            return await anyio.to_thread.run_sync(lambda: shell.objects(*words))

    assert len(anyio.run(at_work, "items", "items")) == 4
    with Store.open(shell.db) as store:
        model, [workflow] = ExecutionModelManager(store), reads.workflows(store.queries())
        run = model.create_run("run_1", model.create_session("ses_1", workflow.id, "test").id, "send")
        for at in range(1_001):
            entered = OpenItem(run.id, f"i{at}", "T"), CloseItem(run.id, f"i{at}", ItemState.NEEDS_ATTENTION)
            model.execute(Together(entered))
        model.commit_job(run.id, next_run_at=None)
    [line] = anyio.run(at_work, "status")
    assert (line["items"], line["items_are_cut"]) == ({"done": 4, "needs_attention": 1000}, True)
    assert len(anyio.run(at_work, "skip-item", "items", "--state", "needs_attention", "--yes")) == 1_001
    assert anyio.run(at_work, "items", "items", "--state", "needs_attention") == []
