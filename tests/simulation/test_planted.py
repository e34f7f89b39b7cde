"""The simulator finds bugs that are put there for it, and makes what it finds short."""

import msgspec
import pytest

from tests.simulation.planted import BUGS, ROOT, Bug, catch
from tests.simulation.shrink import kind_of, shrink
from tests.simulation.story import Told
from tests.simulation.trace import Figures
from tests.simulation.weather import Climate, climate

SAMPLE = [bug for bug in BUGS if "lost answer" in bug.name or "`next` is skipped" in bug.name]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_place_of_a_planted_bug_is_still_there(bug: Bug) -> None:
    assert (ROOT / bug.path).read_text("utf-8").count(bug.old) == 1


@pytest.mark.parametrize("bug", SAMPLE, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    caught = catch(bug, 100)
    assert caught.seed >= 0, caught


def _told(seed: int, given: Climate) -> Told:
    """Breaks a promise as long as two actions of people and one actor crash are left."""
    broken = given.actions_max >= 2 and given.actor_crashes
    lines = [""] * (given.minutes + given.workflows + min(given.actions_max, 50))
    violation = f"event 'x{len(lines)}' is gone" if broken else ""
    return Told(seed, given, violation, Figures(settled_by={}, edges=set()), lines)


def test_what_is_not_needed_for_a_failure_is_taken_away() -> None:
    usual = msgspec.structs.replace(climate(5), workflows=3, minutes=15, actor_crashes=True, process_crashes=True)
    short = shrink(_told(5, usual), tell=_told).climate
    assert (short.actions_max, short.workflows, short.minutes, short.people) == (2, 1, 1, 0)
    assert short.actor_crashes
    assert not short.process_crashes


def test_a_failure_of_another_kind_is_no_shorter_version_of_the_first() -> None:
    assert kind_of("event 'x7' is pending, and r12 is active") == kind_of("event 'y' is pending, and r3 is active")
    assert kind_of("event 'x7' is gone") != kind_of("event 'x7' is pending")
