"""Whose files these are: nobody else reads them, nobody leads them astray, and nobody keeps a runtime from starting."""

import fcntl
import os
import random
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from keep_storage import StorageError, StorageOwned, StorageUnavailable, Store, ownership
from keep_storage.ownership import Ownership, owner_of
from tests.storage.world import World

BESIDE = ("", "-wal", "-shm", "-owner")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "keep.db"


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    """That of somebody who lets everybody read everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(db: Path) -> dict[str, int]:
    return {end: stat.S_IMODE(Path(f"{db}{end}").stat().st_mode) for end in BESIDE}


def beside(db: Path, end: str) -> Path:
    return Path(f"{db}{end}")


# Who may read them.


def test_nobody_else_may_read_a_database_or_what_lies_beside_it(db: Path) -> None:
    with Store.open(db) as store:
        World(store).publish("m1")
        assert modes(db) == dict.fromkeys(BESIDE, 0o600)


def test_a_group_may_read_it_if_that_is_said_whatever_the_umask_is(db: Path) -> None:
    os.umask(0o077)
    with Store.open(db, file_mode=0o640) as store:
        World(store).publish("m1")
        assert modes(db) == dict.fromkeys(BESIDE, 0o640)


@pytest.mark.parametrize(("mode", "asked"), [(0o600, 0o644), (0o640, 0o600), (0o644, 0o600)])
def test_the_mode_of_a_file_that_is_there_stays_as_it_is(db: Path, mode: int, asked: int) -> None:
    Store.open(db).close()
    db.chmod(mode)
    with Store.open(db, file_mode=asked) as store:
        World(store)
        assert {modes(db)[end] for end in ("", "-wal", "-shm")} == {mode}
        assert modes(db)["-owner"] == 0o600, "there already, and not widened"


@pytest.mark.parametrize("mode", [0, 0o400, 0o200, 0o700, 0o601, 0o1600, 0o10600])
def test_a_mode_that_makes_no_sense_is_refused(db: Path, mode: int) -> None:
    with pytest.raises(ValueError, match="0o600"):
        Store.open(db, file_mode=mode)
    assert not db.exists()


# What is put into the place of the lock.


def test_the_lock_is_not_taken_through_a_link_and_what_it_leads_to_is_left_as_it_is(db: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    beside(db, "-owner").symlink_to(precious)
    with pytest.raises(StorageUnavailable, match="a link, which is not followed"):
        Store.open(db)
    with pytest.raises(StorageUnavailable, match="a link, which is not followed"):
        owner_of(db)
    assert precious.read_text() == "precious"


def test_nor_through_a_second_name_of_a_file(db: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    beside(db, "-owner").hardlink_to(precious)
    with pytest.raises(StorageUnavailable, match="a second name"):
        Store.open(db)
    assert precious.read_text() == "precious"


def test_a_pipe_in_its_place_is_refused_and_not_waited_for(db: Path) -> None:
    os.mkfifo(beside(db, "-owner"))
    with pytest.raises(StorageUnavailable, match="no plain file"):
        Store.open(db)
    with pytest.raises(StorageUnavailable, match="no plain file"):
        owner_of(db)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_somebody_elses_file_in_its_place_is_refused(db: Path) -> None:
    Store.open(db).close()
    os.chown(beside(db, "-owner"), 65534, 65534)
    with pytest.raises(StorageUnavailable, match="belongs to user 65534"):
        Store.open(db)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_root_makes_beside_a_database_is_for_whom_the_database_belongs_to(db: Path) -> None:
    Store.open(db).close()
    os.chown(db, 65534, 65534)
    beside(db, "-owner").unlink()
    Store.open(db).close()
    assert beside(db, "-owner").stat().st_uid == 65534


# Who holds a lock on it.


@contextmanager
def a_stranger_who_reads(db: Path, kind: str) -> Iterator[None]:
    """Somebody who may open the lock file to read, and locks it as hard as that allows."""
    descriptor = os.open(beside(db, "-owner"), os.O_RDONLY)
    try:
        if kind == "read":
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.flock(descriptor, fcntl.LOCK_SH if kind == "shared" else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["shared", "exclusive", "read"])
def test_a_stranger_who_holds_a_lock_does_not_keep_a_runtime_from_starting(db: Path, kind: str) -> None:
    Store.open(db).close()
    with a_stranger_who_reads(db, kind):
        with Store.open(db), pytest.raises(StorageOwned, match=f"process {os.getpid()}"):
            Store.open(db)
        Store.open(db).close()


@pytest.mark.parametrize("kind", ["shared", "exclusive", "read"])
def test_a_stranger_who_holds_a_lock_is_not_taken_for_a_runtime(db: Path, kind: str) -> None:
    Store.open(db).close()
    with a_stranger_who_reads(db, kind):
        assert owner_of(db) is None


def stumbling(rng: random.Random) -> Callable[..., Any]:
    """A tracer that pauses now and then between two lines of the module that takes the lock."""

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != ownership.__file__:
            return None
        if event == "line" and rng.random() < 0.2:
            time.sleep(rng.random() / 1000)
        return trace

    return trace


def test_a_stranger_who_holds_a_lock_does_not_let_two_runtimes_in(db: Path) -> None:
    """Many start at once, while somebody locks the file and lets go of it again and again."""
    Store.open(db).close()
    inside: list[int] = []
    most: list[int] = []
    is_over = threading.Event()

    def start(seed: int) -> None:
        # Between any two lines of it another one may come.
        sys.settrace(stumbling(random.Random(seed)))
        for _ in range(60):
            with suppress(StorageError):
                own = Ownership.take(db)
                inside.append(1)
                time.sleep(0)
                most.append(len(inside))
                inside.pop()
                own.give_up()

    def hold_up() -> None:
        while not is_over.is_set():
            with suppress(BlockingIOError), a_stranger_who_reads(db, "read"):
                time.sleep(0)

    starters = [threading.Thread(target=start, args=[seed]) for seed in range(4)]
    stranger = threading.Thread(target=hold_up)
    for each in (*starters, stranger):
        each.start()
    for each in starters:
        each.join()
    is_over.set()
    stranger.join()
    assert len(most) > 20
    assert set(most) == {1}, "one at a time"


RUNTIME = """
import os, sys, time
from pathlib import Path
from keep_storage.ownership import Ownership
own = Ownership.take(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""


def test_a_dead_process_is_not_called_the_owner_although_its_child_has_the_lock(db: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUNTIME, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as runtime:
        assert runtime.stdout is not None
        assert runtime.stdin is not None
        runtime.stdout.readline()
        assert owner_of(db) == str(runtime.pid)
        runtime.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, runtime.pid, os.WEXITED | os.WNOWAIT)
        assert owner_of(db) is None, "also while nobody has asked how it ended"
        runtime.wait()
        assert owner_of(db) is None
        with pytest.raises(StorageOwned, match="which has ended; something that it had started"):
            Store.open(db)
        runtime.stdin.close()


@pytest.mark.parametrize("content", ["", "no number\n", f"{'9' * 300}\n", "١٢\n", "1\n\n", "1\nx y\n"])
def test_whatever_is_in_the_lock_file_it_is_no_error(db: Path, content: str) -> None:
    with Store.open(db):
        beside(db, "-owner").write_text(content)
        assert owner_of(db) in ("unknown", "1")
    beside(db, "-owner").write_text(content)
    assert owner_of(db) is None
    Store.open(db).close()
