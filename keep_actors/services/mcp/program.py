"""A server that is a program of this machine: its messages are the lines of its input and output.

Nothing of what it writes is unbounded: a line that is too long ends it, its error output is kept by its end. It gets
few variables, an empty home, and a process group of its own, which is ended with all that it started.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import anyio
import mcp_types
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.to_thread import run_sync
from mcp.shared.message import SessionMessage

from keep_actors.services.mcp.passage import Watch
from keep_actors.text.visible import quoted

LAST_WORDS_MAX: Final = 2_000
_CHUNK: Final = 64 * 1024
_GRACE_S: Final = 2.0
"""After its input is closed, and again after SIGTERM."""
_KILLED_S: Final = 2.0
_POLL_S: Final = 0.01
_TAKES_S: Final = 30.0
"""A server that does not read a message within this time is left."""
_LISTEN_PAUSE_S: Final = 0.005
"""Between two pieces of its error output, so that a flood of it takes no processor time from the host."""
_INHERITED: Final = ("PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")
_GONE: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class Program:
    """How to start it."""

    def __init__(
        self, command: Sequence[str], folder: Path | None, env: Mapping[str, str], message_bytes_max: int
    ) -> None:
        self._command = list(command)
        self._folder = folder
        self._env = dict(env)
        self._bytes_max = message_bytes_max
        self._last_words = b""

    @property
    def last_words(self) -> str:
        """The end of its error output, quoted; empty if there is none."""
        text = self._last_words.decode(errors="replace").strip()
        return quoted(text[-LAST_WORDS_MAX:], LAST_WORDS_MAX)[0] if text else ""

    @asynccontextmanager
    async def running(self, watch: Watch) -> AsyncIterator[tuple[Any, Any]]:
        """Start it, and end it with everything that it started. Raises `OSError` and `ValueError`."""
        home = await run_sync(lambda: tempfile.mkdtemp(prefix="keep-mcp-"))
        try:
            process = await anyio.open_process(
                self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=self._folder or home,
                env={
                    **{name: os.environ[name] for name in _INHERITED if name in os.environ},
                    "HOME": home,
                    **self._env,
                },
                start_new_session=True,
            )
            async with self._streams(process, watch) as streams:
                yield streams
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(lambda: shutil.rmtree(home, ignore_errors=True))

    @asynccontextmanager
    async def _streams(self, process: Process, watch: Watch) -> AsyncIterator[tuple[Any, Any]]:
        assert process.stdout is not None, "it has pipes"
        assert process.stderr is not None, "it has pipes"
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process.stdout, to_session, watch)
            tasks.start_soon(self._write, process, from_session, watch)
            tasks.start_soon(self._listen, process.stderr)
            try:
                yield from_server, to_server
            finally:
                with anyio.CancelScope(shield=True):
                    for stream in (from_server, to_server, from_session):
                        stream.close()
                    await _end(process)
                tasks.cancel_scope.cancel()

    async def _read(
        self, output: ByteReceiveStream, session: MemoryObjectSendStream[SessionMessage], watch: Watch
    ) -> None:
        with session, suppress(*_GONE):
            line = bytearray()
            while True:
                chunk = await output.receive(_CHUNK)
                *whole, rest = chunk.split(b"\n")
                for part in whole:
                    await self._hand_over(bytes(line) + part, session, watch)
                    line.clear()
                    if watch.ended.is_set():
                        return
                line += rest
                if len(line) > self._bytes_max:
                    watch.end(f"the server wrote a line of more than {self._bytes_max:,} bytes")
                    return

    async def _hand_over(self, line: bytes, session: MemoryObjectSendStream[SessionMessage], watch: Watch) -> None:
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            watch.comes_in(error)  # counted: it is not a message
            return
        await session.send(SessionMessage(message))

    async def _write(self, process: Process, session: MemoryObjectReceiveStream[SessionMessage], watch: Watch) -> None:
        assert process.stdin is not None, "it has pipes"
        try:
            async for each in session:
                line = each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                with anyio.fail_after(_TAKES_S):
                    await process.stdin.send(line)
        except TimeoutError:
            watch.end(f"the server did not read a message for {_TAKES_S:.0f} s")
        except _GONE:
            watch.end("")

    async def _listen(self, errors: ByteReceiveStream) -> None:
        with suppress(*_GONE):
            while True:
                self._last_words = (self._last_words + await errors.receive(_CHUNK))[-4 * LAST_WORDS_MAX :]
                await anyio.sleep(_LISTEN_PAUSE_S)


async def _end(process: Process) -> None:
    """Close its input, then ask, then kill: each step bounded."""
    assert process.stdin is not None, "it has pipes"
    with suppress(*_GONE):
        await process.stdin.aclose()
    await _has_ended(process, _GRACE_S)
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILLED_S)):
        # Also when it has ended itself: its children are in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
            await _has_ended(process, patience_s)
    with anyio.move_on_after(_KILLED_S), suppress(*_GONE):
        await process.aclose()


async def _has_ended(process: Process, patience_s: float) -> None:
    with anyio.move_on_after(patience_s):
        while process.returncode is None:  # noqa: ASYNC110  # `wait` would also wait for its children to close the pipes
            await anyio.sleep(_POLL_S)
