"""A worker process that is started by itself, where workers cannot be forked: `python -m keep_sandbox.spawned`.

Its standard input has its options, with its end of a socket, in a line, and then the machine code of the engine. It
ends when the socket closes.
"""

import os
import signal
import socket
import sys
from typing import NoReturn

import msgspec

from keep_sandbox.engine import Engine
from keep_sandbox.worker import WorkerOptions, serve_spawned


class SpawnedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of the standard input."""

    worker: WorkerOptions
    code_bytes: int
    """The length of the machine code: less has come if the host has ended."""
    descriptor: int | None = None
    """The inherited descriptor of the socket."""
    shared: bytes | None = None
    """Or the socket as Windows hands it over: the bytes of `socket.share`."""


def main() -> NoReturn:
    """Run as a worker."""
    # Ctrl-C in the terminal is for the host to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    machine_code = sys.stdin.buffer.read()
    if not line.endswith(b"\n"):
        os._exit(0)
    options = msgspec.json.decode(line, type=SpawnedOptions)
    if len(machine_code) != options.code_bytes:
        os._exit(0)  # the host has ended while this process started
    sock = _socket(options)
    serve_spawned(sock.recv, sock.send, Engine(machine_code), options.worker)


def _socket(options: SpawnedOptions) -> socket.socket:
    if options.shared is not None:
        taken: socket.socket = getattr(socket, "fromshare")(options.shared)  # noqa: B009  # only Windows has it
        return taken
    assert options.descriptor is not None, "a worker is given a socket in one of two ways"
    return socket.socket(fileno=options.descriptor)


if __name__ == "__main__":
    main()
