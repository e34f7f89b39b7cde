"""One connection of one call, which its owner can cut from another thread: a thread that was left behind ends at once.

Time-outs of sockets are for each step, and a server that sends a byte now and then never meets one. So the limit of a
call is the host's, and a cut is what makes it hold.
"""

import socket
import ssl
import threading
from contextlib import suppress
from types import TracebackType

from keep_actors.services.mail.settings import MailServer


class LineCut(ConnectionError):
    """The host has stopped waiting for this call."""


class MailLine:
    """Not connected, connected, cut or closed. `cut` may be called at any time from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        """A second handle of the connection. `SSLSocket.shutdown` would stop the encryption before the connection."""
        self._is_cut = False

    def connect(self, server: MailServer) -> socket.socket:
        """Connect, encrypted from the first byte if that is the setting. Raises `OSError`."""
        connected = socket.create_connection(server.address, server.timeout_ms / 1000)
        try:
            with self._lock:
                if self._is_cut:
                    raise LineCut("the time of this call was over before it was connected")
                self._handle = connected.dup()
            return encrypted(connected, server) if server.tls == "tls" else connected
        except OSError:
            connected.close()
            raise

    def cut(self) -> None:
        """End the connection in both directions. Whoever waits for it gets an error."""
        with self._lock:
            self._is_cut = True
            if self._handle is not None:
                with suppress(OSError):  # the other side was faster
                    self._handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "MailLine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            if self._handle is not None:
                self._handle.close()
            self._handle = None


def encrypted(connected: socket.socket, server: MailServer) -> socket.socket:
    """The same connection, encrypted from here on, with a certificate for the host. Raises `OSError`."""
    context = ssl.create_default_context(cafile=None if server.ca_file is None else str(server.ca_file))
    return context.wrap_socket(connected, server_hostname=server.host)
