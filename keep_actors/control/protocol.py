"""The lines of the control socket. A command is one line of JSON; the reply is one line with the answer or the error.

One command per connection. `Follow` is the only one with more than one reply: a line for each entry of the journal.
Sizes are bounded, versions are compared, and unknown commands or fields are refused.
"""

from typing import Any, Final, Literal, Union

import msgspec
from msgspec import UNSET, UnsetType

from keep_actors.api.command import VERSION, Command, Right
from keep_actors.api.commands import COMMANDS
from keep_storage.model import JournalEntry

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class About(msgspec.Struct, frozen=True):
    """The process that listens."""

    pid: int
    version: str
    """That of keep-actors."""


class Hello(Command[About], frozen=True, tag="hello"):
    """Ask who listens."""

    right = Right.READ


class Follow(Command[None], frozen=True, kw_only=True, tag="follow"):
    """The journal behind a sequence number, as it is written. Answered when the runtime ends."""

    right = Right.READ
    after: int
    workflow: str | None = None


REQUESTS: Final[tuple[type[Command[Any]], ...]] = (*COMMANDS, Hello, Follow)

ErrorKind = Literal[
    "rejected", "refused", "permissions", "result", "invalid", "request", "unavailable", "unknown", "internal"
]
"""`result`: a person's result does not fit the type of the call. `unknown`: it may have happened. After every other one
it did not."""


class Error(msgspec.Struct, frozen=True):
    """The reason why there is no answer."""

    kind: ErrorKind
    words: str
    reason: str = ""
    """Of a `Rejected`: for code."""
    example: str = ""
    """Of a result that does not fit: JSON that would."""
    topics: dict[str, int] = {}
    declared: list[str] = []
    """Of `EventsWouldWait`: how many events wait in each topic, and the topics that the script has."""


class ReplyLine(msgspec.Struct, frozen=True):
    """A line from the runtime: exactly one of the three is there."""

    v: int = VERSION
    answer: msgspec.Raw | UnsetType = UNSET
    entry: JournalEntry | UnsetType = UNSET
    error: Error | UnsetType = UNSET


class _Versioned(msgspec.Struct, frozen=True):
    v: int = 0


class RequestRefused(Exception):
    """A line is no command. The text says why."""


_DECODER: Final[msgspec.json.Decoder[Command[Any]]] = msgspec.json.Decoder(Union[REQUESTS])  # noqa: UP007


def decode(line: bytes) -> Command[Any]:
    """Raises `RequestRefused`."""
    try:
        version = msgspec.json.decode(line, type=_Versioned).v
        if version != VERSION:
            raise RequestRefused(
                f"This runtime speaks version {VERSION} of the protocol, and was asked in version {version}: `keep` "
                "and the runtime are of different versions of keep-actors."
            )
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(f"Invalid request: {error}.") from error


def encode(line: msgspec.Struct) -> bytes:
    """A line. Line ends inside of texts are escaped by JSON."""
    return msgspec.json.encode(line) + b"\n"
