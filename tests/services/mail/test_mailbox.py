"""Searching and reading on a real server, and every row of the table of IMAP."""

from typing import Any

import pytest

from keep_actors.connectors import Failed
from keep_actors.outbound.secret import Secret
from keep_actors.services.mail import ImapServer
from keep_storage.model import FailureClass
from tests.services.mail.account import Account
from tests.services.mail.scripted import HANG_UP, scripted
from tests.services.servers.dovecot import PASSWORD, Certificate, Dovecot
from tests.services.servers.smtp import append

pytestmark = pytest.mark.anyio

LATER, AUTH, WRONG = FailureClass.TRANSIENT, FailureClass.AUTH, FailureClass.LOGIC
CHANGED, BUG = FailureClass.PRECONDITION, FailureClass.INTERNAL


@pytest.fixture
def reader(imap: Dovecot) -> Account:
    """An account that only reads."""
    return Account(None, imap.address)


def arrive(imap: Dovecot, account: Account, head: str, body: str = "text", folder: str = "INBOX") -> None:
    append(imap.address, account.me, folder, f"{head}\n\n{body}".replace("\n", "\r\n").encode())


def subjects(found: list[dict[str, Any]]) -> list[str]:
    return [each["subject"] for each in found]


FOUND: dict[str, dict[str, Any]] = {
    "sender": {"from_": "ann@example.com"},
    "recipient": {"to": "me@example.com"},
    "subject": {"subject": "invoice"},
    "subject beyond ASCII": {"subject": "Gebühr"},
    "body": {"body": "42 euros"},
    "anywhere": {"text": "42 euros"},
    "day": {"since": "2020-01-01", "before": "2100-01-01"},
    "message id": {"message_id": "<i-1@example.com>"},
    "not seen": {"unseen": True, "subject": "INVOICE"},
    "with quotes": {"subject": 'a "good" \\ one'},
}


@pytest.mark.parametrize("case", FOUND)
async def test_a_mail_is_found_by(case: str, reader: Account, imap: Dovecot) -> None:
    head = "From: ann@example.com\nTo: me@example.com\nMessage-ID: <i-1@example.com>\n"
    subject = 'invoice a "good" \\ one =?utf-8?q?Geb=C3=BChr?='
    arrive(imap, reader, f"{head}Subject: {subject}", "These are 42 euros.")
    arrive(imap, reader, "From: bob@example.com\nSubject: another\nMessage-ID: <i-1@example.com.other>", "43 euros")
    found = await reader.answer("search", **FOUND[case])
    assert subjects(found)[-1] == 'invoice a "good" \\ one Gebühr'
    assert len(found) == (2 if case == "day" else 1)


async def test_the_newest_mails_come_first_and_no_more_than_asked_for(reader: Account, imap: Dovecot) -> None:
    for number in range(4):
        arrive(imap, reader, f"Subject: number {number}")
    assert subjects(await reader.answer("search", limit=3)) == ["number 3", "number 2", "number 1"]
    outcome = await reader.ask("search", limit=101)
    assert outcome == Failed(WRONG, "limit is 101; write 1 to 100")


async def test_a_mail_is_read_with_its_texts_and_stays_unseen(reader: Account, imap: Dovecot) -> None:
    head = (
        'From: "Ann, the first" <ann@example.com>\nTo: me@example.com, =?utf-8?q?B=C3=B6b?= <bob@example.com>\n'
        "Subject: =?utf-8?b?R3LDvMOfZQ==?=\nReply-To: other@example.com\nIn-Reply-To: <a@b>\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="b"'
    )
    body = (
        "--b\nContent-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\nSch=F6n\n"
        "--b\nContent-Type: text/html\n\n<p>x</p>\n"
        '--b\nContent-Type: application/pdf; name="a.pdf"\nContent-Transfer-Encoding: base64\n\nJVBERi0=\n--b--'
    )
    arrive(imap, reader, head, body)
    [found] = await reader.answer("search")
    mail = await reader.answer("get", id=found["id"])
    assert {name: mail[name] for name in found} == found
    assert mail["from"] == [{"address": "ann@example.com", "name": "Ann, the first"}]
    assert mail["to"][1] == {"address": "bob@example.com", "name": "Böb"}
    assert (mail["subject"], mail["text"], mail["html"]) == ("Grüße", "Schön", "<p>x</p>")
    assert mail["attachments"] == [{"name": "a.pdf", "contentType": "application/pdf", "bytes": 5}]
    assert mail["replyTo"] == [{"address": "other@example.com", "name": ""}]
    assert (mail["inReplyTo"], mail["problems"], mail["seen"]) == ("<a@b>", [], False)
    assert (await reader.answer("search", unseen=True))[0]["id"] == found["id"]


async def test_a_large_mail_is_read_up_to_the_limit_and_says_so(imap: Dovecot) -> None:
    reader = Account(None, imap.address, mail_bytes_max=5_000, text_chars_max=1_000)
    arrive(imap, reader, "Subject: large", "word " * 5_000)
    [found] = await reader.answer("search")
    mail = await reader.answer("get", id=found["id"])
    assert len(mail["text"]) == 1_000
    assert mail["problems"] == [
        f"only the first 5,000 of {found['bytes']:,} bytes were read",
        "its text has more than 1,000 characters; the rest was left out",
    ]


async def test_folders_are_listed_with_their_use(reader: Account) -> None:
    found = {each["name"]: each["use"] for each in await reader.answer("folders")}
    assert found == {"INBOX": "", "Sent": "sent", "Weg damit": "trash"}


async def test_a_folder_is_searched_by_its_name(reader: Account, imap: Dovecot) -> None:
    arrive(imap, reader, "Subject: thrown away", folder='"Weg damit"')
    [found] = await reader.answer("search", folder="Weg damit")
    assert (await reader.answer("get", id=found["id"]))["subject"] == "thrown away"


IDS = {
    "of a mail that is gone": ("{validity}.999.INBOX", CHANGED),
    "of a folder that was renumbered": ("1.1.INBOX", CHANGED),
    "of a folder that is gone": ("1.1.Nowhere", CHANGED),
    "that is none": ("seven", WRONG),
    "without a folder": ("1.1.", WRONG),
    "with a command": ("1.1.INBOX\r\nA1 LOGOUT", WRONG),
    "with a set of mails": ("1.1:*.INBOX", WRONG),
    "too large": (f"1.{2**40}.INBOX", WRONG),
}


@pytest.mark.parametrize("case", IDS)
async def test_an_id_is_refused(case: str, reader: Account, imap: Dovecot) -> None:
    arrive(imap, reader, "Subject: x")
    [found] = await reader.answer("search")
    text, cls = IDS[case]
    outcome = await reader.ask("get", id=text.format(validity=found["id"].partition(".")[0]))
    assert isinstance(outcome, Failed), outcome
    assert outcome.cls is cls


@pytest.mark.parametrize("how", ["starttls", "tls"])
@pytest.mark.parametrize("trusted", [True, False])
async def test_an_encrypted_mailbox_needs_a_certificate_that_is_trusted(
    how: Any, trusted: bool, imap: Dovecot, certificate: Certificate
) -> None:
    assert imap.tls_address is not None
    host, port = "localhost", (imap.tls_address if how == "tls" else imap.address)[1]
    ca_file = certificate.authority if trusted else None
    to = ImapServer(host=host, port=port, tls=how, ca_file=ca_file, user="me", password=Secret(PASSWORD))
    outcome = await Account(None, to).ask("folders")
    if trusted:
        assert not isinstance(outcome, Failed), outcome
    else:
        assert isinstance(outcome, Failed)
        assert outcome.cls is CHANGED
        assert "certificate" in outcome.message


async def test_a_wrong_password_asks_a_person_and_is_shown_nowhere(
    imap: Dovecot, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    to = ImapServer(
        host=imap.address[0], port=imap.address[1], tls="none", user="me", password=Secret("wrong-password")
    )
    outcome = await Account(None, to).ask("folders")
    assert isinstance(outcome, Failed)
    assert outcome.cls is AUTH
    assert "wrong-password" not in f"{outcome} {caplog.text}"


HELLO = b"* OK [CAPABILITY IMAP4rev1] hello\r\n"
OK = b"{tag} OK x\r\n"
OPEN = {
    b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n{tag} OK x\r\n",
    b"LOGIN": OK,
    b"EXAMINE": b"* OK [UIDVALIDITY 7] x\r\n* 1 EXISTS\r\n{tag} OK [READ-ONLY] x\r\n",
}
FETCHED = b'* 1 FETCH (UID 1 FLAGS () RFC822.SIZE 1 INTERNALDATE "01-Jan-2026 00:00:00 +0000" '
IMAP = {
    "no server": (b"", {}, LATER),
    "a greeting that is none": (b"\xff\xff\r\n", {}, LATER),
    "goodbye": (b"* BYE\r\n", {}, LATER),
    "a greeting without an end": (b"* OK " + b"x" * 300_000, {}, LATER),
    "a login that is refused": (HELLO, {**OPEN, b"LOGIN": b"{tag} NO no\r\n"}, AUTH),
    "a login that is refused for now": (HELLO, {**OPEN, b"LOGIN": b"{tag} NO [UNAVAILABLE] later\r\n"}, LATER),
    "a login that is cut": (HELLO, {**OPEN, b"LOGIN": HANG_UP}, LATER),
    "no such folder": (HELLO, {**OPEN, b"EXAMINE": b"{tag} NO nothing\r\n"}, CHANGED),
    "a folder without validity": (HELLO, {**OPEN, b"EXAMINE": OK}, LATER),
    "a search that is refused": (HELLO, {**OPEN, b"SEARCH": b"{tag} NO [BADCHARSET] x\r\n"}, WRONG),
    "a search that is not understood": (HELLO, {**OPEN, b"SEARCH": b"{tag} BAD what\r\n"}, BUG),
    "a search with words for numbers": (HELLO, {**OPEN, b"SEARCH": b"* SEARCH a b\r\n{tag} OK x\r\n"}, LATER),
    "a search that is cut": (HELLO, {**OPEN, b"SEARCH": HANG_UP}, LATER),
    "mails that are refused": (
        HELLO,
        {**OPEN, b"SEARCH": b"* SEARCH 1\r\n{tag} OK x\r\n", b"FETCH": b"{tag} NO x\r\n"},
        LATER,
    ),
    "a mail of a terabyte": (
        HELLO,
        {**OPEN, b"SEARCH": b"* SEARCH 1\r\n{tag} OK x\r\n", b"FETCH": FETCHED + b"BODY[] {1000000000000}\r\n"},
        LATER,
    ),
    "a mail with half a list": (
        HELLO,
        {**OPEN, b"SEARCH": b"* SEARCH 1\r\n{tag} OK x\r\n", b"FETCH": b"* 1 FETCH (UID 1 (\r\n{tag} OK x\r\n"},
        LATER,
    ),
}


@pytest.mark.parametrize("case", IMAP)
async def test_what_a_server_of_mailboxes_may_answer(case: str) -> None:
    greeting, answers, cls = IMAP[case]
    with scripted(greeting, answers) as address:
        outcome = await Account(None, address).ask("search", timeout_ms=500)
    assert isinstance(outcome, Failed), outcome
    assert outcome.cls is cls, outcome


async def test_what_stands_behind_the_answer_to_starttls_of_a_mailbox_is_not_obeyed(certificate: Certificate) -> None:
    greeting = b"* OK [CAPABILITY IMAP4rev1 STARTTLS] hello\r\n"
    answers = {
        b"CAPABILITY": b"* CAPABILITY IMAP4rev1 STARTTLS\r\n{tag} OK x\r\n",
        b"STARTTLS": b"{tag} OK x\r\n* CAPABILITY IMAP4rev1\r\n",
    }
    with scripted(greeting, answers) as address:
        to = ImapServer(host="localhost", port=address[1], tls="starttls", ca_file=certificate.authority)
        outcome = await Account(None, to).ask("folders")
    assert isinstance(outcome, Failed)
    assert outcome.cls is LATER


async def test_folders_that_are_named_before_the_encryption_are_not_those_of_the_server(
    certificate: Certificate,
) -> None:
    """Whoever sits between could have the copies looked for where there are none."""
    ahead = b'* LIST (\\Sent) "/" Forged\r\n'
    answers = {
        b"CAPABILITY": b"* CAPABILITY IMAP4rev1 STARTTLS\r\n" + ahead + b"{tag} OK x\r\n",
        b"STARTTLS": b"{tag} OK x\r\n",
    }
    inside = {**OPEN, b"LIST": b'* LIST () "/" INBOX\r\n{tag} OK x\r\n'}
    greeting = b"* OK [CAPABILITY IMAP4rev1 STARTTLS] hello\r\n"
    with scripted(greeting, answers, then=(certificate, inside)) as address:
        to = ImapServer(
            host="localhost",
            port=address[1],
            tls="starttls",
            ca_file=certificate.authority,
            user="me",
            password=Secret(PASSWORD),
        )
        assert await Account(None, to).answer("folders") == [{"name": "INBOX", "use": ""}]


async def test_without_starttls_no_password_is_sent(imap: Dovecot) -> None:
    with scripted(HELLO, OPEN) as address:
        to = ImapServer(host="localhost", port=address[1], tls="starttls", user="me", password=Secret(PASSWORD))
        outcome = await Account(None, to).ask("folders")
    assert isinstance(outcome, Failed)
    assert outcome.cls is CHANGED
    assert "does not offer STARTTLS" in outcome.message
