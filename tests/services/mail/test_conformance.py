"""The rules for every connector, and the servers that examples use."""

from collections.abc import Iterator

import pytest

from keep_actors.outbound.secret import Secret
from keep_actors.services.mail import ImapServer
from keep_actors.testing.connector_suite import check_connector
from tests.services.mail.account import Account
from tests.services.mail.subject import MailCertification
from tests.services.servers.imap_in_python import pymap
from tests.services.servers.smtp import append

pytestmark = pytest.mark.anyio


async def test_a_runtime_can_rely_on_it() -> None:
    subject = MailCertification()
    async with subject.service() as service:
        example = subject.example("send", 1)
        account = Account(service.addresses["smtp"], service.addresses["imap"], settle_ms=50)
        report = await check_connector(
            account.connector,
            examples={"send": example, "search": {"folder": "Sent"}, "folders": {}},
            leave_out=["get"],
            moving=["search"],
        )
        assert not report.findings, report
        assert await subject.effects(service, "send", example) >= 1


@pytest.fixture(scope="module")
def in_python() -> Iterator[tuple[str, int]]:
    with pymap("me@example.com", "s3cret-in-python") as address:
        yield address


async def test_a_mailbox_of_a_server_in_python_is_searched_and_read(in_python: tuple[str, int]) -> None:
    mail = "Subject: Grüße\r\nMessage-ID: <a@b>\r\n\r\nHello"
    append(in_python, "me@example.com", "Sent", mail.encode(), "s3cret-in-python")
    password = Secret("s3cret-in-python")
    to = ImapServer(host=in_python[0], port=in_python[1], tls="none", user="me@example.com", password=password)
    account = Account(None, to)
    found = (await account.answer("search", folder="Sent", message_id="<a@b>"))[0]
    assert (await account.answer("get", id=found["id"]))["text"] == "Hello"
    assert {each["name"] for each in await account.answer("folders")} == {"INBOX", "Sent"}
