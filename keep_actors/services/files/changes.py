"""Delete, move, and make a folder: changes of names. Each ends by itself, in a thread.

A file that is to go is noted before, with its number on the disk and its hash. So after a crash it can be told from
another that came to its place.
"""

import os
import stat

from keep_actors.connectors import Applied, MutationCall, NotApplied, PreconditionFailed, Retry, Transient
from keep_actors.services.files.folder import OpenFolder, SeenFile, folder_at, seen_at
from keep_actors.services.files.lock import locked_folder
from keep_actors.services.files.meanings import effect, in_words
from keep_actors.services.files.paths import FilePath
from keep_actors.services.files.renaming import rename_new
from keep_actors.services.files.settings import FilesSettings
from keep_actors.services.files.values import ChangedPath

ANOTHER = "the file was changed, or replaced by another, after the call was sent; a person has to look"


def see(settings: FilesSettings, path: FilePath, expected_hash: str) -> SeenFile:
    """The file that a call is about. Raises `PreconditionFailed` if it is not there, or not as expected."""
    with in_words(str(path)), locked_folder(settings.root, path.folder) as folder:
        seen = _seen(settings, folder, path)
    if seen is None:
        raise PreconditionFailed(f"{path}: is not there")
    if expected_hash and seen.hash != expected_hash:
        raise PreconditionFailed(f"{path} has another content than `expectedHash` says; read it again")
    return seen


def see_free(settings: FilesSettings, path: FilePath) -> None:
    """Raise `PreconditionFailed` if there is something of this name, or no folder for it."""
    with in_words(str(path)), locked_folder(settings.root, path.folder) as folder:
        if folder.find(path.name) is not None:
            raise PreconditionFailed(f"{path}: is there already")


def see_folder(settings: FilesSettings, path: FilePath) -> None:
    """Raise `PreconditionFailed` if there can be no folder of this name."""
    with in_words(str(path)), locked_folder(settings.root, path.folder) as folder:
        found = folder.find(path.name)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise PreconditionFailed(f"{path}: is there already, and is no folder")


def delete(settings: FilesSettings, path: FilePath, seen: SeenFile, call: MutationCall) -> ChangedPath:
    """Remove a file that is still as it was seen."""
    with in_words(str(path), call), locked_folder(settings.root, path.folder) as folder:
        _refuse_another(settings, folder, path, seen)
        call.sending()
        with effect(str(path)):
            os.unlink(path.name, dir_fd=folder.descriptor)
        folder.sync()
    return ChangedPath(str(path))


def find_deleted(settings: FilesSettings, path: FilePath, seen: SeenFile) -> Applied | NotApplied | Retry:
    """Tell if a file is gone."""
    with in_words(str(path)), locked_folder(settings.root, path.folder, make=False) as folder:
        now = _seen(settings, folder, path)
        if now is None:
            folder.sync()
            return Applied(ChangedPath(str(path)))
        return NotApplied() if now.is_as(seen) else Retry(ANOTHER)


def move(settings: FilesSettings, path: FilePath, to: FilePath, seen: SeenFile, call: MutationCall) -> ChangedPath:
    """Give a file another name, which no other file has."""
    with (
        in_words(str(path), call),
        locked_folder(settings.root, path.folder) as old,
        folder_at(settings.root, to.folder) as new,
    ):
        _refuse_another(settings, old, path, seen)
        if new.find(to.name) is not None:
            raise PreconditionFailed(f"{to}: is there already")
        call.sending()
        with effect(str(to)):
            _rename(old, path, new, to)
        new.sync()
        old.sync()
    return ChangedPath(str(to))


def find_moved(settings: FilesSettings, path: FilePath, to: FilePath, seen: SeenFile) -> Applied | NotApplied | Retry:
    """Tell if a file has its new name."""
    with (
        in_words(str(path)),
        locked_folder(settings.root, path.folder, make=False) as old,
        folder_at(settings.root, to.folder) as new,
    ):
        before, after = _seen(settings, old, path), _seen(settings, new, to)
        if before is None and after is not None and after.is_as(seen):
            new.sync()
            old.sync()
            return Applied(ChangedPath(str(to)))
        # Not if only its content is the same: it may have been moved, and moved back by another.
        return NotApplied() if before == seen else Retry(ANOTHER)


def make_folder(settings: FilesSettings, path: FilePath, call: MutationCall) -> ChangedPath:
    """Make a folder. One that is there stays as it is; the folder that it is in must be there."""
    with in_words(str(path), call), locked_folder(settings.root, path.folder) as folder:
        found = folder.find(path.name)
        call.sending()
        if found is None:
            with effect(str(path)):
                os.mkdir(path.name, dir_fd=folder.descriptor)
        folder.sync()
    return ChangedPath(str(path))


def find_folder(settings: FilesSettings, path: FilePath) -> Applied | NotApplied:
    """Tell if a folder is there."""
    with in_words(str(path)), locked_folder(settings.root, path.folder, make=False) as folder:
        found = folder.find(path.name)
        folder.sync()
    is_there = found is not None and stat.S_ISDIR(found.st_mode)
    return Applied(ChangedPath(str(path))) if is_there else NotApplied()


def _rename(old: OpenFolder, path: FilePath, new: OpenFolder, to: FilePath) -> None:
    try:
        rename_new(old, path.name, new, to.name)
    except FileExistsError:
        raise PreconditionFailed(f"{to}: was made by another at the same time") from None


def _seen(settings: FilesSettings, folder: OpenFolder, path: FilePath) -> SeenFile | None:
    return seen_at(folder, path.name, bytes_max=settings.bytes_max, hard_links=settings.hard_links)


def _refuse_another(settings: FilesSettings, folder: OpenFolder, path: FilePath, seen: SeenFile) -> None:
    if _seen(settings, folder, path) != seen:
        raise Transient(f"{path} was changed by another at the same time")
