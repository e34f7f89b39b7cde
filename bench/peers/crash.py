"""Kill all processes of a system at a given effect, start it again, and count the effects outside.

As a crash of the machine does, the kill takes the server and the database too. Their files survive it, as does what
the operating system had not yet written to the disk: it is no loss of power.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.driving import Driver, Failed, driving
from bench.peers.fuse import Fuse, rings
from bench.peers.systems import System
from bench.peers.throughput import Bench, Crowd
from bench.peers.unit import Plan, Task
from bench.report import Column, Report

OURS: Final = "keep-actors"
_STALLED_S: Final = 300

COLUMNS: Final = (
    Column("system", "system", width=16),
    Column("units", "units"),
    Column("kill_after", "kill after"),
    Column("effects_at_kill", "effects at the kill"),
    Column("accepted_at_kill", "accepted at the kill"),
    Column("twice", "twice"),
    Column("lost", "lost"),
    Column("asked", "asked"),
    Column("seconds", "done after s", 1),
)


class Accident(NamedTuple):
    """The result of one kill and one restart."""

    effects_at_kill: int
    accepted_at_kill: int
    """Units that the client knew to be accepted; it sends the others again, by the same name."""
    twice: int
    """Effects that repeat an earlier one."""
    lost: int
    """Units without an effect, when the system says that all are done."""
    asked: int
    """Questions to a person."""
    seconds: float
    """From the restart until the system says that all are done."""


Story = Callable[[System, int, int], Accident]


def audit(payments: Sequence[str], units: int) -> tuple[int, int]:
    """The effects that happened again, and the units without one."""
    counts = Counter(line.split()[0] for line in payments)
    return sum(counts.values()) - len(counts), units - len(counts)


def compare(report: Report, systems: Sequence[System], units: int, kills: Sequence[int], story: Story) -> None:
    """Report a row per system and kill. A broken promise of keep-actors becomes the exit code."""
    table = report.table("crash", "Killed with SIGKILL and started again", COLUMNS)
    ours: list[Accident] = []
    for kill_after in kills:
        for system in systems:
            report.progress(f"{system.name}, killed after {kill_after:,} effects of {units:,}")
            accident = story(system, units, kill_after)
            ours += [accident] if system.name == OURS else []
            table.row(system=system.name, units=units, kill_after=kill_after, **accident._asdict())
    twice, lost = sum(each.twice for each in ours), sum(max(0, each.lost - each.asked) for each in ours)
    report.promise("crash", f"keep-actors: effects that happened twice, {len(ours)} kills: none", twice, kept=not twice)
    report.promise(
        "crash", f"keep-actors: units neither done nor asked about, {len(ours)} kills: none", lost, kept=not lost
    )


def kill_and_restart(bench: Bench) -> Story:
    """The real story: one workflow per unit."""

    def story(system: System, units: int, kill_after: int) -> Accident:
        with bench.files(system, Crowd(units, units)) as folder:
            plan = Plan(Task.ACCEPT, str(folder), units, units)
            with driving(system, plan) as driver:
                driver.said()
                _kill_at(driver, plan, kill_after)
            effects, accepted = len(plan.outside.payments()), units - len(plan.client.open_units())
            assert effects == kill_after, "no call got past the fuse"
            started = time.monotonic()
            with driving(system, plan._replace(task=Task.FINISH)) as driver:
                said = driver.said()
                seconds = time.monotonic() - started
                driver.end()
            twice, lost = audit(plan.outside.payments(), units)
        return Accident(effects, accepted, twice, lost, said["asked"], seconds)

    return story


def _kill_at(driver: Driver, plan: Plan, effects: int) -> None:
    """Let the driver work, and kill it at this effect, which is not answered."""
    with Fuse(Path(plan.folder)).laid(effects) as bell:
        driver.tell("go")
        until = time.monotonic() + _STALLED_S
        happened = rings(bell, _STALLED_S)
        while happened and len(plan.outside.payments()) < effects:  # another thread drew earlier, and is still writing
            happened = time.monotonic() < until
        if not happened:
            raise Failed(f"fewer than {effects} effects happened in {_STALLED_S} seconds: {driver.words()}")
        driver.kill()
