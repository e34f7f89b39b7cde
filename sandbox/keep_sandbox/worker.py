"""The worker process: runs one script at a time for one workflow, and can do nothing else.

Reads frames from its socket and writes frames to it. Everything is imported and made before it enters the jail,
because after that it can open no file. It always ends by `_exit`, never by an exception.
"""

import gc
import os
import signal
from typing import assert_never

from keep_sandbox import jail
from keep_sandbox.engine import Engine, Guest, UnexpectedTrap
from keep_sandbox.inspect import inspect_with
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import EXIT_MEMORY, InvocationEnd, Kind
from keep_sandbox.protocol import (
    Abort,
    AnswerFrame,
    EndedFrame,
    FrameReader,
    Idle,
    Inspect,
    Logged,
    Ready,
    RequestFrame,
    RunFrame,
    ToWorker,
    encode,
    to_worker,
)

EXIT_FAILED = 82
EXIT_NO_JAIL = 83
EXIT_TRAP = 84
_READ_BYTES = 1 << 16


def serve(descriptor: int, engine: Engine, limits: Limits, mode: jail.Mode, parent: int, invocations: int) -> None:
    """Run as the forked child. Never returns: the stack above is the zygote's."""
    code = EXIT_NO_JAIL
    try:
        socket = jail.close_all_but(descriptor)
        jail.enter(mode, limits, parent=parent, invocations=invocations)
        code = EXIT_FAILED
        _Worker(socket, engine, limits).run()
        code = 0
    except MemoryError:
        code = EXIT_MEMORY
    except UnexpectedTrap:
        code = EXIT_TRAP
    except BrokenPipeError:
        code = 0  # the host has ended, or closed this worker
    finally:
        os._exit(code)


class _Worker:
    """Also the sink of its guest: output is written at once, so that it is not lost if the script crashes."""

    def __init__(self, socket: int, engine: Engine, limits: Limits) -> None:
        self._socket = socket
        self._limits = limits
        self._engine = engine
        self._guest = Guest(engine, limits)
        self._is_running = False
        self._call = 0
        self._reader = FrameReader(to_worker, limits.invocation_bytes)

    def run(self) -> None:
        """Serve until the host closes the socket."""
        self._write(encode(Ready()))
        while True:
            for frame in self._reader:
                self._receive(frame)
            data = os.read(self._socket, _READ_BYTES)
            if not data:
                return
            self._reader.feed(data)

    def _receive(self, frame: ToWorker) -> None:
        match frame:
            case RunFrame():
                self._begin(frame.call, frame.limits.cpu_hard_ms)
                self._guest = Guest(self._engine, frame.limits)
                self._guest.run(frame.invocation, self)
            case Inspect():
                self._begin(frame.call, self._limits.inspect_cpu_ms)
                inspect_with(self._guest, frame.source, frame.methods, self._limits, self)
            case AnswerFrame() | Abort() if frame.call != self._call or not self._is_running:
                return  # its script has ended meanwhile
            case AnswerFrame():
                self._guest.answer(frame.id, frame.value)
            case Abort():
                self._finish()
                return
            case _:
                assert_never(frame)
        if self._guest.ended:
            self._finish()

    def _begin(self, call: int, cpu_ms: int) -> None:
        assert not self._is_running, "the host runs one script at a time"
        self._call = call
        self._is_running = True
        # The kernel's timer, for code that the engine does not interrupt. Its signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, cpu_ms / 1000)

    def _finish(self) -> None:
        self._guest.close()
        self._is_running = False
        self._write(encode(Idle(self._call)))
        self._guest = Guest(self._engine, self._limits)
        if self._call % 32 == 0:
            gc.collect()
        signal.setitimer(signal.ITIMER_PROF, 0)

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
        try:
            self._write(data)
        except OSError:
            os._exit(0)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._socket, view) :]
