"""Whenever the process dies, the next one carries on to the same end, and nothing is done twice.

A scenario is lived once without a crash. At each of its commits a picture is taken before it is durable, and another
after it, when whoever asked has not heard of it. The picture before the commit that records an answer is the one in
which the call has been made and nobody knows it; the picture after the commit that says `in_flight` is the one in
which it has not been made. A new life starts from every picture; its pictures are those of a second crash.
"""

import itertools
from collections.abc import Hashable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from keep_storage import reads
from keep_storage.model import Mutation, MutationStatus
from keep_storage.transaction import Queries
from tests.crash.driver import Driver
from tests.crash.life import Crash, Life, Moment, Picture
from tests.crash.scenarios import ALL, Scenario
from tests.crash.truth import Ending, check, situation, state

THE_WORST = next(scenario for scenario in ALL if scenario.name == "07 outcome unknown and it happened")
"""Lived with every two crashes there are. The others skip a second crash in a situation they have met before."""


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk in memory, if there is one: what a killed process leaves behind needs no slow syncs."""
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=shared_memory) as folder:
        yield Path(folder)


class Album:
    """The pictures of many lives, without those that show what another one shows already.

    What is seen is every row; or, if `coarse`, only what a scheduler would see, without history.
    """

    def __init__(self, *, coarse: bool = False) -> None:
        self.pictures: list[Picture] = []
        self.doubts: set[bool] = set()
        """Of the calls in flight in a picture: whether they had happened."""
        self._coarse = coarse
        self._seen: set[Hashable] = set()

    def add(self, life: Life, moment: Moment, commit: int, rows: Hashable, in_flight: list[Mutation]) -> None:
        outside = life.driver.outside
        asked = tuple(outside.was_asked(mutation) for mutation in in_flight)
        seen = (rows, asked, outside.situation() if self._coarse else outside.state())
        if seen not in self._seen:
            self._seen.add(seen)
            self.pictures.append(life.picture(moment, commit))
            self.doubts.update(outside.happened(mutation) for mutation in in_flight)

    def look(self, q: Queries, driver: Driver) -> Hashable:
        return situation(q, driver) if self._coarse else state(q, driver)


def live(scenario: Scenario, folder: Path, start: Picture | None, *albums: Album) -> Ending:
    """A whole life, checked after every commit, with its pictures added to the albums."""
    life = Life(scenario, folder, start)
    q, driver = life.store.queries(), life.driver
    if albums and start and not _is_unfinished(q, driver):
        albums = ()  # nothing to recover: the rest of this life is the rest of the one before, pictures and all
    shown: list[Hashable] = [album.look(q, driver) for album in albums]
    in_flight = _in_flight(q, driver) if albums else []

    def watch(moment: Moment, commit: int) -> None:
        nonlocal shown, in_flight
        # Before a commit the rows are still those of the last one: what this process wrote is not durable.
        if moment is Moment.AFTER:
            check(q, driver)
        if moment is Moment.AFTER and albums:
            shown = [album.look(q, driver) for album in albums]
            in_flight = _in_flight(q, driver)
        for album, rows in zip(albums, shown, strict=True):
            album.add(life, moment, commit, rows, in_flight)

    life.database.watch = watch
    try:
        return life.run()
    except Exception as error:
        error.add_note(f"{scenario.name}: {life.start}, at commit {life.database.commits} of this life")
        raise
    finally:
        life.close()


def _in_flight(q: Queries, driver: Driver) -> list[Mutation]:
    unsettled = reads.unsettled_mutations(q, driver.workflow_id)
    return [mutation for mutation in unsettled if mutation.status is MutationStatus.IN_FLIGHT]


def _is_unfinished(q: Queries, driver: Driver) -> bool:
    """Whether the process that died has left anything behind."""
    workflow = reads.workflow(q, driver.workflow_id)
    repair_is_lost = workflow and workflow.maintenance and not reads.open_task(q, driver.workflow_id)
    return bool(repair_is_lost or reads.open_session(q, driver.workflow_id) or _in_flight(q, driver))


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_a_crash_at_any_commit_leads_to_the_same_end(scenario: Scenario, tmp_path: Path, memory_folder: Path) -> None:
    first, second = Album(), Album(coarse=True)
    undisturbed = live(scenario, tmp_path, None, first)
    assert undisturbed["unfinished"] == [], "it ends when nothing is held and nothing waits"
    for picture in first.pictures:
        albums = [second] if scenario.is_about_mutations else []
        assert live(scenario, memory_folder, picture, *albums) == undisturbed, f"{scenario.name}: {picture}"
    for picture in second.pictures:
        assert live(scenario, memory_folder, picture) == undisturbed, f"{scenario.name}: {picture}"
    met = {True, False} if undisturbed["effects"] else {False} & first.doubts
    assert first.doubts == met, "a call in flight is met both when it has happened and when it has not"


def test_any_two_crashes_lead_to_the_same_end(memory_folder: Path) -> None:
    first, second = Album(), Album()
    undisturbed = live(THE_WORST, memory_folder, None, first)
    for picture in first.pictures:
        live(THE_WORST, memory_folder, picture, second)
    for picture in second.pictures:
        assert live(THE_WORST, memory_folder, picture) == undisturbed, f"{THE_WORST.name}: {picture}"


@pytest.mark.parametrize("moment", Moment)
def test_a_process_that_is_cut_off_in_a_commit_is_followed_by_one_that_comes_to_the_same_end(
    moment: Moment, tmp_path: Path, memory_folder: Path
) -> None:
    """The sweeps go on living after each picture. Here nothing of the process runs after its death."""
    undisturbed = live(THE_WORST, tmp_path, None)
    for commit in itertools.count(1):
        left = die(THE_WORST, tmp_path, moment, commit)
        if left is None:
            assert commit > 10, "the sweep must meet a whole cycle"
            return
        assert live(THE_WORST, memory_folder, left) == undisturbed, f"{THE_WORST.name}: {left}"


def die(scenario: Scenario, folder: Path, moment: Moment, commit: int) -> Picture | None:
    """What is left of a life that ends at this commit; nothing if it ends before."""
    life = Life(scenario, folder)

    def watch(now: Moment, number: int) -> None:
        if (now, number) == (moment, commit):
            raise Crash

    life.database.watch = watch
    try:
        life.run()
    except Crash:
        return life.picture(moment, commit)
    finally:
        life.close()
    return None
