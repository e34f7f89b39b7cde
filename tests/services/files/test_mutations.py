"""Changes of real files: their conditions, what is kept, and that only the allowed is changed."""

import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

from keep_actors.connectors import Catalog, DidNotHappen, Happened
from keep_actors.services.files import Files, FilesSettings
from keep_actors.testing.connector_suite import check_connector
from keep_storage.model import FailureClass
from tests.services.files.calls import said, writer

pytestmark = pytest.mark.anyio


def ours(root: Path) -> list[str]:
    """Files that a call left beside those of people."""
    return [path.name for path in root.rglob(".keep-*") if path.name != ".keep-lock"]


async def test_a_runtime_can_rely_on_it(tmp_path: Path) -> None:
    for name in ("a.txt", "old.txt", "from.txt"):
        (tmp_path / name).write_text("x")
    report = await check_connector(
        Files(FilesSettings(root=tmp_path, allow=("read", "write"))),
        examples={
            "list": {},
            "read": {"path": "a.txt"},
            "stat": {"path": "a.txt"},
            "write": {"path": "new.txt", "text": "hi"},
            "append": {"path": "log.txt", "text": "hi\n"},
            "delete": {"path": "old.txt"},
            "move": {"path": "from.txt", "to": "to.txt"},
            "makeFolder": {"path": "folder"},
        },
    )
    assert not report.findings, report


async def test_without_the_right_there_are_no_mutations(tmp_path: Path) -> None:
    assert set(Catalog([Files(FilesSettings(root=tmp_path))]).kinds().values()) == {"read"}


async def test_a_file_is_written_as_text_or_as_bytes(tmp_path: Path) -> None:
    files = writer(tmp_path)
    written = said(await files.mutate("write", {"path": "a.txt", "text": "né\r\n"}))
    assert (tmp_path / "a.txt").read_bytes() == "né\r\n".encode()
    assert (written["bytes"], written["hash"]) == (5, said(await files.read("stat", path="a.txt"))["hash"])
    assert isinstance(await files.mutate("write", {"path": "a.txt", "base64": "/wA="}), Happened)
    assert (tmp_path / "a.txt").read_bytes() == b"\xff\0"
    assert ours(tmp_path) == []


async def test_a_replaced_file_keeps_its_rights_but_none_that_would_be_dangerous(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("old")
    (tmp_path / "a.sh").chmod(0o4750)
    await writer(tmp_path).mutate("write", {"path": "a.sh", "text": "new"})
    assert stat.S_IMODE((tmp_path / "a.sh").stat().st_mode) == 0o750


async def test_an_empty_file_can_be_written_and_replaced(tmp_path: Path) -> None:
    files = writer(tmp_path)
    for text in ("", "x", ""):
        assert isinstance(await files.mutate("write", {"path": "a", "text": text}), Happened)
        assert (tmp_path / "a").read_text() == text


async def test_a_text_is_added_at_the_end(tmp_path: Path) -> None:
    files = writer(tmp_path)
    for line in ("one\n", "two\n"):
        await files.mutate("append", {"path": "log", "text": line})
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


async def test_a_file_is_moved_and_deleted(tmp_path: Path) -> None:
    files = writer(tmp_path)
    assert isinstance(await files.mutate("makeFolder", {"path": "done"}), Happened)
    (tmp_path / "a").write_text("x")
    assert said(await files.mutate("move", {"path": "a", "to": "done/a"})) == {"path": "done/a"}
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "done" / "a").read_text() == "x"
    await files.mutate("delete", {"path": "done/a"})
    assert list((tmp_path / "done").iterdir()) == []


HASH = "0" * 64
REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "there already": ("write", {"path": "a.txt", "text": "n", "ifAbsent": True}, "precondition", "is there already"),
    "another hash": ("write", {"path": "a.txt", "text": "n", "expectedHash": HASH}, "precondition", "another content"),
    "none with the hash": ("write", {"path": "b.txt", "text": "n", "expectedHash": HASH}, "precondition", "another"),
    "both contents": ("write", {"path": "b.txt", "text": "n", "base64": ""}, "logic", "either `text` or `base64`"),
    "no content": ("write", {"path": "b.txt"}, "logic", "either `text` or `base64`"),
    "bad base64": ("write", {"path": "b.txt", "base64": "?"}, "logic", "is not base64"),
    "no folder": ("write", {"path": "none/b.txt", "text": "n"}, "precondition", "is not there"),
    "onto a folder": ("write", {"path": "folder", "text": "n"}, "precondition", "is a folder"),
    "onto a link": ("write", {"path": "link", "text": "n"}, "precondition", "is a link"),
    "below a link": ("write", {"path": "out/b.txt", "text": "n"}, "precondition", "or is a link"),
    "onto a second name": ("write", {"path": "hard", "text": "n"}, "precondition", "has another name"),
    "too large": ("write", {"path": "b.txt", "text": "n" * 101}, "precondition", "at most 100"),
    "grown too large": ("append", {"path": "a.txt", "text": "n" * 100}, "precondition", "at most 100"),
    "the way up": ("write", {"path": "../b.txt", "text": "n"}, "logic", "has '..' in it"),
    "an own name": ("delete", {"path": ".keep-lock"}, "permission", "begin with a dot"),
    "another pattern": ("write", {"path": "b.exe", "text": "n"}, "permission", "`patterns` of the settings"),
    "moved to another pattern": ("move", {"path": "a.txt", "to": "b.exe"}, "permission", "`patterns`"),
    "nothing to delete": ("delete", {"path": "b.txt"}, "precondition", "is not there"),
    "delete another": ("delete", {"path": "a.txt", "expectedHash": HASH}, "precondition", "another content"),
    "delete a folder": ("delete", {"path": "folder"}, "precondition", "is a folder"),
    "delete a link": ("delete", {"path": "link"}, "precondition", "is a link"),
    "delete below a link": ("delete", {"path": "out/secret.txt"}, "precondition", "or is a link"),
    "nothing to move": ("move", {"path": "b.txt", "to": "d.txt"}, "precondition", "is not there"),
    "moved onto another": ("move", {"path": "a.txt", "to": "c.txt"}, "precondition", "is there already"),
    "moved below a link": ("move", {"path": "a.txt", "to": "out/a.txt"}, "precondition", "or is a link"),
    "a folder over a file": ("makeFolder", {"path": "a.txt"}, "precondition", "is no folder"),
    "a folder below a link": ("makeFolder", {"path": "out/new"}, "precondition", "or is a link"),
    "two folders at once": ("makeFolder", {"path": "x/y"}, "precondition", "is not there"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_change_changes_nothing(case: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root / "a.txt").write_text("a")
    (root / "c.txt").write_text("c")
    (root / "out").symlink_to(outside)
    (root / "link").symlink_to(outside / "secret.txt")
    os.link(outside / "secret.txt", root / "hard")
    name, params, failure_class, words = REFUSED[case]
    patterns = ("*.txt", "folder", "link", "hard", "out/*", "none/*")
    outcome = await writer(root, bytes_max=100, patterns=patterns).mutate(name, params)
    assert isinstance(outcome, DidNotHappen), outcome
    assert (outcome.cls, words in outcome.message) == (FailureClass(failure_class), True), outcome.message
    left = {path.name: path.read_text() for path in root.iterdir() if path.is_file() and path.name != ".keep-lock"}
    assert left == {"a.txt": "a", "c.txt": "c", "link": "secret", "hard": "secret"}
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": "secret"}
    assert ours(tmp_path) == []


async def test_a_file_that_another_makes_in_the_last_moment_stays(tmp_path: Path) -> None:
    files = writer(tmp_path)
    params = {"path": "a.txt", "text": "ours", "ifAbsent": True}
    call = files.call("write", params, on_sending=lambda: (tmp_path / "a.txt").write_text("theirs") and None)
    for attempt, expected in ((call, FailureClass.TRANSIENT), (None, FailureClass.PRECONDITION)):
        outcome = await files.mutate("write", params, attempt)
        assert isinstance(outcome, DidNotHappen)
        assert outcome.cls is expected
        assert (tmp_path / "a.txt").read_text() == "theirs"
    assert ours(tmp_path) == []


async def test_a_line_is_added_to_a_file_that_another_makes_in_the_last_moment(tmp_path: Path) -> None:
    files = writer(tmp_path)
    params = {"path": "log", "text": "ours\n"}
    call = files.call("append", params, on_sending=lambda: (tmp_path / "log").write_text("theirs\n") and None)
    assert isinstance(await files.mutate("append", params, call), DidNotHappen)
    again = files.call("append", params, idempotency_key=call.idempotency_key, attempt=2)
    assert isinstance(await files.mutate("append", params, again), Happened)
    assert (tmp_path / "log").read_text() == "theirs\nours\n"


async def test_a_file_that_another_changes_between_note_and_change_is_not_deleted_or_moved(tmp_path: Path) -> None:
    files = writer(tmp_path)
    for name, params in (("delete", {"path": "a.txt"}), ("move", {"path": "a.txt", "to": "b.txt"})):
        (tmp_path / "a.txt").write_text("seen")

        async def change(_: str) -> None:
            (tmp_path / "a.txt").write_text("changed")

        outcome = await files.mutate(name, params, files.call(name, params, keep_note=change))
        assert isinstance(outcome, DidNotHappen)
        assert outcome.cls is FailureClass.TRANSIENT
        assert (tmp_path / "a.txt").read_text() == "changed"


def _append(root: Path, name: str, count: int, backend: str) -> None:
    async def run() -> None:
        files = writer(root)
        for number in range(count):
            params = {"path": "log.txt", "text": f"{name} {number}\n"}
            call = files.call("append", params, idempotency_key=f"{name}-{number}")
            outcome = await files.mutate("append", params, call)
            assert isinstance(outcome, Happened), outcome

    anyio.run(run, backend=backend)


def test_two_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_append, args=(tmp_path, name, 15, backend))
        for name, backend in (("left", "asyncio"), ("right", "trio"))
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0]
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("left")] == [f"left {number}" for number in range(15)]
    assert len(lines) == len(set(lines)) == 30
