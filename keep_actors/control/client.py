"""The shell's end of the control socket. Blocking: a command line has nothing else to do.

What is refused raises `Refused`; a runtime that went away before it answered raises `Lost`: then nobody knows.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from keep_actors.control.place import NobodyThere, connect
from keep_actors.control.protocol import ANSWER_BYTES_MAX, VERSION, Error, Follow, Reply, Request, encode
from keep_storage.model import JournalEntry

T = TypeVar("T")

_CONNECT_S: Final = 5


class Refused(Exception):
    """The runtime said no. `error` has the kind and, of a rejection, the reason."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.words)
        self.error = error


class Lost(Exception):
    """The runtime went away, or did not answer in time: what was asked may have been done."""


class Client:
    """A runtime that can be talked to. One request each."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    @classmethod
    def connect(cls, place: Path, database: Path) -> Self | None:
        """None if nobody listens there. Raises `PermissionError` if somebody does whom one may not talk to."""
        try:
            return cls(connect(place, database.stat().st_uid, _CONNECT_S))
        except NobodyThere:
            return None

    def ask(self, request: Request[T], answer: Any, timeout_s: float | None) -> T:
        """The answer to a request, as the given type. Raises `Refused` or `Lost`."""
        self._send(request, timeout_s)
        reply = self._reply()
        if reply.answer is msgspec.UNSET:
            raise Lost("The runtime answered with something else.")
        value: T = msgspec.json.decode(reply.answer, type=answer)
        return value

    def follow(self, request: Follow) -> Iterator[JournalEntry]:
        """The journal as it is written. Ends when the runtime does. Raises `Refused`, or `Lost` if it was cut off."""
        self._send(request, None)
        while True:
            reply = self._reply()
            if reply.entry is msgspec.UNSET:
                return
            assert isinstance(reply.entry, JournalEntry), "what is set is an entry"
            yield reply.entry

    def _send(self, request: Request[Any], timeout_s: float | None) -> None:
        self._connection.settimeout(timeout_s)
        # A runtime that has closed already may have said why: that is read next.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(encode(request))

    def _reply(self) -> Reply:
        try:
            line = self._lines.readline(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise Lost("The runtime has not answered in time, and may still do what was asked.") from None
        except OSError as error:
            raise Lost(f"The connection broke before the runtime had answered: {error.strerror}.") from error
        if not line.endswith(b"\n"):
            raise Lost("The runtime went away before it had answered.")
        try:
            reply = msgspec.json.decode(line, type=Reply)
        except msgspec.DecodeError as error:
            raise Lost(f"The runtime's answer cannot be read: {error}.") from error
        if reply.v != VERSION:
            raise Lost(f"The runtime answers in version {reply.v} of the protocol; this `keep` speaks {VERSION}.")
        if isinstance(reply.error, Error):
            raise Refused(reply.error)
        return reply

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
