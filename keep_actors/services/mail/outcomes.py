"""The meaning of each answer of a mail server. Pure; the only place that says so.

SMTP: until the first byte of the mail itself, nothing can have happened. After it, an answer of the server decides, and
without a readable one the outcome is unknown.
"""

import imaplib
import re
import ssl
from collections.abc import Mapping
from enum import Enum
from typing import Final

from keep_actors.connectors import (
    AuthRequired,
    ConnectorBug,
    ConnectorError,
    InvalidCall,
    PermissionDenied,
    PreconditionFailed,
    Transient,
    Uncertain,
)


class SmtpStage(Enum):
    """The steps of sending a mail."""

    GREETING = "the greeting"
    HELLO = "EHLO"
    STARTTLS = "STARTTLS"
    LOGIN = "AUTH"
    SENDER = "MAIL FROM"
    RECIPIENT = "RCPT TO"
    DATA = "DATA"
    SENT = "the mail"
    """From the first byte of it."""


EXPECTED: Final[Mapping[SmtpStage, frozenset[int]]] = {
    SmtpStage.GREETING: frozenset({220}),
    SmtpStage.HELLO: frozenset({250}),
    SmtpStage.STARTTLS: frozenset({220}),
    SmtpStage.LOGIN: frozenset({235, 503}),
    SmtpStage.SENDER: frozenset({250}),
    SmtpStage.RECIPIENT: frozenset({250, 251}),
    SmtpStage.DATA: frozenset({354}),
    SmtpStage.SENT: frozenset({250}),
}
"""The answers with which the next step begins."""

_REFUSED: Final[Mapping[SmtpStage, type[ConnectorError]]] = {
    SmtpStage.GREETING: Transient,
    SmtpStage.HELLO: Transient,
    SmtpStage.STARTTLS: PreconditionFailed,
    SmtpStage.LOGIN: AuthRequired,
    SmtpStage.SENDER: PermissionDenied,  # the sender is the operator's
    SmtpStage.RECIPIENT: InvalidCall,
    SmtpStage.DATA: InvalidCall,
    SmtpStage.SENT: InvalidCall,
}
"""The meaning of 5xx. 4xx is `Transient` everywhere."""

_SPECIAL: Final[Mapping[tuple[SmtpStage, int], type[ConnectorError]]] = {
    (SmtpStage.SENDER, 530): AuthRequired,
    (SmtpStage.SENDER, 535): AuthRequired,
    (SmtpStage.SENDER, 552): InvalidCall,  # too large, by the size that was announced
    (SmtpStage.RECIPIENT, 530): AuthRequired,
}
assert set(EXPECTED) == set(_REFUSED) == set(SmtpStage), "every stage is in each table"


def refusal(stage: SmtpStage, code: int, words: str) -> ConnectorError | Uncertain:
    """The error for an answer of an SMTP server that is not the expected one. -1: it was not readable."""
    said = f"{stage.value} was answered with {code if code >= 0 else 'no readable code'}: {words}"
    if 400 <= code < 500:
        return Transient(said)
    if 500 <= code < 600:
        return _SPECIAL.get((stage, code), _REFUSED[stage])(said)
    return Uncertain(said) if stage is SmtpStage.SENT else Transient(said)


def broken(stage: SmtpStage, error: Exception) -> ConnectorError | Uncertain:
    """The error for a connection to an SMTP server that broke, or went silent."""
    said = f"the connection broke at {stage.value}: {str(error) or type(error).__name__}"
    if stage is SmtpStage.SENT:
        return Uncertain(said)
    return certificate(error) or Transient(said)


def certificate(error: Exception) -> ConnectorError | None:
    """The error for a certificate that cannot be trusted, if it is about one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return PreconditionFailed(f"the certificate of the server cannot be trusted: {error.verify_message}")
    return None


class ImapStep(Enum):
    """The steps of looking into a mailbox, or of changing it."""

    CONNECT = "connecting"
    LOGIN = "the login"
    FOLDER = "opening the folder"
    LIST = "listing folders"
    SEARCH = "the search"
    FETCH = "fetching mails"
    APPEND = "filing a mail"
    CHANGE = "changing a mail"


_NO: Final[Mapping[ImapStep, type[ConnectorError]]] = {
    ImapStep.CONNECT: Transient,
    ImapStep.LOGIN: AuthRequired,
    ImapStep.FOLDER: PreconditionFailed,
    ImapStep.LIST: Transient,
    ImapStep.SEARCH: InvalidCall,
    ImapStep.FETCH: Transient,
    ImapStep.APPEND: PreconditionFailed,
    ImapStep.CHANGE: PreconditionFailed,
}
"""The meaning of an answer NO."""
assert set(_NO) == set(ImapStep), "every step is in the table"

_LATER: Final = re.compile(r"\[(UNAVAILABLE|INUSE|LIMIT|OVERQUOTA|SERVERBUG|CONTACTADMIN)\]", re.IGNORECASE)
_BAD: Final = re.compile(r"command error: BAD\b")


def imap_failure(step: ImapStep, error: Exception) -> ConnectorError:
    """The error for a step of IMAP that failed. What it means for an effect is for the caller to say."""
    said = f"{step.value} failed: {str(error) or type(error).__name__}"
    if problem := certificate(error):
        return problem
    if isinstance(error, imaplib.IMAP4.abort) or not isinstance(error, imaplib.IMAP4.error):
        return Transient(said)
    if _BAD.search(said):
        return ConnectorBug(said)
    return Transient(said) if _LATER.search(said) else _NO[step](said)


def is_answer(error: Exception) -> bool:
    """Return True if the server itself said NO or BAD, so that it did nothing."""
    return isinstance(error, imaplib.IMAP4.error) and not isinstance(error, imaplib.IMAP4.abort)
