"""The simulated disk keeps what was synced, and bites whoever relies on what was not."""

import gc
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress

import apsw
import pytest

from tests.storage.disk import SECTOR_BYTES, Disk, Fault, Survival

Rows = list[tuple[int, bytes]]
MakeDisk = Callable[..., Disk]

TRANSACTIONS = 8


@pytest.fixture
def make_disk() -> Iterator[MakeDisk]:
    numbers = itertools.count()
    with ExitStack() as stack:

        def make(files: Mapping[str, bytes] | None = None) -> Disk:
            disk = Disk(f"disk-{next(numbers)}", files)
            stack.callback(disk.close)
            return disk

        yield make


@pytest.fixture
def disk(make_disk: MakeDisk) -> Disk:
    return make_disk()


def connect(disk: Disk) -> apsw.Connection:
    connection = apsw.Connection("db", vfs=disk.vfs_name)
    connection.execute("PRAGMA page_size=1024")
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    assert connection.execute("PRAGMA journal_mode=WAL").get == "wal"
    connection.execute("PRAGMA synchronous=FULL")
    # Small enough to be reached, large enough that several commits share the WAL.
    connection.execute("PRAGMA wal_autocheckpoint=24")
    return connection


def commit(connection: apsw.Connection, number: int) -> None:
    """Add a row and rewrite all others, so that half a transaction could not be mistaken for a whole one."""
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB)")
        connection.execute("INSERT INTO t VALUES (?, x'')", (number,))
        connection.execute("UPDATE t SET body = ?", (bytes([number]) * 900,))


def rows_after(number: int) -> Rows:
    return [(row, bytes([number]) * 900) for row in range(1, number + 1)]


def rows_of(connection: apsw.Connection) -> Rows:
    if not connection.table_exists("main", "t"):
        return []
    return [(number, body) for number, body in connection.execute("SELECT id, body FROM t ORDER BY id")]


def rows_in(files: Mapping[str, bytes]) -> Rows:
    """What a new process finds in these files, which must be a sound database."""
    with closing(Disk("after", files)) as disk, closing(connect(disk)) as connection:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        return rows_of(connection)


def work(connection: apsw.Connection) -> Iterator[int]:
    """Commits, with checkpoints between them: yields each commit that was acknowledged."""
    for number in range(1, TRANSACTIONS + 1):
        commit(connection, number)
        yield number
        if number == TRANSACTIONS // 2:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def live(disk: Disk) -> Iterator[int]:
    """The whole life of a database, from its creation to the checkpoint that closes it."""
    with closing(connect(disk)) as connection:
        yield from work(connection)


def lives_cut_short(make_disk: MakeDisk) -> Iterator[tuple[Disk, int]]:
    """One life for every sync there is, with the power lost at it, and the last commit it acknowledged."""
    for sync in itertools.count(1):
        disk = make_disk()
        disk.lose_power_at(sync)
        acknowledged = 0
        with suppress(apsw.IOError):
            for number in live(disk):
                acknowledged = number
        if disk.fail is None:
            assert sync > 2 * TRANSACTIONS, "the sweep must meet checkpoints, not only commits"
            return
        yield disk, acknowledged


@pytest.mark.parametrize("mode", Survival)
def test_a_committed_row_survives_power_loss_at_every_later_sync(mode: Survival, make_disk: MakeDisk) -> None:
    seeds = range(50) if mode in (Survival.SHUFFLED, Survival.TORN) else range(1)
    for disk, acknowledged in lives_cut_short(make_disk):
        for seed in seeds:
            found = rows_in(disk.survivors(random.Random(seed), mode))
            # The commit in flight may have made it or not, but never in part.
            assert found in (rows_after(acknowledged), rows_after(acknowledged + 1)), (disk.syncs, seed)


@pytest.mark.parametrize("mode", Survival)
def test_a_committed_row_survives_power_loss_right_after_its_commit(mode: Survival, disk: Disk) -> None:
    for number in live(disk):
        for seed in range(20):
            assert rows_in(disk.survivors(random.Random(seed), mode)) == rows_after(number)


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_committed_row_is_lost_when_its_commit_did_not_sync(synchronous: str, disk: Disk) -> None:
    connection = connect(disk)
    commit(connection, 1)
    connection.execute(f"PRAGMA synchronous={synchronous}")
    commit(connection, 2)
    assert rows_of(connection) == rows_after(2)
    assert rows_in(disk.survivors(random.Random(0), Survival.DROPPED)) == rows_after(1)
    assert rows_in(disk.survivors(random.Random(0), Survival.KEPT)) == rows_after(2)


@pytest.mark.parametrize("mode", [Survival.SHUFFLED, Survival.TORN])
def test_an_unsynced_checkpoint_can_destroy_the_database(mode: Survival, disk: Disk) -> None:
    connection = connect(disk)
    commit(connection, 1)
    connection.execute("PRAGMA synchronous=OFF")
    for number in range(2, TRANSACTIONS + 1):
        commit(connection, number)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def is_sound(seed: int) -> bool:
        try:
            rows_in(disk.survivors(random.Random(seed), mode))
        except (apsw.Error, AssertionError):
            return False
        return True

    assert not all(is_sound(seed) for seed in range(50))


def test_a_killed_process_leaves_every_committed_row_behind(disk: Disk) -> None:
    for number in live(disk):
        assert rows_in(disk.contents()) == rows_after(number)
    assert rows_in(disk.contents()) == rows_after(TRANSACTIONS)


def test_every_disk_call_fails_once_the_power_is_lost(disk: Disk) -> None:
    connection = connect(disk)
    commit(connection, 1)
    disk.lose_power_at(disk.syncs + 1)
    for statement in ("DELETE FROM t", "SELECT * FROM t", "PRAGMA wal_checkpoint"):
        with pytest.raises(apsw.IOError):
            connection.execute(statement)
    with pytest.raises(apsw.CantOpenError, match="power lost"):
        apsw.Connection("db", vfs=disk.vfs_name)
    assert disk.fail is Fault.POWER


def test_a_connection_dropped_after_power_loss_is_quiet(make_disk: MakeDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    noise: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    undisturbed = make_disk()
    with closing(connect(undisturbed)) as connection:
        assert len(list(work(connection))) == TRANSACTIONS
        syncs = undisturbed.syncs
    for sync in range(1, syncs + 1):
        disk = make_disk()
        disk.lose_power_at(sync)
        with pytest.raises(apsw.IOError):
            list(work(connect(disk)))
        gc.collect()
    assert noise == []


def test_a_connection_that_outlives_its_disk_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    noise: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    disk = Disk("gone")
    connection = connect(disk)
    commit(connection, 1)
    disk.fail_syncs(True)
    disk.close()
    assert "gone" not in apsw.vfs_names()
    del connection
    gc.collect()
    assert noise == []


def test_a_full_disk_refuses_the_write_and_keeps_the_earlier_rows(disk: Disk) -> None:
    with closing(connect(disk)) as connection:
        commit(connection, 1)
        for bytes_left in range(0, 4096, 500):
            disk.full_after(bytes_left)
            with pytest.raises(apsw.FullError):
                commit(connection, 2)
            assert rows_of(connection) == rows_after(1)
            for mode in Survival:
                assert rows_in(disk.survivors(random.Random(0), mode)) == rows_after(1)
        disk.full_after(None)
        commit(connection, 2)
        assert rows_in(disk.survivors(random.Random(0), Survival.DROPPED)) == rows_after(2)
    assert disk.fail is Fault.FULL


def test_a_failing_sync_fails_the_commit_and_keeps_the_earlier_rows(disk: Disk) -> None:
    with closing(connect(disk)) as connection:
        commit(connection, 1)
        disk.fail_syncs(True)
        with pytest.raises(apsw.IOError) as failure:
            commit(connection, 2)
        assert failure.value.extendedresult == apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]
        assert disk.fail is Fault.SYNC
        assert rows_of(connection) == rows_after(1)
        assert rows_in(disk.survivors(random.Random(0), Survival.DROPPED)) == rows_after(1)
        disk.fail_syncs(False)
        commit(connection, 2)
        assert rows_in(disk.survivors(random.Random(0), Survival.DROPPED)) == rows_after(2)


def test_a_commit_that_failed_to_sync_may_come_back_at_the_next_open(disk: Disk) -> None:
    # Not a flaw of the disk: the frames are in the WAL, whole, and SQLite replays them. For whoever asked for
    # the commit its outcome is unknown, not refused.
    with closing(connect(disk)) as connection:
        commit(connection, 1)
        disk.fail_syncs(True)
        with pytest.raises(apsw.IOError):
            commit(connection, 2)
        assert rows_of(connection) == rows_after(1)
        assert rows_in(disk.contents()) == rows_after(2)
        disk.fail_syncs(False)


def test_a_read_only_disk_refuses_to_create_a_database(disk: Disk) -> None:
    disk.read_only = True
    with pytest.raises(apsw.CantOpenError):
        connect(disk)
    assert disk.contents() == {}
    assert disk.fail is Fault.READ_ONLY


def test_a_disk_that_turns_read_only_refuses_writes_and_still_reads(disk: Disk) -> None:
    with closing(connect(disk)) as connection:
        commit(connection, 1)
        disk.read_only = True
        with pytest.raises(apsw.ReadOnlyError):
            commit(connection, 2)
        assert rows_of(connection) == rows_after(1)
        disk.read_only = False


def test_a_database_on_a_read_only_disk_can_be_read_but_not_written(make_disk: MakeDisk, disk: Disk) -> None:
    connection = connect(disk)
    commit(connection, 1)
    medium = make_disk(disk.contents())
    medium.read_only = True
    with closing(connect(medium)) as reader:
        assert rows_of(reader) == rows_after(1)
        with pytest.raises(apsw.ReadOnlyError):
            commit(reader, 2)
    assert medium.contents() == disk.contents()


def test_a_wal_needs_exclusive_locking(make_disk: MakeDisk, disk: Disk) -> None:
    with closing(apsw.Connection("plain", vfs=disk.vfs_name)) as connection:
        assert connection.execute("PRAGMA journal_mode=WAL").get == "delete"
    writer = connect(disk)
    commit(writer, 1)
    copy = make_disk(disk.contents())
    with closing(apsw.Connection("db", vfs=copy.vfs_name)) as connection, pytest.raises(apsw.CantOpenError):
        connection.execute("SELECT * FROM t")


def test_a_second_connection_finds_the_database_locked(disk: Disk) -> None:
    first = connect(disk)
    commit(first, 1)
    with closing(apsw.Connection("db", vfs=disk.vfs_name)) as second:
        second.execute("PRAGMA locking_mode=EXCLUSIVE")
        with pytest.raises(apsw.BusyError):
            second.execute("SELECT * FROM t")


SECTORS = [bytes([letter]) * SECTOR_BYTES for letter in b"abcdefgh"]
BLANK = bytes(SECTOR_BYTES)


def open_raw(disk: Disk) -> apsw.VFSFile:
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE
    return apsw.VFSFile(disk.vfs_name, "raw", [flags, 0])


def images(disk: Disk, mode: Survival) -> set[bytes]:
    return {disk.survivors(random.Random(seed), mode)["raw"] for seed in range(200)}


def test_a_torn_write_leaves_any_of_its_sectors_and_never_part_of_one(disk: Disk) -> None:
    raw = open_raw(disk)
    raw.xWrite(bytes(len(SECTORS) * SECTOR_BYTES), 0)
    raw.xSync(apsw.SQLITE_SYNC_NORMAL)
    raw.xWrite(b"".join(SECTORS), 0)
    untouched, whole = bytes(len(SECTORS) * SECTOR_BYTES), b"".join(SECTORS)
    assert images(disk, Survival.DROPPED) == {untouched}
    assert images(disk, Survival.KEPT) == {whole}
    assert images(disk, Survival.SHUFFLED) == {untouched, whole}
    torn = images(disk, Survival.TORN)
    assert torn > {untouched, whole}
    for image in torn:
        for number, sector in enumerate(SECTORS):
            assert image[number * SECTOR_BYTES :][:SECTOR_BYTES] in (BLANK, sector)


def test_a_write_tears_where_the_sectors_of_the_disk_meet(disk: Disk) -> None:
    raw = open_raw(disk)
    raw.xWrite(bytes(2 * SECTOR_BYTES), 0)
    raw.xSync(apsw.SQLITE_SYNC_NORMAL)
    raw.xWrite(b"x" * SECTOR_BYTES, 100)
    first, second = b"x" * (SECTOR_BYTES - 100), b"x" * 100
    assert images(disk, Survival.TORN) == {
        bytes(100) + head + tail + bytes(SECTOR_BYTES - 100)
        for head in (first, bytes(len(first)))
        for tail in (second, bytes(len(second)))
    }


def test_unsynced_writes_and_truncations_survive_in_any_order(disk: Disk) -> None:
    raw = open_raw(disk)
    raw.xWrite(b"0000", 0)
    raw.xSync(apsw.SQLITE_SYNC_NORMAL)
    raw.xWrite(b"11", 0)
    raw.xWrite(b"22", 0)
    raw.xTruncate(1)
    assert disk.contents() == {"raw": b"2"}
    assert images(disk, Survival.DROPPED) == {b"0000"}
    assert images(disk, Survival.KEPT) == {b"2"}
    assert images(disk, Survival.SHUFFLED) == {
        *(b"0000", b"1100", b"2200"),  # the truncation is lost
        *(b"0", b"1", b"2"),  # it came last
        *(b"11", b"22"),  # it came before a write
    }


def test_a_sync_makes_its_own_file_durable_and_no_other(disk: Disk) -> None:
    raw = open_raw(disk)
    raw.xWrite(b"unsynced", 0)
    connection = connect(disk)
    commit(connection, 1)
    assert disk.survivors(random.Random(0), Survival.DROPPED)["raw"] == b""
    raw.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert disk.survivors(random.Random(0), Survival.DROPPED)["raw"] == b"unsynced"


def test_the_sync_at_which_the_power_fails_makes_nothing_durable(disk: Disk) -> None:
    raw = open_raw(disk)
    raw.xWrite(b"first", 0)
    raw.xSync(apsw.SQLITE_SYNC_NORMAL)
    raw.xWrite(b"other", 0)
    disk.lose_power_at(2)
    with pytest.raises(apsw.IOError, match="power lost"):
        raw.xSync(apsw.SQLITE_SYNC_NORMAL)
    assert disk.syncs == 2
    assert images(disk, Survival.DROPPED) == {b"first"}
    assert images(disk, Survival.SHUFFLED) == {b"first", b"other"}
