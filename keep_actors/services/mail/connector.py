"""`ctx.mail` for scripts: send a mail, and look into a mailbox. What there is depends on the settings.

A mail is found again by its Message-ID, which is made of the key of its call, where the settings say that a copy of it
is kept. That it is not found proves something only where others than this connector file the copies.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import fields

from keep_actors.connectors import (
    Applied,
    ConnectorError,
    InvalidCall,
    MutationCall,
    NotApplied,
    Offered,
    Options,
    Param,
    ReadCall,
    Retry,
    Verdict,
)
from keep_actors.kernel.blocking import Blocking
from keep_actors.services.mail.addresses import checked, refuse_others, without_repeats
from keep_actors.services.mail.composition import OWN_HEADER, Attachment, Letter, composed, message_id
from keep_actors.services.mail.criteria import Criteria, search_of
from keep_actors.services.mail.line import MailLine
from keep_actors.services.mail.mailbox import Folder, MailId, SentFolder, mailbox, refuse_name
from keep_actors.services.mail.reading import FullMail, MailSummary, full_mail, summary
from keep_actors.services.mail.settings import ImapServer, MailSettings, SentCopy, SmtpServer, check
from keep_actors.services.mail.submission import submit
from keep_actors.services.service import Service
from keep_storage.ids import wall_clock

logger = logging.getLogger(__name__)

R = TypeVar("R")

INBOX: Final = "INBOX"
_ANSWER_BYTES_MAX: Final = 512_000
ACCEPTED: Final = "the server has taken the mail"
"""The note of a call, written as soon as the server has said so: no copy has to be looked for then."""


class SentMail(msgspec.Struct, frozen=True, rename="camel"):
    """A mail that the server has taken."""

    message_id: Annotated[str, msgspec.Meta(examples=["<0f1e2d3c@example.com>"])]


_NOT_FOUND: Final[Mapping[SentCopy, Verdict]] = {
    "server": NotApplied(),
    "bcc": NotApplied(),
    # We file the copy ourselves, after the mail: the mail may be on its way without it.
    "append": Retry("there is no copy in the sent folder, which proves nothing: it is filed after the mail is sent"),
}
"""The meaning of a missing copy, by where copies come from. `none` is never asked."""


_GUESSED: Final = "there is no copy in {!r}, which only has a usual name for sent mails; set copy_folder"


class _CopySearch(NamedTuple):
    """The result of looking for the copy of a mail."""

    folder: str
    is_there: bool
    is_told: bool
    """The folder is the one that the operator or the server says. False: an absence proves nothing."""


class Mail(Service):
    """One account. Each call has a connection of its own; a call that is given up is cut off."""

    name = "mail"
    settings_type: ClassVar = MailSettings

    def __init__(self, settings: MailSettings, *, name: str | None = None) -> None:
        super().__init__(settings, name=name)
        check(settings)
        self._settings = settings
        self._threads = Blocking(settings.at_once)
        if settings.smtp is not None:
            self.offer([_send(settings)])
        if settings.imap is not None:
            self.offer([_SEARCH, _GET, _FOLDERS])

    async def send(
        self,
        to: list[str],
        subject: str,
        text: str,
        call: MutationCall,
        cc: Sequence[str] = (),
        bcc: Sequence[str] = (),
        html: str = "",
        reply_to: str = "",
        in_reply_to: str = "",
        attachments: Sequence[Attachment] = (),
    ) -> SentMail:
        """Send a mail to all recipients, or to none."""
        settings = self._settings
        recipients = self._recipients(to, cc, bcc, reply_to)
        letter = Letter(
            message_id=message_id(call.idempotency_key, settings.message_domain),
            sender=settings.from_,
            sender_name=settings.from_name,
            to=to,
            cc=cc,
            subject=subject,
            text=text,
            html=html,
            reply_to=reply_to,
            in_reply_to=in_reply_to,
            attachments=attachments,
            at=call.sent_at or wall_clock(),
        )
        if call.attempt > 1 and settings.sent_copy != "none" and (await self._copy(letter.message_id)).is_there:
            return SentMail(letter.message_id)  # an earlier attempt came through after all
        mail = await self._in_thread(lambda _: self._composed(letter))
        smtp = self._smtp
        await self._in_thread(lambda line: submit(line, smtp, settings.from_, recipients, mail, call.sending))
        if settings.sent_copy != "none":
            await call.note(ACCEPTED)
        if settings.sent_copy == "append":
            await self._file(mail)
        return SentMail(letter.message_id)

    async def find_copy(self, call: MutationCall) -> Verdict:
        """Look for the copy of the mail of a call."""
        sent = SentMail(message_id(call.idempotency_key, self._settings.message_domain))
        assert self._settings.sent_copy is not None, "checked with the settings"
        if call.noted == ACCEPTED:
            return Applied(sent)
        copy = await self._copy(sent.message_id)
        if copy.is_there:
            return Applied(sent)
        return _NOT_FOUND[self._settings.sent_copy] if copy.is_told else Retry(_GUESSED.format(copy.folder))

    async def search(self, folder: str, limit: int, call: ReadCall, **criteria: Any) -> list[MailSummary]:  # noqa: ARG002
        """Find mails in a folder that fit all criteria: the newest, the newest first."""
        refuse_name(folder)
        if not 0 < limit <= self._settings.results_max:
            raise InvalidCall(f"limit is {limit}; write 1 to {self._settings.results_max}")
        wanted = Criteria(**criteria)
        search = search_of(wanted)

        def look(line: MailLine) -> list[MailSummary]:
            with mailbox(line, self._imap) as opened:
                found = opened.search(folder, search, limit)
            mails = [summary(facts, header_block) for facts, header_block in found]
            return _fitting([each for each in mails if wanted.message_id in ("", each.message_id)])

        return await self._in_thread(look)

    async def get(self, id: str, call: ReadCall) -> FullMail:  # noqa: A002, ARG002
        """Read a mail that `search` found, with its texts and a list of its attachments. It stays unseen."""
        mail_id = MailId.of(id)
        bytes_max = self._settings.mail_bytes_max

        def look(line: MailLine) -> FullMail:
            with mailbox(line, self._imap, bytes_max) as opened:
                facts, raw = opened.get(mail_id, bytes_max)
            return full_mail(facts, raw[:bytes_max], self._settings.text_chars_max)

        return await self._in_thread(look)

    async def folders(self, call: ReadCall) -> list[Folder]:  # noqa: ARG002
        """List the folders of the mailbox, and what the server uses each for."""

        def look(line: MailLine) -> list[Folder]:
            with mailbox(line, self._imap) as opened:
                return opened.folders()

        return await self._in_thread(look)

    def _recipients(self, to: Sequence[str], cc: Sequence[str], bcc: Sequence[str], reply_to: str) -> Sequence[str]:
        settings = self._settings
        given = (*checked("to", to), *checked("cc", cc), *checked("bcc", bcc))
        answers = checked("replyTo", [reply_to] if reply_to else [])
        refuse_others((*given, *answers), settings.allowed_recipients)
        chosen = without_repeats(given)
        if not to or len(chosen) > settings.recipients_max:
            raise InvalidCall(
                f"the mail has {len(chosen)} recipients; write 1 to {settings.recipients_max}, one in `to`"
            )
        return without_repeats((*chosen, settings.copy_to)) if settings.sent_copy == "bcc" else chosen

    def _composed(self, letter: Letter) -> bytes:
        # Before it is written: that takes long for a large text.
        self._refuse_large(len(letter.text) + len(letter.html) + sum(len(each.base64) for each in letter.attachments))
        mail = composed(letter)
        self._refuse_large(len(mail))
        return mail

    def _refuse_large(self, size: int) -> None:
        if size > self._settings.send_bytes_max:
            raise InvalidCall(f"the mail has {size:,} bytes; at most {self._settings.send_bytes_max:,} are sent")

    async def _copy(self, sent_id: str) -> _CopySearch:
        def look(line: MailLine) -> _CopySearch:
            with mailbox(line, self._imap) as opened:
                folder = self._settings.copy_folder or (INBOX if self._settings.sent_copy == "bcc" else "")
                found = SentFolder(folder, is_told=True) if folder else opened.sent_folder()
                return _CopySearch(found.name, opened.has_copy(found.name, sent_id, OWN_HEADER), found.is_told)

        return await self._in_thread(look)

    async def _file(self, mail: bytes) -> None:
        """File a copy of a mail that was sent. If that fails, it was sent all the same."""

        def file(line: MailLine) -> None:
            with mailbox(line, self._imap) as opened:
                opened.append(self._settings.copy_folder or opened.sent_folder().name, mail)

        try:
            await self._in_thread(file)
        except ConnectorError as error:
            logger.warning("%s: a mail was sent, and its copy could not be filed: %s", self.name, error)

    async def _in_thread(self, work: Callable[[MailLine], R]) -> R:
        line = MailLine()
        try:
            return await self._threads.run(work, line)
        finally:
            line.cut()  # a thread that is left behind ends now, and sends nothing more

    @property
    def _smtp(self) -> SmtpServer:
        assert self._settings.smtp is not None, "the method is offered only with it"
        return self._settings.smtp

    @property
    def _imap(self) -> ImapServer:
        assert self._settings.imap is not None, "the method is offered only with it, and checked with sent_copy"
        return self._settings.imap


def _fitting(mails: Sequence[MailSummary]) -> list[MailSummary]:
    """The first ones, as far as a script can get them: headers of strangers may be long."""
    left = _ANSWER_BYTES_MAX
    fitting: list[MailSummary] = []
    for mail in mails:
        left -= len(msgspec.json.encode(mail)) + 1
        if left < 0:
            break
        fitting.append(mail)
    return fitting


Addresses = list[str]
Attachments = list[Attachment]
_HINT: Final = "Look in the sent folder of the account, or ask a recipient, for a mail with this subject at that time."


def _send(settings: MailSettings) -> Offered:
    copies = settings.sent_copy != "none"
    absence_counts = isinstance(_NOT_FOUND.get(settings.sent_copy or "none"), NotApplied)
    return Offered(
        function=Mail.send,
        options=Options(
            kind="mutation",
            risk="medium",
            name="send",
            marks_sent=True,
            settle_ms=settings.settle_ms if absence_counts else 0,
            identity=["to", "cc", "bcc", "subject"],
            check_hint=_HINT,
        ),
        params=[
            Param(name="to", type=Addresses),
            Param(name="subject", type=str),
            Param(name="text", type=str),
            Param(name="cc", type=Addresses, default=[]),
            Param(name="bcc", type=Addresses, default=[]),
            Param(name="html", type=str, default=""),
            Param(name="reply_to", type=str, default="", spelled="replyTo"),
            Param(name="in_reply_to", type=str, default="", spelled="inReplyTo"),
            Param(name="attachments", type=Attachments, default=[]),
        ],
        result=SentMail,
        description=f"Send a mail from {settings.from_}, to all recipients or to none.",
        reconciler=Mail.find_copy if copies else None,
    )


_SEARCH: Final = Offered(
    function=Mail.search,
    options=Options(kind="read", risk="low", name="search"),
    params=[
        Param(name="folder", type=str, default=INBOX),
        *(
            Param(name=each.name, type=each.type, default=each.default, spelled=each.encode_name)
            for each in fields(Criteria)
        ),
        Param(name="limit", type=int, default=20),
    ],
    result=list[MailSummary],
    description="Find mails in a folder that fit everything given: the newest, the newest first.",
)
_GET: Final = Offered(
    function=Mail.get,
    options=Options(kind="read", risk="low", name="get", by_id=True),
    params=[Param(name="id", type=str)],
    result=FullMail,
    description="Read a mail that `search` found, with its texts and a list of its attachments. It stays unseen.",
)
_FOLDERS: Final = Offered(
    function=Mail.folders,
    options=Options(kind="read", risk="low", name="folders"),
    result=list[Folder],
    description="List the folders of the mailbox, and what the server uses each for.",
)
