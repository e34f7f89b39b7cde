"""One change at a time in a folder, among threads and processes: the lock of a file in it, which the system ends."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from keep_actors.connectors import PreconditionFailed, Transient
from keep_actors.services.files.folder import OpenFolder, folder_at
from keep_actors.services.files.paths import OWN
from keep_storage.file_lock import LOCKS

LOCK_NAME: Final = f"{OWN}lock"

_PAUSES: Final = (*(0.002,) * 50, *(0.02,) * 95, *(0.1,) * 130)
"""Seconds between the attempts: fifteen in all."""
_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def locked(folder: OpenFolder, *, make: bool = True) -> Iterator[None]:
    """Have the folder for oneself. Raises `Transient` if another has it for too long.

    Without `make` the lock must be there: a folder where it is not is not the one in which a call was made.
    """
    descriptor = _locked(folder, make)
    try:
        yield
    finally:
        LOCKS.close(descriptor)


@contextmanager
def locked_folder(root: Path, parts: Sequence[str] = (), *, make: bool = True) -> Iterator[OpenFolder]:
    """Open a folder below a root that one has for oneself, as `locked` says."""
    with folder_at(root) as top, locked(top, make=make), folder_at(root, parts) as folder:
        yield folder


def _locked(folder: OpenFolder, make: bool) -> int:
    for pause in _PAUSES:
        descriptor = _opened(folder, make)
        if LOCKS.write(descriptor) and _is_current(folder, descriptor):
            return descriptor
        LOCKS.close(descriptor)
        time.sleep(pause)
    raise Transient("another change in this folder takes too long", retry_after_ms=10_000)


def _opened(folder: OpenFolder, make: bool) -> int:
    flags = _FLAGS | (os.O_CREAT if make else 0)
    try:
        return os.open(LOCK_NAME, flags, 0o666, dir_fd=folder.descriptor)
    except FileNotFoundError:
        raise PreconditionFailed(f"{LOCK_NAME} is gone: this may be another folder than before") from None


def _is_current(folder: OpenFolder, descriptor: int) -> bool:
    """False if the file was removed meanwhile: another process would lock a new one."""
    found, held = folder.find(LOCK_NAME), os.fstat(descriptor)
    return found is not None and (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
