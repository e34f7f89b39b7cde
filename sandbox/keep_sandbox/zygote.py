"""The process that forks workers in advance: single-threaded, freshly started, without data of any workflow.

Started by the host as `python -m keep_sandbox.zygote` with one socket. It forks on command, reports how each worker
ended, and exits with its host; its workers exit with it.
"""

import gc
import os
import select
import signal
import socket
import sys
from typing import NoReturn

import msgspec

from keep_sandbox.engine import Engine
from keep_sandbox.protocol import Exited, FrameReader, Kill, Spawn, Spawned, StartedFrame, encode, to_zygote
from keep_sandbox.worker import WorkerOptions, serve_jailed

_FRAME_BYTES_MAX = 4096


class ZygoteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that the host passes on the command line."""

    control: int
    """The descriptor of the control socket."""
    host: int
    """The process id of the host."""
    workers: WorkerOptions


class _Zygote:
    def __init__(self, options: ZygoteOptions, machine_code: bytes) -> None:
        self._options = options
        self._control = socket.socket(fileno=options.control)
        self._reader = FrameReader(to_zygote, _FRAME_BYTES_MAX)
        self._descriptors: list[int] = []
        self._workers: dict[int, int] = {}  # process id → serial
        # Each child inherits the engine, with the image of the prelude.
        self._engine = Engine(machine_code)

    def run(self) -> None:
        """Serve until the host has ended."""
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        os.set_blocking(wake_reader, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake_reader, select.POLLIN)
        if hasattr(os, "pidfd_open"):
            # The end of the socket tells the same, unless another process inherited the host's end of it.
            try:
                host = os.pidfd_open(self._options.host)
            except ProcessLookupError:
                return  # the host was killed while this process started
            poll.register(host, select.POLLIN)
        if os.getppid() != self._options.host:
            return
        # Children share these pages as long as no garbage collection touches them.
        gc.collect()
        gc.freeze()
        self._send(encode(StartedFrame(os.getpid())))
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if wake_reader in ready:
                _drain(wake_reader)
                self._reap()
            if self._control.fileno() in ready and not self._receive():
                return
            if ready - {wake_reader, self._control.fileno()}:
                return

    def end(self) -> None:
        """Kill all workers, also on systems where they do not die with their parent."""
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)

    def _receive(self) -> bool:
        """Handle frames of the host. Returns False if the host has ended."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 64)
        except ConnectionError:
            return False
        self._descriptors += descriptors
        if not data:
            return False
        self._reader.feed(data)
        for frame in self._reader:
            match frame:
                case Spawn():
                    self._spawn(frame.serial)
                case Kill():
                    self._kill(frame.serial)
        return True

    def _spawn(self, serial: int) -> None:
        descriptor = self._descriptors.pop(0)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve_jailed(descriptor, self._engine, self._options.workers, parent)
        os.close(descriptor)
        self._workers[pid] = serial
        self._send(encode(Spawned(serial, pid)))

    def _kill(self, serial: int) -> None:
        for pid, known in self._workers.items():
            if known == serial:
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            serial = self._workers.pop(pid)
            self._send(encode(Exited(serial, os.waitstatus_to_exitcode(status))))

    def _send(self, data: bytes) -> None:
        self._control.sendall(data)


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def main() -> NoReturn:
    """Run as a zygote with the options of the command line."""
    options = msgspec.json.decode(sys.argv[1], type=ZygoteOptions)
    # Ctrl-C in the terminal is for the host to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    machine_code = sys.stdin.buffer.read()
    if os.getppid() != options.host:
        os._exit(0)  # the host was killed while this process started: that may not be all of the code
    zygote = _Zygote(options, machine_code)
    try:
        zygote.run()
    except BrokenPipeError:
        pass  # the host ended while a frame was sent to it
    finally:
        zygote.end()
    os._exit(0)


if __name__ == "__main__":
    main()
