"""Replace the content of one file so that afterwards it can be told if this was done, and by which call.

1. `lay` makes an empty file of ours beside the target, its name derived from the key and the attempt.
2. The caller notes that, durably, before anything else.
3. `replace` writes the new content into it, under the lock of the folder, and renames it to the target, which is the
   one step that has the effect. Nothing else ever removes it once the call was sent.

So after a crash there is evidence: while the file of ours is there, or the target is the one that was there before,
nothing has happened; else it has. A caller to whom that matters keeps the file when nothing happened, and removes it
with `clear` after the ledger has forgotten the note: between a removal and a killed process it would lie.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from keep_actors.connectors import ConnectorError, MutationCall, PreconditionFailed, Transient
from keep_actors.services.files.folder import (
    OpenFolder,
    SeenFile,
    content_of,
    file_in,
    refuse_strange,
)
from keep_actors.services.files.lock import locked_folder
from keep_actors.services.files.meanings import effect, in_words
from keep_actors.services.files.notes import FileNote
from keep_actors.services.files.paths import OWN, FilePath
from keep_actors.services.files.renaming import rename_new

_EARLIER_MAX: Final = 100
"""Attempts before this one whose files are looked for."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file that may be replaced, and the folder whose lock says who may do it."""

    root: Path
    path: FilePath
    bytes_max: int
    hard_links: bool = False


class FileEvidence(Enum):
    """The state of the file of ours that a call has laid."""

    WAITS = auto()
    """It is there, or its target is as it was: the call did nothing, and no longer can."""
    GONE = auto()
    """It is in the place of the target, or was."""


Edit = Callable[[bytes | None], bytes]
"""The new content for the old one; None: there is no file. May raise any `ConnectorError`."""


def _mark_of(call: MutationCall, attempt: int) -> str:
    """The name of the file that an attempt of a call lays beside its target."""
    digest = hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:32]
    return f"{OWN}{digest}-{attempt}"


def lay(place: FilePlace, call: MutationCall) -> FileNote:
    """Make the empty file of a call, durably. Those of its earlier attempts can no longer be used, and are removed."""
    with in_words(str(place.path), call), locked_folder(place.root, place.path.folder) as folder:
        for attempt in range(max(1, call.attempt - _EARLIER_MAX), call.attempt + 1):
            folder.remove(_mark_of(call, attempt))
        descriptor = os.open(
            _mark_of(call, call.attempt), _WRITE | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder.descriptor
        )
        with os.fdopen(descriptor, "wb") as laid:
            os.fsync(laid.fileno())
        folder.sync()
        found = folder.find(place.path.name)
        return FileNote(_mark_of(call, call.attempt), None if found is None else SeenFile.of(found))


def replace(
    place: FilePlace, call: MutationCall, edit: Edit, needs_content: bool = True, keeps_mark: bool = False
) -> bytes:
    """Put new content in the place of a file, and return it. Raises `ConnectorError`; else the outcome is unknown.

    Without `needs_content` the edit does not look at the old one, and the file may have come in this very moment.
    """
    name = place.path.name
    with ExitStack() as stack:
        stack.enter_context(in_words(str(place.path), call))
        folder = stack.enter_context(locked_folder(place.root, place.path.folder))
        undo = stack.enter_context(ExitStack())
        if not keeps_mark:
            undo.callback(folder.remove, _mark_of(call, call.attempt))
        old, content = _now(place, folder, needs_content)
        new = edit(content)
        if len(new) > place.bytes_max:
            raise PreconditionFailed(f"{place.path} would have {len(new):,} bytes; at most {place.bytes_max:,} may be")
        _fill(folder, _mark_of(call, call.attempt), new, folder.find(name))
        if _now(place, folder, needs_content)[0] != old:
            raise Transient(f"{place.path} was changed by another at the same time")
        # If the host no longer waits, the file of ours stays: it shows that nothing was sent.
        undo.pop_all()
        call.sending()
        with effect(str(place.path)):
            _put(folder, _mark_of(call, call.attempt), name, is_new=old is None, may_replace=not needs_content)
        folder.sync()
    return new


def clear(place: FilePlace, call: MutationCall) -> None:
    """Remove the file of a call that did nothing, and whose note is forgotten. What cannot be removed stays."""
    with suppress(OSError, ConnectorError), locked_folder(place.root, place.path.folder, make=False) as folder:
        folder.remove(_mark_of(call, call.attempt))


def look(place: FilePlace, note: FileNote) -> tuple[FileEvidence, bytes | None]:
    """The evidence of a call that made a note, and the content that is there now. Raises `ConnectorError`."""
    name, mark = place.path.name, note.mark
    with in_words(str(place.path)), locked_folder(place.root, place.path.folder, make=False) as folder:
        target = folder.find(name)
        if folder.find(mark) is not None:
            return FileEvidence.WAITS, None
        if target is not None and note.seen is not None and SeenFile.of(target).is_as(note.seen):
            return FileEvidence.WAITS, None
        folder.sync()
        if target is None:
            return FileEvidence.GONE, None
        with file_in(folder, name, hard_links=place.hard_links) as descriptor:
            return FileEvidence.GONE, content_of(descriptor, name, place.bytes_max)


_WRITE: Final = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def _now(place: FilePlace, folder: OpenFolder, needs_content: bool) -> tuple[SeenFile | None, bytes | None]:
    name = place.path.name
    found = folder.find(name)
    if found is None:
        return None, None
    refuse_strange(found, name, hard_links=place.hard_links)
    if not needs_content:
        return SeenFile.of(found), None
    with file_in(folder, name, hard_links=place.hard_links) as descriptor:
        content = content_of(descriptor, name, place.bytes_max)
        return SeenFile.of(os.fstat(descriptor), content), content


def _fill(folder: OpenFolder, mark: str, content: bytes, like: os.stat_result | None) -> None:
    """Write the content, durably, with the rights of the file that it will replace."""
    descriptor = os.open(mark, _WRITE | getattr(os, "O_NONBLOCK", 0), dir_fd=folder.descriptor)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        # Others may write in this folder: what they put in its place is never written to.
        refuse_strange(os.fstat(descriptor), mark, hard_links=False)
        if like is not None:
            os.fchmod(descriptor, like.st_mode & 0o777)  # before the content, which only some may read
        os.ftruncate(descriptor, 0)
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(descriptor)


def _put(folder: OpenFolder, mark: str, name: str, *, is_new: bool, may_replace: bool) -> None:
    """Move our file to its place. A new one never replaces another that came in this very moment, if that matters."""
    if is_new:
        try:
            rename_new(folder, mark, folder, name)
            return
        except FileExistsError:
            raise Transient(f"{name} was made by another at the same time") from None
        except OSError as error:
            if error.errno != errno.ENOTSUP or not may_replace:
                raise
    os.replace(mark, name, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
