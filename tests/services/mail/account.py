"""An account for tests: a connector between real servers, and calls made as the runtime makes them."""

import json
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from keep_actors.connectors import Answer, CallOutcome, Catalog, MutationCall, ReadCall, ReadOutcome, Verdict
from keep_actors.outbound.secret import Secret
from keep_actors.services.mail import ImapServer, Mail, MailSettings, SmtpServer
from tests.services.servers.dovecot import PASSWORD

_NUMBERS: Final = count(1)
_SPELLED: Final = {"from_": "from", "message_id": "messageId"}
Address = tuple[str, int]


class Account:
    """One connector. Each has a sender of its own, `me`, and a recipient, `ann`: no two tests share a mailbox."""

    def __init__(self, smtp: Address | SmtpServer | None, imap: Address | ImapServer | None, **settings: Any) -> None:
        number = next(_NUMBERS)
        self.me = f"me-{number}@example.com"
        self.ann = f"ann-{number}@example.com"
        settings = {"from_": self.me, "sent_copy": "server", **settings}
        mailbox = settings.pop("mailbox", self.me)
        if isinstance(smtp, tuple):
            smtp = SmtpServer(host=smtp[0], port=smtp[1], tls="none")
        settings["smtp"] = smtp
        if isinstance(imap, tuple):
            password = Secret(PASSWORD)
            imap = ImapServer(host=imap[0], port=imap[1], tls="none", user=mailbox, password=password)
        settings["imap"] = imap
        self.connector = Mail(MailSettings(**settings))
        self.methods = Catalog([self.connector]).methods

    def call(self, key: str = "key-1", **how: Any) -> MutationCall:
        """A call of `send`, as the ledger has it."""
        given = {"params": {}, "sent_at": 1_795_000_000_000, "attempt": 1, **how}
        return MutationCall(idempotency_key=key, workflow_id="wf_1", run_id="run_1", mutation_id="mut_1", **given)

    async def send(
        self, params: Mapping[str, Any] | None = None, call: MutationCall | None = None, timeout_ms: int = 5_000
    ) -> CallOutcome:
        """Send a mail to Ann, with these differences."""
        send = self.methods["mail.send"]
        given = {"to": [self.ann], "subject": "Hello", "text": "How are you?", **(params or {})}
        return await send.mutate(send.decode_params(json.dumps(given)), call or self.call(), timeout_ms)

    async def look(self, call: MutationCall | None = None, waited_ms: int = 10**9) -> Verdict:
        """Find out if the mail of a call was sent."""
        return await self.methods["mail.send"].reconcile(call or self.call(), 5_000, waited_ms)

    async def ask(self, method: str, timeout_ms: int = 5_000, **params: Any) -> ReadOutcome:
        """Call a read."""
        read = self.methods[f"mail.{method}"]
        given = {_SPELLED.get(name, name): value for name, value in params.items()}
        call = ReadCall(workflow_id="wf_1", run_id="run_1")
        return await read.read(read.decode_params(json.dumps(given)), call, timeout_ms)

    async def answer(self, method: str, **params: Any) -> Any:
        """The answer of a read."""
        outcome = await self.ask(method, **params)
        assert isinstance(outcome, Answer), outcome
        return json.loads(outcome.json_text)
