"""Growth: the cost of a run, opening after a crash, memory and waiting, with workflows and with history."""

import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from bench import machine
from bench.report import Report, Value
from bench.scale import costs, memory, recovering, waiting
from bench.scale.costs import Crowd

MEASURES: Final = (
    "the runs of `bench runtime`, jailed: a peek, a reservation, one call of a connector, `next` with a state; CPU per "
    "run of the host process and of the sandbox, from the open runtime until nothing is due",
    "the same number of runs per workflow in every crowd; ratios are of host and sandbox together: to the "
    "cheapest smaller crowd, and to the file without history",
    "history: finished events and runs of all workflows in the file, each with its reservation, call and journal; "
    "files are measured in turns, and grow by what is measured",
    "recovery: every workflow had an unfinished run, one in three with a call in flight that its connector knows "
    "to have happened. Settled: the runtime is open, and the state of every such run is durable. First work: the first "
    "commit of a run. All done: every event was worked through",
    "memory: the resident memory of the host process, less that with few workflows. Active: inside a call",
    "a slow service: throughput beside the same work with a service that answers at once",
    "fairness: the wait of a workflow is from the open runtime to the end of its first run",
    "load: of the machine during the minute before, other programs included",
)
LEAVES_OUT: Final = (
    "a file whose pages are not in memory: the operating system has all of them here",
    "peek, publish and claim by the size of a topic: `bench storage` has them",
    "the sandbox's memory, which has a fixed number of workers; producers, jobs, large scripts and payloads",
    "workflows with different scripts: all have the same one, under an id of its own",
)


class Size(NamedTuple):
    """The sizes of all parts."""

    costs: costs.Size
    unfinished: int
    waiting: waiting.Size
    idle: int
    active: int


FULL: Final = Size(
    costs.Size(
        (Crowd(10, 20), Crowd(100, 6), Crowd(1_000, 2), Crowd(10_000, 1)),
        events_each=2,
        histories=(0, 10_000, 100_000, 1_000_000),
        due=1_000,
        rounds=3,
    ),
    unfinished=10_000,
    waiting=waiting.Size(1_000, busy=10, events_of_busy=100),
    idle=10_000,
    active=1_000,
)
QUICK: Final = Size(
    costs.Size(
        (Crowd(10, 2), Crowd(100, 1), Crowd(300, 1)),
        events_each=2,
        histories=(0, 10_000),
        due=100,
        rounds=1,
    ),
    unfinished=300,
    waiting=waiting.Size(200, busy=5, events_of_busy=20),
    idle=1_000,
    active=100,
)


def run(report: Report, *, quick: bool) -> None:
    measure(report, QUICK if quick else FULL)


def measure(report: Report, size: Size) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts: dict[str, Value] = {
            **machine.facts(),
            "files_in": str(folder.parent),
            "fsync_us": machine.fsync_us(folder),
        }
        report.about(MEASURES, LEAVES_OUT, facts)
        memory.run(report, size.idle, size.active, folder)
        recovering.run(report, size.unfinished, folder)
        waiting.run(report, size.waiting, folder)
        costs.run(report, size.costs, folder)
