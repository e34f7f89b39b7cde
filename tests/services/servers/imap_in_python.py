"""An IMAP server that pip installs, for examples: pymap, in a process of its own, with its mails in memory.

It has one user, and forgets everything when it ends. It starts without a Sent folder: `start` makes one.
"""

import imaplib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_START_S = 20


@contextmanager
def pymap(user: str, password: str) -> Iterator[tuple[str, int]]:
    """Start a server, and end it. Yields its address on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = ("127.0.0.1", int(free.getsockname()[1]))
    command = [sys.executable, "-c", "from pymap.main import main; main()", "--host", address[0]]
    command += ["--port", str(address[1]), "--no-tls", "--no-service", "admin", "--no-service", "managesieve"]
    command += ["dict", "--demo-user", user, "--demo-password", password]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _make_sent_folder(address, user, password, process)
        yield address
    finally:
        process.terminate()
        process.wait(_START_S)


def _make_sent_folder(address: tuple[str, int], user: str, password: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(ConnectionRefusedError), imaplib.IMAP4(*address, timeout=_START_S) as imap:
            imap.login(user, password)
            imap.create("Sent")
            return
        time.sleep(0.05)  # another process: it has nothing to wait for
    raise RuntimeError("pymap did not start")
