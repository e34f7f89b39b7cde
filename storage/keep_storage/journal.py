"""The answer of an operation, and its journal entries. One cannot be given without the other."""

from typing import Any, Generic, TypeVar

import msgspec

from keep_storage.ids import Millis
from keep_storage.transaction import Transaction

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


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
    """The usual change: one entry."""
    return Change(answer, (Entry(workflow_id, run_id, what, why),))


Journal = list[tuple[str, Entry]]
"""The entries of operations that were applied, in order, each with the name of its operation."""


def write(tx: Transaction, entries: Journal, now: Millis) -> None:
    tx.run_each(
        "append_journal",
        (
            {
                "at": now,
                "operation": operation,
                "workflow_id": entry.workflow_id,
                "run_id": entry.run_id,
                "changed": _encode(entry.changed).decode(),
                "why": entry.why,
            }
            for operation, entry in entries
        ),
    )
