"""Settings of mail: what is missing or dangerous is refused with a remedy, before anything is connected."""

from typing import Any

import pytest

from keep_actors.connectors import Catalog
from keep_actors.outbound.secret import Secret
from keep_actors.services import SettingsError, load_configuration
from keep_actors.services.mail import ImapServer, Mail, MailSettings, SmtpServer

SMTP = SmtpServer(host="smtp.example.com")
IMAP = ImapServer(host="imap.example.com")
GOOD: dict[str, Any] = {"smtp": SMTP, "imap": IMAP, "from_": "me@example.com", "sent_copy": "server"}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no server": ({"smtp": None, "imap": None}, "smtp: is missing, and so is imap"),
    "no sender": ({"from_": ""}, "from: is not a plain address"),
    "a sender with a line break": ({"from_": "me@example.com\nBcc: eve@x"}, "from: has the control character U+000A"),
    "a name with a line break": ({"from_name": "Me\r\nBcc: eve@x"}, "from_name: has the control character U+000D"),
    "a name with an encoded word": ({"from_name": "=?utf-8?q?=0A?="}, "from_name: has '=?' in it"),
    "a domain that is none": ({"domain": "exam ple"}, "domain: 'exam ple' is not a domain"),
    "nothing about copies": ({"sent_copy": None}, 'sent_copy: is missing; write "server" if the provider files'),
    "copies without a mailbox": ({"imap": None}, 'imap: is missing; sent_copy = "server" needs it'),
    "blind copies to nobody": ({"sent_copy": "bcc"}, "copy_to: '' is not a plain address"),
    "an idle copy": ({"copy_to": "a@b.c"}, 'copy_to: is only for sent_copy = "bcc"'),
    "a list with nonsense": ({"allowed_recipients": ("*@example.com",)}, "allowed_recipients: '*@example.com' is no"),
    "a time before now": ({"settle_ms": -1}, "settle_ms: is -1"),
    "no recipients": ({"recipients_max": 0}, "recipients_max: is 0"),
    "texts that no script can get": ({"text_chars_max": 100_001}, "text_chars_max: is 100,001; write 100,000 or less"),
    "no threads": ({"at_once": 0}, "at_once: is 0"),
    "a folder with a line break": ({"copy_folder": "a\nb"}, "copy_folder: has the control character"),
    "plain text": (
        {"smtp": SmtpServer(host="smtp.example.com", tls="none")},
        'smtp.tls: is "none", and smtp.example.com is another machine',
    ),
    "plain text to somewhere else": (
        {"imap": ImapServer(host="imap.example.com", tls="none", plain_text_to="imap.example.org")},
        'plain_text_to = "imap.example.com"',
    ),
    "plain text to a name that only begins like this machine": (
        {"smtp": SmtpServer(host="127.0.0.1.example.com", tls="none")},
        "is another machine",
    ),
    "a host with a line break": ({"smtp": SmtpServer(host="a\r\nb")}, "smtp.host: has the control character"),
    "no host": ({"smtp": SmtpServer(host="")}, "smtp.host: is empty"),
    "a port that is none": ({"imap": ImapServer(host="a", port=70_000)}, "imap.port: is 70000"),
    "no time": ({"imap": ImapServer(host="a", timeout_ms=0)}, "imap.timeout_ms: is 0"),
    "a user without a password": ({"smtp": SmtpServer(host="a", user="me")}, "and password are given together"),
    "a password that cannot be sent": (
        {"smtp": SmtpServer(host="a", user="me", password=Secret("pässword"))},
        "smtp.password: has characters that are not printable ASCII",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_are_refused_with_a_remedy(case: str) -> None:
    differences, words = REFUSED[case]
    with pytest.raises(SettingsError) as caught:
        Mail(MailSettings(**{**GOOD, **differences}))
    assert words in str(caught.value)
    assert "pässword" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_this_machine_is_reached_in_plain_text(host: str) -> None:
    Mail(MailSettings(**{**GOOD, "smtp": SmtpServer(host=host, tls="none")}))


def test_another_machine_is_reached_in_plain_text_if_the_operator_names_it() -> None:
    Mail(MailSettings(**{**GOOD, "smtp": SmtpServer(host="relay.lan", tls="none", plain_text_to="relay.lan")}))


def test_the_methods_are_those_of_the_servers_that_are_given() -> None:
    assert list(Catalog([Mail(MailSettings(imap=IMAP))]).methods) == ["mail.search", "mail.get", "mail.folders"]
    sender = Mail(MailSettings(smtp=SMTP, from_="me@example.com", sent_copy="none"), name="post")
    assert list(Catalog([sender]).methods) == ["post.send"]
    assert Catalog([Mail(MailSettings(imap=IMAP))]).methods["mail.get"].by_id


def test_the_usual_ports_are_those_of_the_protocol() -> None:
    assert SmtpServer(host="a").address == ("a", 587)
    assert SmtpServer(host="a", tls="tls").address == ("a", 465)
    assert ImapServer(host="a").address == ("a", 993)
    assert ImapServer(host="a", tls="starttls").address == ("a", 143)


def test_an_absence_counts_only_where_others_file_the_copy() -> None:
    def settle_ms(**differences: Any) -> int:
        return Catalog([Mail(MailSettings(**{**GOOD, **differences}))]).methods["mail.send"].settle_ms

    assert settle_ms() == 600_000
    assert settle_ms(settle_ms=5) == 5
    assert settle_ms(sent_copy="bcc", copy_to="archive@example.com") == 600_000
    assert settle_ms(sent_copy="append") == 0


def test_a_section_of_keep_toml_makes_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", "s3cret-value")
    path = tmp_path / "keep.toml"
    path.write_text(
        '[connectors.office]\nkind = "mail"\nfrom = "me@example.com"\nsent_copy = "server"\n'
        'smtp = { host = "smtp.example.com", user = "me", password = { env = "MAIL_PASSWORD" } }\n'
        'imap = { host = "imap.example.com", user = "me", password = { env = "MAIL_PASSWORD" } }\n'
    )
    [office] = load_configuration(path)
    assert list(Catalog([office]).methods) == ["office.send", "office.search", "office.get", "office.folders"]
    assert [each.reveal() for each in office.__hidden__] == ["s3cret-value"] * 2
