"""The values that scripts get, and those that a call notes."""

from typing import Literal, TypeAlias

import msgspec

EntryKind: TypeAlias = Literal["file", "folder"]
FileEncoding: TypeAlias = Literal["text", "base64"]


class FileEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One line of a folder's listing."""

    path: str
    kind: EntryKind
    bytes: int
    modified_ms: int


class FolderPage(msgspec.Struct, frozen=True, rename="camel"):
    """Part of a listing."""

    entries: list[FileEntry]
    next: str | None
    """Pass it as `after` to go on; null at the end."""


class FilePart(msgspec.Struct, frozen=True, rename="camel"):
    """Content of a file, or part of it."""

    path: str
    content: str
    encoding: FileEncoding
    offset: int
    bytes: int
    size: int
    """Of the whole file, in bytes."""
    next: int | None
    """Pass it as `offset` to go on; null at the end."""


class FileInfo(msgspec.Struct, frozen=True, rename="camel"):
    """One file or folder."""

    path: str
    kind: EntryKind
    bytes: int
    modified_ms: int
    hash: str | None
    """SHA-256 of the content; null for a folder, and for a file larger than `bytes_max`."""


class WrittenFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file that was written."""

    path: str
    bytes: int
    hash: str


class AppendedText(msgspec.Struct, frozen=True, rename="camel"):
    """A text that was added to a file."""

    path: str
    bytes: int
    """Of the text."""


class ChangedPath(msgspec.Struct, frozen=True, rename="camel"):
    """A file that was deleted or moved, or a folder that was made: where it is or was."""

    path: str
