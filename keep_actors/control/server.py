"""The runtime's end of the control socket. A client that hangs, sends garbage or goes away hurts nobody.

Each connection is a task of its own that asks `Keep`, as an embedding service would; whatever comes of it is an answer.
"""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskStatus

import keep_actors
from keep_actors.api.keep import Keep
from keep_actors.api.verdicts import ResultRefused
from keep_actors.authoring.admission import DeployRefused
from keep_actors.control import bounds, protocol
from keep_actors.control.place import Listening, peer_uid
from keep_actors.control.protocol import About, AnyRequest, Error, ErrorKind, Follow, Reply, RequestRefused, encode
from keep_actors.kernel import ActorDied, ActorError, AskTimeout
from keep_actors.kernel.foreign_code import attempt
from keep_actors.permissions import Grant, PermissionsNeeded
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_storage.errors import EventsWouldWait, Rejected, StorageError, StorageLost

log = logging.getLogger("keep_actors.control")


class Patience(NamedTuple):
    """How much a client may ask of the runtime's patience."""

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
"""What each error is to a client: the first that fits. Whatever is not here is a bug of ours."""


def _hello(_: Keep, __: protocol.Hello) -> Awaitable[About]:
    async def about() -> About:
        return About(os.getpid(), keep_actors.__version__)

    return about()


def _deploy(keep: Keep, ask: protocol.Deploy) -> Awaitable[Any]:
    grants = [_grant(each) for each in ask.grants] if isinstance(ask.grants, list) else ask.grants
    return keep.deploy(
        ask.source,
        workflow=ask.workflow,
        new=ask.new,
        author=ask.author,
        grants=grants,
        timezone=ask.timezone,
        major=ask.major,
        drop=ask.drop,
        move=ask.move,
        by=ask.by,
    )


def _rollback(keep: Keep, ask: protocol.Rollback) -> Awaitable[Any]:
    return keep.rollback(ask.workflow, ask.version, drop=ask.drop, move=ask.move, by=ask.by)


def _resolve(keep: Keep, ask: protocol.Resolve) -> Awaitable[Any]:
    return keep.resolve(ask.mutation_id, ask.verdict, by=ask.by, why=ask.why, result=ask.result, version=ask.version)


def _publish(keep: Keep, ask: protocol.Publish) -> Awaitable[Any]:
    return keep.publish(ask.workflow, ask.topic, message_id=ask.message_id, title=ask.title, payload=ask.payload)


def _grant(given: protocol.GrantOf) -> Grant:
    return Grant(given.permission, given.policy, given.per_run, given.per_day)


DOES: Final[Mapping[type[Any], Callable[[Keep, Any], Awaitable[Any]]]] = {
    protocol.Hello: _hello,
    protocol.Deploy: _deploy,
    protocol.Rollback: _rollback,
    protocol.Pause: lambda keep, ask: keep.pause(ask.workflow, by=ask.by),
    protocol.Resume: lambda keep, ask: keep.resume(ask.workflow, by=ask.by),
    protocol.Archive: lambda keep, ask: keep.archive(ask.workflow, by=ask.by),
    protocol.Unarchive: lambda keep, ask: keep.unarchive(ask.workflow, by=ask.by),
    protocol.Stop: lambda keep, ask: keep.stop_run(ask.workflow, run_id=ask.run_id, by=ask.by, why=ask.why),
    protocol.RunNow: lambda keep, ask: keep.run_now(ask.workflow, by=ask.by),
    protocol.ClearError: lambda keep, ask: keep.clear_error(ask.workflow, by=ask.by, why=ask.why),
    protocol.Grant: lambda keep, ask: keep.grant(ask.workflow, _grant(ask.grant), by=ask.by),
    protocol.Revoke: lambda keep, ask: keep.revoke(ask.workflow, ask.permission, by=ask.by),
    protocol.Approvals: lambda keep, ask: keep.approvals(ask.workflow, permission=ask.permission),
    protocol.Approve: lambda keep, ask: keep.approve(ask.approval_id, by=ask.by, why=ask.why),
    protocol.Reject: lambda keep, ask: keep.reject(ask.approval_id, by=ask.by, why=ask.why, retry=ask.retry),
    protocol.Resolve: _resolve,
    protocol.Amend: lambda keep, ask: keep.amend(
        ask.mutation_id, result=ask.result, by=ask.by, why=ask.why, version=ask.version
    ),
    protocol.Publish: _publish,
    protocol.SkipEvent: lambda keep, ask: keep.skip_event(
        ask.workflow, ask.topic, ask.message_id, by=ask.by, why=ask.why
    ),
    protocol.SkipItems: lambda keep, ask: keep.skip_items(
        ask.workflow, ask.item_ids, state=ask.state, by=ask.by, why=ask.why
    ),
    protocol.ReprocessItems: lambda keep, ask: keep.reprocess_items(
        ask.workflow, ask.item_ids, state=ask.state, by=ask.by, why=ask.why
    ),
    protocol.AcceptRepair: lambda keep, ask: keep.accept_repair(ask.workflow, ask.version, by=ask.by),
    protocol.RefuseRepair: lambda keep, ask: keep.refuse_repair(ask.workflow, by=ask.by, why=ask.why),
    protocol.Unknowns: lambda keep, ask: keep.unknowns(ask.workflow),
    protocol.ParameterNames: lambda keep, ask: keep.parameter_names(ask.calls),
}
"""What `Keep` is asked for each request. `Follow` is the one that has more than one answer."""


class Server:
    """Listens for as long as it runs. Whoever made the socket closes it."""

    def __init__(self, listening: Listening, patience: Patience | None = None) -> None:
        self._listener = listening.socket
        self._patience = patience or Patience()
        self._connections = 0
        self._decoding = anyio.Lock()

    async def run(self, keep: Keep, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        async with anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                connection = await self._accept()
                if connection is not None:
                    tasks.start_soon(self._serve, keep, connection)

    async def _accept(self) -> socket.socket | None:
        await anyio.wait_readable(self._listener)
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            log.warning("The control socket cannot take a connection now: %s", error)
            await anyio.sleep(self._patience.crowded_s)
            return None
        connection.setblocking(False)
        return connection

    async def _serve(self, keep: Keep, connection: socket.socket) -> None:
        self._connections += 1
        try:
            with connection, attempt() as tried:
                await self._converse(keep, _Line(connection))
        finally:
            self._connections -= 1
        # A client that went away, or was too slow: `TimeoutError` is an `OSError` too.
        if tried.error is not None and not isinstance(tried.error, OSError):
            log.error("A conversation over the control socket failed.", exc_info=tried.error)

    async def _converse(self, keep: Keep, line: "_Line") -> None:
        if (stranger := line.peer) not in (None, 0, os.geteuid()):
            await self._say(line, _refusal("request", f"User {stranger} may not talk to this runtime."))
            return
        if self._connections > self._patience.connections_max:
            await self._say(line, _refusal("unavailable", "Too many are talking to this runtime; try again."))
            return
        try:
            with anyio.fail_after(self._patience.request_s):
                request = await self._decoded(await line.receive(protocol.REQUEST_BYTES_MAX))
        except RequestRefused as refused:
            await self._say(line, _refusal("request", str(refused)))
            return
        if isinstance(request, Follow):
            await self._follow(keep, request, line)
        else:
            await self._say(line, await _answer(keep, request))

    async def _decoded(self, line: bytes) -> AnyRequest:
        """One at a time, and everybody else in between: many who ask for much at once hold up nobody for longer."""
        async with self._decoding:
            await anyio.lowlevel.checkpoint()
            return bounds.decode(line)

    async def _say(self, line: "_Line", reply: Reply) -> None:
        with anyio.fail_after(self._patience.answer_s):
            await line.send(encode(reply))

    async def _follow(self, keep: Keep, request: Follow, line: "_Line") -> None:
        """Entries until the runtime ends or the client goes away, which is noticed also while nothing happens."""
        with attempt() as tried:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(line.wait_for_end, tasks.cancel_scope)
                with attempt() as inner:
                    await self._send_entries(keep, request, line)
                tasks.cancel_scope.cancel()
        error = tried.error or inner.error
        if error is None:
            await self._say(line, Reply(answer=msgspec.Raw(b"null")))
        elif isinstance(error, OSError):
            raise error
        else:
            await self._say(line, _refused(error))

    async def _send_entries(self, keep: Keep, request: Follow, line: "_Line") -> None:
        async with aclosing(keep.watch(request.workflow, after=request.after)) as entries:
            async for entry in entries:
                with anyio.fail_after(self._patience.entry_s):
                    await line.send(encode(Reply(entry=entry)))


async def _answer(keep: Keep, request: AnyRequest) -> Reply:
    answer = b""
    with attempt() as tried:
        answer = msgspec.json.encode(await DOES[type(request)](keep, request))
    return Reply(answer=msgspec.Raw(answer)) if tried.error is None else _refused(tried.error)


def _refused(error: Exception) -> Reply:
    for kind, meaning in _ERRORS:
        if isinstance(error, kind):
            if isinstance(error, EventsWouldWait):
                left = Error(
                    meaning, error.message, str(error.reason), topics=error.topics, declared=list(error.declared)
                )
                return Reply(error=left)
            if isinstance(error, Rejected):
                return Reply(error=Error(meaning, error.message, str(error.reason)))
            if isinstance(error, ResultRefused):
                return Reply(error=Error(meaning, str(error), example=error.example))
            return _refusal(meaning, str(error))
    log.error("A request over the control socket failed.", exc_info=error)
    return _refusal("internal", f"The runtime has a bug: {type(error).__name__}: {error}. Its log has more.")


def _refusal(kind: ErrorKind, words: str) -> Reply:
    return Reply(error=Error(kind, words))


class _Line:
    """A connection, line by line, without waiting in the event loop's way."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @property
    def peer(self) -> int | None:
        return peer_uid(self._connection)

    async def receive(self, bytes_max: int) -> bytes:
        """The first line. Raises `RequestRefused` if there is none of that size."""
        parts: list[bytes] = []
        size = 0
        while True:
            await anyio.wait_readable(self._connection)
            try:
                part = self._connection.recv(65_536)
            except BlockingIOError:
                continue
            head, end, _ = part.partition(b"\n")
            parts.append(head)
            size += len(head)
            if size > bytes_max:
                raise RequestRefused(f"A request has at most {bytes_max} bytes.")
            if end:
                return b"".join(parts)
            if not part:
                raise ConnectionResetError("the client went away before it had asked")

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._connection.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._connection)
        await anyio.lowlevel.checkpoint()

    async def wait_for_end(self, scope: anyio.CancelScope) -> None:
        """Cancel the scope when the client goes away. Whatever it says before is not listened to."""
        while True:
            await anyio.wait_readable(self._connection)
            try:
                if not self._connection.recv(65_536):
                    break
            except BlockingIOError:
                continue
            except OSError:
                break
        scope.cancel()
