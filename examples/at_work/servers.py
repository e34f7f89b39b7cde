"""Servers on this machine: mail in and out, and a web service with a webhook. Only for examples: nothing is protected.

The mail server keeps all mails as files, so that it can be killed and started again. It breaks the connection right
after it has taken its first mail to the team, before it says so.
"""

import asyncio
import imaplib
import smtplib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from email import message_from_bytes
from email.message import EmailMessage
from pathlib import Path

import anyio
import msgspec
import uvicorn
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import keep_actors

PASSWORD = "secret"
SHOP, TEAM = "shop@example.com", "team@example.com"
INBOX, SENT = "INBOX", "Sent"
START_S = 60
_TRIES = 3
"""Another program may take a port in the moment between finding and using it."""


class MailServer:
    """SMTP with one mailbox: mails to the shop come into its inbox, copies of its own mails into its sent folder."""

    def __init__(self, folder: Path, imap_port: int) -> None:
        self.port = free_port()
        self.imap_port = imap_port
        self.team = _made(folder / "team")
        """The mailbox of the team: a file for each mail that has come."""
        self._kept = {name: _made(folder / name) for name in (INBOX, SENT)}

    async def handle_DATA(self, smtp: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802  # aiosmtpd's name
        assert isinstance(envelope.content, bytes), "mails are not decoded"
        is_first = TEAM in envelope.rcpt_tos and not any(self.team.iterdir())
        self._take(INBOX if SHOP in envelope.rcpt_tos else SENT, envelope.content)
        if is_first and isinstance(smtp.transport, asyncio.WriteTransport):
            smtp.transport.abort()  # the mail is taken, and nobody is told
        return "250 OK"

    def start(self) -> None:
        """Fill the mailbox with the mails that there are, and deliver those that were taken and not delivered."""
        with mailbox(self.imap_port) as imap:
            imap.create(SENT)
            for name, folder in self._kept.items():
                for each in sorted(folder.iterdir()):
                    imap.append(name, "", "", each.read_bytes())
                    if name == SENT:
                        self._deliver(each)

    def _take(self, name: str, mail: bytes) -> None:
        """Keep a mail, then show it in the mailbox, then deliver it: a crash in between loses nothing."""
        kept = _write(self._kept[name], f"{time.time_ns()}.eml", mail)
        with mailbox(self.imap_port) as imap:
            imap.append(name, "", "", mail)
        if name == SENT:
            self._deliver(kept)

    def _deliver(self, kept: Path) -> None:
        if not (self.team / kept.name).exists():
            _write(self.team, kept.name, kept.read_bytes())

    def receive(self, sender: str, subject: str) -> None:
        """Have somebody write to the shop, once."""
        message_id = f"<{subject.replace(' ', '-')}@example.com>"
        if any(
            message_from_bytes(each.read_bytes())["Message-ID"] == message_id for each in self._kept[INBOX].iterdir()
        ):
            return
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"], mail["Message-ID"] = sender, SHOP, subject, message_id
        mail.set_content("Thank you!")
        with smtplib.SMTP("127.0.0.1", self.port, timeout=START_S) as smtp:
            smtp.send_message(mail)

    def subjects_of_the_team(self) -> list[str]:
        """The subjects of the mails in the mailbox of the team."""
        return [str(message_from_bytes(each.read_bytes())["Subject"]) for each in sorted(self.team.iterdir())]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(folder: Path, name: str, content: bytes) -> Path:
    """Write a file that is there whole or not at all."""
    partial = folder.with_name(f"{folder.name}.part")
    partial.write_bytes(content)
    return partial.rename(folder / name)


@contextmanager
def mail_server(folder: Path) -> Iterator[MailServer]:
    """Start SMTP and IMAP on the mails of a folder, and end them."""
    with _imap_server() as imap_port:
        server = MailServer(folder, imap_port)
        server.start()
        controller = _started(server)
        try:
            yield server
        finally:
            controller.stop()


def _started(server: MailServer) -> Controller:
    for last in range(_TRIES):
        controller = Controller(server, hostname="127.0.0.1", port=server.port, ready_timeout=START_S)
        try:
            controller.start()
        except OSError:
            if last == _TRIES - 1:
                raise
            server.port = free_port()
        else:
            break
    return controller


@contextmanager
def _imap_server() -> Iterator[int]:
    process, port = _imap_process()
    try:
        yield port
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None, "it has a pipe"
        process.stdin.close()


def _imap_process() -> tuple[subprocess.Popen[bytes], int]:
    until = time.monotonic() + START_S
    for _ in range(_TRIES):
        port = free_port()
        command = [sys.executable, str(Path(__file__).with_name("imap_server.py")), str(port), SHOP, PASSWORD]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and time.monotonic() < until:
            with suppress(OSError), mailbox(port):
                return process, port
            time.sleep(0.05)  # another process: nothing tells when it listens
        process.kill()
        process.communicate()
    raise RuntimeError(f"the IMAP server did not start; it is {' '.join(command[:2])}")


@contextmanager
def mailbox(port: int) -> Iterator[imaplib.IMAP4]:
    """The mailbox of the shop."""
    with imaplib.IMAP4("127.0.0.1", port, timeout=START_S) as imap:
        imap.login(SHOP, PASSWORD)
        yield imap


class _Webhook(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # Ctrl-C ends the whole example


@asynccontextmanager
async def webhook(keep: keep_actors.Keep) -> AsyncIterator[str]:
    """Serve a webhook whose calls become events of a workflow. Yields its address."""

    async def signed_up(request: Request) -> PlainTextResponse:
        person = msgspec.json.decode(await request.body(), type=dict[str, str])
        # The sender delivers again if it got no answer. The address makes it the same event.
        await keep.publish(
            "signups-to-sheet",
            "signup",
            message_id=person["email"],
            title=f"Sign-up of {person['name']}",
            payload=person,
        )
        return PlainTextResponse("thank you")

    app = Starlette(routes=[Route("/signups", signed_up, methods=["POST"])])
    server = _Webhook(uvicorn.Config(app, log_level="error", lifespan="off"))
    # It listens from here on: a call that comes before the server is ready waits.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/signups"
            server.should_exit = True


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
