"""Each kind of lock, whatever system this is: one writer at a time, and none once its process has ended.

`ByteLocks` stands on a stand-in for `msvcrt` with locks of this system's kernel.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from keep_storage import StorageOwned, Store, ownership
from keep_storage.file_lock import LOCKS, ByteLocks, FileLocks, OpenFileLocks, WholeFileLocks
from keep_storage.ownership import Ownership, owner_of
from tests.portability.windows_like.sitecustomize import Msvcrt

KINDS: dict[str, Callable[[], FileLocks]] = {
    "open file": lambda: OpenFileLocks(fcntl),
    "whole file": lambda: WholeFileLocks(fcntl),
    "byte": lambda: ByteLocks(Msvcrt("msvcrt")),
}


@pytest.fixture(params=KINDS)
def locks(request: pytest.FixtureRequest) -> FileLocks:
    return KINDS[request.param]()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[int], int]]:
    """Opens the same file, again and again."""
    path, descriptors = tmp_path / "lock", list[int]()
    path.write_text("text")

    def open_it(flags: int) -> int:
        descriptors.append(os.open(path, flags))
        return descriptors[-1]

    yield open_it
    for each in descriptors:
        with suppress(OSError):  # the test has closed it
            os.close(each)


def test_one_open_file_at_a_time_has_the_lock_for_writing(locks: FileLocks, opened: Callable[[int], int]) -> None:
    one, other, reader = opened(os.O_RDWR), opened(os.O_RDWR), opened(os.O_RDONLY)
    assert not locks.is_written(reader)
    assert locks.write(one)
    assert not locks.write(other)
    assert not locks.read(other)
    assert locks.is_written(reader)
    assert locks.is_written(other)
    locks.close(one)
    assert not locks.is_written(reader)
    assert locks.write(other)


def test_who_looks_takes_nothing_away_and_leaves_nothing_behind(locks: FileLocks, opened: Callable[[int], int]) -> None:
    reader, writer = opened(os.O_RDONLY), opened(os.O_RDWR)
    assert [locks.is_written(reader) for _ in range(3)] == [False] * 3
    assert locks.write(writer)
    assert [locks.is_written(reader) for _ in range(3)] == [True] * 3
    os.lseek(reader, 0, os.SEEK_SET)
    assert os.read(reader, 10) == b"text", "the text can be read while the file is locked"


@pytest.mark.parametrize("kind", ["open file", "whole file"])
def test_who_reads_keeps_a_writer_away_and_is_none(kind: str, opened: Callable[[int], int]) -> None:
    locks = KINDS[kind]()
    reader, second, writer = opened(os.O_RDONLY), opened(os.O_RDONLY), opened(os.O_RDWR)
    assert locks.read(reader)
    assert locks.read(second)
    assert not locks.write(writer)
    assert not locks.is_written(writer)


def test_linux_has_locks_of_open_files() -> None:
    assert isinstance(LOCKS, OpenFileLocks)


# The file of a runtime, by each kind.


@pytest.fixture
def _by_these(locks: FileLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "LOCKS", locks)


@pytest.mark.usefixtures("_by_these")
def test_a_second_runtime_is_kept_out_by_each_kind(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    assert owner_of(db) is None
    for _ in range(2):
        with Store.open(db):
            assert owner_of(db) == str(os.getpid())
            with pytest.raises(StorageOwned, match=f"process {os.getpid()}"):
                Store.open(db)
            assert owner_of(db) == str(os.getpid()), "the second has not taken it away"
        assert owner_of(db) is None


HOLDS = """
import sys
from pathlib import Path
from keep_storage import ownership
from tests.storage.test_file_lock import KINDS
ownership.LOCKS = KINDS[sys.argv[1]]()
own = ownership.Ownership.take(Path(sys.argv[2]))
print("mine", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_leaves_no_lock_of_any_kind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "LOCKS", KINDS[kind]())
    db = tmp_path / "keep.db"
    command = [sys.executable, "-c", HOLDS, kind, str(db)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        assert owner_of(db) == str(holder.pid)
        with pytest.raises(StorageOwned, match=f"process {holder.pid}"):
            Ownership.take(db)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert owner_of(db) is None
    Ownership.take(db).give_up()
