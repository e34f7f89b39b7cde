"""Ways out of the root that other programs open while a call runs, and names that look like others."""

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from keep_actors.connectors import Answer, DidNotHappen, Failed, Happened, MutationCall
from keep_actors.services.files.paths import Reach
from keep_actors.services.files.patterns import PathPatterns
from keep_actors.services.files.settings import FilesSettings
from keep_storage.model import FailureClass
from tests.services.files.calls import said, writer

pytestmark = pytest.mark.anyio

RACE_S = 0.7


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names again and again, as fast as it goes."""
    aside = one.with_name("aside")
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            one.rename(aside)
            other.rename(one)
            one.rename(other)
            aside.rename(one)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def outside_of(root: Path) -> Path:
    """A folder that nothing may touch."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("outside")
    root.mkdir()
    return outside


def names_in(folder: Path, pattern: str = "[!.]*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def untouched(outside: Path) -> bool:
    return {path.name: path.read_text() for path in outside.iterdir()} == {"a.txt": "outside"}


async def test_a_folder_that_becomes_a_link_while_a_call_runs_leads_nowhere(tmp_path: Path) -> None:
    root = tmp_path / "root"
    outside = outside_of(root)
    (root / "folder").mkdir()
    (root / "link").symlink_to(outside)
    files, happened, until = writer(root), 0, time.monotonic() + RACE_S
    with swapping(root / "folder", root / "link"):
        while time.monotonic() < until:
            for name, more in (("write", {"text": "x"}), ("append", {"text": "x"}), ("delete", {})):
                outcome = await files.mutate(name, {"path": "folder/a.txt", **more})
                happened += isinstance(outcome, Happened)
            read = await files.read("read", path="folder/a.txt")
            assert not isinstance(read, Answer) or "outside" not in read.json_text
            assert untouched(outside)
    assert happened, "some calls met the folder"


async def test_a_file_that_becomes_a_link_while_a_call_runs_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    outside = outside_of(root)
    (root / "a.txt").write_text("inside")
    (root / "link").symlink_to(outside / "a.txt")
    files, until = writer(root), time.monotonic() + RACE_S
    with swapping(root / "a.txt", root / "link"):
        while time.monotonic() < until:
            read = await files.read("read", path="a.txt")
            assert not isinstance(read, Answer) or "outside" not in read.json_text
            await files.mutate("append", {"path": "a.txt", "text": "more"})
            assert untouched(outside)


@pytest.mark.parametrize("name", ["write", "append"])
async def test_what_another_program_puts_in_the_place_of_a_file_of_ours_is_not_written_to(
    name: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    outside = outside_of(root)
    files = writer(root)
    for kind in ("a hard link", "a link", "a pipe"):

        async def swap(note: str, kind: str = kind) -> None:
            for ours in root.glob(".keep-*-1"):
                ours.unlink()
                match kind:
                    case "a hard link":
                        os.link(outside / "a.txt", ours)
                    case "a link":
                        ours.symlink_to(outside / "a.txt")
                    case _:
                        os.mkfifo(ours)
            assert note is not None

        call = files.call(name, {"path": "b.txt", "text": "x"}, keep_note=swap)
        outcome = await files.mutate(name, {"path": "b.txt", "text": "x"}, call)
        assert isinstance(outcome, DidNotHappen), kind
        assert untouched(outside)
        assert not (root / "b.txt").exists()


@pytest.mark.parametrize("name", ["write", "append", "delete", "move"])
async def test_pipes_sockets_and_devices_are_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with closing(socket.socket(socket.AF_UNIX)) as ours:
        monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket
        ours.bind("socket")
        if os.geteuid() == 0:
            os.mknod("device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        files = writer(tmp_path)
        for path in names_in(tmp_path):
            params = {"write": {"text": "x"}, "append": {"text": "x"}, "delete": {}, "move": {"to": "new"}}[name]
            outcome = await files.mutate(name, {"path": path, **params})
            assert isinstance(outcome, DidNotHappen)
            assert (outcome.cls, "a device, a pipe or a socket" in outcome.message) == (FailureClass.PRECONDITION, True)
            assert (tmp_path / path).exists()
            failed = await files.read("stat", path=path)
            assert isinstance(failed, Failed)


async def test_a_new_content_is_never_readable_for_more_people_than_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("old")
    (tmp_path / "key").chmod(0o600)
    seen: list[int] = []

    def look() -> None:
        [ours] = tmp_path.glob(".keep-*-1")
        assert ours.read_text() == "new"
        seen.append(stat.S_IMODE(ours.stat().st_mode))

    files, params = writer(tmp_path), {"path": "key", "text": "new"}
    assert isinstance(await files.mutate("write", params, files.call("write", params, on_sending=look)), Happened)
    assert seen == [0o600]


@pytest.mark.parametrize("name", [".keep-lock", ".Keep-lock", ".\u212aeep-lock", ".ke\u200bep-lock", ".\uff4beep-x"])
def test_a_name_that_some_file_system_takes_for_one_of_ours_is_refused(name: str) -> None:
    assert not Reach(FilesSettings(root=Path("root"), hidden=True)).is_open(name)


async def test_names_that_differ_for_the_file_system_are_two_files(tmp_path: Path) -> None:
    files = writer(tmp_path)
    names = ["a", "A", "\u00e9", "e\u0301", "%2e%2e", "..a", "a..", "~", "$HOME", "-rf", "a b ", "\uff0f", "x" * 255]
    allowed = [name for name in names if not name.startswith(".")]
    for name in allowed:
        assert isinstance(await files.mutate("write", {"path": name, "text": name}), Happened)
    assert names_in(tmp_path) == sorted(allowed)
    for name in allowed:
        assert said(await files.read("read", path=name))["content"] == name


async def test_a_page_of_long_names_fits_into_a_value(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 250] * 3)
    deep.mkdir(parents=True)
    for number in range(1000):
        (deep / f"{number:04d}{'n' * 246}").touch()
    files, found = writer(tmp_path), 0
    after: str | None = ""
    while after is not None:
        page = await files.read("list", path=str(deep.relative_to(tmp_path)), after=after, limit=1000)
        assert isinstance(page, Answer)
        assert len(page.json_text) < 1024 * 1024
        value = said(page)
        found, after = found + len(value["entries"]), value["next"]
    assert found == 1000


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*-*-*-*-*-*-*.csv", "-" * 255),
        ("**/a/**/a/**/a/**/a/**/a/**/b", "/".join("a" * 32)),
        ("*a" * 60, "a" * 254 + "b"),
    ],
)
def test_a_path_cannot_keep_the_event_loop_busy(pattern: str, path: str) -> None:
    began = time.process_time()
    assert not PathPatterns([pattern]).match(path)
    assert time.process_time() - began < 0.5


async def test_a_refused_change_leaves_no_note_that_could_prove_it(tmp_path: Path) -> None:
    """An equal line that is there already is no proof of one that was refused."""
    (tmp_path / "log").write_text("line\n")
    files, params = writer(tmp_path), {"path": "log", "text": "line\n"}
    notes: list[str] = []

    async def keep(note: str) -> None:
        notes.append(note)
        if note:  # in this moment the file becomes a folder
            (tmp_path / "log").unlink()
            (tmp_path / "log").mkdir()

    call: MutationCall = files.call("append", params, keep_note=keep)
    assert isinstance(await files.mutate("append", params, call), DidNotHappen)
    assert [bool(note) for note in notes] == [True, False]
    assert names_in(tmp_path, ".keep-*-*") == []
