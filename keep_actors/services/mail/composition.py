"""A mail as bytes. Headers are a closed set, each on one line that no text of a script can end.

The same call makes the same bytes: its Message-ID and the boundaries between its parts come from its key.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, EmailPolicy
from email.utils import format_datetime
from typing import Annotated, Final

import msgspec

from keep_actors.connectors import ConnectorBug, InvalidCall
from keep_actors.services.mail.words import problem_with_header
from keep_storage.ids import Millis

OWN_HEADER: Final = "X-Keep-Message-ID"
"""Has the Message-ID too: some relays write one of their own."""
SUBJECT_CHARS_MAX: Final = 500
_MESSAGE_ID_CHARS_MAX: Final = 250
_FILE_NAME_CHARS_MAX: Final = 150
_LINE_CHARS_MAX: Final = 900
"""Of a header with Message-IDs. The usual 78 would tear a long one apart; a mail server takes 998."""
_MESSAGE_ID: Final = re.compile(r"<[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9!#$%&'*+/=?^_`{|}~.:\[\]-]+>", re.ASCII)
_CONTENT_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}", re.ASCII)
# 7bit: a server need not offer 8BITMIME.
_CONTENT: Final = SMTP.clone(cte_type="7bit")
_UNBROKEN: Final = _CONTENT.clone(max_line_length=_LINE_CHARS_MAX)
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_FIELD: Final = re.compile(rb"([A-Za-z-]+): ?")


_WRITTEN_BY_CONTENT: Final = frozenset({"Content-Type", "Content-Transfer-Encoding", "MIME-Version"})
_MESSAGE_IDS: Final = frozenset({"Message-ID", OWN_HEADER, "In-Reply-To", "References"})


class _Headers(EmailPolicy):
    """Lines of 78 characters, as encoded words need it, but for headers with Message-IDs and for those of parts."""

    def fold_binary(self, name: str, value: str) -> bytes:
        is_unbroken = name in _MESSAGE_IDS or name in _WRITTEN_BY_CONTENT or name == "Content-Disposition"
        return (_UNBROKEN if is_unbroken else _CONTENT).fold_binary(name, value)


_HEADERS: Final = _Headers(cte_type="7bit", linesep="\r\n")


class Attachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file that goes with a mail."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=_FILE_NAME_CHARS_MAX)]
    base64: str
    content_type: str = "application/octet-stream"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """All of a mail that is to be sent."""

    message_id: str
    sender: str
    sender_name: str
    to: Sequence[str]
    cc: Sequence[str]
    subject: str
    text: str
    html: str
    reply_to: str
    in_reply_to: str
    attachments: Sequence[Attachment]
    at: Millis


def message_id(key: str, domain: str) -> str:
    """The Message-ID of the mail of a call: the same for all of its attempts."""
    return f"<{hashlib.sha256(key.encode()).hexdigest()[:40]}@{domain}>"


def composed(letter: Letter) -> bytes:
    """The mail, with CRLF at the end of each line. Raises `InvalidCall`."""
    message = EmailMessage(policy=_CONTENT)
    expected = _write_headers(message, letter)
    message.set_content(letter.text)
    if letter.html:
        message.add_alternative(letter.html, subtype="html")
    for place, each in enumerate(letter.attachments):
        _attach(message, place, each)
    for place, part in enumerate(message.walk()):
        if part.is_multipart():
            # The usual boundary is a random number. No script knows this one either: it knows no key.
            part.set_boundary(f"{letter.message_id[1:41]}-{place}")
    try:
        written = _LINE_END.sub(b"\r\n", message.as_bytes(policy=_HEADERS))
    except (MessageError, ValueError, LookupError) as error:
        raise InvalidCall(f"the mail cannot be written: {error}") from error
    _check_headers(written, expected)
    return written if written.endswith(b"\r\n") else written + b"\r\n"


def _write_headers(message: EmailMessage, letter: Letter) -> list[str]:
    """Write them, and return their names."""
    for param, text in (("text", letter.text), ("html", letter.html)):
        if "\0" in text:
            raise InvalidCall(f"{param} has a NUL character at position {text.index(chr(0))}; remove it")
    for param, text, chars_max in (
        ("subject", letter.subject, SUBJECT_CHARS_MAX),
        ("inReplyTo", letter.in_reply_to, _MESSAGE_ID_CHARS_MAX),
    ):
        if problem := problem_with_header(text, chars_max):
            raise InvalidCall(f"{param} {problem}")
    if letter.in_reply_to and not _MESSAGE_ID.fullmatch(letter.in_reply_to):
        raise InvalidCall("inReplyTo is no Message-ID; write it as `search` returns it: <…@…>")
    headers: dict[str, object] = {
        "From": Address(letter.sender_name, addr_spec=letter.sender),
        "To": [Address(addr_spec=each) for each in letter.to],
        "Cc": [Address(addr_spec=each) for each in letter.cc],
        "Reply-To": Address(addr_spec=letter.reply_to) if letter.reply_to else None,
        "Subject": letter.subject,
        "Date": format_datetime(datetime.fromtimestamp(letter.at / 1000, UTC)),
        "Message-ID": letter.message_id,
        OWN_HEADER: letter.message_id,
        "In-Reply-To": letter.in_reply_to,
        "References": letter.in_reply_to,
        "Auto-Submitted": "auto-generated",
    }
    given = {name: value for name, value in headers.items() if value or name == "Subject"}
    for name, value in given.items():
        message[name] = value
    return list(given)


def _attach(message: EmailMessage, place: int, attachment: Attachment) -> None:
    where = f"attachments[{place}]"
    if problem := problem_with_header(attachment.name, _FILE_NAME_CHARS_MAX):
        raise InvalidCall(f"{where}.name {problem}")
    if set(attachment.name) & set('/\\"'):
        raise InvalidCall(f'{where}.name has one of / \\ " in it; write the name of a file without its folder')
    kind = attachment.content_type.lower()
    if not _CONTENT_TYPE.fullmatch(kind) or kind.startswith(("multipart/", "message/")):
        raise InvalidCall(f"{where}.contentType is {kind[:80]!r}; write one such as application/pdf")
    try:
        content = base64.b64decode(attachment.base64, validate=True)
    except binascii.Error as error:
        raise InvalidCall(f"{where}.base64 is not Base64: {error}") from None
    main, _, sub = kind.partition("/")
    message.add_attachment(content, maintype=main, subtype=sub, filename=attachment.name)


def _check_headers(written: bytes, expected: Sequence[str]) -> None:
    """Read the headers again as a server does. A header that was not written on purpose is a bug, here or below."""
    block = written.partition(b"\r\n\r\n")[0].split(b"\r\n")
    lines = [line for line in block if not line.startswith((b" ", b"\t"))]
    fields = [_FIELD.match(line) for line in lines]
    names = [field[1].decode() for field in fields if field is not None]
    own = [name for name in names if name not in _WRITTEN_BY_CONTENT]
    if len(names) != len(lines) or own != list(expected) or len(set(names)) != len(names):
        raise ConnectorBug("the headers of the mail are not those that were written; nothing was sent")
    if max(map(len, written.split(b"\r\n"))) > 998 or b"\0" in written or not written.isascii():
        raise ConnectorBug("the mail has a line that a server may refuse or change; nothing was sent")
