"""The demo's services, which misbehave on purpose, as connectors.

The world outside is the file `outside.jsonl`: a service carries out every call, each time, and appends a line. A call
that is made twice is there twice, and a SIGKILL takes nothing away. `reconcile` looks for the key of a call there; only
the courier cannot be asked, so a lost answer of the courier is a question for a person.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, Transient, Uncertain, mutation, read
from keep_storage.ids import wall_clock

MARK: Final = ".keep-demo"
"""The file that tells a demo's folder from others."""


class Trick(StrEnum):
    REFUSE = "503, and nothing is done"
    HANG = "it is done, and no answer comes"
    LOSE_ANSWER = "it is done, and the answer gets lost"
    LOSE_REQUEST = "the request gets lost, nothing is done"


KILLED: Final = "inv-3"
"""The payment in the middle of which the runtime is killed."""
UNANSWERED: Final = "parcel-5"
"""The call whose outcome only a person can find out."""
TRICKS: Final[Mapping[tuple[str, str], Trick]] = {
    ("mail", "inbox"): Trick.REFUSE,
    ("sheets", "mail-2"): Trick.LOSE_ANSWER,
    ("bank", "inv-2"): Trick.REFUSE,
    ("bank", KILLED): Trick.HANG,
    ("bank", "inv-4"): Trick.LOSE_ANSWER,
    ("bank", "inv-5"): Trick.LOSE_REQUEST,
    ("courier", UNANSWERED): Trick.LOSE_ANSWER,
}
"""By service and subject. Each trick is played once."""


class InboxMail(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    from_: str = msgspec.field(name="from")
    subject: str


MAILS: Final = (
    InboxMail("mail-1", "ann@example.com", "Receipt for the chairs"),
    InboxMail("mail-2", "bob@example.com", "Receipt for the lamp"),
    InboxMail("mail-3", "cleo@example.com", "Receipt for the desk"),
)


def scripts() -> dict[str, str]:
    """Return the workflows' sources by file name."""
    return {
        each.name: each.read_text("utf-8") for each in files("keep_actors.demo").iterdir() if each.name.endswith(".js")
    }


def read_outside(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of `outside.jsonl`, oldest first: effects, and the tricks that were played."""
    file = folder / "outside.jsonl"
    text = file.read_text("utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class _Service(Connector):
    def __init__(self, folder: Path, pace_s: float) -> None:
        self._folder, self._pace_s = folder, pace_s

    async def open(self) -> None:
        if not (self._folder / MARK).is_file():
            raise FileNotFoundError(f"{self._folder} is not a demo's folder. Name one: KEEP_DEMO=FOLDER")

    async def _trick(self, about: str) -> Trick | None:
        """Return the trick to play now, after writing it down. A refusal is raised."""
        played = [(each["service"], each["about"]) for each in read_outside(self._folder) if each["what"] == "trick"]
        trick = TRICKS.get((self.name, about)) if (self.name, about) not in played else None
        if trick is not None:
            self._write(what="trick", about=about, trick=trick.name.lower())
        if trick is Trick.REFUSE:
            await anyio.sleep(self._pace_s)
            raise Transient("503, try again later", retry_after_ms=300)
        return trick

    async def _do(self, about: str, call: MutationCall, **details: object) -> str:
        trick = await self._trick(about)
        if trick is not Trick.LOSE_REQUEST:
            self._write(what="effect", at=wall_clock(), about=about, key=call.idempotency_key, **details)
        await (anyio.sleep_forever() if trick is Trick.HANG else anyio.sleep(self._pace_s))
        if trick is not None:
            raise Uncertain("the connection ended without an answer")
        return call.idempotency_key

    async def find(self, call: MutationCall) -> Applied | NotApplied:
        await anyio.sleep(self._pace_s)
        found = any(each.get("key") == call.idempotency_key for each in read_outside(self._folder))
        return Applied(call.idempotency_key) if found else NotApplied()

    def _write(self, **line: object) -> None:
        with (self._folder / "outside.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"service": self.name, **line}) + "\n")


class Inbox(_Service):
    name = "mail"

    @read
    async def inbox(self, after: str = "") -> list[InboxMail]:
        """The mails that came after the one of that id, oldest first."""
        await self._trick("inbox")
        await anyio.sleep(self._pace_s)
        return [mail for mail in MAILS if mail.id > after]

    @mutation(check_hint="Look for the subject in the folder Sent.")
    async def send(self, to: str, subject: str, body: str, call: MutationCall) -> str:
        """Send a mail."""
        return await self._do(subject, call, to=to, body=body)

    find_sent = send.reconcile(_Service.find)


class Sheets(_Service):
    name = "sheets"

    @mutation(check_hint="Look at the last rows of the sheet.")
    async def append_row(self, row: str, values: list[str], call: MutationCall) -> str:
        """Add a row at the end of the sheet. `row` names what it is about."""
        return await self._do(row, call, values=values)

    find_row = append_row.reconcile(_Service.find)


class Bank(_Service):
    name = "bank"

    # An absence is believed only after the timeout: a minute by default, and here a person is watching.
    @mutation(risk="high", identity=["invoice"], timeout_ms=2_000, check_hint="Look for the invoice in the statement.")
    async def pay(self, invoice: str, amount: int, call: MutationCall) -> str:
        """Pay an invoice. Money leaves each time this is called."""
        return await self._do(invoice, call, amount=amount)

    find_payment = pay.reconcile(_Service.find)


class Courier(_Service):
    name = "courier"

    @mutation(identity=["parcel"], check_hint="Ring the courier; in this demo, look for the parcel in outside.jsonl.")
    async def dispatch(self, parcel: str, to: str, call: MutationCall) -> None:
        """Send a courier with a parcel, without a receipt. There is no way to ask whether one has left."""
        await self._do(parcel, call, to=to)


def connectors_in(folder: Path, pace_s: float = 0) -> list[Connector]:
    """Return the services of a demo's folder. Each answer takes `pace_s`, so that a person can read along."""
    return [kind(folder, pace_s) for kind in (Inbox, Sheets, Bank, Courier)]
