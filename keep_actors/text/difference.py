"""The difference between two scripts, for a person who decides. Never cut, bounded in time, exact about lines. Pure.

Lines end with a line feed and with nothing else: what Python takes for the end of a line is, in a script, often not.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

_COMPARED_MAX: Final = 1_000_000
"""The lines of one times those of the other, between what begins and ends alike. More are shown as removed and added:
a script can be written so that `difflib` takes hours for it."""
_AROUND: Final = 3

_Line = tuple[str, str]
"""A mark (` `, `-`, `+`) and a line."""


def difference(old: str, new: str, old_name: str, new_name: str) -> str:
    """A unified diff; empty if both are the same."""
    lines = list(_marked(old.split("\n") if old else [], new.split("\n") if new else []))
    changed = [at for at, (mark, _) in enumerate(lines) if mark != " "]
    if not changed:
        return ""
    shown = [f"--- {old_name}", f"+++ {new_name}"]
    at_old = at_new = 1
    read = 0
    for first, end in _hunks(changed, len(lines)):
        at_old, at_new = at_old + first - read, at_new + first - read
        hunk = lines[first:end]
        count_old, count_new = (sum(mark != other for mark, _ in hunk) for other in "+-")
        shown.append(f"@@ -{_span(at_old, count_old)} +{_span(at_new, count_new)} @@")
        shown += [f"{mark}{line}" for mark, line in hunk]
        at_old, at_new, read = at_old + count_old, at_new + count_new, end
    return "\n".join(shown)


def _marked(before: list[str], after: list[str]) -> Iterator[_Line]:
    least = min(len(before), len(after))
    begin = next((at for at in range(least) if before[at] != after[at]), least)
    end = next((at for at in range(least - begin) if before[-1 - at] != after[-1 - at]), least - begin)
    old, new = before[begin : len(before) - end], after[begin : len(after) - end]
    yield from ((" ", line) for line in before[:begin])
    if len(old) * len(new) > _COMPARED_MAX:
        yield from (("-", line) for line in old)
        yield from (("+", line) for line in new)
    else:
        for kind, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new).get_opcodes():
            if kind == "equal":
                yield from ((" ", line) for line in old[old_from:old_to])
            else:
                yield from (("-", line) for line in old[old_from:old_to])
                yield from (("+", line) for line in new[new_from:new_to])
    yield from ((" ", line) for line in before[len(before) - end :])


def _hunks(changed: list[int], count: int) -> Iterator[tuple[int, int]]:
    """The lines that are shown: those that changed, and some around them."""
    first = end = max(changed[0] - _AROUND, 0)
    for at in changed:
        if at - _AROUND > end:
            yield first, end
            first = at - _AROUND
        end = min(at + 1 + _AROUND, count)
    yield first, end


def _span(begin: int, count: int) -> str:
    """A place as `patch` reads it: of no lines, the line before them."""
    return f"{begin if count else begin - 1},{count}"
