"""Listing, content and description of real files."""

import os
from pathlib import Path

import pytest

from keep_actors.connectors import Answer, Failed, Transient
from keep_actors.services import SettingsError
from keep_actors.services.files import Files, FilesSettings
from keep_actors.services.files.folder import content_of, file_in, folder_at, refuse_changed
from keep_storage.model import FailureClass
from tests.services.files.calls import Caller, said

pytestmark = pytest.mark.anyio


def reader(root: Path, **more: object) -> Caller:
    return Caller(Files(FilesSettings(root=root, **more)))  # type: ignore[arg-type]


async def test_a_folder_is_listed_in_pages_by_name(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x" * number)
    (tmp_path / "2x").mkdir()
    files = reader(tmp_path)
    names: list[str] = []
    after = ""
    while True:
        page = said(await files.read("list", after=after, limit=2))
        names += [entry["path"] for entry in page["entries"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert names == ["0.txt", "1.txt", "2.txt", "2x", "3.txt", "4.txt"]
    assert said(await files.read("list", limit=6))["next"] is None


async def test_a_listing_shows_only_what_may_be_touched(tmp_path: Path) -> None:
    (tmp_path / "seen.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / ".hidden.txt").write_text("x")
    (tmp_path / "other.md").write_text("x")
    (tmp_path / "two.txt").write_text("x")
    os.link(tmp_path / "two.txt", tmp_path / "names.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "seen.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.txt", os.O_CREAT))
    page = said(await reader(tmp_path, patterns=("*.txt",)).read("list"))
    assert [(entry["path"], entry["kind"]) for entry in page["entries"]] == [("folder", "folder"), ("seen.txt", "file")]


async def test_a_text_is_read_in_parts_that_never_cut_a_character(tmp_path: Path) -> None:
    text = "aé€😀" * 20
    (tmp_path / "a.txt").write_text(text, "utf-8")
    files, found = reader(tmp_path), ""
    offset: int | None = 0
    while offset is not None:
        part = said(await files.read("read", path="a.txt", offset=offset, limit=5))
        found, offset = found + part["content"], part["next"]
    assert found == text


async def test_bytes_are_read_as_base64(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\0")
    files = reader(tmp_path)
    part = said(await files.read("read", path="a.bin", encoding="base64"))
    assert (part["content"], part["size"], part["next"]) == ("/wA=", 2, None)
    refused = await files.read("read", path="a.bin")
    assert isinstance(refused, Failed)
    assert 'read it with encoding: "base64"' in refused.message


async def test_a_description_has_the_hash_that_a_change_can_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    files = reader(tmp_path, bytes_max=3)
    info = said(await files.read("stat", path="a.txt"))
    assert info["hash"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    (tmp_path / "a.txt").write_text("abcd")
    assert said(await files.read("stat", path="a.txt"))["hash"] is None
    assert said(await files.read("stat", path="none/none.txt")) is None
    (tmp_path / "folder").mkdir()
    assert said(await files.read("stat", path="folder"))["kind"] == "folder"


REFUSED = {
    "missing": ("none.txt", FailureClass.PRECONDITION, "is not there"),
    "a folder": ("folder", FailureClass.PRECONDITION, "is a folder"),
    "below a file": ("a.txt/b", FailureClass.PRECONDITION, "is not a folder, or is a link"),
    "a link": ("link.txt", FailureClass.PRECONDITION, "is a link"),
    "a link that leads nowhere": ("dangling", FailureClass.PRECONDITION, "is a link"),
    "below a link": ("out/secret.txt", FailureClass.PRECONDITION, "is not a folder, or is a link"),
    "a pipe": ("pipe", FailureClass.PRECONDITION, "a device, a pipe or a socket"),
    "a second name": ("hard.txt", FailureClass.PRECONDITION, "has another name"),
    "the way up": ("../outside/secret.txt", FailureClass.LOGIC, "has '..' in it"),
    "an absolute path": ("/etc/passwd", FailureClass.LOGIC, "is absolute"),
    "behind the end": ("a.txt", FailureClass.LOGIC, "behind the end"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_nothing_but_a_file_of_its_own_below_the_root_is_read(case: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (root / "a.txt").write_text("a")
    (root / "out").symlink_to(outside)
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "dangling").symlink_to(outside / "none")
    os.link(outside / "secret.txt", root / "hard.txt")
    os.mkfifo(root / "pipe")
    path, failure_class, words = REFUSED[case]
    failed = await reader(root).read("read", path=path, offset=2 if case == "behind the end" else 0)
    assert isinstance(failed, Failed), failed
    assert (failed.cls, words in failed.message) == (failure_class, True), failed.message
    assert "secret" not in failed.message.replace("secret.txt", "")


async def test_a_second_name_can_be_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    assert isinstance(await reader(tmp_path, hard_links=True).read("read", path="b.txt"), Answer)


async def test_a_root_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="make it first"):
        await Files(FilesSettings(root=tmp_path / "none")).open()


def test_a_file_that_another_takes_the_place_of_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old", "utf-8")
    (tmp_path / "b.txt").write_text("new", "utf-8")
    with folder_at(tmp_path) as folder, file_in(folder, "a.txt", hard_links=False) as descriptor:
        before = os.fstat(descriptor)
        (tmp_path / "b.txt").replace(tmp_path / "a.txt")
        refuse_changed(descriptor, before, "a.txt")
        assert content_of(descriptor, "a.txt", 100) == b"old"


def test_a_file_that_is_written_to_while_it_is_read_is_read_again_later(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old", "utf-8")
    with folder_at(tmp_path) as folder, file_in(folder, "a.txt", hard_links=False) as descriptor:
        before = os.fstat(descriptor)
        (tmp_path / "a.txt").write_text("newer", "utf-8")
        with pytest.raises(Transient, match=r"a\.txt changed while it was read"):
            refuse_changed(descriptor, before, "a.txt")
