"""Servers on this machine: mail in and out, and a web service with a webhook. Only for examples: nothing is protected.

The mail server breaks the connection right after it has taken its first mail to the team, before it says so.
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
from email.message import EmailMessage

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
_START_S = 20


class MailServer:
    """SMTP with one mailbox: mails to the shop come into its inbox, copies of its own mails into its sent folder."""

    def __init__(self, imap_port: int) -> None:
        self.imap_port = imap_port
        self.port = free_port()
        self.to_team: list[str] = []
        """The subjects of the mails that the team has got."""

    async def handle_DATA(self, smtp: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802  # aiosmtpd's name
        assert isinstance(envelope.content, bytes), "mails are not decoded"
        self.deliver("INBOX" if SHOP in envelope.rcpt_tos else "Sent", envelope.content)
        if TEAM in envelope.rcpt_tos:
            subject = next(line for line in envelope.content.splitlines() if line.startswith(b"Subject: "))
            self.to_team.append(subject.decode().removeprefix("Subject: "))
            if len(self.to_team) == 1 and isinstance(smtp.transport, asyncio.WriteTransport):
                smtp.transport.abort()  # the mail is taken, and nobody is told
        return "250 OK"

    def deliver(self, folder: str, mail: bytes) -> None:
        """Put a mail into a folder."""
        with mailbox(self.imap_port) as imap:
            imap.append(folder, "", "", mail)

    def receive(self, sender: str, subject: str) -> None:
        """Have somebody write to the shop."""
        mail = EmailMessage()
        mail["From"], mail["To"], mail["Subject"] = sender, SHOP, subject
        mail["Message-ID"] = f"<{subject.replace(' ', '-')}@example.com>"
        mail.set_content("Thank you!")
        with smtplib.SMTP("127.0.0.1", self.port, timeout=_START_S) as smtp:
            smtp.send_message(mail)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Start SMTP and IMAP, and end them."""
    with _imap_server() as imap_port:
        server = MailServer(imap_port)
        controller = Controller(server, hostname="127.0.0.1", port=server.port)
        controller.start()
        try:
            yield server
        finally:
            controller.stop()


@contextmanager
def _imap_server() -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-c", "from pymap.main import main; main()", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--no-tls", "--no-service", "admin", "--no-service", "managesieve"]
    command += ["dict", "--demo-user", SHOP, "--demo-password", PASSWORD]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < until:
            with suppress(ConnectionRefusedError), mailbox(port) as imap:
                imap.create("Sent")
                break
            time.sleep(0.05)  # another process: nothing tells when it listens
        else:
            raise RuntimeError("the IMAP server did not start")
        yield port
    finally:
        process.terminate()
        process.wait(_START_S)


@contextmanager
def mailbox(port: int) -> Iterator[imaplib.IMAP4]:
    """The mailbox of the shop."""
    with imaplib.IMAP4("127.0.0.1", port, timeout=_START_S) as imap:
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
