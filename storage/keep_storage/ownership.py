"""One runtime per file. A lock that the operating system lets go of when the process dies, however it dies."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

from keep_storage.errors import StorageOwned, StorageUnavailable

_TRIES: Final = 10
_PAUSE_S: Final = 0.02
"""Who asks `owner_of` has the lock for an instant. A runtime that meets that instant tries again."""


class Ownership:
    """The lock on `FILE-owner`, held until `give_up` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Raises `StorageOwned`, naming the process that has the file."""
        lock = _lock_of(path)
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageUnavailable(
                f"Cannot write beside {path}: {error.strerror}. The folder must exist and be writable."
            ) from error
        if not _lock(descriptor, fcntl.LOCK_EX, _TRIES):
            owner = _named_in(descriptor)
            os.close(descriptor)
            raise StorageOwned(
                f"{path} is open in another runtime (process {owner}). One runtime owns a file at a time; stop "
                "that one first. Readers and `keep doctor` may look at any time."
            )
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        return cls(descriptor)

    def give_up(self) -> None:
        """Let another runtime have the file. The lock file stays: removing it would race with the next owner."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def owner_of(path: Path) -> str | None:
    """The process that owns the file, `"unknown"` if it has not said; None if nobody does. Takes nothing away."""
    try:
        descriptor = os.open(_lock_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageUnavailable(f"Cannot tell whether a runtime has {path}: {error.strerror}.") from error
    try:
        return None if _lock(descriptor, fcntl.LOCK_SH, 1) else _named_in(descriptor)
    finally:
        os.close(descriptor)


def _lock_of(path: Path) -> Path:
    # The file's real name: a link to it is the same file.
    return Path(f"{path.resolve()}-owner")


def _lock(descriptor: int, kind: int, tries: int) -> bool:
    for last in range(tries, 0, -1):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if last > 1:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _named_in(descriptor: int) -> str:
    return os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
