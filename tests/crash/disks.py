"""The simulated disk with more to go wrong, and the settings that a store needs to live on it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import apsw

from tests.storage.disk import Disk


class TroubledDisk(Disk):
    """A disk that can fail a few syncs and then go on, and that can promise what the unix VFS promises.

    The promise is POWERSAFE_OVERWRITE: a write never harms its neighbours. Without it SQLite pads every commit in
    the log to a whole sector.
    """

    def __init__(self, name: str, files: dict[str, bytes] | None = None, *, powersafe: bool = True) -> None:
        self.powersafe: Final = powersafe
        self.before_sync: Callable[[], None] = lambda: None
        self._syncs_to_spare = 0
        self._syncs_to_fail = 0
        super().__init__(name, files)

    def fail_some_syncs(self, failing: int, *, after: int = 0) -> None:
        """So many syncs go well, and then so many fail."""
        self._syncs_to_spare, self._syncs_to_fail = after, failing

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:  # noqa: N802
        return _TroubledFile(self, super().xOpen(name, flags))

    def sync(self, sync: Callable[[int], None], flags: int) -> None:
        self.before_sync()
        if self._syncs_to_spare:
            self._syncs_to_spare -= 1
        elif self._syncs_to_fail:
            self._syncs_to_fail -= 1
            self.fail_syncs(True)
        try:
            sync(flags)
        finally:
            self.fail_syncs(False)


class _TroubledFile:
    def __init__(self, disk: TroubledDisk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.sync(self._file.xSync, flags)

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE if self._disk.powersafe else 0


class RealDisk(apsw.VFS):
    """Real files, with the shared memory that readers need, on a disk that dies at a sync and can be mended."""

    def __init__(self, name: str) -> None:
        self.vfs_name: Final = name
        self.dies_at_next_sync = False
        self.is_dead = False
        super().__init__(name, base="")

    def mend(self) -> None:
        self.dies_at_next_sync = self.is_dead = False

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:  # noqa: N802
        return _RealFile(self, name, flags)


class _RealFile(apsw.VFSFile):
    def __init__(self, disk: RealDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.dies_at_next_sync:
            self._disk.is_dead = True
        if self._disk.is_dead:
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._disk.is_dead:
            raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)
        super().xWrite(data, offset)


def settings(checkpoint_pages: int) -> Callable[[apsw.Connection], None]:
    """For `apsw.connection_hooks`: no shared memory, and a checkpoint whenever the log has so many pages.

    SQLite would checkpoint by itself and ignore how that went. Here the ignoring must be done in Python: an
    exception of a disk written in Python would otherwise come out of a COMMIT that has succeeded.
    """

    def checkpoint(connection: apsw.Connection, name: str, pages: int) -> int:
        if pages >= checkpoint_pages:
            with suppress(apsw.Error):
                connection.wal_checkpoint(name)
        return apsw.SQLITE_OK

    def hook(connection: apsw.Connection) -> None:
        connection.pragma("locking_mode", "EXCLUSIVE")
        connection.set_wal_hook(checkpoint)

    return hook
