"""Two connectors in memory, a mailbox and a spreadsheet: Python code can see what a script did to them.

`Gmail(mails)` and `Sheets()` are `ctx.gmail` and `ctx.sheets`. Use them to try a script, or as a pattern.
"""

from collections import defaultdict
from itertools import count
from typing import Any

import msgspec

from keep_actors.connectors import (
    Applied,
    Connector,
    MutationCall,
    NotApplied,
    Similarity,
    mutation,
    read,
)


class Mail(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    from_: str  # `from` in JavaScript
    subject: str
    body: str


class Outgoing(msgspec.Struct, frozen=True):
    """A mail that was sent. A real mailbox has the key in a header of the message."""

    id: str
    key: str
    to: str
    subject: str
    body: str


class Sent(msgspec.Struct, frozen=True, rename="camel"):
    message_id: str


class Gmail(Connector):
    name = "gmail"

    def __init__(self, inbox: list[Mail] | None = None) -> None:
        self.inbox = [] if inbox is None else inbox
        self.sent: list[Outgoing] = []

    def receive(self, from_: str, subject: str, body: str = "") -> Mail:
        """Put a mail into the inbox."""
        mail = Mail(f"mail_{len(self.inbox) + 1}", from_, subject, body)
        self.inbox.append(mail)
        return mail

    @read
    async def search(self, query: str = "", after: str | None = None) -> list[Mail]:
        """Mails that contain the query, oldest first; with `after`, those that came after the mail of that id."""
        ids = [mail.id for mail in self.inbox]
        first = ids.index(after) + 1 if after in ids else 0
        wanted = query.casefold()
        return [mail for mail in self.inbox[first:] if wanted in f"{mail.subject}\n{mail.body}".casefold()]

    @mutation(risk="high", identity=["to", "subject"], check_hint="Look for the subject in the folder Sent.")
    async def send(self, to: str, subject: str, body: str, call: MutationCall) -> Sent:
        """Send a mail."""
        mail = Outgoing(f"sent_{len(self.sent) + 1}", call.idempotency_key, to, subject, body)
        self.sent.append(mail)
        return Sent(mail.id)

    @send.reconcile
    async def find_sent(self, call: MutationCall) -> Applied | NotApplied:
        found = [mail for mail in self.sent if mail.key == call.idempotency_key]
        return Applied(Sent(found[0].id)) if found else NotApplied()

    @send.compare_payload
    def same_body(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        return "equivalent" if old["body"].split() == new["body"].split() else "significant"


class Row(msgspec.Struct, frozen=True, rename="camel"):
    row_id: str
    values: list[str]


class Appended(msgspec.Struct, frozen=True, rename="camel"):
    row_id: str


class Sheets(Connector):
    name = "sheets"

    def __init__(self) -> None:
        self._sheets: defaultdict[str, list[Row]] = defaultdict(list)
        self._by_key: dict[str, Row] = {}
        self._row_ids = count(1)

    def rows_of(self, spreadsheet_id: str) -> list[list[str]]:
        """The rows of a spreadsheet, for Python."""
        return [row.values for row in self._sheets[spreadsheet_id]]

    @read
    async def rows(self, spreadsheet_id: str, limit: int = 100) -> list[Row]:
        """The first rows of a spreadsheet."""
        return self._sheets[spreadsheet_id][:limit]

    @read(by_id=True)
    async def get_row(self, row_id: str) -> Row | None:
        """One row, or null."""
        every = (row for rows in self._sheets.values() for row in rows)
        return next((row for row in every if row.row_id == row_id), None)

    @mutation(identity=["spreadsheet_id"], check_hint="Look at the last rows of the spreadsheet.")
    async def append_row(self, spreadsheet_id: str, values: list[str], call: MutationCall) -> Appended:
        """Add a row at the end of a spreadsheet."""
        row = Row(f"row_{next(self._row_ids)}", values)
        self._sheets[spreadsheet_id].append(row)
        self._by_key[call.idempotency_key] = row
        return Appended(row.row_id)

    @append_row.reconcile
    async def find_row(self, call: MutationCall) -> Applied | NotApplied:
        row = self._by_key.get(call.idempotency_key)
        return Applied(Appended(row.row_id)) if row else NotApplied()


def demo() -> list[Connector]:
    """A mailbox with three mails, and spreadsheets without rows."""
    gmail = Gmail()
    gmail.receive("ann@example.com", "Invoice 7", "Please pay by Friday.")
    gmail.receive("bob@example.com", "Lunch?", "At noon, as always.")
    gmail.receive("cleo@example.com", "Invoice 8", "Thank you for your order.")
    return [gmail, Sheets()]
