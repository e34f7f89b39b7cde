"""Mails from outside as data. They are untrusted, and often malformed: all is bounded, and nothing of them raises.

The parser of the standard library fails in many ways on mails that do not follow the rules, so it is treated as foreign
code: where it fails, the text is empty and `problems` says so.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email import message_from_bytes
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import compat32
from email.utils import getaddresses
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from keep_actors.kernel.foreign_code import attempt
from keep_actors.services.mail.addresses import is_plain
from keep_actors.services.mail.words import on_one_line, shown

_HEADER_CHARS_MAX: Final = 2_000
_ADDRESSES_MAX: Final = 100
_PARTS_MAX: Final = 200
_HEADERS_BYTES_MAX: Final = 64 * 1024
_LINE_ENDS_MAX: Final = 500_000
_BOUNDARIES_MAX: Final = 50
_DASHES_MAX: Final = 2_000
_BOUNDARY: Final = re.compile(rb"boundary\s{0,9}(\*[0-9]{0,9}\*?)?\s{0,9}=", re.IGNORECASE)
_NAME_CHARS_MAX: Final = 200
_KIND_CHARS_MAX: Final = 100
TEXT_CHARS_MAX: Final = 100_000
_TEXT_BYTES_MAX: Final = 350_000
"""Of a text, and of the HTML: a script gets a megabyte at most, with everything else of a mail."""

HEADERS: Final = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "In-Reply-To")
"""The ones that are read."""

# Encodings of text. Python has others, some of which take quadratic time.
_CHARSETS: Final = re.compile(
    r"utf-(8|16|32|7)(-[bl]e)?(-sig)?|ascii|iso8859-\d+|cp\d{3,4}|koi8-[rtu]|gb2312|gbk|gb18030|big5(hkscs)?|hz"
    r"|euc_(jp|kr|jis_2004|jisx0213)|shift_jis(_2004|x0213)?|iso2022_(jp|kr)(_\w+)?|johab|mac-\w+|tis-620|ptcp154"
)

Text: TypeAlias = Annotated[str, msgspec.Meta(description="Untrusted: from the sender of the mail.")]


class Person(msgspec.Struct, frozen=True, rename="camel"):
    """A sender or recipient, as the mail says. Anyone can write anything here."""

    address: Text
    """Empty if it is not a plain address."""
    name: Text = ""


class MailSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A mail in a folder, without its content."""

    id: str
    """For `get`. Valid until the server renumbers the folder."""
    message_id: Text
    from_: Annotated[list[Person], msgspec.Meta()] = msgspec.field(name="from")
    to: list[Person]
    cc: list[Person]
    subject: Text
    date: Text
    """As the mail says."""
    received_at: str
    """As the server says, in UTC: 2026-11-30T12:00:00Z."""
    bytes: int
    seen: bool
    flagged: bool


class AttachedFile(msgspec.Struct, frozen=True, rename="camel"):
    """An attachment, without its content."""

    name: Text
    content_type: Text
    bytes: int


class FullMail(MailSummary, frozen=True, kw_only=True, rename="camel"):
    """A mail with its texts."""

    reply_to: list[Person]
    in_reply_to: Text
    text: Text
    html: Text
    """As it came: it may have scripts and links. Empty if there is none."""
    attachments: list[AttachedFile]
    problems: list[str]
    """Parts that could not be read, or were left out: in our words."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the server has about a mail."""

    id: str
    received_at: datetime | None
    bytes: int
    seen: bool
    flagged: bool


def summary(facts: Facts, header_block: bytes) -> MailSummary:
    """The summary of a mail."""
    return MailSummary(**_fields(facts, _parsed(header_block, [])))


def full_mail(facts: Facts, raw: bytes, text_chars_max: int) -> FullMail:
    """The mail with its texts and the list of its attachments. `raw` may be only the beginning of it."""
    problems: list[str] = []
    if len(raw) < facts.bytes:
        problems.append(f"only the first {len(raw):,} of {facts.bytes:,} bytes were read")
    is_small = _is_small(raw)
    if not is_small:
        problems.append("it has too many lines or parts; only the beginning of its headers was read")
    message = _parsed(raw, problems)
    content = _Content(text_chars_max, problems)
    if is_small:
        with attempt() as tried:
            content.read(message)
        if tried.error is not None:
            problems.append("a part could not be read")
    return FullMail(
        **_fields(facts, message),
        reply_to=_people(message, "Reply-To"),
        in_reply_to=_header(message, "In-Reply-To"),
        text=content.text,
        html=content.html,
        attachments=content.attachments,
        problems=problems,
    )


def header_values(header_block: bytes, names: Sequence[str]) -> list[str]:
    """The values of these headers, as they are."""
    message = _parsed(header_block, [])
    values: list[str] = []
    for name in names:
        with attempt():
            values += [str(each).strip() for each in message.get_all(name, [])]
    return values


class _Content:
    """The texts and attachments of a mail, found part by part."""

    def __init__(self, chars_max: int, problems: list[str]) -> None:
        self._chars_max = chars_max
        self._problems = problems
        self.text = ""
        self.html = ""
        self.attachments: list[AttachedFile] = []

    def read(self, message: Message) -> None:
        for number, part in enumerate(_leaves(message)):
            if number == _PARTS_MAX:
                self._problems.append(f"it has more than {_PARTS_MAX} parts; the others were left out")
                return
            with attempt() as tried:
                self._take(part)
            if tried.error is not None:
                self._problems.append(f"part {number} could not be read")

    def _take(self, part: Message) -> None:
        kind = part.get_content_type()
        payload = part.get_payload(decode=True)
        content = payload if isinstance(payload, bytes) else b""
        name = _decoded(_file_name(part), _NAME_CHARS_MAX)
        is_attached = bool(name) or part.get_content_disposition() == "attachment"
        if not is_attached and kind == "text/plain" and not self.text:
            self.text = self._decode(part, content)
        elif not is_attached and kind == "text/html" and not self.html:
            self.html = self._decode(part, content)
        else:
            self.attachments.append(AttachedFile(name, on_one_line(kind, _KIND_CHARS_MAX), len(content)))

    def _decode(self, part: Message, content: bytes) -> str:
        # Four bytes are the most that a character has in any of the encodings.
        text = decode(content[: 4 * self._chars_max], str(part.get_content_charset() or ""))
        if len(text) > self._chars_max or len(content) > 4 * self._chars_max:
            self._problems.append(f"its text has more than {self._chars_max:,} characters; the rest was left out")
        text = shown(text, self._chars_max)
        if len(encoded := text.encode()) > _TEXT_BYTES_MAX:
            self._problems.append(f"its text has more than {_TEXT_BYTES_MAX:,} bytes; the rest was left out")
            text = encoded[:_TEXT_BYTES_MAX].decode(errors="ignore")
        return text


def decode(content: bytes, charset: str) -> str:
    """Text of any encoding that a mail may name. What does not fit becomes U+FFFD."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        name = "utf-8"
    try:
        return content.decode(name if _CHARSETS.fullmatch(name) else "utf-8", "replace")
    except (UnicodeError, LookupError):
        return content.decode("latin-1")


def _parsed(raw: bytes, problems: list[str]) -> Message:
    message = Message()
    with attempt() as tried:
        if _is_small(raw):
            message = message_from_bytes(raw, policy=compat32)
        else:
            message = BytesHeaderParser(policy=compat32).parsebytes(raw[:_HEADERS_BYTES_MAX])
    if tried.error is not None:
        problems.append("it could not be parsed")
    return message


def _is_small(raw: bytes) -> bool:
    """Return False for a mail that takes the parser too long, or too much memory.

    It makes an object of each header and each part, and compares each line with the boundaries of all parts around it.
    """
    if raw.count(b"\n") + raw.count(b"\r") > _LINE_ENDS_MAX:
        return False
    boundaries = sum(1 for _ in _BOUNDARY.finditer(raw))
    dashes = raw.count(b"\n--") + raw.count(b"\r--")
    return boundaries == 0 or (boundaries <= _BOUNDARIES_MAX and dashes <= _DASHES_MAX)


def _leaves(message: Message) -> Iterator[Message]:
    """The parts that have content, in order. Not recursive: a mail chooses how deep it is."""
    waiting = [message]
    while waiting:
        part = waiting.pop()
        inside = part.get_payload() if part.is_multipart() else None
        if isinstance(inside, list) and part.get_content_maintype() == "multipart":
            waiting += [each for each in reversed(inside) if isinstance(each, Message)]
        else:
            yield part


def _fields(facts: Facts, message: Message) -> dict[str, Any]:
    received_at = ""
    if facts.received_at is not None:
        with attempt():  # a day before the year 1, by its zone
            received_at = facts.received_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": facts.id,
        "message_id": _header(message, "Message-ID"),
        "from_": _people(message, "From"),
        "to": _people(message, "To"),
        "cc": _people(message, "Cc"),
        "subject": _header(message, "Subject"),
        "date": _header(message, "Date"),
        "received_at": received_at,
        "bytes": facts.bytes,
        "seen": facts.seen,
        "flagged": facts.flagged,
    }


def _raw_header(message: Message, name: str) -> str:
    found = ""
    with attempt():
        found = str(message.get(name, ""))  # a `Header` if it has bytes beyond ASCII
    return found[:_HEADER_CHARS_MAX]


def _header(message: Message, name: str) -> str:
    return _decoded(_raw_header(message, name), _HEADER_CHARS_MAX)


def _decoded(raw: str, chars_max: int) -> str:
    """The text of a header, its encoded words decoded."""
    parts: list[tuple[Any, str | None]] = [(raw, None)]
    with attempt():  # `decode_header` raises for a wrong Base64
        parts = decode_header(raw[:_HEADER_CHARS_MAX])
    texts = [decode(each, charset or "") if isinstance(each, bytes) else str(each) for each, charset in parts]
    return on_one_line("".join(texts), chars_max)


def _people(message: Message, name: str) -> list[Person]:
    pairs: list[tuple[str, str]] = []
    with attempt():
        # Before the names are decoded: an encoded word may have a comma and an address in it.
        pairs = getaddresses([_raw_header(message, name)])
    return [
        Person(address if is_plain(address) else "", _decoded(shown_name, _NAME_CHARS_MAX))
        for shown_name, address in pairs[:_ADDRESSES_MAX]
        if shown_name or address
    ]


def _file_name(part: Message) -> str:
    found: str | None = None
    with attempt():
        found = part.get_filename()
    return found or ""
