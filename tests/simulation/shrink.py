"""A failing seed made shorter: what may go wrong is taken away piece by piece, as long as the same promise breaks."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from tests.simulation.story import Told, tell
from tests.simulation.weather import Climate

SWITCHES: Final = (
    "process_crashes",
    "actor_crashes",
    "worker_deaths",
    "storage_failures",
    "clock_jumps",
    "lies",
    "archives",
    "asks",
    "repairs",
    "revokes",
    "notices",
)
_LEAST: Final = {
    "workflows": 1,
    "people": 0,
    "orders": 0,
    "chores": 1,
    "turns_max": 1,
    "minutes": 1,
    "faults_max": 0,
    "actions_max": 0,
}
_NAMES: Final = re.compile(r"'[^']*'|\b[a-z]+\d+\b|\d+")


def kind_of(violation: str) -> str:
    """What was broken, without whose it was."""
    return _NAMES.sub("…", violation)


def shrink(told: Told, attempts_max: int = 150, tell: Callable[[int, Climate], Told] = tell) -> Told:
    """A shorter story that breaks the same promise; the same one if there is none."""
    best, kind, attempts = told, kind_of(told.violation), 0
    found = True
    while found and attempts < attempts_max:
        found = False
        for smaller in _smaller(best.climate):
            attempts += 1
            if attempts > attempts_max:
                break
            other = tell(told.seed, smaller)
            if kind_of(other.violation) == kind and len(other.trace) <= len(best.trace):
                best, found = other, True
                break
    return best


def _smaller(climate: Climate) -> Iterator[Climate]:
    """What could be left out, the most at first. Each is smaller than what it was, so that this comes to an end."""
    for switch in SWITCHES:
        if getattr(climate, switch):
            yield replace(climate, **{switch: False})
    if climate.slow:
        yield replace(climate, slow=0.0)
    if climate.shell:
        yield replace(climate, shell=0.0)
    if climate.hurries:
        yield replace(climate, hurries=0)
    for name, least in _LEAST.items():
        value: int = getattr(climate, name)
        for fewer in sorted({least, (least + min(value, 64)) // 2, value - 1}):
            if least <= fewer < value:
                yield replace(climate, **{name: fewer})
