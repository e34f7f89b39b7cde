"""A socket with frames on it, read and written without ever blocking the event loop."""

import socket
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from keep_sandbox.protocol import FrameReader

F = TypeVar("F")

_READ_BYTES = 1 << 16


class Link(Generic[F]):
    """One end of a socket pair, read by one task at a time."""

    def __init__(self, sock: socket.socket, reader: FrameReader[F]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._reader = reader

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
            self._reader.feed(data)
        if not waited:
            # Whoever never stops sending must not starve other tasks.
            await checkpoint()
        return frame

    async def _is_readable(self) -> bool:
        """Wait for something to read. Returns False if the link was closed on this side meanwhile."""
        try:
            await anyio.wait_readable(self._socket)
        except anyio.ClosedResourceError:
            return False
        return True

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
