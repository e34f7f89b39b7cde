"""A real HTTP server on loopback that answers as it is told, and misbehaves on purpose. Threads, for any backend."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

WAIT_S = 10
"""No thread of a server lives longer than this without a word from its client."""


class Received(NamedTuple):
    """A whole request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    """The number of its connection."""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """A whole answer."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = {}

    def encoded(self) -> bytes:
        phrase = HTTPStatus(self.status).phrase if self.status in list(HTTPStatus) else "Odd"
        lines = [f"HTTP/1.1 {self.status} {phrase}"]
        if self.status >= 200 and self.status not in (204, 304):
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def json_reply(value: object, status: int = 200, **headers: str) -> Reply:
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json", **given})


class Connection:
    """One connection, for a fault to do with as it likes."""

    def __init__(self, accepted: socket.socket, number: int, received: list[Received]) -> None:
        self._socket = accepted
        self._number = number
        self._received = received
        self._buffer = b""

    def read(self) -> Received | None:
        """The next whole request; None at the end."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            if not self._more():
                return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        request = Received(method, target, headers, body, self._number)
        self._received.append(request)
        return request

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def await_first_byte(self) -> None:
        """Return when something came, and leave it unread: the client is past connecting."""
        self._socket.recv(1, socket.MSG_PEEK)

    def finish(self) -> None:
        """Close with FIN what is written."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def wait(self) -> None:
        """Say nothing until the client leaves."""
        while self._more():
            pass

    def left_within(self, seconds: float) -> bool:
        """Wait for so long, and return True as soon as the client leaves."""
        self._socket.settimeout(seconds)
        try:
            return not self._more()
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(WAIT_S)

    def _more(self) -> bool:
        chunk = self._socket.recv(65_536)
        self._buffer += chunk
        return bool(chunk)


def _reset_unread(connection: Connection) -> None:
    connection.await_first_byte()
    connection.reset()


def _reset(connection: Connection) -> None:
    connection.read()
    connection.reset()


def _close_unread(connection: Connection) -> None:
    connection.await_first_byte()
    connection.finish()


def _close(connection: Connection) -> None:
    connection.read()


def _half_header(connection: Connection) -> None:
    connection.read()
    connection.write(b"HTTP/1.1 201 Created\r\ncontent-le")


def _garbage(connection: Connection) -> None:
    connection.read()
    connection.write(b"\x00\xff SSH-2.0-nothing\r\n\r\n")


def _silence(connection: Connection) -> None:
    connection.read()
    connection.wait()


def _silence_in_the_body(connection: Connection) -> None:
    connection.read()
    connection.write(b'HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"id"')
    connection.wait()


def _cut_body(connection: Connection) -> None:
    connection.read()
    connection.write(b'HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"id"')


def _too_large(connection: Connection) -> None:
    connection.read()
    connection.write(Reply(201, b'"' + b"x" * 200_000 + b'"').encoded())


def _too_large_in_chunks(connection: Connection) -> None:
    connection.read()
    connection.write(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(20):
        connection.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
    connection.write(b"0\r\n\r\n")


def _not_json(connection: Connection) -> None:
    connection.read()
    connection.write(Reply(201, b"<html>Created!</html>").encoded())


def _another_type(connection: Connection) -> None:
    connection.read()
    connection.write(Reply(201, b"[1, 2]").encoded())


def _deep(connection: Connection) -> None:
    connection.read()
    connection.write(Reply(201, b"[" * 50_000 + b"]" * 50_000).encoded())


def _compressed(connection: Connection) -> None:
    connection.read()
    connection.write(Reply(201, b"\x1f\x8b\x08\x00", {"content-encoding": "gzip"}).encoded())


Fault = Callable[[Connection], None]

BROKEN: Mapping[str, Fault] = {
    "RST before reading": _reset_unread,
    "RST after reading": _reset,
    "FIN before reading": _close_unread,
    "FIN after reading": _close,
    "half a header": _half_header,
    "garbage": _garbage,
    "silence": _silence,
    "silence in the body": _silence_in_the_body,
    "a cut body": _cut_body,
}
"""There is no whole answer."""

UNUSABLE: Mapping[str, Fault] = {
    "too large": _too_large,
    "too large, in chunks": _too_large_in_chunks,
    "not JSON": _not_json,
    "deeply nested": _deep,
    "compressed": _compressed,
}
"""There is an answer, and it cannot be used."""

MISFITTING: Mapping[str, Fault] = {"another type": _another_type}
"""There is an answer, and it is not what was declared."""


class WebServer:
    """Serve on a free port. `answer` says what to do with a request, `fault` with a connection."""

    def __init__(self, answer: Callable[[Received], Reply] | None = None, *, fault: Fault | None = None) -> None:
        self.received: list[Received] = []
        """All requests, in the order in which they came."""
        self._answer = answer or (lambda _: Reply())
        self._fault = fault
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def connections(self) -> int:
        """The number of connections that were accepted."""
        return len(self._connections)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._listener)
        for each in self._connections:
            self._end(each)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "its sockets are closed"

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _end(self, each: socket.socket) -> None:
        with suppress(OSError):  # closed already
            each.shutdown(socket.SHUT_RDWR)
        each.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.settimeout(WAIT_S)
            self._connections.append(accepted)
            self._start(self._serve, accepted, len(self._connections))

    def _serve(self, accepted: socket.socket, number: int) -> None:
        connection = Connection(accepted, number, self.received)
        try:
            if self._fault is not None:
                self._fault(connection)
                return
            while (request := connection.read()) is not None:
                connection.write(self._answer(request).encoded())
        except OSError:
            pass  # the client left
        finally:
            self._end(accepted)
