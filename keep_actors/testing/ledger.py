"""The contents of the database, with assertions: the ledger of external calls, and the journal of everything."""

from collections.abc import Iterator

import msgspec

from keep_storage import reads
from keep_storage.limits import PEEK_MAX
from keep_storage.model import JournalEntry, Mutation
from keep_storage.transaction import Queries


class Ledger(msgspec.Struct, frozen=True):
    """Every external call, oldest first."""

    lines: tuple[Mutation, ...]

    @classmethod
    def of(cls, q: Queries) -> "Ledger":
        """The ledger of all workflows."""
        found: list[Mutation] = []
        for workflow in reads.workflows(q):
            page = reads.outputs(q, workflow.id, limit=PEEK_MAX)
            while page:
                found += page
                page = reads.outputs(q, workflow.id, limit=PEEK_MAX, before=page[-1].id)
        return cls(tuple(sorted(found, key=lambda each: each.id)))

    def __iter__(self) -> Iterator[Mutation]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def of_method(self, method: str) -> list[Mutation]:
        """The lines of `bank.pay`."""
        return [each for each in self.lines if f"{each.connector}.{each.method}" == method]

    def has(self, method: str, *statuses: str) -> None:
        """Fails unless the calls of a method stand exactly like this, oldest first."""
        found = [str(each.status) for each in self.of_method(method)]
        if found != list(statuses):
            raise AssertionError(f"the ledger has {method} as {found}, not as {list(statuses)}")

    def unsettled(self) -> list[Mutation]:
        """The calls whose outcome is not known, or that wait for a person."""
        return [each for each in self.lines if each.status not in ("applied", "failed")]


class Journal(msgspec.Struct, frozen=True):
    """Every operation that happened, oldest first."""

    entries: tuple[JournalEntry, ...]

    @classmethod
    def of(cls, q: Queries) -> "Journal":
        """The whole journal."""
        found: list[JournalEntry] = []
        while page := reads.journal(q, after=found[-1].seq if found else 0):
            found += page
        return cls(tuple(found))

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def operations(self) -> list[str]:
        """Their names, in order."""
        return [each.operation for each in self.entries]

    def has(self, *operations: str) -> None:
        """Fails unless these happened in this order, with whatever else in between."""
        rest = iter(self.operations)
        for wanted in operations:
            if wanted not in rest:
                raise AssertionError(f"the journal has no {wanted!r} where it was expected:\n{self.operations}")
