"""The settings of mail: two servers, the sender, and who files the copy of a mail that was sent."""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

from keep_actors.outbound.secret import Secret
from keep_actors.services.mail.addresses import DOMAIN, problem_with_address
from keep_actors.services.mail.reading import TEXT_CHARS_MAX
from keep_actors.services.mail.words import problem_with_header, problem_with_line
from keep_actors.services.service import ServiceSettings, SettingsError

Tls: TypeAlias = Literal["tls", "starttls", "none"]
SentCopy: TypeAlias = Literal["server", "bcc", "append", "none"]

_MIB: Final = 1024 * 1024
_MINUTE_MS: Final = 60_000
_NAME_CHARS_MAX: Final = 255


class MailServer(ServiceSettings, frozen=True):
    """How to reach one server, and as which user."""

    ports: ClassVar[Mapping[Tls, int]]

    host: str
    port: int | None = None
    """None: the usual one for the protocol."""
    tls: Tls = "starttls"
    plain_text_to: str = ""
    """The name of the host again, if it is not this machine and `tls` is `none`: all is readable on the way."""
    ca_file: Path | None = None
    """Certificates to trust, instead of the system's."""
    user: str = ""
    """Empty: do not log in."""
    password: Secret | None = None
    timeout_ms: int = 20_000
    """The longest silence of the server. The limit of a whole call is the host's."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.ports[self.tls] if self.port is None else self.port


class SmtpServer(MailServer, frozen=True):
    """The server that takes mails to send."""

    ports: ClassVar = {"tls": 465, "starttls": 587, "none": 25}


class ImapServer(MailServer, frozen=True):
    """The server that keeps the mailbox."""

    ports: ClassVar = {"tls": 993, "starttls": 143, "none": 143}
    tls: Tls = "tls"


class MailSettings(ServiceSettings, frozen=True, rename={"from_": "from"}):
    """Sending needs `smtp`, `from` and `sent_copy`; searching and reading need `imap`."""

    smtp: SmtpServer | None = None
    imap: ImapServer | None = None
    from_: str = ""
    """The sender of every mail. Scripts cannot choose it."""
    from_name: str = ""
    domain: str = ""
    """The part of a Message-ID behind its `@`. Empty: the domain of `from`."""
    sent_copy: SentCopy | None = None
    """Where the copy of a sent mail comes from: see docs/connectors/mail.md. Nothing is guessed here."""
    copy_to: str = ""
    """For `bcc`: an address whose mailbox is the one of `imap`."""
    copy_folder: str = ""
    """Where copies are. Empty: the sent folder of the server, and INBOX for `bcc`."""
    settle_ms: int = 10 * _MINUTE_MS
    """For `server` and `bcc`: how long a copy may take to be there. Too short, and a mail is sent twice."""
    allowed_recipients: tuple[str, ...] | None = None
    """Addresses, and domains as `example.com`. None: all."""
    recipients_max: int = 20
    send_bytes_max: int = 10 * _MIB
    results_max: int = 100
    """Mails in one answer of `search`."""
    mail_bytes_max: int = 10 * _MIB
    """Of a mail that is read; the rest is left out."""
    text_chars_max: int = TEXT_CHARS_MAX
    """Of its text, and of its HTML."""
    at_once: int = 4
    """Connections at once."""

    @property
    def message_domain(self) -> str:
        """The domain of Message-IDs."""
        return self.domain or self.from_.partition("@")[2]


def check(settings: MailSettings) -> None:
    """Raise `SettingsError` for settings that cannot work, or that say less than they have to."""
    if settings.smtp is None and settings.imap is None:
        raise SettingsError("smtp", "is missing, and so is imap; give one of the two")
    for name, server in (("smtp", settings.smtp), ("imap", settings.imap)):
        if server is not None:
            _check_server(name, server)
    for name in ("recipients_max", "send_bytes_max", "results_max", "mail_bytes_max", "text_chars_max", "at_once"):
        if getattr(settings, name) < 1:
            raise SettingsError(name, f"is {getattr(settings, name)}; write 1 or more")
    if settings.text_chars_max > TEXT_CHARS_MAX:
        raise SettingsError("text_chars_max", f"is {settings.text_chars_max:,}; write {TEXT_CHARS_MAX:,} or less")
    if settings.settle_ms < 0:
        raise SettingsError("settle_ms", f"is {settings.settle_ms}; write 0 or more")
    if problem := problem_with_line(settings.copy_folder, _NAME_CHARS_MAX):
        raise SettingsError("copy_folder", problem)
    if settings.smtp is not None:
        _check_sending(settings)


def _check_server(name: str, server: MailServer) -> None:
    problem = problem_with_line(server.host, _NAME_CHARS_MAX) or ("" if server.host else "is empty")
    if problem or " " in server.host:
        raise SettingsError(f"{name}.host", problem or "has a space in it")
    if not 0 < server.address[1] < 65_536:
        raise SettingsError(f"{name}.port", f"is {server.port}; write 1 to 65535")
    if server.timeout_ms < 1:
        raise SettingsError(f"{name}.timeout_ms", f"is {server.timeout_ms}; write 1 or more")
    if server.tls == "none" and not is_this_machine(server.host) and server.plain_text_to != server.host:
        what = f'is "none", and {server.host} is another machine; write "tls", "starttls", or, if all may read it on '
        raise SettingsError(f"{name}.tls", f'{what}the way, plain_text_to = "{server.host}"')
    if bool(server.user) != (server.password is not None):
        raise SettingsError(f"{name}.user", "and password are given together, or neither")
    for setting, text in (("user", server.user), ("password", server.password and server.password.reveal())):
        if text and (not text.isascii() or problem_with_line(text, 10_000)):
            raise SettingsError(f"{name}.{setting}", "has characters that are not printable ASCII")


def _check_sending(settings: MailSettings) -> None:
    if problem := problem_with_address(settings.from_):
        raise SettingsError("from", problem)
    if problem := problem_with_header(settings.from_name, 100):
        raise SettingsError("from_name", problem)
    if not DOMAIN.fullmatch(settings.message_domain) or len(settings.message_domain) > _NAME_CHARS_MAX:
        raise SettingsError("domain", f"{settings.message_domain!r} is not a domain; write one such as example.com")
    for each in settings.allowed_recipients or ():
        if "*" in each or (not DOMAIN.fullmatch(each) and problem_with_address(each)):
            raise SettingsError("allowed_recipients", f"{each!r} is no address and no domain; write example.com")
    if settings.sent_copy is None:
        what = 'is missing; write "server" if the provider files a copy of every mail by itself, "append" if this '
        raise SettingsError("sent_copy", f'{what}connector should, "bcc" with copy_to, or "none"')
    if settings.sent_copy != "none" and settings.imap is None:
        raise SettingsError("imap", f'is missing; sent_copy = "{settings.sent_copy}" needs it')
    if settings.sent_copy == "bcc" and problem_with_address(settings.copy_to):
        raise SettingsError("copy_to", f"{settings.copy_to!r} {problem_with_address(settings.copy_to)}")
    if settings.sent_copy != "bcc" and settings.copy_to:
        raise SettingsError("copy_to", 'is only for sent_copy = "bcc"; remove it')


def is_this_machine(host: str) -> bool:
    """Return True for a host that is reached without a network."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
