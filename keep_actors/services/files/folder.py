"""Open folders and files below a root, name by name. No link is followed, and no path is used twice.

Each name is opened relative to the folder before it, so a folder that is replaced by a link in between is noticed by
the system itself, not by a check before. A file is one with content: no device, pipe or socket is ever opened for use.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from keep_actors.connectors import PreconditionFailed, Transient

_CLOSED: Final = getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSED
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
# A pipe that took the place of a file is opened without waiting for its other end, and then refused.
_FILE: Final = _NO_LINK | _CLOSED | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_PIECE: Final = 1024 * 1024


class SeenFile(msgspec.Struct, frozen=True):
    """A file at one moment. Equal: nothing has changed it, and no other has its place."""

    device: int
    inode: int
    size: int
    modified_ns: int
    hash: str = ""
    """SHA-256 of the content; empty if it was not read."""
    changed_ns: int = 0
    """The time of the last change of anything about it, also of its names."""

    @classmethod
    def of(cls, found: os.stat_result, content: bytes | None = None) -> "SeenFile":
        """The file that the system describes, with its content if that was read."""
        said = "" if content is None else hash_of(content)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, said, found.st_ctime_ns)

    def is_as(self, other: "SeenFile") -> bool:
        """True if both are one file with one content, whatever name and rights it has."""
        return replace(self, changed_ns=0) == replace(other, changed_ns=0)


class OpenFolder(NamedTuple):
    """A folder that stays the same while it is open, wherever its name points."""

    descriptor: int

    def find(self, name: str) -> os.stat_result | None:
        """The entry of this name, if there is one. A link is described itself."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def sync(self) -> None:
        """Make its names durable."""
        os.fsync(self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a name of ours, if it is there."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return


def hash_of(content: bytes) -> str:
    """SHA-256, as 64 characters."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def folder_at(root: Path, parts: Sequence[str] = ()) -> Iterator[OpenFolder]:
    """Open a folder below the root. The path of the root itself is the operator's, and may have links."""
    descriptor = os.open(root, _FOLDER)
    try:
        for part in parts:
            deeper = os.open(part, _FOLDER | _NO_LINK, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield OpenFolder(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def file_in(folder: OpenFolder, name: str, *, hard_links: bool) -> Iterator[int]:
    """Open a file for reading. Raises `PreconditionFailed` for what is none, and `OSError`."""
    if (found := folder.find(name)) is not None:
        refuse_strange(found, name, hard_links=True)
    descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder.descriptor)
    try:
        refuse_strange(os.fstat(descriptor), name, hard_links=hard_links)
        yield descriptor
    finally:
        os.close(descriptor)


def refuse_strange(found: os.stat_result, name: str, *, hard_links: bool) -> None:
    """Raise `PreconditionFailed` for anything but a file with content, and a name of its own unless `hard_links`."""
    if stat.S_ISLNK(found.st_mode):
        raise PreconditionFailed(f"{name} is a link; links are not followed")
    if stat.S_ISDIR(found.st_mode):
        raise PreconditionFailed(f"{name} is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise PreconditionFailed(f"{name} is not a file, but a device, a pipe or a socket")
    if found.st_nlink > 1 and not hard_links:
        words = "which may be outside of the root; only the connector files allows that, with `hard_links`"
        raise PreconditionFailed(f"{name} has another name, {words}")


def content_of(descriptor: int, name: str, bytes_max: int) -> bytes:
    """The whole content. Raises `PreconditionFailed` if it is too large, `Transient` if it changes meanwhile."""
    before = os.fstat(descriptor)
    pieces: list[bytes] = []
    read = 0
    while read <= bytes_max and (piece := os.pread(descriptor, min(_PIECE, bytes_max + 1 - read), read)):
        pieces.append(piece)
        read += len(piece)
    if read > bytes_max:
        raise PreconditionFailed(f"{name} has more than {bytes_max:,} bytes; `bytes_max` of the settings decides")
    refuse_changed(descriptor, before, name)
    return b"".join(pieces)


def refuse_changed(descriptor: int, before: os.stat_result, name: str) -> None:
    """Raise `Transient` if an open file has changed since. One that lost its name to another is whole, and has not."""
    if not SeenFile.of(os.fstat(descriptor)).is_as(SeenFile.of(before)):
        raise Transient(f"{name} changed while it was read")


def seen_at(folder: OpenFolder, name: str, *, bytes_max: int, hard_links: bool) -> SeenFile | None:
    """The file of this name with its hash, unless it is too large for that. None: there is none."""
    if folder.find(name) is None:
        return None
    with file_in(folder, name, hard_links=hard_links) as descriptor:
        found = os.fstat(descriptor)
        content = content_of(descriptor, name, bytes_max) if found.st_size <= bytes_max else None
        return SeenFile.of(found, content)
