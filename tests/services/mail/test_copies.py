"""An unknown outcome, by where the copy of a sent mail comes from: found, not found, and not to be found out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keep_actors.connectors import Applied, Happened, NotApplied, Retry, Unknown
from keep_actors.connectors.outcomes import TooEarly
from keep_actors.services.mail.composition import message_id
from keep_storage.model import FailureClass
from tests.services.mail.account import Account
from tests.services.mail.scripted import scripted
from tests.services.mail.test_mailbox import HELLO, OPEN
from tests.services.servers.dovecot import Dovecot, delivered
from tests.services.servers.smtp import CUT, SmtpServer, append, into_mailboxes, smtp_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def forgetful(imap: Dovecot) -> Iterator[SmtpServer]:
    """A provider that files no copies."""
    with smtp_server(into_mailboxes(imap.address, copy_to_sent=False)) as server:
        yield server


async def test_a_copy_that_the_server_filed_proves_that_the_mail_was_sent(smtp: SmtpServer, account: Account) -> None:
    smtp.faults["."], smtp.delivers_anyway = CUT, True
    assert isinstance(await account.send(), Unknown)
    found = await account.look()
    assert found == Applied(f'{{"messageId":"{message_id("key-1", "example.com")}"}}')


async def test_without_a_copy_of_the_servers_it_was_not_sent_once_the_copy_had_its_time(
    smtp: SmtpServer, account: Account
) -> None:
    smtp.faults["."] = CUT
    assert isinstance(await account.send(), Unknown)
    assert isinstance(await account.look(waited_ms=60_000), TooEarly), "ten minutes is the default"
    assert await account.look(waited_ms=600_000) == NotApplied()


async def test_the_result_that_is_found_is_the_one_that_was_lost(account: Account) -> None:
    sent = await account.send()
    assert isinstance(sent, Happened)
    assert await account.look() == Applied(sent.json_text)


async def test_a_copy_is_found_by_our_own_header_if_a_relay_wrote_another_message_id(
    account: Account, imap: Dovecot
) -> None:
    key_id = message_id("key-1", "example.com")
    append(
        imap.address, account.me, "Sent", b"Message-ID: <relay@aws>\r\nX-Keep-Message-ID: %b\r\n\r\n" % key_id.encode()
    )
    assert isinstance(await account.look(), Applied)


@pytest.mark.parametrize("other", ["<x{}", "{}x>", "<{}@example.com.evil.net>", "<a{}@example.com>"])
async def test_a_message_id_that_only_contains_ours_is_not_ours(other: str, account: Account, imap: Dovecot) -> None:
    """A search on a server finds parts of a value."""
    key_id = message_id("key-1", "example.com")
    value = other.format(key_id.strip("<>").partition("@")[0] if "@" in other else key_id)
    append(imap.address, account.me, "Sent", f"Message-ID: {value}\r\nX-Keep-Message-ID: {value}\r\n\r\n".encode())
    assert await account.look() == NotApplied()


async def test_a_copy_that_is_gone_before_it_is_compared_proves_nothing(smtp: SmtpServer) -> None:
    found = {**OPEN, b"SEARCH": b"* SEARCH 1\r\n{tag} OK x\r\n", b"FETCH": b"{tag} OK x\r\n"}
    with scripted(HELLO, found) as address:
        verdict = await Account(smtp.address, address, copy_folder="Sent").look()
    assert isinstance(verdict, Retry), verdict
    assert "was gone before it could be compared" in verdict.message


SENT_FOLDERS: dict[str, tuple[bytes, type]] = {
    "told by the server": (b'* LIST (\\Sent) "/" Post\r\n', NotApplied),
    "of two that the server tells": (b'* LIST (\\Sent) "/" Post\r\n* LIST (\\Sent) "/" Mail\r\n', Retry),
    "guessed by its name": (b'* LIST () "/" "Sent Items"\r\n', Retry),
    "nowhere": (b"", Retry),
}


@pytest.mark.parametrize("case", SENT_FOLDERS)
async def test_an_absence_counts_only_in_the_folder_that_is_known_to_have_the_copies(
    case: str, smtp: SmtpServer
) -> None:
    listed, expected = SENT_FOLDERS[case]
    answers = {**OPEN, b"SEARCH": b"* SEARCH\r\n{tag} OK x\r\n", b"LIST": listed + b"{tag} OK x\r\n"}
    with scripted(HELLO, answers) as address:
        account = Account(smtp.address, address)
        verdict = await account.look()
        assert isinstance(verdict, expected), verdict
        if expected is Retry:
            assert "set copy_folder" in getattr(verdict, "message", ""), verdict
        if case == "guessed by its name":
            again = await account.send(call=account.call(attempt=2))
            assert isinstance(again, Happened), "an attempt that certainly did nothing is made again"


async def test_a_mail_that_the_server_took_is_known_without_a_search(smtp: SmtpServer, account: Account) -> None:
    """Also when a person has removed the copy since."""
    call = account.call()
    assert isinstance(await account.send(call=call), Happened)
    with scripted(b"* BYE closed\r\n", {}) as address:
        later = Account(smtp.address, address)
        assert isinstance(await later.look(account.call(earlier_note=call.noted)), Applied)


async def test_a_blind_copy_proves_it_and_no_recipient_sees_it(
    forgetful: SmtpServer, imap: Dovecot, mails: Path
) -> None:
    archive = f"archive-{forgetful.address[1]}@example.com"
    account = Account(forgetful.address, imap.address, sent_copy="bcc", copy_to=archive, mailbox=archive)
    assert await account.look() == NotApplied()
    assert isinstance(await account.send(), Happened)
    assert isinstance(await account.look(), Applied)
    [mail] = delivered(mails, account.ann)
    assert archive not in mail.as_string()


async def test_a_copy_of_our_own_is_filed_after_the_mail(forgetful: SmtpServer, imap: Dovecot, mails: Path) -> None:
    account = Account(forgetful.address, imap.address, sent_copy="append")
    call = account.call()
    assert isinstance(await account.send(call=call), Happened)
    [copy] = delivered(mails, account.me, "Sent")
    [mail] = delivered(mails, account.ann)
    assert copy.as_bytes() == mail.as_bytes()
    assert isinstance(await account.look(), Applied)


async def test_the_absence_of_our_own_copy_proves_nothing(forgetful: SmtpServer, imap: Dovecot) -> None:
    account = Account(forgetful.address, imap.address, sent_copy="append")
    forgetful.faults["."], forgetful.delivers_anyway = CUT, True
    assert isinstance(await account.send(), Unknown)
    verdict = await account.look()
    assert isinstance(verdict, Retry), verdict
    assert not isinstance(verdict, TooEarly)
    assert "proves nothing" in verdict.message


async def test_a_mail_that_was_taken_is_known_by_its_note_before_its_copy_is_filed(
    forgetful: SmtpServer, imap: Dovecot, caplog: pytest.LogCaptureFixture
) -> None:
    account = Account(forgetful.address, imap.address, sent_copy="append", copy_folder="Nowhere")
    call = account.call()
    assert isinstance(await account.send(call=call), Happened), "a copy that cannot be filed takes no mail back"
    assert "its copy could not be filed" in caplog.text
    assert isinstance(await account.look(account.call(earlier_note=call.noted)), Applied)


async def test_without_copies_only_a_person_can_find_out(smtp: SmtpServer) -> None:
    account = Account(smtp.address, None, sent_copy="none")
    assert not account.methods["mail.send"].reconcilable
    assert "sent folder" in account.methods["mail.send"].check_hint


async def test_another_attempt_looks_before_it_sends(smtp: SmtpServer, account: Account, mails: Path) -> None:
    """The first one may have come through after its time, and after the search for it."""
    smtp.faults["."], smtp.delivers_anyway = CUT, True
    assert isinstance(await account.send(), Unknown)
    smtp.faults = {}
    assert isinstance(await account.send(call=account.call(attempt=2)), Happened)
    assert len(delivered(mails, account.ann)) == 1


async def test_a_mailbox_that_cannot_be_reached_is_no_proof(smtp: SmtpServer) -> None:
    """Neither that it was sent, nor that it was not."""
    with scripted(b"* BYE closed\r\n", {}) as address:
        account = Account(smtp.address, address)
        assert isinstance(await account.look(), Retry)
        again = await account.send(call=account.call(attempt=2))
    assert getattr(again, "cls", None) is FailureClass.TRANSIENT, again
    assert smtp.taken == []


async def test_a_sent_folder_that_is_missing_is_no_proof(smtp: SmtpServer, imap: Dovecot) -> None:
    verdict = await Account(smtp.address, imap.address, copy_folder="Nowhere").look()
    assert isinstance(verdict, Retry)
    assert "opening the folder failed" in verdict.message
