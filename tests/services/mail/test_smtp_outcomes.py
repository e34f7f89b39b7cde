"""Every row of the table of SMTP, with a real server that misbehaves in that stage: what it means, and what arrived."""

from pathlib import Path
from typing import Any

import pytest

from keep_actors.connectors import DidNotHappen, Happened, Unknown
from keep_actors.outbound.secret import Secret
from keep_actors.services.mail import SmtpServer as To
from keep_actors.services.mail.outcomes import SmtpStage, refusal
from keep_storage.model import FailureClass
from tests.services.mail.account import Account
from tests.services.mail.scripted import HANG_UP, scripted
from tests.services.servers.dovecot import PASSWORD, Certificate, delivered, free_port
from tests.services.servers.smtp import CUT, SILENCE, SmtpServer, smtp_server

pytestmark = pytest.mark.anyio

LATER, AUTH, DENIED = FailureClass.TRANSIENT, FailureClass.AUTH, FailureClass.PERMISSION
WRONG, CHANGED = FailureClass.LOGIC, FailureClass.PRECONDITION

BEFORE = {
    "EHLO is refused": ({"EHLO": "500 what?"}, LATER),
    "EHLO is cut": ({"EHLO": CUT}, LATER),
    "EHLO is met with silence": ({"EHLO": SILENCE}, LATER),
    "the sender is refused for now": ({"MAIL": "451 later"}, LATER),
    "the sender is refused": ({"MAIL": "550 not you"}, DENIED),
    "the sender has to log in": ({"MAIL": "530 log in first"}, AUTH),
    "the mail is announced as too large": ({"MAIL": "552 too large"}, WRONG),
    "MAIL is cut": ({"MAIL": CUT}, LATER),
    "the recipient is refused for now": ({"RCPT": "450 later"}, LATER),
    "the recipient is refused": ({"RCPT": "550 no such user"}, WRONG),
    "RCPT is cut": ({"RCPT": CUT}, LATER),
    "DATA is refused for now": ({"DATA": "421 too busy"}, LATER),
    "DATA is refused": ({"DATA": "554 no"}, WRONG),
    "DATA is cut": ({"DATA": CUT}, LATER),
    "DATA is answered with nonsense": ({"DATA": "what?"}, LATER),
}


@pytest.mark.parametrize("case", BEFORE)
async def test_before_the_mail_itself_nothing_has_happened(case: str, smtp: SmtpServer, account: Account) -> None:
    smtp.faults, cls = BEFORE[case]
    outcome = await account.send(timeout_ms=400)
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is cls, outcome
    assert smtp.taken == []


async def test_of_several_recipients_all_get_the_mail_or_none(smtp: SmtpServer, account: Account) -> None:
    smtp.faults = {"RCPT bob@example.com": "550 no such user"}
    outcome = await account.send({"cc": ["bob@example.com", "eve@example.com"]})
    assert outcome == DidNotHappen(WRONG, "RCPT TO was answered with 550: bob@example.com: no such user")
    assert smtp.commands[-1] == "RCPT TO:<bob@example.com>", "there is no DATA behind it"
    assert smtp.taken == []


AFTER = {
    "refused for now": ("451 later", LATER),
    "refused": ("554 this is spam", WRONG),
}


@pytest.mark.parametrize("case", AFTER)
async def test_a_mail_that_the_server_refuses_was_not_sent(case: str, smtp: SmtpServer, account: Account) -> None:
    smtp.faults["."], cls = AFTER[case]
    outcome = await account.send()
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is cls


@pytest.mark.parametrize("delivers", [True, False], ids=["delivered", "lost"])
@pytest.mark.parametrize("fault", [CUT, SILENCE, "perhaps", "350 go on"])
async def test_without_a_clear_answer_to_the_mail_the_outcome_is_unknown(
    fault: str, delivers: bool, smtp: SmtpServer, account: Account, mails: Path
) -> None:
    smtp.faults["."], smtp.delivers_anyway = fault, delivers
    outcome = await account.send(timeout_ms=400)
    assert isinstance(outcome, Unknown), outcome
    assert len(delivered(mails, account.ann)) == delivers


async def test_a_mail_that_is_taken_has_happened(account: Account, mails: Path) -> None:
    outcome = await account.send()
    assert isinstance(outcome, Happened), outcome
    [mail] = delivered(mails, account.ann)
    assert mail["Message-ID"] in outcome.json_text


GREETINGS = {
    "busy": (b"421 come back\r\n", LATER),
    "closed to us": (b"554 go away\r\n", LATER),
    "nonsense": (b"\xff\xfe\r\n", LATER),
    "without an end": (b"220-" * 5_000, LATER),
    "of too many lines": (b"220-x\r\n" * 5_000, LATER),
}


@pytest.mark.parametrize("case", GREETINGS)
async def test_a_greeting_that_is_none_means_that_nothing_has_happened(case: str) -> None:
    greeting, cls = GREETINGS[case]
    with scripted(greeting, {b"EHLO": HANG_UP}) as address:
        outcome = await Account(address, None, sent_copy="none").send()
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is cls


async def test_an_answer_to_the_mail_that_is_too_long_is_no_refusal() -> None:
    ok = dict.fromkeys((b"EHLO", b"MAIL FROM", b"RCPT"), b"250 OK\r\n")
    taken = {**ok, b"DATA": b"354 go on\r\n", b"HOW ARE YOU": b"250 " + b"x" * 10_000 + b"\r\n"}
    with scripted(b"220 hello\r\n", {**taken, b":": b"", b"\r\n": b" "}) as address:
        outcome = await Account(address, None, sent_copy="none").send(timeout_ms=2_000)
    assert isinstance(outcome, Unknown), outcome


async def test_a_refused_connection_means_that_nothing_has_happened() -> None:
    outcome = await Account(("127.0.0.1", free_port()), None, sent_copy="none").send()
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is LATER


LOGINS = {
    "refused": ({"AUTH": "535 wrong"}, AUTH),
    "refused for now": ({"AUTH": "454 later"}, LATER),
    "cut": ({"AUTH": CUT}, LATER),
}


@pytest.mark.parametrize("case", LOGINS)
async def test_a_login_that_fails_means_that_nothing_has_happened(case: str) -> None:
    with smtp_server(with_login=True) as server:
        server.faults, cls = LOGINS[case]
        outcome = await Account(logged_in(server.address), None, sent_copy="none").send()
        assert isinstance(outcome, DidNotHappen), outcome
        assert outcome.cls is cls
        assert server.taken == []


@pytest.mark.parametrize("password", [PASSWORD, "wrong-password"])
async def test_the_right_password_is_needed_and_shown_nowhere(
    password: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    with smtp_server(with_login=True) as server:
        outcome = await Account(logged_in(server.address, password), None, sent_copy="none").send()
        assert isinstance(outcome, Happened if password == PASSWORD else DidNotHappen), outcome
        assert len(server.taken) == (password == PASSWORD)
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith("mail.")]  # the server's own log
    assert password not in f"{outcome} {ours} {capfd.readouterr()}"


async def test_a_server_without_a_login_is_told_no_password(smtp: SmtpServer) -> None:
    outcome = await Account(logged_in(smtp.address), None, sent_copy="none").send()
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is AUTH
    assert [each.split()[0] for each in smtp.commands] == ["EHLO"]


async def test_without_starttls_nothing_is_said_in_plain_text(smtp: SmtpServer) -> None:
    outcome = await Account(encrypted(smtp.address, "starttls"), None, sent_copy="none").send()
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is CHANGED
    assert "does not offer STARTTLS" in outcome.message
    assert [each.split()[0] for each in smtp.commands] == ["EHLO"]


@pytest.mark.parametrize("how", ["starttls", "tls"])
@pytest.mark.parametrize("trusted", [True, False])
async def test_an_encrypted_connection_needs_a_certificate_that_is_trusted(
    how: Any, trusted: bool, certificate: Certificate
) -> None:
    with smtp_server(**{how: server_context(certificate)}) as server:
        settings = encrypted(server.address, how, certificate if trusted else None)
        outcome = await Account(settings, None, sent_copy="none").send()
        if trusted:
            assert isinstance(outcome, Happened), outcome
            assert len(server.taken) == 1
        else:
            assert isinstance(outcome, DidNotHappen), outcome
            assert outcome.cls is CHANGED
            assert "certificate" in outcome.message
            assert server.taken == []


async def test_what_stands_behind_the_answer_to_starttls_is_not_obeyed(certificate: Certificate) -> None:
    """Text that somebody adds before the encryption would be taken for the answers of the server."""
    answers = {b"EHLO": b"250-x\r\n250 STARTTLS\r\n", b"STARTTLS": b"220 go on\r\n250 OK\r\n250 OK\r\n"}
    with scripted(b"220 hello\r\n", answers) as address:
        settings = encrypted(address, "starttls", certificate)
        outcome = await Account(settings, None, sent_copy="none").send(timeout_ms=1_000)
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is LATER


async def test_starttls_that_is_refused_sends_nothing(certificate: Certificate) -> None:
    with smtp_server(starttls=server_context(certificate)) as server:
        for answer, cls in (("454 not now", LATER), ("554 never", CHANGED)):
            server.faults = {"STARTTLS": answer}
            account = Account(encrypted(server.address, "starttls", certificate), None, sent_copy="none")
            outcome = await account.send()
            assert isinstance(outcome, DidNotHappen), outcome
            assert outcome.cls is cls
        assert server.taken == []


async def test_a_mail_that_is_larger_than_the_server_takes_is_not_begun() -> None:
    with scripted(b"220 hello\r\n", {b"EHLO": b"250-x\r\n250 SIZE 1000\r\n"}) as address:
        outcome = await Account(address, None, sent_copy="none").send({"text": "x" * 1_000})
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is WRONG
    assert "takes 1,000" in outcome.message


async def test_a_thread_that_was_left_behind_sends_nothing(account: Account, smtp: SmtpServer, mails: Path) -> None:
    smtp.faults = {"DATA": SILENCE}
    outcome = await account.send(timeout_ms=200)
    assert isinstance(outcome, DidNotHappen), outcome
    smtp.faults = {}
    assert isinstance(await account.send({"subject": "the next"}, account.call("key-2")), Happened)
    assert [each["Subject"] for each in delivered(mails, account.ann)] == ["the next"]


async def test_a_call_whose_time_is_over_sends_nothing(account: Account, smtp: SmtpServer) -> None:
    call = account.call()
    call.end()
    outcome = await account.send(call=call)
    assert isinstance(outcome, DidNotHappen), outcome
    assert smtp.commands[-1].startswith("DATA")
    assert smtp.taken == []


@pytest.mark.parametrize("stage", SmtpStage)
async def test_an_answer_in_the_fours_is_for_later_in_every_stage(stage: SmtpStage) -> None:
    assert getattr(refusal(stage, 421, ""), "failure_class", None) is LATER


def logged_in(address: tuple[str, int], password: str = PASSWORD) -> To:
    return To(host=address[0], port=address[1], tls="none", user="me", password=Secret(password))


def encrypted(address: tuple[str, int], how: Any, certificate: Certificate | None = None) -> To:
    return To(host="localhost", port=address[1], tls=how, ca_file=certificate and certificate.authority)


def server_context(certificate: Certificate) -> Any:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context
