"""A server that says what it is told: for answers that no real server gives."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tests.services.servers.dovecot import Certificate

HANG_UP = b""


@contextmanager
def scripted(
    greeting: bytes, answers: Mapping[bytes, bytes], then: tuple[Certificate, Mapping[bytes, bytes]] | None = None
) -> Iterator[tuple[str, int]]:
    """Answer each line with what is said for the first of these words in it, `{tag}` replaced by its first word.

    Ends the connection after `HANG_UP`, and with a line that has none of the words. `then`: after STARTTLS it is
    encrypted, with other answers.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):
                self.wfile.write(greeting)
                self.converse(answers)
                if then is not None:
                    with encrypted(self.request, then[0]) as self.request:
                        self.setup()
                        self.converse(then[1])

        def converse(self, answers: Mapping[bytes, bytes]) -> None:
            for line in self.rfile:
                found = next((answer for word, answer in answers.items() if word in line.upper()), HANG_UP)
                if found == HANG_UP:
                    return
                self.wfile.write(found.replace(b"{tag}", line.split()[0]))
                if then is not None and answers is not then[1] and b"STARTTLS" in line.upper():
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[:2]  # type: ignore[misc]  # an IPv4 address has two parts
        finally:
            server.shutdown()
            thread.join()


def encrypted(connected: socket.socket, certificate: Certificate) -> socket.socket:
    """The same connection, with encryption from here on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context.wrap_socket(connected, server_side=True)
