"""The host's side of `shim.c`: what is written into a guest's memory, and what is read from it. Hostile.

A guest may have been taken over: whatever the engine never writes raises `UnexpectedTrap`, and nothing else happens.
"""

import enum
import struct
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from keep_sandbox.wasm import Instance

LOAD_HEAD: Final = struct.Struct("<q5I4x")
BEGIN_HEAD: Final = struct.Struct("<q8I")
_SEEN: Final = struct.Struct("<5I")
_OUT_USED_AT: Final = 16
_ENTRY: Final = struct.Struct("<5I")


class ShimResult(enum.IntEnum):
    """The result of an export of the shim."""

    FAILED = -1
    ENDED = 0
    WAITS = 1
    STUCK = 2
    LOADED = 3
    LOADED_TOUCHED = 4


class Say(enum.IntEnum):
    """The kind of an entry in the outbox of shim.c."""

    REQUEST = 1
    LOG = 2
    DONE = 3
    FAIL = 4
    EXCEPTION = 5
    CALL_LIMIT = 6


class UnexpectedTrap(Exception):
    """The guest did what the engine never does. Do not use this process for other scripts; raise an alarm."""


class Said(msgspec.Struct):
    """The prelude's description of an error."""

    kind: Literal["error", "invalid", "size"]
    phase: Literal["load", "run"]
    name: str
    message: str
    stack: str
    path: str


class Seen(NamedTuple):
    """The state that the shim shows."""

    is_full: int
    is_stopped: int
    heap_top: int
    out_at: int
    out_used: int


class OutboxEntry(NamedTuple):
    """One entry of the outbox."""

    kind: int
    number: int
    texts: tuple[bytes, bytes, bytes]


def seen_in(instance: Instance, at: int) -> Seen:
    """The state that the shim shows at this address."""
    return Seen(*_SEEN.unpack_from(instance.memory, at))


def put(instance: Instance, data: bytes) -> bool:
    """Write into the inbox of an instance. Returns False if there is no room."""
    at = instance.call("input", len(data)) & 0xFFFFFFFF
    if at == 0 or at + len(data) > instance.size:
        return False
    instance.memory[at : at + len(data)] = data
    return True


def outbox(instance: Instance, seen: Seen, *, is_whole: bool) -> bytes:
    """A copy of the outbox. After a trap it may be anywhere, and otherwise never outside of the memory."""
    end = seen.out_at + seen.out_used
    if end > instance.size and is_whole:
        raise UnexpectedTrap("an outbox outside of the memory")
    return bytes(instance.memory[seen.out_at : end])


def empty_outbox(instance: Instance, seen_at: int) -> None:
    """Forget what the guest has said so far."""
    struct.pack_into("<I", instance.memory, seen_at + _OUT_USED_AT, 0)


def entries(outbox: bytes, *, is_whole: bool) -> Iterator[OutboxEntry]:
    """The entries of an outbox. After a trap it may be broken off, and otherwise never."""
    at = 0
    while at + _ENTRY.size <= len(outbox):
        kind, number, a, b, c = _ENTRY.unpack_from(outbox, at)
        first = at + _ENTRY.size
        second, third, end = first + a, first + a + b, first + a + b + c
        if end > len(outbox):
            break
        yield OutboxEntry(kind, number, (outbox[first:second], outbox[second:third], outbox[third:end]))
        at = (end + 7) & ~7
    if is_whole and at != len(outbox):
        raise UnexpectedTrap("an outbox that is broken off")


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def said_in(data: bytes) -> Said:
    try:
        return msgspec.json.decode(data, type=Said)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedTrap(f"an error that the prelude does not write: {error}") from None
