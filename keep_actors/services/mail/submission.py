"""A mail handed to an SMTP server: one connection, one mail, all recipients or none. Blocks: runs in a thread."""

import re
import smtplib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from keep_actors.connectors import AuthRequired, InvalidCall, PreconditionFailed
from keep_actors.services.mail.line import MailLine, encrypted
from keep_actors.services.mail.outcomes import EXPECTED, SmtpStage, broken, refusal
from keep_actors.services.mail.settings import SmtpServer

_REPLY_LINES_MAX: Final = 100
_REPLY_LINE_BYTES_MAX: Final = 4096
_WORDS_CHARS_MAX: Final = 500
_ANSWER_TIMEOUT_S: Final = 600
"""For the answer to the mail itself: RFC 5321 asks for ten minutes. The host's own limit is usually shorter."""
_UNREADABLE: Final = -1
_DOT_AT_BEGIN: Final = re.compile(rb"^\.", re.MULTILINE)
_NAME_OF_THIS_MACHINE: Final = "[127.0.0.1]"
"""In EHLO. The usual choice looks itself up in the DNS, which has no time limit."""


def submit(
    line: MailLine, server: SmtpServer, sender: str, recipients: Sequence[str], mail: bytes, sending: Callable[[], None]
) -> None:
    """Send a mail, and return when the server has taken it for every recipient.

    Calls `sending` before the first byte of it. Raises a `ConnectorError` if it was not sent, and `Uncertain` if
    that cannot be known.
    """
    with line:
        conversation = _Conversation(line, server)
        try:
            conversation.begin()
            conversation.address(sender, recipients, len(mail))
            conversation.hand_over(mail, sending)
        finally:
            conversation.close()


class _Conversation(smtplib.SMTP):
    """Commands and their answers. Knows its stage: the exceptions of smtplib, all of them `OSError`, do not say."""

    def __init__(self, line: MailLine, server: SmtpServer) -> None:
        super().__init__(local_hostname=_NAME_OF_THIS_MACHINE, timeout=server.timeout_ms / 1000)
        self._line = line
        self._server = server
        self._stage = SmtpStage.GREETING

    def begin(self) -> None:
        """Connect, encrypt, log in."""
        try:
            self.sock = self._line.connect(self._server)
        except OSError as error:
            raise broken(self._stage, error) from error
        self._expect(SmtpStage.GREETING, self.getreply)
        self._expect(SmtpStage.HELLO, self.ehlo)
        if self._server.tls == "starttls":
            self._encrypt()
        if self._server.user:
            self._log_in()

    def _encrypt(self) -> None:
        if not self.has_extn("starttls"):
            what = f"{self._server.host} does not offer STARTTLS"
            raise PreconditionFailed(f'{what}; nothing is sent in plain text. Try tls = "tls", or ask its operator')
        self._expect(SmtpStage.STARTTLS, lambda: self.docmd("STARTTLS"))
        assert self.sock is not None, "it has just answered"
        try:
            self.sock = encrypted(self.sock, self._server)
        except OSError as error:
            raise broken(self._stage, error) from error
        # Anything that was read before is from somebody between us and the server.
        self.file = None
        self._expect(SmtpStage.HELLO, self.ehlo)

    def _log_in(self) -> None:
        self._stage = SmtpStage.LOGIN
        assert self._server.password is not None, "checked with the settings"
        try:
            self.login(self._server.user, self._server.password.reveal())
        except smtplib.SMTPResponseException as error:
            raise refusal(SmtpStage.LOGIN, error.smtp_code, _words(error.smtp_error)) from None
        except smtplib.SMTPServerDisconnected as error:
            raise broken(SmtpStage.LOGIN, error) from None
        except smtplib.SMTPException:  # no way to log in that both know
            raise AuthRequired(f"{self._server.host} offers no login with user and password") from None
        except OSError as error:
            raise broken(SmtpStage.LOGIN, error) from None

    def address(self, sender: str, recipients: Sequence[str], size: int) -> None:
        """Name the sender and all recipients. One that is refused ends it all, before anything is sent."""
        size_max = self.esmtp_features.get("size", "")
        if size_max.isascii() and size_max.isdigit() and 0 < int(size_max) < size:
            raise InvalidCall(f"the mail has {size:,} bytes, and {self._server.host} takes {int(size_max):,}")
        options = [f"SIZE={size}"] if self.has_extn("size") else []
        self._expect(SmtpStage.SENDER, lambda: self.mail(sender, options))
        for each in recipients:
            self._expect(SmtpStage.RECIPIENT, partial(self.rcpt, each), f"{each}: ")
        self._expect(SmtpStage.DATA, lambda: self.docmd("DATA"))

    def hand_over(self, mail: bytes, sending: Callable[[], None]) -> None:
        """Send the mail. From the first byte on, only an answer tells the outcome."""
        assert self.sock is not None, "it has just answered"
        self.sock.settimeout(_ANSWER_TIMEOUT_S)
        sending()
        self._stage = SmtpStage.SENT

        def send() -> tuple[int, bytes]:
            self.send(_DOT_AT_BEGIN.sub(b"..", mail) + b".\r\n")
            return self.getreply()

        self._expect(SmtpStage.SENT, send)
        with suppress(OSError):
            self.putcmd("QUIT")  # its answer changes nothing

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer, bounded. smtplib's makes a refusal of a line that is too long, also after the mail."""
        assert self.sock is not None, "connected"
        if self.file is None:
            self.file = self.sock.makefile("rb")
        codes: set[bytes] = set()
        words: list[bytes] = []
        for _ in range(_REPLY_LINES_MAX):
            read = self.file.readline(_REPLY_LINE_BYTES_MAX)
            if not read:
                raise smtplib.SMTPServerDisconnected("the server closed the connection")
            codes.add(read[:3])
            words.append(read[4:].strip())
            if not read.endswith(b"\n"):
                break
            if read[3:4] != b"-":
                [code] = codes if len(codes) == 1 else [b""]
                is_code = len(code) == 3 and code.isdigit()
                return int(code) if is_code else _UNREADABLE, b"\n".join(words)
        return _UNREADABLE, b"\n".join(words)

    def _expect(self, stage: SmtpStage, step: Callable[[], tuple[int, bytes]], about: str = "") -> None:
        self._stage = stage
        try:
            code, words = step()
        except OSError as error:
            raise broken(stage, error) from error
        if code not in EXPECTED[stage]:
            # The recipients that were taken get nothing: without DATA the server forgets them by itself.
            raise refusal(stage, code, about + _words(words))


def _words(said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return " ".join(text.split())[:_WORDS_CHARS_MAX]
