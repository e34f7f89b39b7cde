from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.services.mail.account import Account
from tests.services.servers.dovecot import Certificate, Dovecot, dovecot
from tests.services.servers.smtp import SmtpServer, into_mailboxes, smtp_server


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificate")
    found = Certificate(folder / "chain.pem", folder / "key.pem", folder / "authority.pem")
    issued = authority.issue_cert("localhost")
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(str(found.chain), append=number > 0)
    issued.private_key_pem.write_to_path(str(found.key))
    authority.cert_pem.write_to_path(str(found.authority))
    return found


@pytest.fixture(scope="session")
def imap(certificate: Certificate) -> Iterator[Dovecot]:
    with dovecot(certificate) as server:
        yield server


@pytest.fixture
def smtp(imap: Dovecot) -> Iterator[SmtpServer]:
    """A provider: it delivers into the mailboxes of `imap`, and files a copy of each mail itself."""
    with smtp_server(into_mailboxes(imap.address)) as server:
        yield server


@pytest.fixture
def mails(imap: Dovecot) -> Path:
    return imap.mails


@pytest.fixture
def account(smtp: SmtpServer, imap: Dovecot) -> Account:
    return Account(smtp.address, imap.address)
