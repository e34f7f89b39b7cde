"""One runtime per file. A lock that the operating system lets go of when the process dies, however it dies."""

import fcntl
import os
from pathlib import Path
from typing import Self

from keep_storage.errors import StorageOwned, StorageUnavailable


class Ownership:
    """The lock on `FILE-owner`, held until `give_up` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Raises `StorageOwned`, naming the process that has the file."""
        # The file's real name: a link to it is the same file.
        lock = Path(f"{path.resolve()}-owner")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageUnavailable(
                f"Cannot write beside {path}: {error.strerror}. The folder must exist and be writable."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StorageOwned(
                f"{path} is open in another runtime (process {owner}). One runtime owns a file at a time; stop "
                "that one first. Readers and `keep doctor` may look at any time."
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        return cls(descriptor)

    def give_up(self) -> None:
        """Let another runtime have the file. The lock file stays: removing it would race with the next owner."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
