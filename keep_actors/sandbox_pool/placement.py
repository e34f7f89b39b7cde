"""The worker for a call, and the scripts that a worker holds. Pure: no processes, no event loop."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, assert_never

from keep_actors.sandbox_pool.policy import Sharing

Group: TypeAlias = tuple[str, ...]
"""Workers belong to a group, and run only calls of this group."""

SLOW_S: Final = 0.010
"""A turn that computes for longer than this may go on for long: no more work is put behind it without need."""
_SLOW_LOAD: Final = 2
_FAR_BEHIND: Final = 2
"""A worker that has run the script is not waited for if its load exceeds that of another by this much."""


def group_of(sharing: Sharing, owner: str, workflow_id: str, source: str) -> Group:
    """The group of a call: all calls with the same one may meet in a process."""
    match sharing:
        case "all":
            return ()
        case "owner":
            return (owner,)
        case "none":
            return (workflow_id, source)
        case _:
            assert_never(sharing)


class Candidate(NamedTuple):
    """A worker that can take a call."""

    turns: int
    """Turns that it has not computed yet. Calls that wait for the host have none."""
    computing_s: float
    """The time that the current turn has taken so far."""
    calls: int
    scripts: int
    ran_at: int
    """The time at which it last ran the script, on any counter; 0: it does not hold the script."""

    @property
    def load(self) -> int:
        """The work that a call would have to wait for, in turns."""
        return self.turns + (_SLOW_LOAD if self.turns and self.computing_s > SLOW_S else 0)


def choose(candidates: Sequence[Candidate], *, can_start: bool) -> int | None:
    """The index of the worker for a call; None if another one is to be started, or there is none.

    The worker that ran the script last, unless it has much more to do than another has, or one that is started.
    """
    if not candidates:
        return None
    least = min(
        range(len(candidates)), key=lambda at: (candidates[at].load, candidates[at].calls, candidates[at].scripts)
    )
    least_load = 0 if can_start else candidates[least].load
    home = max(range(len(candidates)), key=lambda at: candidates[at].ran_at)
    if candidates[home].ran_at > 0 and candidates[home].load - least_load < _FAR_BEHIND:
        return home
    return None if can_start and candidates[least].load > 0 else least


class Taken(NamedTuple):
    """A script that a worker is to run now."""

    number: int
    is_new: bool
    """True if its text has to be sent first."""
    forgotten: list[int]
    """The numbers of scripts that the worker is to forget."""


class Shelf:
    """The scripts that one worker holds. The host decides; the worker obeys."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._last_number = 0
        self._held: dict[str, tuple[int, int, int]] = {}  # number, bytes, time; the least recently run first

    def __len__(self) -> int:
        return len(self._held)

    def ran_at(self, source: str) -> int:
        """The time at which the script was last taken; 0 if it is not held."""
        held = self._held.get(source)
        return held[2] if held is not None else 0

    def take(self, source: str, now: int) -> Taken:
        """Note that the script runs now. Others make room for it; the last one is held however large it is."""
        held = self._held.pop(source, None)
        if held is not None:
            self._held[source] = (held[0], held[1], now)
            return Taken(held[0], False, [])
        size = len(source.encode())  # raises before anything is noted
        self._last_number += 1
        forgotten: list[int] = []
        while self._held and self._bytes + size > self._bytes_max:
            number, freed, _ = self._held.pop(next(iter(self._held)))
            self._bytes -= freed
            forgotten.append(number)
        self._held[source] = (self._last_number, size, now)
        self._bytes += size
        return Taken(self._last_number, True, forgotten)


class Turns:
    """The turns that a worker was given and has not finished, oldest first: the oldest one computes."""

    def __init__(self) -> None:
        self._calls: list[int] = []
        self.since = 0.0
        """The time at which the oldest turn began to compute."""

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def computing(self) -> int | None:
        """The number of the call that computes."""
        return self._calls[0] if self._calls else None

    def owes(self, call: int) -> bool:
        """Return True if a turn of this call is not finished."""
        return call in self._calls

    def begin(self, call: int, now: float) -> None:
        """Note that the worker is given a turn of this call."""
        if not self._calls:
            self.since = now
        self._calls.append(call)

    def end(self, now: float, *, is_over: bool) -> float:
        """Note that the oldest turn has ended, and return its time. If its call is over, so are its other turns."""
        took, call = now - self.since, self._calls.pop(0)
        if is_over:
            self._calls = [each for each in self._calls if each != call]
        self.since = now
        return took
