"""Files beside a database that are this user's alone: made with a mode, opened without following links."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from keep_storage.errors import StorageUnavailable

PRIVATE: Final = 0o600
"""For the user that runs the runtime only."""

_SAFELY: Final = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""Neither through a link to somewhere else, nor waiting for the other end of a pipe; as far as the system has them."""


def checked_mode(mode: int) -> int:
    """The mode of the files of a database. Raises `ValueError` for one that its own user could not work with."""
    if mode & ~0o666 or mode & PRIVATE != PRIVATE:
        raise ValueError(f"the mode of a database file is 0o600, or 0o640 and the like for a group; not {mode:#o}")
    return mode


def make(path: Path, mode: int) -> None:
    """Make an empty file with this mode, whatever the umask is. One that is there is left as it is."""
    try:
        descriptor = os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, PRIVATE)
    except OSError:
        # There already; or it cannot be made, and the next open says why.
        return
    try:
        set_mode(descriptor, mode)
    finally:
        os.close(descriptor)


def open_own(path: Path, flags: int, database: Path) -> int:
    """A descriptor of a plain file that belongs to this user, or to whom the database belongs.

    Raises `FileNotFoundError` without `O_CREAT`, and `StorageUnavailable` for a link, a pipe or another user's file.
    """
    try:
        if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
            raise OSError(errno.ELOOP, "a link")
        descriptor = os.open(path, flags | _SAFELY, PRIVATE)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise StorageUnavailable(
                f"Cannot write beside {database}: its folder must exist and be writable."
            ) from None
        raise
    except OSError as error:
        link = error.errno == errno.ELOOP
        why = "it is a link, which is not followed; remove it" if link else error.strerror
        raise StorageUnavailable(
            f"Cannot open {path}: {why}. The folder must exist and be writable, and the file be yours."
        ) from error
    if (wrong := _wrong_with(descriptor, database)) is not None:
        os.close(descriptor)
        raise StorageUnavailable(f"{path} is not used: it {wrong}. Remove it.")
    return descriptor


def _wrong_with(descriptor: int, database: Path) -> str | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "is no plain file"
    if hasattr(os, "geteuid"):
        user = os.geteuid()
        try:
            owner = database.stat()
        except OSError:
            owner = None
        if owner is not None and user == 0 and found.st_uid == 0 and owner.st_uid != 0:
            # A file that root makes beside a database is for the owner of that, as SQLite does it with its own files.
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if found.st_uid not in (user, 0, user if owner is None else owner.st_uid):
            return f"belongs to user {found.st_uid}, who does not own the database"
    # It is written to: with a second name it may be something else altogether.
    return "has a second name (a hard link)" if found.st_nlink > 1 else None


def is_at(path: Path, descriptor: int) -> bool:
    """True if the open file is the one at this path: it may have been replaced meanwhile."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def set_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file, where files have one. Windows has access lists: a file has that of its folder."""
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)


def narrow(descriptor: int, mode: int) -> None:
    """Take away what this mode does not give. Nothing is added to what an existing file has."""
    now = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if now & ~mode:
        set_mode(descriptor, now & mode)
