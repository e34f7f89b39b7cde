"""One runtime per file. A lock that the operating system lets go of when the process dies, however it dies.

It is a lock for writing, which only who may write the file can have: so a stranger who may read it, and holds a lock of
that kind, is neither taken for a runtime nor in the way of one.
"""

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from keep_storage.errors import StorageOwned, StorageUnavailable
from keep_storage.file_lock import LOCKS
from keep_storage.own_files import PRIVATE, is_at, narrow, open_own, set_mode

_TRIES: Final = 10
_PAUSE_S: Final = 0.02
_TEXT_MAX: Final = 200


class Ownership:
    """The lock on `FILE-owner`, held until `give_up` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path, mode: int = PRIVATE) -> Self:
        """Raises `StorageOwned`, naming the process that has the file, and `StorageUnavailable`."""
        lock = _lock_of(path)
        for _ in range(_TRIES):
            if (descriptor := _taken(lock, path)) is not None:
                return cls._signed(descriptor, mode)
            time.sleep(_PAUSE_S)
        raise StorageUnavailable(f"{lock} keeps changing: another process replaces it. Try again.")

    @classmethod
    def _signed(cls, descriptor: int, mode: int) -> Self:
        """Say who has it. Those whom the mode names may read it: to ask whether a runtime is running."""
        if os.fstat(descriptor).st_size == 0:
            set_mode(descriptor, mode)
        narrow(descriptor, mode)
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"{os.getpid()}\n{_namespace()} {_started(os.getpid()) or 0}\n".encode())
        return cls(descriptor)

    def give_up(self) -> None:
        """Let another runtime have the file. The lock file stays: removing it would race with the next owner."""
        if self._descriptor is not None:
            LOCKS.close(self._descriptor)
            self._descriptor = None


def owner_of(path: Path) -> str | None:
    """The process that owns the file, `"unknown"` if it has not said; None if no process does. Changes nothing."""
    try:
        descriptor = open_own(_lock_of(path), os.O_RDONLY, path)
    except FileNotFoundError:
        return None
    try:
        if not LOCKS.is_written(descriptor):
            return None
        pid, is_dead = _named_in(descriptor)
        # A child of a dead runtime may still hold its lock: that is no running runtime.
        return None if is_dead else pid
    finally:
        os.close(descriptor)


def _lock_of(path: Path) -> Path:
    # The file's real name: a link to it is the same file.
    return Path(f"{path.resolve()}-owner")


def _taken(lock: Path, database: Path) -> int | None:
    """The lock file, locked for writing; None if it has to be tried again. Raises `StorageOwned`."""
    with ExitStack() as stack:
        descriptor = open_own(lock, os.O_RDWR | os.O_CREAT, database)
        stack.callback(os.close, descriptor)
        if not LOCKS.write(descriptor):
            _refuse_if_owned(descriptor, database)
            return _replaced(lock, descriptor, database)
        if not is_at(lock, descriptor):
            return None
        stack.pop_all()
        return descriptor


def _refuse_if_owned(descriptor: int, database: Path) -> None:
    if LOCKS.is_written(descriptor):
        pid, is_dead = _named_in(descriptor)
        ended = ", which has ended; something that it had started still has the file open: end that" if is_dead else ""
        raise StorageOwned(
            f"{database} is open in another runtime (process {pid}{ended}). One runtime owns a file at a time; stop "
            "that one first. Readers and `keep doctor` may look at any time."
        )


def _replaced(lock: Path, old: int, database: Path) -> int | None:
    """A lock file in place of one that is locked for reading, locked; None if it has to be tried again.

    No other process can do the same. Our own lock for reading keeps every runtime from taking the old file, and the new
    one is locked under a name of its own, closed to strangers, before it gets into the old one's place.
    """
    if not LOCKS.read(old):
        return None
    gate = lock.with_name(f"{lock.name}.new")
    with ExitStack() as stack:
        fresh = open_own(gate, os.O_RDWR | os.O_CREAT, database)
        stack.callback(os.close, fresh)
        if not (LOCKS.write(fresh) and is_at(gate, fresh)):
            return None
        if not is_at(lock, old):
            gate.unlink()
            return None
        gate.replace(lock)
        stack.pop_all()
        return fresh


def _named_in(descriptor: int) -> tuple[str, bool]:
    """The process that has signed, and whether it is certain that it is not there any more."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    pid, _, rest = os.read(descriptor, _TEXT_MAX).decode(errors="replace").partition("\n")
    namespace, _, started = rest.strip().partition(" ")
    if not (pid.isascii() and pid.isdigit() and len(pid) <= 10):
        return "unknown", False
    # A number of another container says nothing here.
    is_ours = namespace == str(_namespace()) and started.isascii() and started.isdigit()
    return pid, is_ours and _is_gone(int(pid), int(started))


def _namespace() -> int:
    """In which processes have the numbers that this one sees."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _is_gone(pid: int, started: int) -> bool:
    """True if the process that was started then has ended: another one may have its number by now."""
    now = _started(pid)
    if now is not None:
        return now != started
    if hasattr(signal, "CTRL_C_EVENT"):
        return False  # Windows, where signal 0 is a Ctrl-C. No process there has the lock of another that has ended.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # of another user, and there
    return False


def _started(pid: int) -> int | None:
    """The start of a process, in the unit of the system; 0 if it has ended; None if that is unknown."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if state[0] in "ZX" else int(state[19])
