"""Frames between a host, its zygote and its workers: a length, then MessagePack of one typed struct.

A worker's frames are hostile bytes: the length is checked before anything is kept, decoding is typed and closed, and
the only error is `BadFrame`.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from keep_sandbox.invocation import Invocation, MethodKind
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import InvocationEnd, Kind

HEADER_BYTES: Final = 4


class BadFrame(Exception):
    """Bytes that are not a frame of the expected kind."""


class _Frame(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    pass


# Host to worker. `call` counts the invocations of one worker from 1, so that a late answer is recognized.


class RunFrame(_Frame, frozen=True):
    """Run a handler."""

    call: int
    invocation: Invocation
    limits: Limits
    """The limits of this invocation. Those of the process were set when it was forked."""


class Inspect(_Frame, frozen=True):
    """Load a script, run no handler, and report its declaration and its problems."""

    call: int
    source: str
    methods: dict[str, MethodKind] | None


class AnswerFrame(_Frame, frozen=True):
    """The answer to a request, as JSON text."""

    call: int
    id: int
    value: str


class Abort(_Frame, frozen=True):
    """The host refused a request: drop the script."""

    call: int


ToWorker: TypeAlias = RunFrame | Inspect | AnswerFrame | Abort


# Worker to host.


class Ready(_Frame, frozen=True):
    """The worker is jailed, and waits for its first invocation."""


class RequestFrame(_Frame, frozen=True):
    """The script asks for something."""

    call: int
    id: int
    kind: Kind
    name: str
    params: str


class Logged(_Frame, frozen=True):
    """The script wrote a line."""

    call: int
    line: str


class EndedFrame(_Frame, frozen=True):
    """The script has ended."""

    call: int
    ending: InvocationEnd


class Idle(_Frame, frozen=True):
    """The context of this call is freed; the worker waits for the next call."""

    call: int


FromWorker: TypeAlias = Ready | RequestFrame | Logged | EndedFrame | Idle


# Host to zygote, and back. Each `Spawn` carries one descriptor: the worker's end of its socket.


class Spawn(_Frame, frozen=True):
    """Fork a worker."""

    serial: int


class Kill(_Frame, frozen=True):
    """Kill a worker. The zygote does it, because only a parent knows that the process id is still the worker's."""

    serial: int


ToZygote: TypeAlias = Spawn | Kill


class StartedFrame(_Frame, frozen=True):
    """The zygote is ready."""

    pid: int


class Spawned(_Frame, frozen=True):
    """The worker has this process id."""

    serial: int
    pid: int


class Exited(_Frame, frozen=True):
    """The worker has ended. `returncode` as in `subprocess`."""

    serial: int
    returncode: int


FromZygote: TypeAlias = StartedFrame | Spawned | Exited

_encoder = msgspec.msgpack.Encoder()
F = TypeVar("F")


def encode(frame: _Frame) -> bytes:
    """One frame as bytes, its length first."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class FrameReader(Generic[F]):
    """Split bytes into frames. Never holds more than one frame of the maximum length and what came with it."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[F]", frame_bytes_max: int) -> None:
        self._decoder = decoder
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    @property
    def is_empty(self) -> bool:
        """True if no bytes are left over."""
        return not self._buffer

    def next(self) -> F | None:
        """The next frame, or None until more bytes have come. Raises `BadFrame`."""
        if len(self._buffer) < HEADER_BYTES:
            return None
        length = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        if not 0 < length <= self._frame_bytes_max:
            raise BadFrame(f"a frame of {length} bytes")
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        # A copy: with a view the buffer could not shrink while an exception still holds it.
        body = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return decode(body, self._decoder)

    def __iter__(self) -> Iterator[F]:
        while (frame := self.next()) is not None:
            yield frame


def decode(body: bytes, decoder: "msgspec.msgpack.Decoder[F]") -> F:
    """Decode hostile bytes. Raises `BadFrame` and nothing else."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        # msgspec also raises these besides its own errors; a `__post_init__` raises `ValueError`.
        raise BadFrame(f"{type(error).__name__}: {str(error)[:200]}") from None


to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
from_worker: Final = msgspec.msgpack.Decoder(FromWorker)
to_zygote: Final = msgspec.msgpack.Decoder(ToZygote)
from_zygote: Final = msgspec.msgpack.Decoder(FromZygote)
