"""Answers that are kept: the same question of a workflow has the same answer for a time, also in a run that repeats it.

In memory, and if a folder is given also in files there, each named by the key of its question. A file that cannot be
read or written is as good as none: the question is asked again, and the reason is logged.
"""

import logging
import os
import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from keep_actors.kernel.blocking import Blocking
from keep_actors.kernel.time import Time
from keep_actors.services.chat.answer import ChatAnswer
from keep_storage.ids import Millis

log = logging.getLogger(__name__)

_FILE: Final = re.compile(r"[0-9a-f]{64}\.(json|part)")
_BYTES_MAX: Final = 100_000_000
_MEMORY_BYTES_MAX: Final = 64_000_000
_THREADS: Final = 2


class _Kept(msgspec.Struct):
    at: Millis
    answer: ChatAnswer


class AnswerMemory:
    """The answers of one connector."""

    def __init__(self, keep_ms: Millis, answers_max: int, folder: Path | None, time: Time) -> None:
        self._keep_ms = keep_ms
        self._answers_max = answers_max
        self._folder = folder
        self._time = time
        self._kept: OrderedDict[str, tuple[Millis, bytes]] = OrderedDict()
        self._bytes = 0
        self._cleaned = time.elapsed()
        self._threads = Blocking(_THREADS)

    async def open(self) -> None:
        """Make the folder and remove what is too old. Raises `OSError`."""
        if self._folder is not None:
            await self._threads.run(_make, self._folder)
            await self._threads.run(_clean, self._folder, self._time.now() - self._keep_ms)

    async def find(self, key: str) -> ChatAnswer | None:
        """The answer to this question, if it is known and not too old."""
        if key in self._kept:
            # On a clock that cannot be set.
            since, content = self._kept[key]
            if self._time.elapsed() - since < self._keep_ms:
                return msgspec.json.decode(content, type=ChatAnswer)
            self._forget(key)
            return None
        if self._folder is None:
            return None
        kept = await self._threads.run(_read, self._folder / f"{key}.json")
        now = self._time.now()
        if kept is None or not 0 <= now - kept.at < self._keep_ms:
            return None
        self._remember(key, self._time.elapsed() - (now - kept.at), kept.answer)
        return kept.answer

    async def keep(self, key: str, answer: ChatAnswer) -> None:
        """Keep an answer. When this returns, it is in its file."""
        self._remember(key, self._time.elapsed(), answer)
        if self._folder is None:
            return
        content = msgspec.json.encode(_Kept(self._time.now(), answer))
        await self._threads.run(_write, self._folder / f"{key}.json", content)
        if self._time.elapsed() - self._cleaned >= self._keep_ms:
            self._cleaned = self._time.elapsed()
            await self._threads.run(_clean, self._folder, self._time.now() - self._keep_ms)

    def _remember(self, key: str, since: Millis, answer: ChatAnswer) -> None:
        content = msgspec.json.encode(answer)
        assert key not in self._kept, "one request at a time makes an answer, and only if there is none"
        self._kept[key] = (since, content)
        self._bytes += len(content)
        while len(self._kept) > self._answers_max or self._bytes > _MEMORY_BYTES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        self._bytes -= len(self._kept.pop(key)[1])


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _clean(folder: Path, before: Millis) -> None:
    """Remove answers that are too old, and what a process that ended left half written."""
    try:
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # another process removes them, too
                if _FILE.fullmatch(path.name) and path.lstat().st_mtime * 1_000 < before:
                    path.unlink()
    except OSError as error:
        log.warning("old answers cannot be removed: %s: %s", folder, error)


def _read(path: Path) -> _Kept | None:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return msgspec.json.decode(file.read(_BYTES_MAX), type=_Kept)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        log.warning("a kept answer cannot be read: %s: %s", path, error)
        return None


def _write(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".part")
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        log.warning("an answer cannot be kept: %s: %s", path, error)
