"""The events of folders, as the system tells them: what happened to a name, and how often. Linux only."""

import ctypes
import os
import struct
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATED: Final = 0x100
_DELETED: Final = 0x200
_EVENT: Final = struct.Struct("iIII")
_READ: Final = 1024 * 1024


class FolderEvents:
    """Counts how often a name appeared in some folders, and how often one disappeared."""

    def __init__(self, *folders: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}
        for folder in folders:
            wanted = _MOVED_FROM | _MOVED_TO | _CREATED | _DELETED
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), wanted)
            assert watch > 0, os.strerror(ctypes.get_errno())
            self._folders[watch] = folder
        self._came: Counter[Path] = Counter()
        self._went: Counter[Path] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def came(self, path: Path) -> int:
        """How often this name appeared: a file was made there or moved to it."""
        self._read()
        return self._came[path]

    def went(self, path: Path) -> int:
        """How often it disappeared."""
        self._read()
        return self._went[path]

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, _READ)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, place)
                assert watch > 0, "no event was lost"
                name = data[place + _EVENT.size : place + _EVENT.size + length].rstrip(b"\0")
                path = self._folders[watch] / os.fsdecode(name)
                (self._came if mask & (_MOVED_TO | _CREATED) else self._went)[path] += 1
                place += _EVENT.size + length
