"""The connector: its reads, and the mutations that its settings allow."""

from pathlib import Path
from typing import Annotated, ClassVar, Final

import msgspec

from keep_actors.connectors import read
from keep_actors.kernel.blocking import Blocking
from keep_actors.services.files import reading
from keep_actors.services.files.folder import folder_at
from keep_actors.services.files.mutations import FileMutations
from keep_actors.services.files.paths import Reach
from keep_actors.services.files.settings import FilesSettings, check_settings
from keep_actors.services.files.values import FileEncoding, FileInfo, FilePart, FolderPage
from keep_actors.services.service import Service, SettingsError

_AT_ONCE: Final = 4
_PART_BYTES_MAX: Final = 128 * 1024
"""A control character takes six bytes in JSON: the largest part still fits into a value."""


class Files(Service):
    """Files below one folder. A script can neither read nor change anything outside of it."""

    name = "files"
    settings_type: ClassVar = FilesSettings

    def __init__(self, settings: FilesSettings, *, name: str | None = None) -> None:
        check_settings(settings)
        super().__init__(settings, name=name)
        self._settings = settings
        self._reach = Reach(settings)
        self._threads = Blocking(_AT_ONCE)
        if "write" in settings.allow:
            self.offer(FileMutations(settings, self._reach, self._threads).offers())

    async def open(self) -> None:
        """Look if the folder is there."""
        await self._threads.run(_look_at_root, self._settings.root)

    @read(name="list")
    async def list_folder(
        self, path: str = "", after: str = "", limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    ) -> FolderPage:
        """The files and folders in a folder, by name. Links and files that may not be touched are left out."""
        found = self._reach.folder(path)
        return await self._threads.run(reading.list_folder, self._settings, self._reach, found, after, limit)

    @read(name="read", by_id=True)
    async def read_part(
        self,
        path: str,
        offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0,
        limit: Annotated[int, msgspec.Meta(ge=4, le=_PART_BYTES_MAX)] = _PART_BYTES_MAX,
        encoding: FileEncoding = "text",
    ) -> FilePart:
        """The content of a file, or a part of it: as UTF-8 text, or as base64. Offset and limit are bytes."""
        found = self._reach.file(path)
        return await self._threads.run(reading.read_part, self._settings, found, offset, limit, encoding)

    @read(by_id=True)
    async def stat(self, path: str) -> FileInfo | None:
        """Size, time and hash of a file or a folder. Null: there is none."""
        found = self._reach.named_folder(path)
        return await self._threads.run(reading.describe, self._settings, self._reach, found)


def _look_at_root(root: Path) -> None:
    try:
        with folder_at(root):
            return
    except OSError as error:
        raise SettingsError("root", f"the folder {root} cannot be opened: {error.strerror}; make it first") from None
