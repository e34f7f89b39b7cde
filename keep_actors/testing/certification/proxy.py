"""A proxy on loopback before a real service: TCP passes through it, and one `Fault` at a time is injected.

It runs in the event loop of the test, on asyncio and trio, with sockets of its own, so that an end, a reset and a half
closed connection are passed on as they are. It keeps the last connections, for a second delivery of their requests.
"""

import errno
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from keep_actors.testing.certification.faults import Act, Fault, PatternFinder, Way
from keep_actors.testing.certification.subject import ServiceAddress

_CHUNK: Final = 64 * 1024
_CHUNKS_WAITING: Final = 64
"""Read already while an act holds the ones before: a client that goes away takes nothing back."""
_CONNECTIONS_KEPT: Final = 32
_RECORDED_MAX: Final = 1024 * 1024
_QUIET_S: Final = 0.3
_CONNECT_S: Final = 5.0
_RESET: Final = struct.pack("ii", 1, 0)


class Recording:
    """The bytes of one connection, in the order in which the proxy read them."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Way, bytes]] = []
        self.size = 0
        self.is_whole = True
        """False: there was too much, and the rest was not kept."""

    def add(self, way: Way, chunk: bytes) -> None:
        """Keep a chunk."""
        self.size += len(chunk)
        self.is_whole = self.is_whole and self.size <= _RECORDED_MAX
        if self.is_whole:
            self.pieces.append((way, chunk))

    def has(self, pattern: bytes) -> bool:
        """True if a request with this pattern was made."""
        return self.is_whole and pattern in b"".join(chunk for way, chunk in self.pieces if way == Way.REQUESTS)


class Proxy:
    """A way to a service, with at most one fault. `Proxy.to` opens it."""

    def __init__(self, target: ServiceAddress, tasks: TaskGroup) -> None:
        self.fault: Fault | None = None
        """Set it with `inject`."""
        self.accepted = 0
        """Connections, so far."""
        self.moments = 0
        """How often the moment of a fault has come, so far."""
        self.recordings: deque[Recording] = deque(maxlen=_CONNECTIONS_KEPT)
        self._target = target
        self._tasks = tasks
        self._links: set[_Link] = set()
        self._clients: dict[socket.socket, anyio.CancelScope] = {}
        self._is_abandoned = False
        self._listener = _bound(("127.0.0.1", 0))
        self.address: ServiceAddress = self._listener.getsockname()[:2]
        self._accepting, self._accepts_none = anyio.CancelScope(), anyio.Event()
        self._reached = anyio.Event()
        self._released = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def to(cls, target: ServiceAddress) -> AsyncIterator["Proxy"]:
        """Listen before a service, and end all connections at the end."""
        tasks = anyio.create_task_group()
        proxy = cls(target, tasks)
        try:
            async with tasks:
                await proxy.accept()
                try:
                    yield proxy
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            # Only now: a task that has not begun yet would wait for a closed one.
            proxy._listener.close()

    # The faults.

    def inject(self, fault: Fault) -> None:
        """Have this fault on every connection from now on, also on those that are open."""
        self._reached = anyio.Event()
        self._released = anyio.Event()
        self.fault = fault

    def clear(self) -> None:
        """Have no fault any more. Bytes that are held stay so until `release`."""
        self.fault = None

    @property
    def has_moment(self) -> bool:
        """True if the moment of the fault that was injected last has come."""
        return self._reached.is_set()

    async def reached(self) -> None:
        """Wait for the moment of the fault that was injected last. For bytes of the other direction: until there are
        some to act on."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the held bytes go, and clear the fault."""
        self.clear()
        self._released.set()

    async def refuse(self) -> None:
        """Refuse connections, as if nothing listened. Those that are open stay."""
        self._accepting.cancel()
        await self._accepts_none.wait()
        self._listener.close()
        # Bound, so that the port stays ours, and not listening: the system refuses.
        self._listener = _bound(self.address)

    async def accept(self) -> None:
        """Accept connections, again if they were refused."""
        self._listener.listen(_CHUNKS_WAITING)
        self._accepting, self._accepts_none = anyio.CancelScope(), anyio.Event()
        self._tasks.start_soon(self._accept, self._listener, self._accepting, self._accepts_none)

    def drop(self) -> None:
        """End all connections, in order; also those that have not got through to the service yet."""
        for link in list(self._links):
            link.close(Act.CUT)
        for scope in list(self._clients.values()):
            scope.cancel()

    def abandon(self) -> None:
        """End all connections and accept none, from any thread: while the event loop stands still."""
        self._is_abandoned = True
        for end in (self._listener, *tuple(self._clients)):
            with suppress(OSError):  # it has gone already
                end.shutdown(socket.SHUT_RDWR)

    async def repeat(self, pattern: bytes = b"") -> bool:
        """Deliver the requests of the last connection with this pattern once more, on a connection of their own.

        As in the first delivery, each waits for an answer to the one before. False: there was no such connection.
        """
        found = next((recording for recording in reversed(self.recordings) if recording.has(pattern)), None)
        if found is None:
            return False
        with await _connected(self._target) as server, suppress(OSError):  # a service may not want to hear it twice
            await _deliver(server, list(found.pieces))
        return True

    # For its connections.

    def has_reached(self) -> None:
        """The moment of the fault has come, and there are bytes to act on."""
        self.moments += 1
        self._reached.set()

    async def wait_for_release(self) -> None:
        """Wait for `release`."""
        await self._released.wait()

    async def _accept(self, listener: socket.socket, scope: anyio.CancelScope, ended: anyio.Event) -> None:
        try:
            with scope:
                while not self._is_abandoned:
                    await anyio.wait_readable(listener)
                    self._accept_one(listener)
        finally:
            ended.set()

    def _accept_one(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has gone already
        except OSError:
            assert self._is_abandoned, "else it listens"
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        recording = Recording()
        self.recordings.append(recording)
        self._clients[client] = anyio.CancelScope()
        self._tasks.start_soon(self._serve, client, recording)

    async def _serve(self, client: socket.socket, recording: Recording) -> None:
        try:
            with client, self._clients[client]:
                await self._connect(client, recording)
        finally:
            del self._clients[client]

    async def _connect(self, client: socket.socket, recording: Recording) -> None:
        try:
            server = await _connected(self._target)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            with server:
                link = _Link(self, client, server, recording)
                self._links.add(link)
                try:
                    await link.run()
                finally:
                    self._links.discard(link)


class _Link:
    """One connection: two directions, and whether the moment of a fault has come on it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket, recording: Recording) -> None:
        self._proxy = proxy
        self._ends = {Way.REQUESTS: (client, server), Way.ANSWERS: (server, client)}
        self._recording = recording
        self._acting: Fault | None = None
        """Its moment has come, and it acts on the bytes of its direction."""
        self._finding: tuple[Fault, PatternFinder] | None = None
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as tasks:
                for way, (source, sink) in self._ends.items():
                    into, chunks = anyio.create_memory_object_stream[bytes](_CHUNKS_WAITING)
                    tasks.start_soon(self._read, source, way, into)
                    tasks.start_soon(self._write, sink, way, chunks)

    async def _read(self, source: socket.socket, way: Way, into: MemoryObjectSendStream[bytes]) -> None:
        with into:
            try:
                while chunk := await _received(source):
                    self._recording.add(way, chunk)
                    await into.send(chunk)
            except (OSError, anyio.BrokenResourceError):
                pass  # a reset ends this direction; what was read before it is still passed on

    async def _write(self, sink: socket.socket, way: Way, chunks: MemoryObjectReceiveStream[bytes]) -> None:
        with chunks:
            async for chunk in chunks:
                for part, fault in self._parts(way, chunk):
                    if part and (fault is None or await self._acts(fault)):
                        await _sent(sink, part)
        _end(sink)

    def _parts(self, way: Way, chunk: bytes) -> Iterable[tuple[bytes, Fault | None]]:
        """The bytes that pass, and those that a fault acts on."""
        fault = self._proxy.fault
        if self._acting is not None and self._acting is not fault and self._acting.act is not Act.SWALLOW:
            self._acting = None  # it was cleared before there was something to act on
        if self._acting is not None:
            if self._acting.on != way:
                return [(chunk, None)]
            passing = len(chunk) // 2 if self._acting.half else 0
            return [(chunk[:passing], None), (chunk[passing:], self._acting)]
        if fault is None or fault.seen_in != way:
            return [(chunk, None)]
        if self._finding is None or self._finding[0] is not fault:
            self._finding = (fault, PatternFinder(fault.pattern))
        place = self._finding[1].find(chunk)
        if place is None:
            return [(chunk, None)]
        self._acting = fault
        if fault.on != way:
            return [(chunk, None)]
        first = max(0, place + fault.passing)
        return [(chunk[:first], None), (chunk[first:], fault)]

    async def _acts(self, fault: Fault) -> bool:
        """Act on bytes that are there now. True: they pass after all."""
        self._proxy.has_reached()
        match fault.act:
            case Act.CUT | Act.RESET:
                self.close(fault.act)
                return False
            case Act.SWALLOW:
                return False
            case Act.DELAY:
                await anyio.sleep(fault.delay_ms / 1000)
            case Act.HOLD:
                await self._proxy.wait_for_release()
        self._acting = None
        return True

    def close(self, act: Act) -> None:
        """End both sides, in order or with a reset."""
        for end, _ in self._ends.values():
            if act is Act.RESET:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            else:
                _end(end)
        self._scope.cancel()


async def _deliver(server: socket.socket, pieces: list[tuple[Way, bytes]]) -> None:
    has_answered = True
    for way, chunk in pieces:
        if way == Way.ANSWERS:
            has_answered = False
            continue
        if not has_answered:
            await _hear(server)
            has_answered = True
        await _sent(server, chunk, raising=True)
    await _hear(server)


async def _hear(server: socket.socket) -> None:
    """Take an answer, until there is a pause."""
    while True:
        chunk = b""
        with anyio.move_on_after(_QUIET_S):
            chunk = await _received(server)
        if not chunk:
            return


def _bound(address: ServiceAddress) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.setblocking(False)
    return listener


async def _connected(target: ServiceAddress) -> socket.socket:
    """Connect, or raise `OSError`."""
    [(family, kind, protocol, _, address), *_] = await anyio.getaddrinfo(*target, type=socket.SOCK_STREAM)
    server = socket.socket(family, kind, protocol)
    try:
        server.setblocking(False)
        if server.connect_ex(address) == errno.EINPROGRESS:
            with anyio.fail_after(_CONNECT_S):
                await anyio.wait_writable(server)
        if problem := server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(problem, "the service does not accept a connection")
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        server.close()
        raise
    return server


async def _received(source: socket.socket) -> bytes:
    """The next bytes; none at the end. Raises `OSError` after a reset."""
    while True:
        try:
            return source.recv(_CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(source)


async def _sent(sink: socket.socket, data: bytes, *, raising: bool = False) -> None:
    """Send all of it. A side that has gone away is not told, unless `raising`."""
    view = memoryview(data)
    while view:
        try:
            view = view[sink.send(view) :]
        except BlockingIOError:
            await anyio.wait_writable(sink)
        except OSError:
            if raising:
                raise
            return


def _end(sink: socket.socket) -> None:
    with suppress(OSError):  # it has gone already
        sink.shutdown(socket.SHUT_WR)
