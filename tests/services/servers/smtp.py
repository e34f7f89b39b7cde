"""A real SMTP server for tests: aiosmtpd, in a thread of its own. It misbehaves on purpose, where it is told to.

It delivers into mailboxes of Dovecot, as a provider does: to each recipient, and a copy to the sender's sent folder.
"""

import asyncio
import imaplib
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.services.servers.dovecot import PASSWORD, free_port

CUT: Final = "cut"
SILENCE: Final = "silence"

Deliver: TypeAlias = Callable[[Envelope], None]
Faults: TypeAlias = dict[str, str]
"""By command (`EHLO`, `RCPT bob@example.com`, `.` for the end of the mail): an answer, `CUT` or `SILENCE`."""


@dataclass
class SmtpServer:
    """A running server."""

    address: tuple[str, int]
    faults: Faults = field(default_factory=dict)
    delivers_anyway: bool = False
    """With a fault at `.`: the mail is delivered before it."""
    taken: list[Envelope] = field(default_factory=list)
    """The mails that were taken, as they came."""
    commands: list[str] = field(default_factory=list)


@contextmanager
def smtp_server(
    deliver: Deliver | None = None,
    *,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
    with_login: bool = False,
) -> Iterator[SmtpServer]:
    """Start a server, and end it. With `with_login`, any user can log in with `PASSWORD`."""
    server = SmtpServer(("127.0.0.1", free_port()))
    controller = _Controller(
        _Handler(server, deliver),
        hostname="127.0.0.1",
        port=server.address[1],
        ssl_context=tls,
        tls_context=starttls,
        require_starttls=starttls is not None,
        authenticator=_authenticate if with_login else None,
        auth_require_tls=not with_login,
        server=server,
    )
    controller.start()
    try:
        yield server
    finally:
        controller.stop()


def into_mailboxes(address: tuple[str, int], *, copy_to_sent: bool = True) -> Deliver:
    """Delivery to the users of an IMAP server, who have the names of the addresses."""

    def deliver(envelope: Envelope) -> None:
        assert isinstance(envelope.content, bytes), "decode_data is off"
        for recipient in envelope.rcpt_tos:
            append(address, str(recipient), "INBOX", envelope.content)
        if copy_to_sent:
            append(address, str(envelope.mail_from), "Sent", envelope.content)

    return deliver


def append(address: tuple[str, int], user: str, folder: str, mail: bytes, password: str = PASSWORD) -> None:
    """Put a mail into a folder, as a provider does."""
    with imaplib.IMAP4(*address, timeout=10) as imap:
        imap.login(user, password)
        answer, said = imap.append(folder, "", "", mail)
        assert answer == "OK", said


def _authenticate(_: object, __: object, ___: object, mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
    return AuthResult(success=right, handled=False)


class _Handler:
    def __init__(self, server: SmtpServer, deliver: Deliver | None) -> None:
        self._server = server
        self._deliver = deliver

    async def handle_DATA(self, smtp: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802  # aiosmtpd's name
        fault = self._server.faults.get(".")
        if fault is None or self._server.delivers_anyway:
            self._server.taken.append(envelope)
            if self._deliver is not None:
                self._deliver(envelope)
        return "250 OK" if fault is None else await _misbehave(smtp, fault)


class _Smtp(SMTP):
    """The server of one connection, with faults before its own answers."""

    def __init__(self, handler: _Handler, *, server: SmtpServer, **options: Any) -> None:
        super().__init__(handler, **options)
        self._server = server

    async def _or(self, command: str, argument: str | None, own: Callable[[Any], Awaitable[None]]) -> None:
        self._server.commands.append(f"{command} {argument or ''}".strip())
        address = (argument or "").partition("<")[2].partition(">")[0]
        fault = self._server.faults.get(f"{command} {address}", self._server.faults.get(command))
        if fault is None:
            await own(argument)
        else:
            await self.push(await _misbehave(self, fault))

    async def smtp_EHLO(self, hostname: str) -> None:  # noqa: N802
        await self._or("EHLO", hostname, super().smtp_EHLO)

    async def smtp_STARTTLS(self, arg: str) -> None:  # noqa: N802
        await self._or("STARTTLS", arg, super().smtp_STARTTLS)

    async def smtp_AUTH(self, arg: str) -> None:  # noqa: N802
        await self._or("AUTH", arg.partition(" ")[0], lambda _: super(_Smtp, self).smtp_AUTH(arg))

    async def smtp_MAIL(self, arg: str | None) -> None:  # noqa: N802
        await self._or("MAIL", arg, super().smtp_MAIL)

    async def smtp_RCPT(self, arg: str | None) -> None:  # noqa: N802
        await self._or("RCPT", arg, super().smtp_RCPT)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        await self._or("DATA", arg, super().smtp_DATA)


async def _misbehave(smtp: SMTP, fault: str) -> str:
    if fault == SILENCE:
        await asyncio.Event().wait()  # until the connection is lost
    if fault == CUT:
        assert smtp.transport is not None, "connected"
        assert isinstance(smtp.transport, asyncio.WriteTransport)
        smtp.transport.abort()
    return fault


class _Controller(Controller):
    def __init__(self, handler: _Handler, **options: Any) -> None:
        super().__init__(handler, **options)
        self._handler = handler

    def factory(self) -> _Smtp:
        return _Smtp(self._handler, **self.SMTP_kwargs)
