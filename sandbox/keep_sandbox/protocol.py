"""Frames between a host, its zygote and its workers: a length, then MessagePack of one typed struct.

A worker's frames are hostile bytes: the length is checked before anything is kept, decoding is typed and closed, and
the only error is `BadFrame`.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from keep_sandbox.invocation import Capabilities, Invocation, MethodKind
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import InvocationEnd, Kind

HEADER_BYTES: Final = 4


class BadFrame(Exception):
    """Bytes that are not a frame of the expected kind."""


class _Frame(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    pass


# Host to worker. A worker computes one turn after the other, in the order of these frames: `RunFrame`, `Inspect` and
# `AnswerFrame` begin one. `call` counts the calls of one worker from 1, so that a late answer is recognized.


class Source(_Frame, frozen=True):
    """Keep the text of a script, for calls that name its number."""

    script: int
    text: str


class Forget(_Frame, frozen=True):
    """Drop the text of a script. Calls that run it go on."""

    script: int


class RunFrame(_Frame, frozen=True):
    """Run a handler of a script that the worker was given."""

    call: int
    script: int
    handler: str
    args: str
    capabilities: Capabilities
    now_ms: int
    seed: int
    limits: Limits | None
    """The limits of this invocation, if they are not those that the worker was started with."""

    def invocation(self, source: str) -> Invocation:
        """The invocation, with the text of its script."""
        return Invocation(
            source=source,
            handler=self.handler,
            args=self.args,
            capabilities=self.capabilities,
            now_ms=self.now_ms,
            seed=self.seed,
        )


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
    """The host refused a request, or has no more use for the call: drop its script. Begins no turn."""

    call: int


ToWorker: TypeAlias = Source | Forget | RunFrame | Inspect | AnswerFrame | Abort


# Worker to host. All frames of a turn are of its call. `Waits`, `EndedFrame` or a mutation that ends the script is the
# last one.


class Ready(_Frame, frozen=True):
    """The worker has everything it needs, is jailed where it is to be, and waits for its first call."""


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


class Waits(_Frame, frozen=True):
    """The turn has ended: the script waits for answers."""

    call: int


class EndedFrame(_Frame, frozen=True):
    """The script has ended."""

    call: int
    ending: InvocationEnd


CallFrame: TypeAlias = RequestFrame | Logged | Waits | EndedFrame
FromWorker: TypeAlias = Ready | CallFrame


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
        self.frame_bytes = 0
        """The length of the frame that was read last."""

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

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
        self.frame_bytes = end
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
