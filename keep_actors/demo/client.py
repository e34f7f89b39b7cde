"""The way to the services: HTTP on this machine. Starts them if they do not run, and ends what it started."""

import sys
from typing import Any, Final
from urllib.parse import quote

import anyio
import anyio.abc
import msgspec

from keep_actors.connectors import ConnectorBug, Transient
from keep_actors.demo.folder import Folder

HOST: Final = "127.0.0.1"


class Address(msgspec.Struct, frozen=True):
    port: int
    token: str


class Reply(msgspec.Struct, frozen=True):
    code: int
    body: Any


class Client:
    """What the connectors of one runtime share. The first that is opened finds the services, or starts them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._address: Address | None = None
        self._started: anyio.abc.Process | None = None
        self._users = 0

    async def open(self) -> None:
        folder = self._folder
        if not folder.is_demo:
            raise FileNotFoundError(
                f"{folder.path} is no folder of a demo. Name one in the environment: KEEP_DEMO=FOLDER"
            )
        self._users += 1
        if self._users > 1:
            return
        if not await self._are_there():
            command = [sys.executable, "-P", "-m", "keep_actors.demo.outside", str(self._folder.path), "0"]
            self._started = await anyio.open_process(command, stderr=None, start_new_session=True)
            assert self._started.stdout is not None, "it was asked for"
            # It says that it is ready; if it cannot be, that is the end of the stream.
            await self._started.stdout.receive()
            self._address = self._read()

    async def close(self) -> None:
        self._users -= 1
        if self._users == 0 and self._started is not None:
            # They end when nobody holds their standard input any more.
            await self._started.aclose()

    async def get(self, path: str) -> Reply:
        return await self._ask(f"GET {quote(path, safe='/?=')} HTTP/1.0\r\n", b"")

    async def post(self, service: str, **asked: Any) -> Reply:
        body = msgspec.json.encode(asked)
        return await self._ask(f"POST /{service} HTTP/1.0\r\nContent-Length: {len(body)}\r\n", body)

    async def _ask(self, head: str, body: bytes) -> Reply:
        """Raises `Transient` if nothing was sent or the service refused, `ConnectionError` if no answer came."""
        if self._address is None:
            raise ConnectorBug("the services are used before they are opened")
        try:
            stream = await anyio.connect_tcp(HOST, self._address.port)
        except OSError as error:
            # Nothing has been sent: this is known, and no doubt.
            raise Transient(f"the services do not listen: {error}") from error
        async with stream:
            await stream.send(f"{head}Authorization: Bearer {self._address.token}\r\n\r\n".encode() + body)
            answer = b"".join([part async for part in stream])
        status, _, rest = answer.partition(b"\r\n")
        if not status.startswith(b"HTTP/"):
            raise ConnectionError("the connection ended without an answer")
        reply = Reply(int(status.split()[1]), msgspec.json.decode(rest.partition(b"\r\n\r\n")[2]))
        if reply.code == 503:
            # These services promise that a 503 comes before anything is done. Without such a promise it would be
            # an outcome that nobody knows, and be let through as `Uncertain`.
            raise Transient("503, try again later", retry_after_ms=reply.body["retryAfterMs"])
        return reply

    async def _are_there(self) -> bool:
        self._address = self._read() if self._folder.address.exists() else None
        if self._address is None:
            return False
        try:
            return (await self.get("/")).code == 200
        except (Transient, OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            return False

    def _read(self) -> Address:
        return msgspec.json.decode(self._folder.address.read_bytes(), type=Address)
