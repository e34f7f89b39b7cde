"""Lives of runtimes, from the side of the suite: begun, killed, waited for."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import IO, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from keep_actors.testing.certification.life import START_S, LifePlan
from keep_actors.testing.certification.nursery import LifeBorn, LifeEnded, LifeWanted

_LINE_MAX: Final = 1024 * 1024
_WORDS_MAX: Final = 2_000


class LivesFailed(Exception):
    """A process could not be started, or ended in a way of its own. The message has its last words."""


class RuntimeLife:
    """One process. `ended` is what became of it."""

    def __init__(self, most_s: float) -> None:
        self.most_s = most_s
        """It has ended by then."""
        self.pid: int | None = None
        self.ended: LifeEnded | None = None
        self.is_born = anyio.Event()
        self.is_over = anyio.Event()

    def kill(self) -> None:
        """Kill it with SIGKILL, unless it has ended."""
        if self.pid is not None and self.ended is None:
            os.kill(self.pid, signal.SIGKILL)


class Lives:
    """The nursery, and its lives. Opened once for a certification."""

    def __init__(self, process: Process, words: IO[bytes]) -> None:
        self._process = process
        self._words = words
        self._lives: dict[int, RuntimeLife] = {}
        self._is_gone = anyio.Event()
        self._speaking = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, subject: str) -> AsyncIterator["Lives"]:
        """Start a nursery, for the lives of one subject."""
        command = [sys.executable, "-m", "keep_actors.testing.certification.nursery"]
        with TemporaryFile() as words:
            async with await anyio.open_process(command, stderr=words) as process, anyio.create_task_group() as tasks:
                lives = cls(process, words)
                tasks.start_soon(lives._listen)
                await lives._send(msgspec.json.encode((sys.path, subject)))
                try:
                    yield lives
                finally:
                    tasks.cancel_scope.cancel()

    async def begin(self, plan: LifePlan) -> RuntimeLife:
        """Begin a life. Raises `LivesFailed`."""
        life = RuntimeLife(plan.patience_s + 2 * START_S)
        number = len(self._lives) + 1
        self._lives[number] = life
        await self._send(msgspec.json.encode(LifeWanted(number, plan)))
        await self._wait(life.is_born, START_S)
        return life

    async def end(self, life: RuntimeLife) -> LifeEnded:
        """Wait for the end of a life. Raises `LivesFailed`."""
        await self._wait(life.is_over, life.most_s)
        assert life.ended is not None, "it is over"
        if life.ended.told is None and life.ended.signal != signal.SIGKILL:
            raise LivesFailed(f"a runtime ended by itself (signal {life.ended.signal}): {self._last_words()}")
        return life.ended

    async def _wait(self, event: anyio.Event, most_s: float) -> None:
        with anyio.move_on_after(most_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._gone, tasks)
                await event.wait()
                tasks.cancel_scope.cancel()
        if not event.is_set():
            raise LivesFailed(f"the processes of the runtimes are not there: {self._last_words()}")

    async def _gone(self, tasks: anyio.abc.TaskGroup) -> None:
        await self._is_gone.wait()
        tasks.cancel_scope.cancel()

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None, "it was opened with a pipe"
        try:
            async with self._speaking:  # two rows begin lives at once
                await self._process.stdin.send(line + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise LivesFailed(f"the process that starts runtimes has ended: {self._last_words()}") from None

    async def _listen(self) -> None:
        assert self._process.stdout is not None, "it was opened with a pipe"
        lines = BufferedByteReceiveStream(self._process.stdout)
        try:
            while True:
                line = await lines.receive_until(b"\n", _LINE_MAX)
                match msgspec.json.decode(line, type=LifeBorn | LifeEnded):
                    case LifeBorn(number=number, pid=pid):
                        self._lives[number].pid = pid
                        self._lives[number].is_born.set()
                    case LifeEnded(number=number) as ended:
                        self._lives[number].ended = ended
                        self._lives[number].is_over.set()
        except (anyio.IncompleteRead, anyio.EndOfStream):
            self._is_gone.set()

    def _last_words(self) -> str:
        self._words.seek(0)
        return self._words.read().decode(errors="replace").strip()[-_WORDS_MAX:] or "it said nothing"
