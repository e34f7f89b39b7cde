"""Large mailboxes and large mails on a real server: what is read is bounded, and the answer says what was left out."""

import json
import os
from base64 import encodebytes
from email import message_from_bytes

import pytest

from keep_actors.connectors import Happened, NotApplied, Retry
from keep_actors.services.mail.composition import message_id
from tests.services.mail.account import Account
from tests.services.servers.dovecot import Dovecot, give_to_server
from tests.services.servers.smtp import SmtpServer, append

pytestmark = pytest.mark.anyio

MANY = 100_000
_LINKS_MAX = 30_000
CROWDED = "crowded@example.com"


def filled(imap: Dovecot, folder: str, count: int, mail: bytes) -> None:
    """Put so many mails into a folder, as files that the server finds."""
    files = imap.mails / folder / "cur"
    files.mkdir(parents=True)
    kept = files / "kept"
    for number in range(count):
        file = files / f"{number}.M0P0.here:2,S"
        if number % _LINKS_MAX == 0:
            kept = file
            file.write_bytes(mail)
        else:
            os.link(kept, file)
    give_to_server(imap.mails / folder.partition("/")[0])


@pytest.fixture(scope="session")
def crowded(imap: Dovecot) -> str:
    """A user whose inbox has a hundred thousand mails."""
    filled(imap, CROWDED, MANY, b"Subject: one of many\r\n\r\nhello\r\n")
    return CROWDED


async def test_a_search_that_finds_a_hundred_thousand_mails_returns_the_newest(imap: Dovecot, crowded: str) -> None:
    reader = Account(None, imap.address, mailbox=crowded)
    found = await reader.answer("search", timeout_ms=30_000, subject="one of many", limit=3)
    assert [each["id"].split(".")[1] for each in found] == [str(MANY), str(MANY - 1), str(MANY - 2)]


@pytest.mark.parametrize("count", [200, 201])
async def test_too_many_mails_that_look_like_the_copy_prove_nothing(
    count: int, imap: Dovecot, smtp: SmtpServer
) -> None:
    """Whoever got the mail knows its Message-ID, and can send mails with one that contains it."""
    account = Account(smtp.address, imap.address)
    like = f"x{message_id('key-1', 'example.com')}"
    filled(imap, f"{account.me}/.Sent", count, f"Message-ID: {like}\r\n\r\nhello\r\n".encode())
    verdict = await account.look()
    assert isinstance(verdict, NotApplied if count == 200 else Retry), verdict


MEGABYTES = 50


async def test_a_mail_of_fifty_megabytes_is_read_up_to_the_limit(imap: Dovecot) -> None:
    head = (
        b'Subject: large\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
        b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
        b'--b\r\nContent-Type: image/png; name="a.png"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
    )
    body = encodebytes(os.urandom(MEGABYTES * 740_000)).replace(b"\n", b"\r\n")
    reader = Account(None, imap.address)
    append(imap.address, reader.me, "INBOX", head + body + b"--b--\r\n")
    [found] = await reader.answer("search", timeout_ms=30_000)
    assert found["bytes"] > MEGABYTES * 1_000_000
    mail = await reader.answer("get", timeout_ms=30_000, id=found["id"])
    assert (mail["text"], mail["attachments"][0]["name"]) == ("hello", "a.png")
    assert mail["problems"] == [f"only the first {10 * 2**20:,} of {found['bytes']:,} bytes were read"]


async def test_a_mail_as_large_as_may_be_is_sent_whole(smtp: SmtpServer, account: Account) -> None:
    text = "x" * 500 + "\n"
    outcome = await account.send({"text": text * 19_000}, timeout_ms=20_000)
    assert isinstance(outcome, Happened), outcome
    [envelope] = smtp.taken
    assert isinstance(envelope.content, bytes)
    assert message_from_bytes(envelope.content).get_payload(decode=True) == text.replace("\n", "\r\n").encode() * 19_000


async def test_long_headers_of_strangers_leave_the_newest_mails_readable(imap: Dovecot) -> None:
    """A script gets a megabyte at most: what is more would be no answer at all."""
    reader = Account(None, imap.address)
    people = ", ".join('"{}" <a@b.cc>'.format("€" * 5) for _ in range(90))
    head = f"From: {people}\r\nTo: {people}\r\nCc: {people}\r\nSubject: {'€' * 660}\r\n\r\nhi\r\n".encode()
    filled(imap, reader.me, 60, head)
    found = await reader.answer("search", limit=100)
    assert 20 < len(found) < 60
    assert [each["id"].split(".")[1] for each in found] == [str(60 - place) for place in range(len(found))]


async def test_the_largest_texts_fit_into_one_answer(imap: Dovecot) -> None:
    reader = Account(None, imap.address)
    text = ("😀" * 100 + '"\r\n') * 1_500
    head = 'Subject: large\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
    parts = "".join(f"--b\r\nContent-Type: text/{kind}; charset=utf-8\r\n\r\n{text}\r\n" for kind in ("plain", "html"))
    append(imap.address, reader.me, "INBOX", f"{head}{parts}--b--\r\n".encode())
    [found] = await reader.answer("search", timeout_ms=30_000)
    mail = await reader.answer("get", timeout_ms=30_000, id=found["id"])
    assert len(json.dumps(mail, ensure_ascii=False).encode()) < 800_000
    assert (
        mail["problems"]
        == [
            *["its text has more than 100,000 characters; the rest was left out"],
            *["its text has more than 350,000 bytes; the rest was left out"],
        ]
        * 2
    )
