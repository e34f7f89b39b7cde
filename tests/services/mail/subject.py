"""The mail connector for `keep certify`: real servers, and a provider that files copies of sent mails itself."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from keep_actors.outbound.secret import Secret
from keep_actors.services.mail import ImapServer, Mail, MailSettings, SmtpServer
from keep_actors.testing.certification import Certification, RunningService
from tests.services.servers.dovecot import PASSWORD, delivered, dovecot
from tests.services.servers.smtp import into_mailboxes, smtp_server

_ME: Final = "me@example.com"
_ANN: Final = "ann@example.com"
_SETTLE_MS: Final = 1_500
"""Longer than the suite holds a request back. The provider here files a copy while it takes the mail."""


class MailCertification(Certification):
    """Sending, with `sent_copy = "server"`. Two calls are two mails: only the runtime prevents the second."""

    decisive: ClassVar[Mapping[str, bytes]] = {"send": b"\r\n.\r\n"}
    refuses_repetition: ClassVar[bool] = False

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RunningService]:
        with dovecot() as imap, smtp_server(into_mailboxes(imap.address)) as smtp:
            yield RunningService({"smtp": smtp.address, "imap": imap.address}, {"mails": str(imap.mails)})

    def connector(self, service: RunningService) -> Mail:
        smtp, imap = service.addresses["smtp"], service.addresses["imap"]
        password = Secret(PASSWORD)
        return Mail(
            MailSettings(
                smtp=SmtpServer(host=smtp[0], port=smtp[1], tls="none"),
                imap=ImapServer(host=imap[0], port=imap[1], tls="none", user=_ME, password=password),
                from_=_ME,
                sent_copy="server",
                settle_ms=_SETTLE_MS,
            )
        )

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        assert method == "send", "the only mutation"
        return {"to": [_ANN], "subject": f"certificate {number}", "text": f"This is mail {number}."}

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        """Count in the files of the recipient's mailbox."""
        assert method == "send", "the only mutation"
        mails = delivered(Path(service.places["mails"]), _ANN)
        return sum(mail["Subject"] == params["subject"] for mail in mails)
