"""A server that says what it is told: for answers that no real server gives."""

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

HANG_UP = b""


@contextmanager
def scripted(greeting: bytes, answers: Mapping[bytes, bytes]) -> Iterator[tuple[str, int]]:
    """Answer each line with what is said for the first of these words in it, `{tag}` replaced by its first word.

    Ends the connection after `HANG_UP`, and with a line that has none of the words.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):
                self.wfile.write(greeting)
                for line in self.rfile:
                    found = next((answer for word, answer in answers.items() if word in line.upper()), HANG_UP)
                    if found == HANG_UP:
                        return
                    self.wfile.write(found.replace(b"{tag}", line.split()[0]))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[:2]  # type: ignore[misc]  # an IPv4 address has two parts
        finally:
            server.shutdown()
            thread.join()
