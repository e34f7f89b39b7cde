"""Cycles per second at different numbers of callers: ours, the floor and the obvious way, side by side.

Machines are noisy, so each ratio compares neighbours in one round, the order within a round alternates, and the median
of the rounds counts.
"""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench.report import Column, Report
from bench.storage import floor, obvious, ours
from bench.storage.floor import Recording
from bench.storage.obvious import Work
from bench.storage.ours import Measured

GOAL_CALLERS: Final = 256
GOAL_OF_FLOOR: Final = 0.40
GOAL_TIMES_AIOSQLITE: Final = 8.0

TITLE: Final = "Consumer cycles per second (medians)"
COLUMNS: Final = (
    Column("callers", "callers"),
    Column("rounds", "rounds"),
    Column("ours_per_s", "ours/s"),
    Column("floor_per_s", "floor/s"),
    Column("aiosqlite_per_s", "aiosqlite/s"),
    Column("ratio_to_floor", "of floor", 2),
    Column("ratio_to_aiosqlite", "x aiosqlite", 1),
    Column("commits", "commits"),
    Column("ops_per_commit", "ops/commit", 1),
)


class Crowd(NamedTuple):
    """The numbers of callers, of cycles of each, and of rounds. Without cycles for aiosqlite, it is left out."""

    callers: int
    cycles_each: int
    aiosqlite_cycles_each: int
    rounds: int


class Round(NamedTuple):
    """Measurements made one after the other."""

    ours: Measured
    floor: Measured
    aiosqlite: Measured | None


def run(report: Report, crowds: tuple[Crowd, ...]) -> None:
    table = report.table("cycles", TITLE, COLUMNS)
    goals: list[tuple[float | None, float | None]] = []
    for crowd in crowds:
        report.progress(f"cycles, {crowd.callers:,} at a time")
        rounds = _rounds(crowd)
        of_floor = _median(rounds, lambda each: each.ours.per_s / each.floor.per_s)
        times_aiosqlite = _median(rounds, lambda each: each.aiosqlite and each.ours.per_s / each.aiosqlite.per_s)
        table.row(
            callers=crowd.callers,
            rounds=crowd.rounds,
            ours_per_s=_median(rounds, lambda each: each.ours.per_s),
            floor_per_s=_median(rounds, lambda each: each.floor.per_s),
            aiosqlite_per_s=_median(rounds, lambda each: each.aiosqlite and each.aiosqlite.per_s),
            ratio_to_floor=of_floor,
            ratio_to_aiosqlite=times_aiosqlite,
            commits=rounds[-1].ours.commits,
            ops_per_commit=rounds[-1].ours.ops_per_commit,
        )
        if crowd.callers == GOAL_CALLERS:
            goals.append((of_floor, times_aiosqlite))
    for of_floor, times_aiosqlite in goals:
        _goals(report, of_floor, times_aiosqlite)


def _goals(report: Report, of_floor: float | None, times_aiosqlite: float | None) -> None:
    if of_floor is not None:
        words = f"at {GOAL_CALLERS} callers at least {GOAL_OF_FLOOR:.2f} of the floor"
        report.goal("cycles", words, of_floor, of_floor >= GOAL_OF_FLOOR)
    if times_aiosqlite is not None:
        words = f"at {GOAL_CALLERS} callers at least {GOAL_TIMES_AIOSQLITE:.0f} times aiosqlite"
        report.goal("cycles", words, times_aiosqlite, times_aiosqlite >= GOAL_TIMES_AIOSQLITE)


def _median(rounds: list[Round], value: Callable[[Round], float | None]) -> float | None:
    values = [each for each in map(value, rounds) if each is not None]
    return statistics.median(values) if values else None


def _rounds(crowd: Crowd) -> list[Round]:
    work = obvious.prepare(crowd.callers, crowd.aiosqlite_cycles_each) if crowd.aiosqlite_cycles_each else None
    # A first run, not timed, warms up and records the work of the floor.
    _, recording = _ours(crowd, None)
    rounds: list[Round] = []
    for number in range(crowd.rounds):
        # Ours and the floor are always neighbours, in either order.
        if number % 2 == 0:
            theirs = _aiosqlite(work)
            mine, recording = _ours(crowd, recording)
            bare = _floor(recording)
        else:
            theirs = None  # the slowest; every second round is enough
            bare = _floor(recording)
            mine, recording = _ours(crowd, recording)
        rounds.append(Round(mine, bare, theirs))
    return rounds


def _ours(crowd: Crowd, recording: Recording | None) -> tuple[Measured, Recording]:
    """One of our runs, and a recording with as many commits: the given one, or that of this run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ours.db"
        measured, history = ours.measure(path, crowd.callers, crowd.cycles_each)
        if recording is None or len(recording.cycles) != measured.commits:
            recording = floor.record(history, floor.row_counts(path))
        assert floor.row_counts(path) == recording.row_counts, "every run does the same work"
    return measured, recording


def _floor(recording: Recording) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        return floor.replay(Path(folder) / "floor.db", recording)


def _aiosqlite(work: Work | None) -> Measured | None:
    if work is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        return obvious.measure(Path(folder) / "aiosqlite.db", work)
