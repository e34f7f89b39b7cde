"""The worker process: runs the scripts of the calls that it is given, and can do nothing else.

Many calls may wait for answers at a time; one computes. Frames are taken in their order, and each turn (a call begins,
or goes on with an answer) is computed to its end before the next frame is looked at. Everything is imported and made
before the jail is entered, because after that no file can be opened. A worker ends by `_exit`, never by an exception.
"""

import gc
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeAlias, assert_never

import msgspec

from keep_sandbox import jail
from keep_sandbox.engine import Engine
from keep_sandbox.guest import Guest
from keep_sandbox.inspect import inspect_with
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import EXIT_FAILED, EXIT_MEMORY, EXIT_NO_JAIL, EXIT_TRAP, InvocationEnd, Kind
from keep_sandbox.protocol import (
    Abort,
    AnswerFrame,
    EndedFrame,
    Forget,
    FrameReader,
    Inspect,
    Logged,
    Ready,
    RequestFrame,
    RunFrame,
    Source,
    ToWorker,
    Waits,
    encode,
    to_worker,
)
from keep_sandbox.shim import UnexpectedTrap

_READ_BYTES = 1 << 16
_KEPT_BACK_BYTES = 1 << 18
"""The frames of a turn are written together, unless there are more bytes of them."""
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
_HAS_TIMER = hasattr(signal, "setitimer")  # Windows has none

ReadBytes: TypeAlias = Callable[[int], bytes]
WriteBytes: TypeAlias = Callable[[memoryview], int]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of every worker of a pool."""

    limits: Limits
    invocations: int
    """The maximum number of calls that a worker serves."""
    calls: int
    """The maximum number of calls that it has at a time."""


def serve_jailed(descriptor: int, engine: Engine, options: WorkerOptions, parent: int) -> NoReturn:
    """Run as the forked child of a zygote. Never returns: the stack above is the zygote's."""
    code = EXIT_NO_JAIL
    try:
        socket = jail.close_all_but(descriptor)
        jail.limit_resources(options.limits, invocations=options.invocations, calls=options.calls)
        jail.enter(parent)
        code = EXIT_FAILED
        code = _serve(partial(os.read, socket), partial(os.write, socket), engine, options.limits)
    finally:
        os._exit(code)


def serve_spawned(read: ReadBytes, write: WriteBytes, engine: Engine, options: WorkerOptions) -> NoReturn:
    """Run in a process of its own, with the limits that the system offers and without a jail."""
    code = EXIT_FAILED
    try:
        jail.limit_resources(options.limits, invocations=options.invocations, calls=options.calls)
        code = _serve(read, write, engine, options.limits)
    finally:
        os._exit(code)


def _serve(read: ReadBytes, write: WriteBytes, engine: Engine, limits: Limits) -> int:
    """Serve until the host closes the socket. Returns the exit code."""
    try:
        _Worker(read, write, engine, limits).run()
    except MemoryError:
        return EXIT_MEMORY
    except UnexpectedTrap:
        return EXIT_TRAP
    except ConnectionError:
        pass  # the host has ended, or closed this worker
    return 0


class _Running:
    """A call that has not ended."""

    def __init__(self, guest: Guest, cpu_s: float) -> None:
        self.guest = guest
        self.cpu_s = cpu_s


class _Worker:
    """Also the sink of its guests: one of them computes at a time."""

    def __init__(self, read: ReadBytes, write: WriteBytes, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._read = read
        self._write_some = write
        self._limits = limits
        self._sources: dict[int, str] = {}
        self._calls: dict[int, _Running] = {}
        self._call = 0
        self._unwritten = bytearray()
        self._reader = FrameReader(to_worker, limits.invocation_bytes)

    def run(self) -> None:
        """Serve until the host closes the socket."""
        # No call leaves cycles behind, and there are many objects to look through in vain.
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        self._write(encode(Ready()))
        while True:
            for frame in self._reader:
                self._receive(frame)
            data = self._read(_READ_BYTES)
            if not data:
                return
            self._reader.feed(data)

    def _receive(self, frame: ToWorker) -> None:
        match frame:
            case Source():
                self._sources[frame.script] = frame.text
            case Forget():
                self._sources.pop(frame.script, None)
            case RunFrame():
                limits = frame.limits or self._limits
                invocation = frame.invocation(self._sources[frame.script])
                running = self._begin(frame.call, limits, limits.cpu_hard_ms)
                running.guest.run(invocation, self)
                self._end_turn(running)
            case Inspect():
                running = self._begin(frame.call, self._limits, self._limits.inspect_cpu_ms)
                inspect_with(running.guest, frame.source, frame.methods, self._limits, self)
                self._end_turn(running)
            case AnswerFrame():
                going_on = self._calls.get(frame.call)
                if going_on is not None:  # or its script has ended meanwhile
                    self._begin_turn(frame.call, going_on)
                    going_on.guest.answer(frame.id, frame.value)
                    self._end_turn(going_on)
            case Abort():
                dropped = self._calls.pop(frame.call, None)
                if dropped is not None:
                    dropped.guest.close()
            case _:
                assert_never(frame)

    def _begin(self, call: int, limits: Limits, cpu_ms: int) -> _Running:
        running = self._calls[call] = _Running(Guest(self._engine, limits), cpu_ms / 1000)
        self._begin_turn(call, running)
        return running

    def _begin_turn(self, call: int, running: _Running) -> None:
        self._call = call
        if _HAS_TIMER:
            # The kernel's timer, for work that fuel does not measure. Its signal ends the process.
            signal.setitimer(signal.ITIMER_PROF, running.cpu_s)

    def _end_turn(self, running: _Running) -> None:
        if _HAS_TIMER:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if not running.guest.ended:
            self._say(encode(Waits(self._call)))
        self._flush()
        if running.guest.ended:
            del self._calls[self._call]
            running.guest.close()

    # The sink. Called from inside the engine, so it must not raise.

    def request(self, request_id: int, kind: Kind, name: str, params: str) -> None:
        """The script asks for something."""
        self._say(encode(RequestFrame(self._call, request_id, kind, name, params)))

    def log(self, line: str) -> None:
        """The script wrote a line."""
        self._say(encode(Logged(self._call, line)))

    def end(self, ending: InvocationEnd) -> None:
        """The script has ended."""
        self._say(encode(EndedFrame(self._call, ending)))

    def _say(self, data: bytes) -> None:
        self._unwritten += data
        if len(self._unwritten) > _KEPT_BACK_BYTES:
            try:
                self._flush()
            except OSError:
                os._exit(0)

    def _flush(self) -> None:
        data = bytes(self._unwritten)
        self._unwritten.clear()
        self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._write_some(view) :]
