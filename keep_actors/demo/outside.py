"""The outside: a mailbox, sheets, a bank and a courier, in a process of their own that no runtime takes with it.

They do what they are asked, each time they are asked, and write that down in `outside.jsonl`: a call that is made
twice is there twice. They misbehave as `tricks.py` says. Only the standard library; ends when its standard input does.
"""

import json
import os
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from keep_actors.demo.folder import Folder
from keep_actors.demo.tricks import MAILS, RETRY_AFTER_MS, SERVICES, TRICKS, Trick

HANG_S: Final = 45
_BODY_MAX: Final = 65_536


class Book:
    """What happened, in a file: effects, and the tricks that were played. Read again by the next such process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._lines: list[dict[str, Any]] = read(path)

    def write(self, **line: Any) -> None:
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            self._lines.append(line)
            # In one write: who reads along never sees half a line.
            file.write(json.dumps(line) + "\n")

    def find(self, service: str, key: str) -> dict[str, Any] | None:
        """The effect with this key."""
        with self._lock:
            return next((e for e in self._lines if e["service"] == service and e.get("key") == key), None)

    def trick_for(self, service: str, about: str) -> Trick | None:
        """The trick that is to be played now. It is written down, and not played again."""
        trick = TRICKS.get((service, about))
        with self._lock:
            played = any(e["what"] == "trick" and (e["service"], e["about"]) == (service, about) for e in self._lines)
        if trick is None or played:
            return None
        self.write(service=service, what="trick", about=about, trick=trick.name.lower())
        return trick


def read(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a book, oldest first."""
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Services(ThreadingHTTPServer):
    """`POST /SERVICE` does something, `GET /SERVICE/KEY` looks for it, `GET /mail?after=ID` reads the inbox."""

    daemon_threads = True

    def __init__(self, book: Book, pace_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.book = book
        self.pace_s = pace_s
        """How long an answer takes: a person can read along."""
        self.token = secrets.token_hex(16)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A caller that went away, killed in the middle of a call, is no error of the service.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Services

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        url = urlsplit(self.path)
        service, _, key = url.path.strip("/").partition("/")
        if service == "mail" and not key:
            self._inbox(parse_qs(url.query).get("after", [""])[0])
        elif service in ("mail", "sheets", "bank") and key:
            time.sleep(self.server.pace_s)
            found = self.server.book.find(service, key)
            self._answer(200, found) if found else self._answer(404, {})
        else:
            # The courier keeps no book that others may look into.
            self._answer(200 if not service else 405, {})

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        service = self.path.strip("/")
        length = int(self.headers.get("Content-Length") or 0)
        if service not in SERVICES or not 0 < length <= _BODY_MAX:
            self._answer(404, {})
            return
        asked = json.loads(self.rfile.read(length))
        trick = self.server.book.trick_for(service, asked["about"])
        if trick is Trick.LOSE_REQUEST:
            return
        if trick is Trick.REFUSE:
            self._refuse()
            return
        self.server.book.write(service=service, what="effect", at=int(time.time() * 1000), **asked)
        if trick is Trick.HANG:
            self.connection.settimeout(HANG_S)
            self.connection.recv(1)
            return
        time.sleep(self.server.pace_s)
        if trick is None:
            self._answer(200, {"key": asked["key"]})

    def _inbox(self, after: str) -> None:
        if self.server.book.trick_for("mail", "inbox") is Trick.REFUSE:
            self._refuse()
            return
        time.sleep(self.server.pace_s)
        mails = [dict(zip(("id", "from", "subject"), mail, strict=True)) for mail in MAILS]
        ids = [mail["id"] for mail in mails]
        self._answer(200, mails[ids.index(after) + 1 if after in ids else 0 :])

    def _is_allowed(self) -> bool:
        # Anybody on this machine can reach the port; only who can read the folder knows the token.
        allowed = secrets.compare_digest(self.headers.get("Authorization") or "", f"Bearer {self.server.token}")
        if not allowed:
            self._answer(403, {})
        return allowed

    def _refuse(self) -> None:
        time.sleep(self.server.pace_s)
        self._answer(503, {"retryAfterMs": RETRY_AFTER_MS})

    def _answer(self, code: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """What happened is in the book."""


def main() -> None:
    """`python -m keep_actors.demo.outside FOLDER PACE_S`: serve until the standard input ends."""
    folder, pace_s = Folder(Path(sys.argv[1])), float(sys.argv[2])
    server = Services(Book(folder.outside), pace_s)
    address = json.dumps({"port": server.server_port, "token": server.token})
    new = folder.address.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(address)
    new.replace(folder.address)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    folder.address.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
