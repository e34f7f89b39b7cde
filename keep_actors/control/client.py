"""The shell's end of the control socket. Blocking: a command line has nothing else to do.

A refused command raises `CommandRefused`. A runtime that goes away before it answers raises `Lost`: the command may
have been carried out.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from keep_actors.api.command import VERSION, Command
from keep_actors.control.place import NoRuntimeThere, connect
from keep_actors.control.protocol import ANSWER_BYTES_MAX, Error, Follow, ReplyLine, encode
from keep_storage.model import JournalEntry

T = TypeVar("T")

_CONNECT_S: Final = 5


class CommandRefused(Exception):
    """The runtime said no. `error` has the kind and, of a rejection, the reason."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.words)
        self.error = error


class Lost(Exception):
    """The runtime went away, or did not answer in time: the command may have been carried out."""


class ControlClient:
    """A connection to a runtime, for one command."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    @classmethod
    def connect(cls, place: Path, database: Path) -> Self | None:
        """None if no runtime listens there. Raises `PermissionError` if the one that does is another user's."""
        try:
            return cls(connect(place, database.stat().st_uid, _CONNECT_S))
        except NoRuntimeThere:
            return None

    def ask(self, command: Command[T], timeout_s: float | None) -> T:
        """The answer to a command. Raises `CommandRefused` or `Lost`."""
        self._send(command, timeout_s)
        reply = self._reply()
        if reply.answer is msgspec.UNSET:
            raise Lost("The runtime gave an unexpected answer.")
        answer: T = msgspec.json.decode(reply.answer, type=command.answer_type())
        return answer

    def follow(self, command: Follow) -> Iterator[JournalEntry]:
        """The journal as it is written, until the runtime ends. Raises `CommandRefused`, or `Lost` if cut off."""
        self._send(command, None)
        while isinstance(entry := self._reply().entry, JournalEntry):
            yield entry

    def _send(self, command: Command[Any], timeout_s: float | None) -> None:
        self._connection.settimeout(timeout_s)
        # A runtime that has closed already may have said why: that is read next.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(encode(command))

    def _reply(self) -> ReplyLine:
        try:
            line = self._lines.readline(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise Lost("The runtime has not answered in time, and may still make the change.") from None
        except OSError as error:
            raise Lost(f"The connection broke before the runtime answered: {error.strerror}.") from error
        if not line.endswith(b"\n"):
            raise Lost("The runtime ended before it answered.")
        try:
            reply = msgspec.json.decode(line, type=ReplyLine)
        except msgspec.DecodeError as error:
            raise Lost(f"The runtime's answer cannot be read: {error}.") from error
        if reply.v != VERSION:
            raise Lost(f"The runtime answers in version {reply.v} of the protocol; this `keep` speaks {VERSION}.")
        if isinstance(reply.error, Error):
            raise CommandRefused(reply.error)
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
