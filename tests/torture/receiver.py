"""The end of a webhook, in a process that nobody kills: it keeps what it was told, and does not always say so."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from keep_actors.notices import BadSignature, verify
from tests.torture.records import Notices

SECRET: Final = "whsec_dG9ydHVyZS0wMTIzNDU2Nzg5YWJjZGVmZ2hpag=="


class Receiver(ThreadingHTTPServer):
    """Every tenth notice is refused, and every tenth taken without an answer."""

    def __init__(self, notices: Notices, chaos: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.notices = notices
        self.chaos = chaos
        self.problems: list[str] = []
        self.one_at_a_time = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/told"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take what comes, for the block."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever sent it was killed: that is what happens here."""


class _Request(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        server = self.server
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            return  # its sender was killed in the middle of it
        with server.one_at_a_time:
            luck = server.chaos.random()
            if luck < 0.1:
                self.send_error(503)
                return
            try:
                notice = verify(SECRET, dict(self.headers.items()), body, now=time.time_ns() // 1_000_000)
            except BadSignature as error:
                server.problems.append(f"a notice that cannot be believed: {error}")
                self.send_error(400)
                return
            server.notices.note(notice)
        if luck < 0.2:
            self.close_connection = True
            return
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as it is called there
        """Nothing to say."""
