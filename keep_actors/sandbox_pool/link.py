"""A socket with frames on it, read and written without ever blocking the event loop."""

import socket
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from keep_sandbox.protocol import FrameReader

F = TypeVar("F")

_READ_BYTES = 1 << 16


class Link(Generic[F]):
    """One end of a socket pair, read by one task at a time. `received_bytes` counts until it is reset."""

    def __init__(self, sock: socket.socket, reader: FrameReader[F]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._reader = reader
        self.received_bytes = 0

    @property
    def is_quiet(self) -> bool:
        """True if no received bytes wait to be read."""
        return self._reader.is_empty

    async def receive(self) -> F | None:
        """The next frame, or None if the other side has closed. Raises `BadFrame`. May be cancelled at any time."""
        waited = False
        while (frame := self._reader.next()) is None:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                if not await self._is_readable():
                    return None
                waited = True
                continue
            except OSError:
                return None
            if not data:
                return None
            self.received_bytes += len(data)
            self._reader.feed(data)
        if not waited:
            # A worker that never stops sending must not starve other tasks.
            await checkpoint()
        return frame

    async def _is_readable(self) -> bool:
        """Wait for something to read. Returns False if the link was closed on this side meanwhile."""
        try:
            await anyio.wait_readable(self._socket)
        except anyio.ClosedResourceError:
            return False
        return True

    async def send(self, data: bytes) -> None:
        """Send all of it. Does not raise if the other side has closed: the reader sees that."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                try:
                    await anyio.wait_writable(self._socket)
                except anyio.ClosedResourceError:
                    return
            except OSError:
                return

    def send_now(self, data: bytes, descriptors: list[int]) -> bool:
        """Send a few bytes with descriptors, without waiting. Returns False if they could not be sent."""
        try:
            sent = socket.send_fds(self._socket, [data], descriptors)
        except OSError:
            return False
        return sent == len(data)

    def close(self) -> None:
        """Close the socket. A waiting task gets an error now, instead of a reused descriptor."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
