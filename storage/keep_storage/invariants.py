"""The promises that hold after every commit, checked. Each is a query that must return nothing."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from keep_storage.model import Mutation, Run, Workflow
from keep_storage.records import decode
from keep_storage.statements import invariants
from keep_storage.transaction import Queries

ROWS_SHOWN_MAX = 5

_BY_ID: Final[Mapping[type, str]] = {Workflow: "workflow_by_id", Run: "run_by_id", Mutation: "mutation_by_id"}


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
    untrue: list[tuple[object, ...]] = [(row,) for row in q.kept.all() if not _is_true(q, row)]
    if untrue:
        broken.append(Broken("kept_rows_are_true", "A row that the writer keeps is as it is in its table.", untrue))
    return broken


def _is_true(q: Queries, kept: Workflow | Run | Mutation) -> bool:
    found = q.one(_BY_ID[type(kept)], {"id": kept.id})
    return found is not None and decode(type(kept), found) == kept
