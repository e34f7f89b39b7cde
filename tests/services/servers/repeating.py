"""Services that repeat what they hear, in answers and in refusals: a web service, SMTP, IMAP and PostgreSQL."""

import json
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class RepeatingPorts(NamedTuple):
    """Where each of them listens."""

    web: int
    smtp: int
    imap: int
    database: int


class _Web(BaseHTTPRequestHandler):
    """Answers with the request: as a result, as a refusal, or with a status that means nothing. By the path."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        status = next((code for word, code in (("fail", 500), ("refuse", 403)) if word in self.path), 200)
        if "drop" in self.path:
            self.close_connection = True
            return
        # Long words before a secret have it cut in the middle, wherever words are cut.
        padding = "x" * (170 if "pad" in self.path else 0)
        headers = dict(sorted((name.lower(), value) for name, value in self.headers.items()))
        heard = json.dumps({"padding": padding, **headers, "path": self.path, "body": body})
        if "model" in self.path and status == 200:
            said = {"role": "assistant", "content": heard}
            usage = {"prompt_tokens": 1, "completion_tokens": 1}
            heard = json.dumps({"choices": [{"message": said, "finish_reason": "stop"}], "model": "m", "usage": usage})
        authorization = self.headers.get("authorization", "")
        self.send_response(status, "no" if status == 200 else f"refused {authorization}")
        self.send_header("x-heard", authorization)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(heard)))
        self.end_headers()
        self.wfile.write(heard.encode())

    do_GET = do_POST = _answer  # noqa: N815  # the names that the server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing: this log is the service's own."""


class _Mail(socketserver.StreamRequestHandler):
    """SMTP that takes no login, and repeats it."""

    def handle(self) -> None:
        self.wfile.write(b"220 hello\r\n")
        for line in self.rfile:
            answer = b"250-x\r\n250 AUTH PLAIN\r\n" if line[:4].upper() == b"EHLO" else b"535 who is " + line
            self.wfile.write(b"334 \r\n" if line.strip().upper() in (b"AUTH LOGIN", b"AUTH PLAIN") else answer)


class _Mailbox(socketserver.StreamRequestHandler):
    """IMAP that takes no login, and repeats it."""

    def handle(self) -> None:
        self.wfile.write(b"* OK hello\r\n")
        for line in self.rfile:
            tag, _, rest = line.partition(b" ")
            if rest.upper().startswith(b"CAPABILITY"):
                self.wfile.write(b"* CAPABILITY IMAP4rev1\r\n" + tag + b" OK done\r\n")
            else:
                self.wfile.write(tag + b" NO who is " + rest)


class _Database(socketserver.StreamRequestHandler):
    """PostgreSQL's protocol: wants the password in plain text, and repeats it in the refusal."""

    def handle(self) -> None:
        while True:
            start = self._message()
            if start[:4] not in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):  # a wish for encryption
                break
            self.wfile.write(b"N")
        self.wfile.write(b"R" + struct.pack("!ii", 8, 3))
        self.rfile.read(1)
        password = self._message().rstrip(b"\0")
        fields = b"SFATAL\0VFATAL\0C28P01\0Mwho is " + password + b"\0Dhe said " + password + b"\0\0"
        self.wfile.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)

    def _message(self) -> bytes:
        [length] = struct.unpack("!i", self.rfile.read(4))
        return self.rfile.read(length - 4)


class _Threading(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _listening(handler: Callable[..., Any], kind: type[socketserver.BaseServer] = _Threading) -> Iterator[int]:
    server = kind(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield int(server.server_address[1])  # type: ignore[index]  # host and port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def repeating() -> Iterator[RepeatingPorts]:
    """Start all of them, and end them."""
    with (
        _listening(_Web, ThreadingHTTPServer) as web,
        _listening(_Mail) as smtp,
        _listening(_Mailbox) as imap,
        _listening(_Database) as database,
    ):
        yield RepeatingPorts(web, smtp, imap, database)
