"""A mail server that is killed in the middle of a call, and started again with the mails that it had."""

from collections.abc import Iterator

import anyio
import pytest

from keep_actors.connectors import Applied, CallOutcome, Happened, NotApplied, ReadOutcome, Retry, Unknown, Verdict
from keep_actors.connectors.outcomes import TooEarly
from keep_actors.testing.certification.faults import Act, Fault
from keep_actors.testing.certification.proxy import Proxy
from keep_storage.model import FailureClass
from tests.services.mail.account import Account
from tests.services.servers.dovecot import Dovecot, delivered, dovecot
from tests.services.servers.smtp import CUT, SmtpServer, into_mailboxes, smtp_server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def mortal() -> Iterator[Dovecot]:
    with dovecot() as server:
        yield server


@pytest.fixture
def provider(mortal: Dovecot) -> Iterator[SmtpServer]:
    with smtp_server(into_mailboxes(mortal.address)) as server:
        yield server


async def killed_at_the_moment(mortal: Dovecot, proxy: Proxy) -> None:
    """Kill the server when the held word is on its way to it; and start it again."""
    await proxy.reached()
    await anyio.to_thread.run_sync(mortal.kill)
    proxy.release()
    await anyio.to_thread.run_sync(mortal.start)


READS = {"the greeting": b"CAPABILITY", "the login": b"AUTHENTICATE", "the folder": b"EXAMINE", "the search": b"SEARCH"}


@pytest.mark.parametrize("moment", READS)
async def test_a_search_in_a_mailbox_whose_server_is_killed_is_tried_again(moment: str, mortal: Dovecot) -> None:
    async with Proxy.to(mortal.address) as proxy, anyio.create_task_group() as tasks:
        proxy.inject(Fault(act=Act.HOLD, pattern=READS[moment]))
        tasks.start_soon(killed_at_the_moment, mortal, proxy)
        account = Account(None, proxy.address)
        outcome: ReadOutcome = await account.ask("search")
        assert getattr(outcome, "cls", None) is FailureClass.TRANSIENT, outcome
    assert await Account(None, mortal.address).answer("search") == []


@pytest.mark.parametrize("moment", [b"SEARCH", b"FETCH"])
async def test_a_server_that_is_killed_while_a_copy_is_looked_for_says_nothing(
    moment: bytes, mortal: Dovecot, provider: SmtpServer
) -> None:
    async with Proxy.to(mortal.address) as proxy, anyio.create_task_group() as tasks:
        account = Account(provider.address, proxy.address)
        provider.faults["."], provider.delivers_anyway = CUT, True
        sent: CallOutcome = await account.send()
        assert isinstance(sent, Unknown), sent
        proxy.inject(Fault(act=Act.HOLD, pattern=moment))
        tasks.start_soon(killed_at_the_moment, mortal, proxy)
        verdict: Verdict = await account.look()
        assert isinstance(verdict, Retry), verdict
        assert not isinstance(verdict, TooEarly)
        proxy.clear()
    found = await Account(provider.address, mortal.address, mailbox=account.me, from_=account.me).look()
    assert isinstance(found, Applied), found


async def test_a_server_that_is_down_when_a_copy_is_looked_for_says_nothing(
    mortal: Dovecot, provider: SmtpServer
) -> None:
    account = Account(provider.address, mortal.address)
    mortal.kill()
    assert isinstance(await account.look(), Retry)
    mortal.start()
    assert await account.look() == NotApplied()


async def test_a_mail_that_was_taken_stays_sent_if_the_server_dies_while_its_copy_is_filed(mortal: Dovecot) -> None:
    deliver = into_mailboxes(mortal.address, copy_to_sent=False)
    async with Proxy.to(mortal.address) as proxy, anyio.create_task_group() as tasks:
        with smtp_server(deliver) as forgetful:
            account = Account(forgetful.address, proxy.address, sent_copy="append")
            proxy.inject(Fault(act=Act.HOLD, pattern=b"APPEND"))
            tasks.start_soon(killed_at_the_moment, mortal, proxy)
            call = account.call()
            outcome = await account.send(call=call)
            assert isinstance(outcome, Happened), outcome
        proxy.clear()
        assert isinstance(await account.look(account.call(earlier_note=call.noted)), Applied)
    assert len(delivered(mortal.mails, account.ann)) == 1
