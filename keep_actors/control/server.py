"""The runtime's end of the control socket. A client that hangs, sends garbage or goes away does no harm.

Each connection is a task of its own that asks `Keep`, as an embedding service would; every outcome is an answer.
"""

import logging
import os
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

import keep_actors
from keep_actors.api.command import Command
from keep_actors.api.keep import Keep
from keep_actors.api.verdicts import ResultRefused
from keep_actors.authoring.admission import DeployRefused
from keep_actors.control import bounds
from keep_actors.control.place import peer_uid
from keep_actors.control.protocol import (
    REQUEST_BYTES_MAX,
    About,
    Error,
    ErrorKind,
    Follow,
    Hello,
    ReplyLine,
    RequestRefused,
    encode,
)
from keep_actors.kernel import ActorDied, ActorError, AskTimeout
from keep_actors.kernel.foreign_code import attempt
from keep_actors.permissions import PermissionsNeeded
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_storage.errors import EventsWouldWait, Rejected, StorageError, StorageLost

log = logging.getLogger("keep_actors.control")


class Patience(NamedTuple):
    """The time and the connections that clients may take."""

    connections_max: int = 64
    request_s: float = 10
    """To send its request."""
    answer_s: float = 30
    """To take its answer."""
    entry_s: float = 600
    """To take an entry of the journal: whoever reads it in a pager may stop for a while."""
    crowded_s: float = 1
    """Before the next try, when the process has no descriptor left for a connection."""


_ERRORS: Final[tuple[tuple[type[Exception], ErrorKind], ...]] = (
    (Rejected, "rejected"),
    (DeployRefused, "refused"),
    (PermissionsNeeded, "permissions"),
    (StorageLost, "unknown"),
    (StorageError, "unavailable"),
    (ActorDied, "unknown"),
    (AskTimeout, "unknown"),
    (ActorError, "unavailable"),
    (SandboxUnavailable, "unavailable"),
    (RequestRefused, "request"),
    (ResultRefused, "result"),
    (ValueError, "invalid"),
)
"""The kind of each error to a client: the first that fits. An error that is not here is a bug."""

_CLIENT_GONE: Final = (
    OSError,  # `TimeoutError` is one: a client that was too slow
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
)


class Server:
    """Serves connections for as long as it runs. Its listener is closed where it was made."""

    def __init__(self, listener: SocketListener, patience: Patience | None = None) -> None:
        self._listener = listener
        self._patience = patience or Patience()
        self._connections = 0
        self._decoding = anyio.Lock()

    async def run(self, keep: Keep, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        async with anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                try:
                    # Here and not in `accept`, which fails in asyncio's loop if it is cancelled as someone connects.
                    await anyio.wait_readable(self._listener.extra(SocketAttribute.raw_socket))  # noqa: S610
                    stream = await self._listener.accept()
                except anyio.BrokenResourceError as error:
                    log.warning("The control socket cannot take a connection now: %s", error.__cause__)
                    await anyio.sleep(self._patience.crowded_s)
                else:
                    tasks.start_soon(self._serve, keep, stream)

    async def _serve(self, keep: Keep, stream: SocketStream) -> None:
        async with stream:
            self._connections += 1
            try:
                with attempt() as tried:
                    await self._converse(keep, stream)
            finally:
                # Before it is closed: a client that has its answer may come back at once.
                self._connections -= 1
        if tried.error is not None and not isinstance(tried.error, _CLIENT_GONE):
            log.error("A conversation over the control socket failed.", exc_info=tried.error)

    async def _converse(self, keep: Keep, stream: SocketStream) -> None:
        peer = peer_uid(stream.extra(SocketAttribute.raw_socket))  # noqa: S610  # of anyio, not of Django
        if peer not in (None, 0, os.geteuid()):
            await self._say(stream, _refusal("request", f"User {peer} may not talk to this runtime."))
            return
        if self._connections > self._patience.connections_max:
            await self._say(stream, _refusal("unavailable", "Too many are talking to this runtime; try again."))
            return
        try:
            with anyio.fail_after(self._patience.request_s):
                command = await self._decoded(await _line(stream))
        except RequestRefused as refused:
            await self._say(stream, _refusal("request", str(refused)))
            return
        if isinstance(command, Follow):
            await self._follow(keep, command, stream)
        else:
            await self._say(stream, await _answer(keep, command))

    async def _decoded(self, line: bytes) -> Command[Any]:
        """One at a time, with other tasks in between: many large requests at once take turns."""
        async with self._decoding:
            await anyio.lowlevel.checkpoint()
            return bounds.decode(line)

    async def _say(self, stream: ByteStream, reply: ReplyLine) -> None:
        with anyio.fail_after(self._patience.answer_s):
            await stream.send(encode(reply))

    async def _follow(self, keep: Keep, command: Follow, stream: ByteStream) -> None:
        """Send entries until the runtime ends or the client goes away, which is noticed also while nothing happens."""
        with attempt() as tried:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_at_end, stream, tasks.cancel_scope)
                with attempt() as inner:
                    await self._send_entries(keep, command, stream)
                tasks.cancel_scope.cancel()
        error = tried.error or inner.error
        if error is None:
            await self._say(stream, ReplyLine(answer=msgspec.Raw(b"null")))
        elif isinstance(error, _CLIENT_GONE):
            raise error
        else:
            await self._say(stream, _refused(error))

    async def _send_entries(self, keep: Keep, command: Follow, stream: ByteStream) -> None:
        async with aclosing(keep.watch(command.workflow, after=command.after)) as entries:
            async for entry in entries:
                with anyio.fail_after(self._patience.entry_s):
                    await stream.send(encode(ReplyLine(entry=entry)))


async def _line(stream: ByteStream) -> bytes:
    """The first line. Raises `RequestRefused` if it is too long."""
    try:
        line = await BufferedByteReceiveStream(stream).receive_until(b"\n", REQUEST_BYTES_MAX)
    except anyio.DelimiterNotFound:
        line = None
    if line is None or len(line) > REQUEST_BYTES_MAX:
        raise RequestRefused(f"A request has at most {REQUEST_BYTES_MAX} bytes.")
    return line


async def _cancel_at_end(stream: ByteStream, scope: anyio.CancelScope) -> None:
    """Cancel the scope when the client goes away. Bytes that it sends before are dropped."""
    try:
        async for _ in stream:
            pass
    except anyio.BrokenResourceError:
        pass
    scope.cancel()


async def _answer(keep: Keep, command: Command[Any]) -> ReplyLine:
    answer = b""
    with attempt() as tried:
        is_hello = isinstance(command, Hello)
        answer = msgspec.json.encode(
            About(os.getpid(), keep_actors.__version__) if is_hello else await keep.do(command)
        )
    return ReplyLine(answer=msgspec.Raw(answer)) if tried.error is None else _refused(tried.error)


def _refused(error: Exception) -> ReplyLine:
    for kind, meaning in _ERRORS:
        if isinstance(error, kind):
            match error:
                case EventsWouldWait():
                    reason, declared = str(error.reason), list(error.declared)
                    return ReplyLine(
                        error=Error(meaning, error.message, reason, topics=error.topics, declared=declared)
                    )
                case Rejected():
                    return ReplyLine(error=Error(meaning, error.message, str(error.reason)))
                case ResultRefused():
                    return ReplyLine(error=Error(meaning, str(error), example=error.example))
            return _refusal(meaning, str(error))
    log.error("A request over the control socket failed.", exc_info=error)
    return _refusal("internal", f"The runtime has a bug: {type(error).__name__}: {error}. Its log has more.")


def _refusal(kind: ErrorKind, words: str) -> ReplyLine:
    return ReplyLine(error=Error(kind, words))
