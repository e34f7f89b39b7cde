"""The reads: listing, content, description. Each ends by itself, in a thread."""

import base64
import heapq
import os
import stat
from typing import Final

from keep_actors.connectors import InvalidCall, PreconditionFailed
from keep_actors.services.files.folder import (
    OpenFolder,
    content_of,
    file_in,
    folder_at,
    hash_of,
    refuse_changed,
    refuse_strange,
)
from keep_actors.services.files.meanings import in_words
from keep_actors.services.files.paths import FilePath, Reach, problem_with_name
from keep_actors.services.files.settings import FilesSettings
from keep_actors.services.files.values import EntryKind, FileEncoding, FileEntry, FileInfo, FilePart, FolderPage

ENTRIES_MAX: Final = 20_000
"""Names of a folder that are looked at for one page."""
PAGE_BYTES_MAX: Final = 512 * 1024
"""Of the paths of one page: with all that stands around them, it fits into a value."""
_NS_PER_MS: Final = 1_000_000


def list_folder(settings: FilesSettings, reach: Reach, path: FilePath, after: str, limit: int) -> FolderPage:
    """The entries that scripts may touch, by name."""
    with in_words(str(path) or "the root"), folder_at(settings.root, path.parts) as folder:
        names = _names(folder, reach, after)
        found: list[FileEntry] = []
        left = PAGE_BYTES_MAX
        while names:
            name = heapq.heappop(names)
            entry = _entry(settings, reach, folder, FilePath((*path.parts, name)))
            if entry is None:
                continue
            left -= len(entry.path.encode())
            if len(found) == limit or left < 0:
                return FolderPage(found, found[-1].path.rpartition("/")[2])
            found.append(entry)
    return FolderPage(found, None)


def read_part(settings: FilesSettings, path: FilePath, offset: int, bytes_max: int, encoding: FileEncoding) -> FilePart:
    """Content of a file from an offset on."""
    with (
        in_words(str(path)),
        folder_at(settings.root, path.folder) as folder,
        file_in(folder, path.name, hard_links=settings.hard_links) as descriptor,
    ):
        before = os.fstat(descriptor)
        piece = _piece(descriptor, offset, bytes_max)
        refuse_changed(descriptor, before, path.name)
    if offset > before.st_size:
        raise InvalidCall(f"the offset {offset} is behind the end of {path}, which has {before.st_size} bytes")
    content, used = _as_text(path, piece) if encoding == "text" else (base64.b64encode(piece).decode(), len(piece))
    end = offset + used
    if not used and end < before.st_size:
        raise InvalidCall(f"{path}: {bytes_max} bytes do not have a whole character; ask for more")
    return FilePart(
        path=str(path),
        content=content,
        encoding=encoding,
        offset=offset,
        bytes=used,
        size=before.st_size,
        next=end if end < before.st_size else None,
    )


def describe(settings: FilesSettings, reach: Reach, path: FilePath) -> FileInfo | None:
    """A file or folder. None: there is none, and no folder where it would be."""
    with in_words(str(path)):
        try:
            with folder_at(settings.root, path.folder) as folder:
                return _described(settings, reach, folder, path)
        except FileNotFoundError:
            return None


def _described(settings: FilesSettings, reach: Reach, folder: OpenFolder, path: FilePath) -> FileInfo | None:
    found = folder.find(path.name)
    if found is None:
        return None
    if stat.S_ISDIR(found.st_mode):
        return FileInfo(str(path), "folder", 0, found.st_mtime_ns // _NS_PER_MS, None)
    refuse_strange(found, path.name, hard_links=settings.hard_links)
    reach.file(str(path))
    with file_in(folder, path.name, hard_links=settings.hard_links) as descriptor:
        now = os.fstat(descriptor)
        small = now.st_size <= settings.bytes_max
        said = hash_of(content_of(descriptor, path.name, settings.bytes_max)) if small else None
    return FileInfo(str(path), "file", now.st_size, now.st_mtime_ns // _NS_PER_MS, said)


def _names(folder: OpenFolder, reach: Reach, after: str) -> list[str]:
    names: list[str] = []
    with os.scandir(folder.descriptor) as entries:
        for number, entry in enumerate(entries):
            if number == ENTRIES_MAX:
                raise PreconditionFailed(f"the folder has more than {ENTRIES_MAX:,} names; divide it into folders")
            is_storable = not any("\ud800" <= each <= "\udfff" for each in entry.name)
            if entry.name > after and is_storable and reach.is_open(entry.name) and not problem_with_name(entry.name):
                names.append(entry.name)
    heapq.heapify(names)
    return names


def _entry(settings: FilesSettings, reach: Reach, folder: OpenFolder, path: FilePath) -> FileEntry | None:
    found = folder.find(path.name)
    if found is None:
        return None
    kind: EntryKind = "folder" if stat.S_ISDIR(found.st_mode) else "file"
    if kind == "file":
        strange = not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and not settings.hard_links)
        if strange or not reach.is_listed(path):
            return None
    size = found.st_size if kind == "file" else 0
    return FileEntry(str(path), kind, size, found.st_mtime_ns // _NS_PER_MS)


def _piece(descriptor: int, offset: int, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    read = 0
    while read < bytes_max and (piece := os.pread(descriptor, bytes_max - read, offset + read)):
        pieces.append(piece)
        read += len(piece)
    return b"".join(pieces)


def _as_text(path: FilePath, piece: bytes) -> tuple[str, int]:
    """The text, without a character that is cut at the end, and the bytes that it takes."""
    try:
        return piece.decode(), len(piece)
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start > 0:
            return piece[: error.start].decode(), error.start
        if error.reason == "unexpected end of data":
            return "", 0
        raise PreconditionFailed(f'{path} is not UTF-8 text; read it with encoding: "base64"') from None
