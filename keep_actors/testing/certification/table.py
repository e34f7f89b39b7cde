"""The result of a certification: rows of mutations, and what was seen in each."""

import msgspec

from keep_actors.testing.certification.rows import ABOUT, CertificationRow, RowOutcome


class RowResult(msgspec.Struct, frozen=True):
    """One row of one mutation."""

    method: str
    """As a script calls it: `crm.insertCustomers`."""
    row: CertificationRow
    outcome: RowOutcome
    seen: str
    """The observation, or the reason why the row does not apply."""
    took_ms: int

    @property
    def mishap(self) -> str:
        """The mishap that was tried."""
        return ABOUT[self.row].mishap

    @property
    def why(self) -> str:
        """Why it matters, and what to do."""
        return ABOUT[self.row].why

    def __str__(self) -> str:
        why = f"\n    {self.why}" if self.outcome is RowOutcome.FAILED else ""
        return f"{self.method}: {self.row} {self.outcome} ({self.took_ms} ms): {self.seen}{why}"


class CertificationTable(msgspec.Struct, frozen=True):
    """All rows. `assert not table.failed, table` is a whole test."""

    connector: str
    results: list[RowResult]
    """By mutation, in the order of `Row`."""
    took_ms: int

    @property
    def failed(self) -> list[RowResult]:
        """The rows that failed."""
        return self.of(RowOutcome.FAILED)

    @property
    def held(self) -> list[RowResult]:
        """The rows that held."""
        return self.of(RowOutcome.HELD)

    def of(self, outcome: RowOutcome) -> list[RowResult]:
        """The rows with this outcome."""
        return [each for each in self.results if each.outcome is outcome]

    @property
    def counts(self) -> str:
        """How many rows held, failed and do not apply, in words."""
        skipped = len(self.of(RowOutcome.DOES_NOT_APPLY))
        return (
            f"{len(self.held)} held, {len(self.failed)} failed, {skipped} {'does' if skipped == 1 else 'do'} not apply"
        )

    def __str__(self) -> str:
        return "\n".join([f"{self.connector}: {self.counts}", *map(str, self.failed)])
