"""What happened in a story: one line for each transition, in fixed columns, and the figures.

Ids are random; a trace names things in the order they came up (`r3`, `m1`), so that a person can follow one.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from keep_storage.transitions import EVENT_NEXT, MUTATION_NEXT, PHASE_NEXT, STATUS_NEXT, WORKFLOW_NEXT

_LETTERS = {"wf": "w", "ver": "v", "ses": "s", "run": "r", "evt": "e", "mut": "m", "apr": "a", "ntc": "n"}

TABLES: Mapping[str, Mapping[Any, frozenset[Any]]] = {
    "phase": PHASE_NEXT,
    "status": STATUS_NEXT,
    "mutation": MUTATION_NEXT,
    "event": EVENT_NEXT,
    "workflow": WORKFLOW_NEXT,
}

EDGES = frozenset(
    (kind, str(before), str(after)) for kind, table in TABLES.items() for before, row in table.items() for after in row
)
"""Every edge of every table."""

CREATED = {
    "phase": {"pending", "preparing", "emitting"},
    "status": {"active"},
    "mutation": {"pending", "in_flight"},
    "event": {"pending"},
    "workflow": {"draft"},
}
"""Where each kind may begin: a retry begins at `next`, a call that nobody need approve as sent."""

_MEANS = {("phase", "preparing"): "pending", ("mutation", "in_flight"): "pending"}
"""What was made and moved on in one step: the edge that was taken."""


class Figures(msgspec.Struct):
    """What a story, or many, were made of."""

    seeds: int = 0
    transitions: int = 0
    commits: int = 0
    invariants: int = 0
    runs: int = 0
    effects: int = 0
    uncertain: int = 0
    processes: int = 0
    process_crashes: int = 0
    actor_crashes: int = 0
    worker_deaths: int = 0
    storage_failures: int = 0
    clock_jumps: int = 0
    actions: int = 0
    lies: int = 0
    by_shell: int = 0
    notices: int = 0
    settled_by: dict[str, int] = {}
    """Of the uncertain ones: who said what became of them."""
    edges: set[tuple[str, str, str]] = set()

    def add(self, other: "Figures") -> None:
        """Count another's in."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, set):
                mine |= theirs
            elif isinstance(mine, dict):
                setattr(self, name, dict(Counter(mine) + Counter(theirs)))
            else:
                setattr(self, name, mine + theirs)

    @property
    def missing_edges(self) -> list[tuple[str, str, str]]:
        """The edges of the tables that no story took."""
        return sorted(EDGES - self.edges)


class Trace:
    """Lines, as they come."""

    def __init__(self) -> None:
        self.figures = Figures(seeds=1, settled_by={}, edges=set())
        self.process = 0
        self.now_ms = 0
        """Since the beginning of the story."""
        self._lines: list[tuple[int, int, str, str, str, str]] = []
        self._names: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._lines)

    def note(self, who: str, kind: str, what: str, how: str = "") -> None:
        """One thing that happened."""
        self._lines.append((self.now_ms, self.process, who, kind, what, how))

    def short(self, long: str | None) -> str:
        """A name for an id, in the order they came up."""
        if not long:
            return ""
        known = self._names.get(long)
        if known is None:
            prefix, _, rest = long.partition("_")
            letter = _LETTERS.get(prefix) if len(rest) == 28 else None
            if letter is None:
                return long
            self._counts[letter] += 1
            known = self._names[long] = f"{letter}{self._counts[letter]}"
        return known

    def moved(self, who: str, kind: str, what: str, before: str | None, after: str) -> str:
        """A transition. Returns what is wrong with it; empty if it is in its table."""
        if before is None:
            self.note(self.short(who), kind, self.short(what), f"-> {after}")
            before = _MEANS.get((kind, after))
            if after not in CREATED[kind]:
                return f"a {kind} began as {after}"
            if before is None:
                return ""
        else:
            self.note(self.short(who), kind, self.short(what), f"{before} -> {after}")
        self.figures.transitions += 1
        edge = (kind, before, after)
        self.figures.edges.add(edge)
        if edge in EDGES or edge == ("phase", "pending", "committed"):
            return ""
        return f"{kind} {self.short(what)} went from {before} to {after}, which no table allows"

    def lines(self) -> list[str]:
        """The report: number, time, process, workflow, kind, name, what."""
        return [
            f"{number:>5} {at / 1000:>12.3f} p{process:<3} {who:<4} {kind:<9} {what:<12} {how}".rstrip()
            for number, (at, process, who, kind, what, how) in enumerate(self._lines, 1)
        ]

    def text(self) -> str:
        """All of it."""
        return "".join(f"{line}\n" for line in self.lines())
