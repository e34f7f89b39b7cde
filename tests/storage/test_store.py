"""The store: many operations in one commit, one owner, and clear words when the file or the disk is wrong."""

import logging
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from keep_storage import StorageCorrupt, StorageForeign, StorageOwned, StorageTooNew, StorageUnavailable, Store, reads
from keep_storage.operations import CreateWorkflow, Done
from tests.storage.world import WORKFLOW, CountingClock, World, contents


def test_the_journal_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with Store.open(path) as store:
        World(store)
    connection = apsw.Connection(str(path))
    for statement in ("UPDATE journal SET why = 'x'", "DELETE FROM journal"):
        with pytest.raises(apsw.ConstraintError, match="never"):
            connection.execute(statement)
    connection.close()


# The file.


def test_what_was_answered_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with Store.open(path) as store:
        world = World(store)
        world.publish("m1")
        before = contents(path)
    with Store.open(path) as store:
        assert contents(path) | {"store": before["store"]} == before, "all but the fence of the new start"
        world = World(store, deploy=False)
        assert world.states() == {"m1": "pending"}


def test_the_file_has_a_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with Store.open(path):
        connection = apsw.Connection(str(path))
        assert connection.pragma("journal_mode") == "wal"
        connection.close()


def test_a_second_runtime_is_refused_and_told_who_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    link = tmp_path / "link.db"
    with Store.open(path):
        link.symlink_to(path)
        for name in (path, link):
            with pytest.raises(StorageOwned, match=r"process \d+"):
                Store.open(name)
    Store.open(path).close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    attempt = f"from keep_storage import Store; Store.open({str(path)!r})"
    with Store.open(path):
        done = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "StorageOwned" in done.stderr


def test_a_file_that_cannot_be_opened_leaves_no_owner_behind(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(StorageCorrupt):
        Store.open(path)
    path.unlink()
    Store.open(path).close()


def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    Store.open(path).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageTooNew, match="999"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_database_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE runs (id TEXT); INSERT INTO runs VALUES ('theirs')")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageForeign, match="not one of keep-actors"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    with Store.open(path) as store:
        world = World(store)
        world.publish(*(f"m{number}" for number in range(500)))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StorageCorrupt, match="damaged"):
        Store.open(path)


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="folder"):
        Store.open(tmp_path / "missing" / "keep.db")


def test_a_folder_instead_of_a_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="cannot be opened"):
        Store.open(tmp_path)


def test_a_broken_invariant_is_reported_at_open_and_not_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keep.db"
    with Store.open(path) as store:
        world = World(store)
        world.publish("m1")
        run = world.prepared("m1")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE runs SET status = 'crashed', ended_at = 1 WHERE id = ?", (run.id,))
    connection.close()

    with caplog.at_level(logging.ERROR), Store.open(path) as store:
        world = World(store, deploy=False)
        assert [event.message_id for event in world.model.assert_no_orphaned_reserved_events()] == ["m1"]
        assert world.states() == {"m1": "reserved"}, "a bug is shown, not hidden"
    assert "reserved_event_has_a_living_holder" in caplog.text
    assert run.id in caplog.text


# Readers.


def test_readers_see_what_is_committed_and_cannot_write(tmp_path: Path) -> None:
    with Store.open(tmp_path / "keep.db") as store:
        world = World(store)
        reader = store.reader()
        world.publish("m1")
        assert [event.message_id for event in reads.peek(reader, WORKFLOW, "mail")] == ["m1"]
        with pytest.raises(StorageUnavailable, match="read-only"):
            reader.all("fence", {})
        reader.close()


def test_a_snapshot_sees_one_moment(tmp_path: Path) -> None:
    with Store.open(tmp_path / "keep.db") as store:
        world = World(store)
        reader = store.reader()
        with reader.snapshot():
            assert reads.peek(reader, WORKFLOW, "mail") == []
            world.publish("m1")
            assert reads.peek(reader, WORKFLOW, "mail") == []
        assert len(reads.peek(reader, WORKFLOW, "mail")) == 1
        reader.close()


def test_a_reader_never_waits_for_the_writer(tmp_path: Path) -> None:
    """The reader answers while the writer is in the middle of a transaction."""
    path = tmp_path / "keep.db"
    with Store.open(path) as store:
        world = World(store)
        reader = store.reader()
        writer = apsw.Connection(str(path))
        writer.execute("BEGIN IMMEDIATE")
        assert reads.workflow(reader, WORKFLOW) == world.workflow()
        writer.execute("ROLLBACK")
        writer.close()
        reader.close()


def test_a_locked_file_says_so_and_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keep_storage.sqlite._BUSY_MS", 1)
    path = tmp_path / "keep.db"
    with Store.open(path, CountingClock()) as store:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailable, match="locked"):
            store.commit([CreateWorkflow("wf_1", "one")])
        other.execute("ROLLBACK")
        other.close()
        [outcome] = store.commit([CreateWorkflow("wf_1", "one")])
        assert isinstance(outcome, Done)
