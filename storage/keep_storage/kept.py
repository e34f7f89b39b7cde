"""Rows that the writer knows without reading them again: workflows, active runs and unsettled calls.

Only `rows` and `mutation_rows` write these three tables, and they say here what each row has become. Beside them are
the numbers that the journal has instead of names, which never change. Whatever is undone
(a savepoint, a transaction, a commit that failed) empties it. `invariants.check` compares it with the tables.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from keep_storage.model import Mutation, Run, RunStatus, Workflow
from keep_storage.transitions import SETTLED

KEPT_ROWS_MAX: Final = 4_096
_KEPT_CHARS_MAX: Final = 16_384
"""A row with a longer value is read each time: a crowd of them would take too much memory."""

K = TypeVar("K", Workflow, Run, Mutation)


class Kept:
    """Rows by type and id, as they were last written or read. The oldest makes room."""

    __slots__ = ("_rows", "_rows_max", "numbers")

    def __init__(self, rows_max: int = KEPT_ROWS_MAX) -> None:
        self._rows: dict[tuple[type, str], Any] = {}
        self.numbers: dict[str, int] = {}
        """By name. Only the journal looks names up, and adds those that it has written."""
        self._rows_max = rows_max

    def find(self, struct: type[K], row_id: str) -> K | None:
        return self._rows.get((struct, row_id))

    def keep(self, row: Workflow | Run | Mutation) -> None:
        """Remember what a row has become, if it will be asked for again."""
        key = (type(row), row.id)
        if not _is_worth_keeping(row):
            self._rows.pop(key, None)
            return
        if key not in self._rows and len(self._rows) >= self._rows_max:
            if not self._rows_max:
                return
            del self._rows[next(iter(self._rows))]
        self._rows[key] = row

    def forget(self, struct: type[Workflow | Run | Mutation], row_id: str) -> None:
        self._rows.pop((struct, row_id), None)

    def clear(self) -> None:
        self._rows.clear()
        self.numbers.clear()

    def all(self) -> Iterable[Workflow | Run | Mutation]:
        return list(self._rows.values())


def _is_worth_keeping(row: Workflow | Run | Mutation) -> bool:
    match row:
        case Run():
            return row.status is RunStatus.ACTIVE and len(row.prepare_result or "") <= _KEPT_CHARS_MAX
        case Mutation():
            return row.status not in SETTLED and len(row.params) <= _KEPT_CHARS_MAX
        case Workflow():
            return True


def nothing_kept() -> Kept:
    """For connections that only read: others write."""
    return Kept(0)
