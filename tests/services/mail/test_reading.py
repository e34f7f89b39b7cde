"""Mails that follow no rules: they are read as far as possible, within bounds, and never raise."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.services.mail.reading import Facts, FullMail, decode, full_mail, summary


def read(raw: bytes, chars_max: int = 1_000) -> FullMail:
    facts = Facts(id="1.1.INBOX", received_at=None, bytes=len(raw), seen=False, flagged=False)
    mail = full_mail(facts, raw, chars_max)
    assert msgspec.json.decode(msgspec.json.encode(mail), type=FullMail) == mail, "it is what a script can get"
    assert "\0" not in msgspec.json.encode(mail).decode()
    assert summary(facts, raw).subject == mail.subject
    return mail


def part(head: str, body: bytes) -> bytes:
    return f"--b\r\n{head}\r\n\r\n".encode() + body + b"\r\n"


def multipart(*parts: bytes) -> bytes:
    return b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n' + b"".join(parts) + b"--b--\r\n"


MALFORMED = {
    "nothing": b"",
    "no headers": b"\r\n\r\nhello",
    "only bytes": bytes(range(256)) * 10,
    "an unknown encoding": b"Content-Type: text/plain; charset=klingon\r\n\r\nh\xe9",
    "an encoding that decodes no text": b"Content-Type: text/plain; charset=zlib\r\n\r\nx",
    "an encoding that takes long": b"Content-Type: text/plain; charset=punycode\r\n\r\n" + b"a" * 50_000,
    "an encoding with NUL": b'Content-Type: text/plain; charset="ut\0f"\r\n\r\nx',
    "a wrong Base64": b"Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!x",
    "a wrong uuencode": b"Content-Transfer-Encoding: x-uuencode\r\n\r\nbegin 666 x\r\n\xff\xff",
    "an unknown transfer encoding": b"Content-Transfer-Encoding: rot13\r\n\r\nx",
    "encoded words that are none": b"Subject: =?utf-8?b?x?= =?x?y?z?= =?utf-8?q?=ZZ?=\r\n\r\n",
    "an encoded word with a line break": b"Subject: =?utf-8?q?a=0D=0AX:_y?=\r\n\r\n",
    "raw bytes in headers": b"From: \xff\xfe <\xff@x>\r\nSubject: \xe4\x00\x01\r\nMessage-ID: \xff\r\n\r\n",
    "addresses that are none": b'From: (((\r\nTo: <<<a@b>>>, "\\\r\nCc: @@@;:,\r\n\r\n',
    "no boundary": b"Content-Type: multipart/mixed\r\n\r\nx",
    "an endless boundary": b"Content-Type: multipart/mixed; boundary=" + b"b" * 5_000 + b"\r\n\r\nx",
    "a boundary that never comes": b'Content-Type: multipart/mixed; boundary="b"\r\n\r\nx',
    "a multipart of no parts": multipart(),
    "parameters that are none": b"Content-Type: text/plain; =; ;x*0*=; charset*=x'y'z\r\n\r\nx",
    "names in pieces": multipart(part("Content-Disposition: attachment; filename*0*=utf-8''%ZZ; filename*2=b", b"x")),
    "a mail in a mail": multipart(part("Content-Type: message/rfc822", b"Subject: inner\r\n\r\nx")),
    "a mail in a mail that is none": multipart(part("Content-Type: message/rfc822", b"")),
    "a report": multipart(part("Content-Type: message/delivery-status", b"x\r\n\r\ny")),
    "a date that is none": b"Date: yesterday\r\n\r\nx",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_mail_is_read(case: str) -> None:
    read(MALFORMED[case])


@given(st.binary(max_size=400) | st.lists(st.sampled_from(list(MALFORMED.values())), max_size=3).map(b"\r\n".join))
def test_whatever_arrives_is_read(raw: bytes) -> None:
    read(raw)


FLOODS = {
    "lines": b"\r\n" + b"x\n" * 600_000,
    "headers": b"a:\n" * 600_000,
    "parts": multipart(b"--b\n\n" * 300_000),
    "levels": b"".join(b"Content-Type: multipart/mixed; BOUNDARY*0=b%d\n\n--b%d\n" % (n, n) for n in range(1_000)),
}


@pytest.mark.parametrize("case", FLOODS)
@pytest.mark.timeout(5)
def test_a_mail_that_takes_the_parser_too_long_is_read_without_its_content(case: str) -> None:
    mail = read(b"Subject: flood\r\n" + FLOODS[case])
    assert mail.subject == "flood"
    assert mail.problems == ["it has too many lines or parts; only the beginning of its headers was read"]


def test_a_text_of_many_dashes_is_read() -> None:
    assert len(read(b"Subject: diff\r\n\r\n" + b"--- a\n" * 10_000).text) == 1_000


def test_a_mail_of_many_parts_is_cut() -> None:
    mail = read(multipart(*[part("Content-Type: text/plain", b"x")] * 1_000))
    assert mail.problems == ["it has more than 200 parts; the others were left out"]
    assert len(mail.attachments) == 199


def test_long_headers_and_lists_are_cut() -> None:
    mail = read(b"Subject: " + b"x" * 50_000 + b"\r\nTo: " + b"a@b.c, " * 9_000 + b"\r\n\r\n")
    assert len(mail.subject) == 2_000
    assert len(mail.to) == 100


def test_a_sender_is_only_an_address_that_could_be_sent_to() -> None:
    """A name that looks like an address, or an encoded word with one in it, is still a name."""
    mail = read(
        b'From: "ann@example.com" <eve@evil.net>\r\nTo: =?utf-8?q?=3Cann=40example=2Ecom=3E=2C?= <e!v@x.y>\r\n\r\n'
    )
    assert [(each.name, each.address) for each in mail.from_] == [("ann@example.com", "eve@evil.net")]
    assert [(each.name, each.address) for each in mail.to] == [("<ann@example.com>,", "")]


def test_texts_of_all_usual_encodings_are_read() -> None:
    for charset in ("utf-8", "iso-8859-15", "windows-1252", "koi8-r", "utf-16", "gb18030", "iso-2022-jp", "shift_jis"):
        text = "hello"
        encoded = base64.b64encode(text.encode(charset))
        head = f"Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        assert read(head.encode() + encoded).text == text, charset
    assert decode(b"\xa4", "iso-8859-15") == "€"
    assert decode(b"\xff", "utf-8") == "\ufffd"


def test_html_stays_text_and_control_characters_are_left_out() -> None:
    mail = read(b"Content-Type: text/html\r\n\r\n<script>\x00\x07alert(1)</script>\r\n")
    assert mail.html == "<script>alert(1)</script>\n"
    assert mail.text == ""
