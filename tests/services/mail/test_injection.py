"""No text of a script becomes a header, a recipient, a command or a search of its own."""

import re
from email import message_from_bytes, policy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.connectors import DidNotHappen, Failed, Happened, InvalidCall
from keep_actors.services.mail.addresses import problem_with_address
from keep_actors.services.mail.composition import Attachment, Letter, composed
from keep_actors.services.mail.criteria import Criteria, search_of
from keep_storage.model import FailureClass
from tests.services.mail.account import Account
from tests.services.servers.dovecot import Dovecot
from tests.services.servers.smtp import SmtpServer

BREAKS = {
    "CRLF": "\r\n",
    "LF": "\n",
    "CR": "\r",
    "NUL": "\0",
    "vertical tab": "\v",
    "form feed": "\f",
    "file separator": "\x1c",
    "NEL": "\x85",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "lone surrogate": "\ud80d",
    "DEL": "\x7f",
}
PLACES: dict[str, Any] = {
    "to": lambda evil: {"to": [f"ann@example.com{evil}"]},
    "cc": lambda evil: {"cc": [f"ann{evil}@example.com"]},
    "bcc": lambda evil: {"bcc": [f"{evil}ann@example.com"]},
    "replyTo": lambda evil: {"replyTo": f"ann@example.com{evil}"},
    "subject": lambda evil: {"subject": f"Hi{evil}Bcc: eve@example.com"},
    "inReplyTo": lambda evil: {"inReplyTo": f"<a@b>{evil}"},
    "attachments": lambda evil: {"attachments": [{"name": f"a{evil}.txt", "base64": ""}]},
}


@pytest.mark.anyio
@pytest.mark.parametrize("place", PLACES)
async def test_a_character_that_ends_a_line_is_refused_in(place: str, account: Account, smtp: SmtpServer) -> None:
    for name in set(BREAKS) - {"lone surrogate"}:  # no JSON that a script passes has one
        outcome = await account.send(PLACES[place](BREAKS[name]))
        assert isinstance(outcome, DidNotHappen), (name, outcome)
        assert outcome.cls is FailureClass.LOGIC
        assert place in outcome.message
    assert smtp.commands == []


ADDRESSES = [
    '"a\r\nRCPT TO:<evil@x>"@x',
    '"ann"@example.com',
    '"ann@evil.net"@example.com',
    "Ann <ann@example.com>",
    "<ann@example.com>",
    "ann@example.com, eve@example.com",
    "ann@example.com eve@example.com",
    "ann@example.com(comment)",
    "(comment)ann@example.com",
    "ann%evil.net@example.com",
    "evil.net!ann@example.com",
    "@relay.net:ann@example.com",
    "ann@[127.0.0.1]",
    "ann@example.com>",
    "ann@example.com> SIZE=1",
    "ann@exam ple.com",
    "ann@-example.com",
    "ann@example..com",
    ".ann@example.com",
    "ann@",
    "@example.com",
    "ann",
    "",
    "änn@example.com",
    "ann@exämple.com",
    "ann@example.com\u200b",
    "=?utf-8?q?eve=40evil.net?=@example.com",
    "a@" + "b" * 64 + ".com",
    "a" * 250 + "@example.com",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_only_a_plain_address_is_an_address(address: str) -> None:
    assert problem_with_address(address)


@pytest.mark.parametrize("address", ["ann@example.com", "a.b+c@x.example.co.uk", "o'neil@x.org", "root@localhost"])
def test_a_plain_address_is_taken(address: str) -> None:
    assert problem_with_address(address) == ""


@given(st.text(max_size=30) | st.from_regex(r".{0,10}@.{0,10}"))
def test_an_address_that_is_taken_is_one_word_for_every_server(text: str) -> None:
    if not problem_with_address(text):
        assert text.isascii()
        assert not set(text) & set('<>()[]\\,;:"%! \t\r\n\0')
        assert text.count("@") == 1


def letter(**differences: Any) -> Letter:
    given = {
        "message_id": f"<{'0' * 40}@example.com>",
        "sender": "me@example.com",
        "sender_name": "",
        "to": ["ann@example.com"],
        "cc": [],
        "subject": "Hello",
        "text": "text",
        "html": "",
        "reply_to": "",
        "in_reply_to": "",
        "attachments": [],
        "at": 0,
    }
    return Letter(**{**given, **differences})


ENCODED_WORDS = [
    "=?utf-8?q?hello=0D=0ABcc:_eve@example.com?=",
    "=?utf-8?b?aGVsbG8NCkJjYzogZXZlQGV4YW1wbGUuY29t?=",
    "x =?us-ascii?Q?=0A=0A<script>?= y",
]


@pytest.mark.parametrize("text", ENCODED_WORDS)
def test_an_encoded_word_cannot_bring_a_line_break(text: str) -> None:
    """The `email` package of Python before 3.11.10 decodes it, and writes what was in it as a header."""
    with pytest.raises(InvalidCall, match="encoded word"):
        composed(letter(subject=text))
    with pytest.raises(InvalidCall, match="encoded word"):
        composed(letter(attachments=[Attachment(text, "")]))


@given(
    subject=st.text(max_size=600),
    text=st.text(max_size=300) | st.text(st.sampled_from("\r\n.ä "), max_size=50),
    html=st.text(max_size=50),
    name=st.text(min_size=1, max_size=160),
)
def test_whatever_a_mail_says_it_is_one_mail_with_the_headers_that_were_meant(
    subject: str, text: str, html: str, name: str
) -> None:
    try:
        written = composed(letter(subject=subject, text=text, html=html, attachments=[Attachment(name, "aGk=")]))
    except InvalidCall:
        return
    assert b"\r" not in written.replace(b"\r\n", b"")
    assert b"\n" not in written.replace(b"\r\n", b"")
    read = message_from_bytes(written, policy=policy.default)
    assert set(read.keys()) == {
        *("From", "To", "Subject", "Date", "Message-ID", "X-Keep-Message-ID", "Auto-Submitted"),
        *("MIME-Version", "Content-Type"),
    }
    assert read["To"] == "ann@example.com"
    assert " ".join(read["Subject"].split()) == " ".join(subject.split())
    [attachment] = read.iter_attachments()
    assert attachment.get_payload(decode=True) == b"hi"
    body = read.get_body(("plain",))
    assert body is not None
    assert body.get_content().splitlines() == text.replace("\r\n", "\n").replace("\r", "\n").splitlines() or not text


@given(st.text(st.sampled_from("ab äü€😀,:;()<>@[]-_=."), max_size=500))
def test_no_encoded_word_is_longer_than_a_reader_must_take(subject: str) -> None:
    written = composed(letter(subject=subject, sender_name=subject[:80]))
    assert all(len(word) <= 75 for word in re.findall(rb"=\?[^? ]+\?.\?[^? ]*\?=", written))
    read = message_from_bytes(written, policy=policy.default)
    assert " ".join(read["Subject"].split()) == " ".join(subject.split())
    assert [each.addr_spec for each in read["From"].addresses] == ["me@example.com"]


def test_the_same_call_makes_the_same_bytes() -> None:
    once, again = (composed(letter(html="<p>", attachments=[Attachment("a", "")])) for _ in range(2))
    assert once == again


@pytest.mark.anyio
async def test_a_dot_alone_on_a_line_does_not_end_the_mail(account: Account, smtp: SmtpServer) -> None:
    text = "one\n.\nMAIL FROM:<eve@example.com>\r\n.\r\n..two\n.three\r.\rfour"
    assert isinstance(await account.send({"text": text}), Happened)
    [envelope] = smtp.taken
    assert isinstance(envelope.content, bytes)
    body = message_from_bytes(envelope.content, policy=policy.default).get_content()
    assert body.splitlines() == ["one", ".", "MAIL FROM:<eve@example.com>", ".", "..two", ".three", ".", "four"]
    assert [each.split()[0] for each in smtp.commands] == ["EHLO", "MAIL", "RCPT", "DATA"]


WRONG: dict[str, dict[str, Any]] = {
    "no recipient": {"to": []},
    "only a hidden one": {"to": [], "bcc": ["ann@example.com"]},
    "too many": {"to": [f"a{number}@example.com" for number in range(21)]},
    "a file in a folder": {"attachments": [{"name": "../a", "base64": ""}]},
    "a file that is not Base64": {"attachments": [{"name": "a", "base64": "!"}]},
    "a file that is a mail": {"attachments": [{"name": "a", "base64": "", "contentType": "message/rfc822"}]},
    "a type that is none": {"attachments": [{"name": "a", "base64": "", "contentType": "text/plain; x=y"}]},
    "an answer to nothing": {"inReplyTo": "the other mail"},
    "too large": {"text": "x" * 11_000_000},
    "a text with NUL": {"text": "a\0b"},
    "HTML with NUL": {"html": "<p>\0</p>"},
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", WRONG)
async def test_a_mail_that_makes_no_sense_is_refused(case: str, account: Account, smtp: SmtpServer) -> None:
    outcome = await account.send(WRONG[case])
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is FailureClass.LOGIC, outcome
    assert smtp.commands == []


@pytest.mark.anyio
async def test_mails_go_only_where_the_operator_allows(smtp: SmtpServer, imap: Dovecot) -> None:
    account = Account(smtp.address, imap.address, allowed_recipients=("example.com", "bob@other.org"))
    account.ann = "ann@EXAMPLE.com"
    for params in ({"cc": ["eve@other.org"]}, {"bcc": ["x@sub.example.com"]}, {"replyTo": "eve@evil.net"}):
        outcome = await account.send(params)
        assert isinstance(outcome, DidNotHappen), outcome
        assert outcome.cls is FailureClass.PERMISSION
    assert smtp.commands == []
    assert isinstance(await account.send({"cc": ["bob@other.org", "BOB@OTHER.org"]}), Happened)


@pytest.mark.anyio
async def test_nobody_gets_a_mail_twice(smtp: SmtpServer, account: Account) -> None:
    await account.send({"to": ["ann@example.com"], "cc": ["ann@EXAMPLE.com"], "bcc": ["ann@example.com"]})
    assert [each for each in smtp.commands if each.startswith("RCPT")] == ["RCPT TO:<ann@example.com>"]


SEARCHES = ["from", "to", "cc", "subject", "body", "text", "messageId"]


@pytest.mark.parametrize("param", SEARCHES)
def test_a_character_that_ends_a_line_is_refused_in_a_search(param: str) -> None:
    for evil in BREAKS.values():
        with pytest.raises(InvalidCall, match="control character"):
            search_of(msgspec.convert({param: f"x{evil}A1 NOOP"}, Criteria))


COMMANDS = ["{5}", "{5+}", "x) OR (ALL", "ALL", "NIL", '"', '" ALL "', "\\", "*", "%", "ä {3}", 'ä" ALL "']


@pytest.mark.anyio
@pytest.mark.parametrize("value", COMMANDS)
async def test_a_value_of_a_search_is_only_a_value(value: str, account: Account) -> None:
    assert isinstance(await account.send({"to": [account.me]}), Happened)
    assert await account.answer("search", subject=value) == []
    assert await account.answer("search", message_id=value) == []
    assert await account.answer("search", body=value, unseen=True, since="2020-01-01") == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "folder", ['Sent" (FLAGS', "Sent\r\nA1 LOGOUT", "*", "", "x" * 256, "{5}", "Se\u2028nt", "\x00"]
)
async def test_the_name_of_a_folder_is_only_a_name(folder: str, account: Account) -> None:
    outcome = await account.ask("search", folder=folder)
    assert isinstance(outcome, Failed), outcome
    assert outcome.cls in (FailureClass.LOGIC, FailureClass.PRECONDITION)
    assert isinstance(await account.answer("search"), list)


@pytest.mark.anyio
async def test_two_texts_beyond_ascii_are_refused_with_a_remedy(account: Account) -> None:
    outcome = await account.ask("search", subject="ä", body="ö")
    assert isinstance(outcome, Failed)
    assert "search twice" in outcome.message


@pytest.mark.anyio
@pytest.mark.parametrize("day", ["2026-13-01", "2026-02-30"])
async def test_a_day_that_is_none_is_refused(day: str, account: Account) -> None:
    outcome = await account.ask("search", since=day)
    assert isinstance(outcome, Failed)
    assert outcome.message == f"since is {day!r}; write a day such as 2026-11-30"
