"""What a seed decides: how large the world is and what may go wrong in it. Shrinking takes away from this."""

import random
from collections.abc import Callable

import msgspec

from keep_actors.host.fault_points import Point
from keep_actors.policy import Backoff, Policy
from keep_actors.testing.life import Died
from keep_sandbox.outcomes import EngineCrash, WorkerLost
from keep_storage.errors import StorageUnavailable
from tests.simulation.disk import Trouble
from tests.simulation.trace import Trace

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MANY = 100
"""More runs are parked in no story."""

UNKNOWN_MODES = ("pause", "park")
"""What a policy may say about unknown outcomes."""


class Climate(msgspec.Struct, frozen=True):
    """What may happen in a story. Everything else follows from the seed, in streams that do not touch each other."""

    workflows: int
    minutes: int
    """How long the storm lasts."""
    orders: int
    chores: int
    faults: float
    """How often something goes wrong at a fault point."""
    bad_calls: float
    """How often the shop does."""
    faults_max: int = 1 << 30
    actions_max: int = 1 << 30
    people: int = 2
    process_crashes: bool = True
    actor_crashes: bool = True
    worker_deaths: bool = True
    storage_failures: bool = True
    clock_jumps: bool = True
    lies: bool = False
    archives: bool = False
    asks: bool = False
    """Some calls wait for a person's approval."""
    repairs: bool = False
    """There is a maintainer."""
    turns_max: int = 1
    """How many others may run before a piece of blocking work is done."""
    hurries: int = 0
    """How often somebody acts at the worst moment: a handler has looked, a call is made, a connector is asked."""
    slow: float = 0.0
    """How often a piece of blocking work takes its time."""
    unknown: str = "pause"
    revokes: bool = False
    """Permissions are taken back, and given again."""
    notices: bool = False
    """Sinks are told when something needs a person."""
    shell: float = 0.0
    """How often people act over the control socket."""


def climate(seed: int) -> Climate:
    """What this seed is like."""
    rng = random.Random(f"{seed}:climate")
    usual = Climate(
        workflows=rng.choice([1, 1, 1, 1, 1, 2]),
        minutes=rng.choice([3, 4, 6, 12]),
        orders=rng.choice([1, 2]),
        chores=rng.choice([1, 1, 2]),
        faults=rng.choice([0.0, 0.01, 0.03, 0.08]),
        bad_calls=rng.choice([0.1, 0.5, 0.8]),
        people=rng.choice([1, 2]),
        process_crashes=rng.random() < 0.7,
        actor_crashes=rng.random() < 0.7,
        worker_deaths=rng.random() < 0.5,
        storage_failures=rng.random() < 0.5,
        clock_jumps=rng.random() < 0.3,
        lies=rng.random() < 0.1,
        archives=rng.random() < 0.25,
        asks=rng.random() < 0.4,
        repairs=rng.random() < 0.3,
        turns_max=rng.choice([1, 1, 2, 4]),
        slow=rng.choice([0.0, 0.02, 0.1, 0.3]),
        unknown=rng.choice(UNKNOWN_MODES),
        hurries=rng.choice([0, 1, 2, 4]),
        revokes=rng.random() < 0.2,
    )
    # The last workflow of a story is not archived.
    workflows = 2 if usual.archives and rng.random() < 0.6 else usual.workflows
    notices, shell = rng.random() < 0.5, rng.choice([0.0, 0.0, 0.5])
    return msgspec.structs.replace(usual, workflows=workflows, notices=notices, shell=shell)


def policy(seed: int, chosen: Climate) -> Policy:
    """The settings of all workflows."""
    rng = random.Random(f"{seed}:policy")
    return Policy(
        on_unknown="park" if chosen.unknown == "park" else "pause",
        parked_max=rng.choice([1, 2, MANY]),
        retry=Backoff(first_ms=10_000, cap_ms=5 * MINUTE, attempts_max=rng.choice([2, 3, 5])),
        reconcile=Backoff(first_ms=10_000, cap_ms=10 * MINUTE, attempts_max=rng.choice([1, 3, 5])),
        reconcile_for_ms=rng.choice([30 * MINUTE, 2 * HOUR]),
        approval_expires_ms=rng.choice([None, 127_000, 19 * MINUTE, DAY]),
        repairs_max=2,
        approval_reminders=rng.choice([0, 1, 2]),
        give_up_after_ms=rng.choice([MINUTE, 5 * MINUTE, DAY, DAY]),
    )


class Struck(Exception):
    """What crashes an actor in a simulation. Any other crash is a bug."""


class Storm:
    """Decides at every fault point whether something goes wrong there, and what."""

    def __init__(self, seed: int, chosen: Climate, trace: Trace, die: Callable[[], None]) -> None:
        self.on = False
        self.has_struck_the_storage = False
        """Since the process started: nothing works without it."""
        self._climate = chosen
        self._trace = trace
        self._die = die
        self._left = chosen.faults_max
        self._points = random.Random(f"{seed}:points")
        self._disk = random.Random(f"{seed}:disk")
        self._workers = random.Random(f"{seed}:workers")

    def _happens(self, rng: random.Random, share: float = 1.0) -> bool:
        # Drawn whether it is used or not: what is switched off does not shift the rest.
        drawn = rng.random() < self._climate.faults * share
        if not (drawn and self.on and self._left):
            return False
        self._left -= 1
        return True

    def reach(self, point: Point, whose: str) -> None:
        """At a fault point."""
        kind, happens = self._points.random(), self._happens(self._points)
        if not happens:
            return
        figures, climate = self._trace.figures, self._climate
        at_the_disk = point in (Point.COMMIT, Point.COMMITTED)
        if climate.process_crashes and kind < 0.4:
            self.kill(f"at {point}")
            raise Died
        if climate.storage_failures and point is Point.COMMIT:
            figures.storage_failures += 1
            self._trace.note("", "fault", "no room", point)
            raise StorageUnavailable("simulated: no room")
        if climate.actor_crashes and (not at_the_disk or kind > 0.9):
            figures.actor_crashes += 1
            self.has_struck_the_storage |= at_the_disk
            self._trace.note(self._trace.short(whose), "fault", "crash", point)
            raise Struck(point)

    def kill(self, how: str) -> None:
        """The process ends."""
        self._trace.figures.process_crashes += 1
        self._trace.note("", "fault", "death", how)
        self._die()

    def trouble(self) -> Trouble:
        """At a commit."""
        kinds: list[Trouble] = ["full", "torn", "failed", "lost", "died"]
        kind, happens = self._disk.choice(kinds), self._happens(self._disk)
        wanted = self._climate.process_crashes if kind == "died" else self._climate.storage_failures
        if not (happens and wanted):
            return ""
        if kind == "died":
            self.kill("in a commit")
        else:
            self._trace.figures.storage_failures += 1
            self._trace.note("", "fault", "disk", kind)
        return kind

    def worker(self, workflow_id: str) -> WorkerLost | EngineCrash | None:
        """When a worker has the word."""
        kind, happens = self._workers.random(), self._happens(self._workers, 2.0)
        if not (happens and self._climate.worker_deaths):
            return None
        self._trace.figures.worker_deaths += 1
        self._trace.note(self._trace.short(workflow_id), "fault", "worker", "lost" if kind < 0.8 else "engine")
        return WorkerLost() if kind < 0.8 else EngineCrash(signal=11)
