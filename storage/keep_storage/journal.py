"""The answer of an operation, and its journal entries. One cannot be given without the other."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from keep_storage.ids import Millis
from keep_storage.transaction import Transaction

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode

_NUMBERS_KEPT_MAX: Final = 16_384


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened: to which workflow and run, what changed, and why."""

    workflow_id: str | None
    run_id: str | None
    changed: dict[str, Any]
    why: str


class Change(msgspec.Struct, Generic[T], frozen=True):
    """The answer of an operation and its journal entries: one, or for recovery one per thing recovered."""

    answer: T
    entries: tuple[Entry, ...]


def changed(answer: T, workflow_id: str | None, run_id: str | None, why: str = "", **what: Any) -> Change[T]:
    """The usual change: one entry. What there is nothing to say about (a `None`, an empty text) is left out."""
    said = {name: value for name, value in what.items() if value is not None and value != ""}
    return Change(answer, (Entry(workflow_id, run_id, said, why),))


Entries = list[tuple[str, Entry]]
"""The entries of operations that were applied, in order, each with the name of its operation."""


def write(tx: Transaction, entries: Entries, now: Millis) -> None:
    if not entries:
        return
    end = tx.one("journal_end", {})
    assert end, "an aggregate has one row"
    known = tx.kept.numbers
    lines = [
        {
            "at": now,
            "operation": known.get(operation) or _number(tx, operation),
            "workflow": entry.workflow_id and (known.get(entry.workflow_id) or _number(tx, entry.workflow_id)),
            "run_id": entry.run_id,
            "changed": _encode(entry.changed).decode(),
            "why": entry.why,
        }
        for operation, entry in entries
    ]
    tx.run_each("append_journal", lines)
    tx.run("note_journal_blocks", {"after": end[0]})


def _number(tx: Transaction, name: str) -> int:
    """Find or give the number that the journal has instead of a name."""
    row = tx.one("number_of_name", {"name": name}) or tx.one("insert_name", {"name": name})
    assert row, "a new name gets a number"
    if len(tx.kept.numbers) >= _NUMBERS_KEPT_MAX:
        tx.kept.numbers.clear()
    number = tx.kept.numbers[name] = int(row[0])
    return number
