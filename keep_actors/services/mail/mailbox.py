"""A mailbox on an IMAP server, for one call: one connection, bounded in time and bytes. Blocks: runs in a thread."""

import imaplib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, BinaryIO, Final, NamedTuple, cast

import msgspec
from imapclient.imapclient import FLAGGED, SEEN, SENT, IMAPClient  # type: ignore[import-untyped]

from keep_actors.connectors import InvalidCall, PreconditionFailed, Transient
from keep_actors.services.mail.criteria import Search, header
from keep_actors.services.mail.line import MailLine, encrypted
from keep_actors.services.mail.outcomes import ImapStep, imap_failure
from keep_actors.services.mail.reading import HEADERS, Facts, header_values
from keep_actors.services.mail.settings import ImapServer
from keep_actors.services.mail.words import problem_with_line

FOLDER_CHARS_MAX: Final = 255
FOLDERS_MAX: Final = 1_000
_HEADER_BYTES_MAX: Final = 16 * 1024
_LINE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of an answer: the numbers of a million mails are one line."""
_ANSWERS_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of all answers of a connection, beside the mail that is fetched."""
_COPIES_MAX: Final = 200
"""Mails that a search for a copy may find. A server's search is not exact, so each is compared."""

# What the client raises for an answer that makes no sense, beside its own errors.
_FAILURES: Final = (imaplib.IMAP4.error, OSError, ValueError, LookupError, TypeError, AssertionError, MemoryError)


class MailId(msgspec.Struct, frozen=True):
    """Where a mail is. The number of a mail is one only together with the validity of its folder's numbers."""

    validity: int
    uid: int
    folder: str

    def __str__(self) -> str:
        return f"{self.validity}.{self.uid}.{self.folder}"

    @classmethod
    def of(cls, text: str) -> "MailId":
        """Read an id that `search` returned. Raises `InvalidCall`."""
        validity, _, rest = text.partition(".")
        uid, _, folder = rest.partition(".")
        for number in (validity, uid):
            if not (number.isascii() and number.isdigit() and 0 < int(number[:11]) < 2**32):
                raise InvalidCall(f"id {text[:300]!r} is not one that search returned")
        refuse_name(folder)
        return cls(int(validity), int(uid), folder)


def refuse_name(folder: str) -> None:
    """Raise `InvalidCall` for what cannot be the name of a folder."""
    problem = problem_with_line(folder, FOLDER_CHARS_MAX) or ("" if folder else "is empty")
    if problem:
        raise InvalidCall(f"folder {problem}")


class Folder(msgspec.Struct, frozen=True, rename="camel"):
    """A folder of the mailbox."""

    name: str
    use: str
    """`sent`, `drafts`, `junk`, `trash`, `archive`, `all` or `flagged`, if the server says so; else empty."""


class SentFolder(NamedTuple):
    """The folder for sent mails."""

    name: str
    is_told: bool
    """The server says so. False: it only has a usual name, so that a copy may just as well be elsewhere."""


_USES: Final = ("Sent", "Drafts", "Junk", "Trash", "Archive", "All", "Flagged")


class _Protocol(imaplib.IMAP4):
    """The protocol over a line that can be cut, with bounds on what is read: what imaplib lets be overridden."""

    def __init__(self, line: MailLine, server: ImapServer, bytes_max: int) -> None:
        self._line = line
        self._server = server
        self._left = bytes_max
        super().__init__(*server.address)

    def open(self, host: str = "", port: int = 0, timeout: float | None = None) -> None:  # noqa: ARG002  # imaplib's
        self.host, self.port = self._server.address
        self._attach(self._line.connect(self._server))

    def read(self, size: int) -> bytes:
        self._count(size)
        return self._incoming.read(size)

    def readline(self) -> bytes:
        read = self._incoming.readline(min(_LINE_BYTES_MAX, max(self._left, 1)))
        self._count(len(read))
        return read

    def send(self, data: Any) -> None:
        self.sock.sendall(data)

    def shutdown(self) -> None:
        self._incoming.close()
        self.sock.close()

    def starttls(self, ssl_context: ssl.SSLContext | None = None) -> Any:  # noqa: ARG002  # imaplib's
        """Encrypt. What was read before is from somebody between us and the server: it is not looked at."""
        answer = self.xatom("STARTTLS")
        if answer[0] == "OK":
            self._incoming.close()
            # Folders that were named in plain text would count as those of the server.
            self.untagged_responses = {}
            self._attach(encrypted(self.sock, self._server))
            _, said = self.capability()
            self.capabilities = tuple(str(said[-1], "ascii", "replace").upper().split())
        return answer

    def _attach(self, connected: Any) -> None:
        self.sock = connected
        self._incoming: BinaryIO = connected.makefile("rb")

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise self.abort("the server sent more than a call may read")


class _Client(IMAPClient):  # type: ignore[misc]  # the package has no types
    """The client over our protocol. Logs nothing: its log has the names of users, and the mails."""

    def __init__(self, line: MailLine, server: ImapServer, bytes_max: int) -> None:
        self._ours = (line, server, bytes_max)
        super().__init__(server.host, server.address[1], ssl=server.tls == "tls", timeout=server.timeout_ms / 1000)
        self.protocol.debug = 0
        self.normalise_times = False

    def _create_IMAP4(self) -> _Protocol:  # noqa: N802  # the only door for another connection
        self.protocol = _Protocol(*self._ours)
        return self.protocol


class ImapMailbox:
    """An open mailbox, logged in. Every failure is a `ConnectorError`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def folders(self) -> list[Folder]:
        """All folders that can be opened."""
        with _step(ImapStep.LIST):
            found = self._client.list_folders()
        listed: list[Folder] = []
        for flags, _, name in found[:FOLDERS_MAX]:
            known = {bytes(flag).lower() for flag in flags}
            if b"\\noselect" not in known and not problem_with_line(str(name), FOLDER_CHARS_MAX):
                use = next((each.lower() for each in _USES if f"\\{each}".lower().encode() in known), "")
                listed.append(Folder(str(name), use))
        return listed

    def sent_folder(self) -> SentFolder:
        """The folder for sent mails: by what the server says, or by its usual names."""
        told = [folder.name for folder in self.folders() if folder.use == "sent"]
        if told:
            return SentFolder(told[0], is_told=len(told) == 1)
        with _step(ImapStep.LIST):
            found = self._client.find_special_folder(SENT)
        if not found:
            raise PreconditionFailed("the server does not say which folder has the sent mails; set copy_folder")
        return SentFolder(str(found), is_told=False)

    def search(self, folder: str, search: Search, limit: int) -> list[tuple[Facts, bytes]]:
        """The newest mails that are found, the newest first, each with its headers."""
        validity = self._enter(folder)
        newest = sorted(self._search(search), reverse=True)[:limit]
        fetched = self._fetch(newest, f"BODY.PEEK[HEADER.FIELDS ({' '.join(HEADERS)})]<0.{_HEADER_BYTES_MAX}>")
        found = ((uid, fetched.get(uid)) for uid in newest)
        return [(_facts(MailId(validity, uid, folder), data), _body(data)) for uid, data in found if data is not None]

    def get(self, mail_id: MailId, bytes_max: int) -> tuple[Facts, bytes]:
        """A mail: what the server says about it, and its beginning."""
        validity = self._enter(mail_id.folder)
        if validity != mail_id.validity:
            raise PreconditionFailed(f"the server has renumbered {mail_id.folder!r}; search for the mail again")
        data = self._fetch([mail_id.uid], f"BODY.PEEK[]<0.{bytes_max}>").get(mail_id.uid)
        if data is None:
            raise PreconditionFailed(f"there is no mail {mail_id} any more")
        return _facts(mail_id, data), _body(data)

    def has_copy(self, folder: str, message_id: str, own_header: str) -> bool:
        """True if a mail in the folder has exactly this value as its Message-ID, or in our own header."""
        self._enter(folder)
        for name in ("Message-ID", own_header):
            uids = self._search(Search(tuple(header(name, message_id.encode()))))
            if len(uids) > _COPIES_MAX:
                raise PreconditionFailed(f"{len(uids):,} mails in {folder!r} look like the copy; a person has to look")
            fetched = self._fetch(uids, f"BODY.PEEK[HEADER.FIELDS (Message-ID {own_header})]<0.{_HEADER_BYTES_MAX}>")
            if any(message_id in header_values(_body(data), ("Message-ID", own_header)) for data in fetched.values()):
                return True
            if not fetched.keys() >= set(uids):
                raise Transient(f"a mail in {folder!r} was gone before it could be compared")
        return False

    def append(self, folder: str, mail: bytes) -> None:
        """File a mail, as read."""
        refuse_name(folder)
        with _step(ImapStep.APPEND):
            self._client.append(folder, mail, flags=(SEEN,))

    def _enter(self, folder: str) -> int:
        """Open it for looking, and return the validity of its numbers."""
        refuse_name(folder)
        with _step(ImapStep.FOLDER):
            said = self._client.select_folder(folder, readonly=True)
            return int(said[b"UIDVALIDITY"])

    def _search(self, search: Search) -> list[int]:
        protocol: _Protocol = self._client.protocol
        with _step(ImapStep.SEARCH):
            if search.literal:
                protocol.literal = search.literal  # type: ignore[assignment]  # bytes are sent as they are
            # Not the client's: it leaves a value such as `{5}` without quotes.
            kind, said = protocol.uid("SEARCH", *cast(Sequence[str], search.arguments))
            if kind != "OK":
                raise imaplib.IMAP4.error(str(said[0], "utf-8", "replace") if said and said[0] else kind)
            return [int(each) for line in said if line for each in line.split()]

    def _fetch(self, uids: Sequence[int], what: str) -> Mapping[int, Mapping[bytes, Any]]:
        with _step(ImapStep.FETCH):
            fetched = self._client.fetch(uids, [what, "FLAGS", "RFC822.SIZE", "INTERNALDATE"]) if uids else {}
            return cast(Mapping[int, Mapping[bytes, Any]], fetched)


@contextmanager
def mailbox(line: MailLine, server: ImapServer, bytes_more: int = 0) -> Iterator[ImapMailbox]:
    """Connect, encrypt, log in; and at the end close. `bytes_more`: the size of a mail that may be fetched."""
    with line:
        with _step(ImapStep.CONNECT):
            client = _Client(line, server, _ANSWERS_BYTES_MAX + bytes_more)
        try:
            if server.tls == "starttls":
                _encrypt(client, server)
            if server.user:
                _log_in(client, server)
            yield ImapMailbox(client)
            with suppress(*_FAILURES):
                client.protocol.send(b"BYE LOGOUT\r\n")  # its answer changes nothing
        finally:
            with suppress(OSError):
                client.protocol.shutdown()


def _encrypt(client: Any, server: ImapServer) -> None:
    with _step(ImapStep.CONNECT):
        if not client.has_capability("STARTTLS"):
            what = f"{server.host} does not offer STARTTLS; nothing is sent in plain text. "
            raise PreconditionFailed(f'{what}Try tls = "tls", or ask its operator')
        client.starttls()


def _log_in(client: Any, server: ImapServer) -> None:
    assert server.password is not None, "checked with the settings"
    password = server.password.reveal()
    with _step(ImapStep.LOGIN):
        # Through the protocol: the client's `login` writes the name of the user into a log.
        if client.has_capability("AUTH=PLAIN"):
            client.protocol.authenticate("PLAIN", lambda _: f"\0{server.user}\0{password}".encode())
        else:
            client.protocol.login(_in_quotes(server.user), password)


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def _step(step: ImapStep) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise imap_failure(step, error) from (None if step is ImapStep.LOGIN else error)


def _facts(mail_id: MailId, data: Mapping[bytes, Any]) -> Facts:
    flags = {bytes(flag).lower() for flag in data.get(b"FLAGS", ())}
    at = data.get(b"INTERNALDATE")
    size = data.get(b"RFC822.SIZE", 0)
    return Facts(
        id=str(mail_id),
        received_at=at if isinstance(at, datetime) else None,
        bytes=size if isinstance(size, int) else 0,
        seen=SEEN.lower() in flags,
        flagged=FLAGGED.lower() in flags,
    )


def _body(data: Mapping[bytes, Any]) -> bytes:
    """The part of the mail that was asked for. Servers spell its name differently."""
    for key, value in data.items():
        if key.startswith(b"BODY[") and isinstance(value, bytes):
            return value
    return b""
