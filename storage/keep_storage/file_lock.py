"""Locks of an open file, by the means of the system. The system ends a lock when the process ends, however it ends.

Linux knows locks for reading and for writing of an open file; other systems with `fcntl` have `flock`. Windows has
neither, and locks a byte: `msvcrt`.
"""

import importlib
import os
import struct
from types import ModuleType
from typing import Final, Protocol

_FLOCK: Final = "hhqqi4x"
"""`struct flock`: type, whence, start, length, process."""
_LOCKED_BYTE: Final = 1 << 30
"""Far behind the text: on Windows nobody else can read what is locked. SQLite locks there, too."""


class FileLocks(Protocol):
    """The locks of a system. They never wait."""

    def write(self, descriptor: int) -> bool:
        """Lock for writing, which excludes all others. False if another has a lock."""
        ...

    def read(self, descriptor: int) -> bool:
        """Lock for reading, beside others that do. False if another writes, or if there is no such lock here."""
        ...

    def is_written(self, descriptor: int) -> bool:
        """True if another open file has the lock for writing."""
        ...

    def close(self, descriptor: int) -> None:
        """Close the file, and so let go of its lock."""
        ...


class OpenFileLocks:
    """Linux: only who may write a file can lock it for writing."""

    def __init__(self, fcntl: ModuleType) -> None:
        self._fcntl = fcntl

    def write(self, descriptor: int) -> bool:
        return self._lock(descriptor, self._fcntl.F_WRLCK)

    def read(self, descriptor: int) -> bool:
        return self._lock(descriptor, self._fcntl.F_RDLCK)

    def is_written(self, descriptor: int) -> bool:
        asked = struct.pack(_FLOCK, self._fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind: int = struct.unpack(_FLOCK, self._fcntl.fcntl(descriptor, self._fcntl.F_OFD_GETLK, asked))[0]
        return kind != int(self._fcntl.F_UNLCK)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def _lock(self, descriptor: int, kind: int) -> bool:
        """Of the open file, not of the process: it ends with the last descriptor, as `flock` does."""
        try:
            self._fcntl.fcntl(descriptor, self._fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True


class WholeFileLocks:
    """`flock`: who may read a file may lock it, so the mode of the file is all that keeps strangers away."""

    def __init__(self, fcntl: ModuleType) -> None:
        self._fcntl = fcntl

    def write(self, descriptor: int) -> bool:
        return self._lock(descriptor, self._fcntl.LOCK_EX)

    def read(self, descriptor: int) -> bool:
        return self._lock(descriptor, self._fcntl.LOCK_SH)

    def is_written(self, descriptor: int) -> bool:
        is_free = self.read(descriptor)
        if is_free:
            self._fcntl.flock(descriptor, self._fcntl.LOCK_UN)
        return not is_free

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def _lock(self, descriptor: int, kind: int) -> bool:
        try:
            self._fcntl.flock(descriptor, kind | self._fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True


class ByteLocks:
    """Windows: there is one kind of lock, and who asks whether it is taken has it for a moment."""

    def __init__(self, msvcrt: ModuleType) -> None:
        self._msvcrt = msvcrt

    def write(self, descriptor: int) -> bool:
        return self._do(descriptor, self._msvcrt.LK_NBLCK)

    def read(self, descriptor: int) -> bool:  # noqa: ARG002  # as the others have it
        return False

    def is_written(self, descriptor: int) -> bool:
        is_free = self.write(descriptor)
        if is_free:
            self._do(descriptor, self._msvcrt.LK_UNLCK)
        return not is_free

    def close(self, descriptor: int) -> None:
        # Windows takes its time with a lock whose file is only closed.
        self._do(descriptor, self._msvcrt.LK_UNLCK)
        os.close(descriptor)

    def _do(self, descriptor: int, what: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            self._msvcrt.locking(descriptor, what, 1)
        except PermissionError:
            return False
        return True


def _of_this_system() -> FileLocks:
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:
        return ByteLocks(importlib.import_module("msvcrt"))
    return OpenFileLocks(fcntl) if hasattr(fcntl, "F_OFD_SETLK") else WholeFileLocks(fcntl)


LOCKS: Final = _of_this_system()
