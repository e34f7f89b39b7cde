"""A copy of a database while its runtime works: one moment of it, complete or not there at all."""

import sqlite3
import stat
from pathlib import Path

import pytest

from keep_storage import Ids, Store, reads, wall_clock
from keep_storage import operations as ops
from keep_storage.backup import back_up
from keep_storage.doctor import examine
from keep_storage.errors import StorageCorrupt, StorageForeign, StorageUnavailable


def made(store: Store, count: int) -> None:
    ids = Ids(wall_clock)
    for number in range(count):
        [done] = store.commit([ops.CreateWorkflow(ids.new("wf"), f"workflow {number} {'x' * 1000}")])
        done.unwrap()


def nothing(done: int, pages: int) -> None:
    assert 0 <= done <= pages


def test_it_is_one_moment_although_the_runtime_goes_on(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    with Store.open(tmp_path / "keep.db") as store:
        made(store, 6_000)

        def told(done: int, pages: int) -> None:
            heard.append((done, pages))
            made(store, 1)

        report = back_up(tmp_path / "keep.db", tmp_path / "copy.db", told)
        made(store, 1)
    assert report.is_healthy
    assert report.path == str(tmp_path / "copy.db")
    assert len(heard) > 1, "several steps, and what is written between them does not start it anew"
    assert [each for each, _ in heard] == sorted({each for each, _ in heard})
    assert heard[-1][0] == heard[-1][1]
    with Store.open(tmp_path / "copy.db") as copy:
        assert len(reads.workflows(copy.queries())) == 6_000


def test_it_is_one_file_that_nobody_may_read_who_may_not_read_the_other(tmp_path: Path) -> None:
    with Store.open(tmp_path / "keep.db") as store:
        made(store, 1)
        (tmp_path / "keep.db").chmod(0o600)
        back_up(tmp_path / "keep.db", tmp_path / "copy.db", nothing)
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith("keep.db")] == ["copy.db"]


def test_nothing_is_overwritten_also_if_it_comes_meanwhile(tmp_path: Path) -> None:
    with Store.open(tmp_path / "keep.db") as store:
        made(store, 1)
        (tmp_path / "there.db").write_text("precious")
        with pytest.raises(StorageUnavailable, match="exists already"):
            back_up(tmp_path / "keep.db", tmp_path / "there.db", nothing)

        def somebody_else(done: int, pages: int) -> None:
            (tmp_path / "late.db").write_text("precious")

        with pytest.raises(StorageUnavailable, match="cannot be written: File exists"):
            back_up(tmp_path / "keep.db", tmp_path / "late.db", somebody_else)
    assert {(tmp_path / name).read_text() for name in ("there.db", "late.db")} == {"precious"}
    assert not list(tmp_path.glob(".*"))


def test_what_is_no_healthy_database_of_ours_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="there is no such file"):
        back_up(tmp_path / "none.db", tmp_path / "copy.db", nothing)
    (tmp_path / "noise.db").write_bytes(b"noise" * 1_000)
    with pytest.raises(StorageCorrupt):
        back_up(tmp_path / "noise.db", tmp_path / "copy.db", nothing)
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageCorrupt, match="empty database"):
        back_up(tmp_path / "empty.db", tmp_path / "copy.db", nothing)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(StorageForeign):
        back_up(tmp_path / "other.db", tmp_path / "copy.db", nothing)
    with pytest.raises(StorageUnavailable, match="cannot be written"):
        back_up(tmp_path / "empty.db", tmp_path / "no" / "copy.db", nothing)
    assert not list(tmp_path.glob("copy.db"))
    assert not list(tmp_path.glob(".*"))
    assert not examine(tmp_path / "empty.db").is_healthy
