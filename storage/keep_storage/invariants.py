"""The promises that hold after every commit, checked. Each is a query that must return nothing."""

from typing import NamedTuple

from keep_storage.statements import invariants
from keep_storage.transaction import Queries

ROWS_SHOWN_MAX = 5


class Broken(NamedTuple):
    """A promise that does not hold, and some of the rows that break it."""

    name: str
    promise: str
    rows: list[tuple[object, ...]]

    def __str__(self) -> str:
        shown = ", ".join(str(row) for row in self.rows[:ROWS_SHOWN_MAX])
        more = f" and {len(self.rows) - ROWS_SHOWN_MAX} more" if len(self.rows) > ROWS_SHOWN_MAX else ""
        return f"Broken invariant {self.name}: {self.promise} Broken by {shown}{more}."


def check(q: Queries, *, deep: bool) -> list[Broken]:
    """Every promise that is broken. `deep` also asks those that must look at all finished work."""
    broken = []
    for name, statement in invariants().items():
        if statement.mark == "deep" and not deep:
            continue
        rows = q.all(name, {})
        if rows:
            broken.append(Broken(name, statement.purpose, rows))
    return broken
