"""The demo's connectors: what scripts see of the services. Each leaves its key outside, where `reconcile` finds it.

All but one: nobody can be asked about a courier. When its answer is lost, a person is asked.
"""

from typing import Final

import msgspec

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, Uncertain, mutation, read
from keep_actors.demo.client import Client, Reply
from keep_actors.demo.folder import Folder

_TIMEOUT_MS: Final = 2_000
"""The default is a minute. What is not found is believed only after that, and here somebody is watching."""


class Mail(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    from_: str = msgspec.field(name="from")
    subject: str


class _Service(Connector):
    """What all four have: a way to the services, opened with them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def _do(self, about: str, call: MutationCall, **details: object) -> str:
        try:
            reply = await self._client.post(self.name, about=about, key=call.idempotency_key, **details)
        except OSError as error:
            # It was sent. What became of it the service knows, and nobody here.
            raise Uncertain(str(error)) from error
        return self._id(reply)

    async def _find(self, call: MutationCall) -> Applied | NotApplied:
        """Whether there is something with the key of this call."""
        reply = await self._client.get(f"/{self.name}/{call.idempotency_key}")
        return NotApplied() if reply.code == 404 else Applied(self._id(reply))

    def _id(self, reply: Reply) -> str:
        if reply.code != 200:
            raise Uncertain(f"{self.name} answered {reply.code}, which says nothing about what was done")
        return str(reply.body["key"])


class Mailbox(_Service):
    name = "mail"

    @read
    async def inbox(self, after: str = "") -> list[Mail]:
        """The mails that came after the one of that id, oldest first."""
        reply = await self._client.get(f"/mail?after={after}")
        return msgspec.convert(reply.body, list[Mail])

    @mutation(check_hint="Look for the subject in the folder Sent.")
    async def send(self, to: str, subject: str, body: str, call: MutationCall) -> str:
        """Send a mail."""
        return await self._do(subject, call, to=to, body=body)

    @send.reconcile
    async def find_sent(self, call: MutationCall) -> Applied | NotApplied:
        return await self._find(call)


class Sheets(_Service):
    name = "sheets"

    @mutation(check_hint="Look at the last rows of the sheet.")
    async def append_row(self, row: str, values: list[str], call: MutationCall) -> str:
        """Add a row at the end of the sheet. `row` names what it is about."""
        return await self._do(row, call, values=values)

    @append_row.reconcile
    async def find_row(self, call: MutationCall) -> Applied | NotApplied:
        return await self._find(call)


class Bank(_Service):
    name = "bank"

    @mutation(
        risk="high",
        identity=["invoice"],
        timeout_ms=_TIMEOUT_MS,
        check_hint="Look for the invoice in the bank's statement.",
    )
    async def pay(self, invoice: str, amount: int, call: MutationCall) -> str:
        """Pay an invoice. Money leaves each time this is called."""
        return await self._do(invoice, call, amount=amount)

    @pay.reconcile
    async def find_payment(self, call: MutationCall) -> Applied | NotApplied:
        return await self._find(call)


class Courier(_Service):
    name = "courier"

    @mutation(identity=["parcel"], check_hint="Ring the courier; in this demo, look for the parcel in outside.jsonl.")
    async def dispatch(self, parcel: str, to: str, call: MutationCall) -> None:
        """Send a courier with a parcel, without a receipt. There is no way to ask whether one has left."""
        await self._do(parcel, call, to=to)


def connectors_in(folder: Folder) -> list[Connector]:
    """Those of the services of this folder."""
    client = Client(folder)
    return [Mailbox(client), Sheets(client), Bank(client), Courier(client)]
