"""Read a socket for as long as it lives: the cheapest way, the same on asyncio and trio.

`anyio.wait_readable` registers the socket for every wait and takes it back afterwards. On asyncio a `SocketReader`
stays registered while one is waiting, and the event loop itself reads.
"""

import asyncio
import socket
from typing import Final

import anyio

from keep_actors.kernel.waiter import Waiter, is_on_trio

_READ_BYTES: Final = 1 << 16


class SocketReader:
    """Reads a socket that does not block. One task reads at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._came: list[bytes] = []
        self._is_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task = Waiter()

    async def receive(self) -> bytes:
        """Wait for bytes. Returns none at the end of the socket: its other side or `close` has closed it.

        Others always run meanwhile: who never stops to talk starves nobody. A cancelled call loses no bytes.
        """
        if self._loop is None and not self._is_over and not self._register():
            return await self._wait_and_read()
        while not self._came and not self._is_over:
            await self._task.wait()
        return self._taken()

    def take(self) -> bytes:
        """Take the bytes that are there, without waiting. None may be there."""
        if not self._is_over:
            self._read()
        return self._taken()

    def rest(self) -> None:
        """Read nothing until the next `receive`: whoever stops reading for good says so, or closes the socket."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop = None

    def close(self) -> None:
        """Close the socket, which ends `receive`. Closing again changes nothing."""
        if self._socket.fileno() >= 0:
            self._end()
            anyio.notify_closing(self._socket)
            self._socket.close()

    def _register(self) -> bool:
        """Return False if the event loop cannot read by itself: that of trio, and the usual one of Windows."""
        if is_on_trio():
            return False
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._socket, self._read)
        except NotImplementedError:
            return False
        self._loop = loop
        return True

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._came.append(data)
        else:
            self._end()
        self._task.wake()

    def _end(self) -> None:
        self._is_over = True
        self.rest()
        self._task.wake()

    async def _wait_and_read(self) -> bytes:
        while not self._came and not self._is_over:
            try:
                await anyio.wait_readable(self._socket)
            except (anyio.ClosedResourceError, OSError, ValueError):
                break
            self._read()
        return self._taken()

    def _taken(self) -> bytes:
        came, self._came = b"".join(self._came), []
        return came
