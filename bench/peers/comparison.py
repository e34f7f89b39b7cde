"""Compare the same unit of work on keep-actors and its peers: `python -m bench peers [--crash]`."""

import sysconfig
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from bench import machine
from bench.peers import crash, throughput
from bench.peers import systems as known
from bench.peers.environments import folder_of_cache
from bench.peers.room import room
from bench.peers.systems import Candidate, available
from bench.peers.throughput import Bench, Crowd
from bench.report import Column, Report, Value

MEASURES: Final = (
    "a unit of work: three durable steps, the second of which makes one external call. The call appends a line, not "
    "synced, to a file outside, and all effects are counted",
    "keep-actors: an event is published, then `prepare`, `mutate` and `next`; the default sandbox; as many workflows "
    "as units in flight, each with a script of its own",
    "DBOS: a workflow with three steps; SQLite in WAL mode and one executor thread (the fastest of 1, 2, 4, 16 and no "
    "limit), or a PostgreSQL server with its default settings and 16 threads; with --crash also SQLite without a limit "
    "of threads, which is its default",
    "Restate: a handler with three `ctx.run`; the server with its default settings, one process with the Python SDK, "
    "and a client with one connection per unit in flight",
    "Absurd: a task with three steps; a PostgreSQL server with its default settings, four worker processes that look "
    "for tasks every 10 ms; its client asks for a result at growing intervals, from 50 ms on",
    "Temporal: a workflow with three activities; the development server with a SQLite file in WAL mode; worker and "
    "client in one process, eager start, workflow code outside the SDK's sandbox",
    "a closed loop: a unit begins when another one ends. Acceptance of a unit, durable in all of them, is in its time",
    "CPU and memory (PSS) of all processes of the system and its client; foreign cores: the CPU that all other "
    "processes of the machine used meanwhile",
    "with --crash: a client sends all units. At exactly so many effects, before the last one is answered, every "
    "process of the system is killed with SIGKILL, its server and PostgreSQL too, as when a machine crashes without "
    "loss of files. All is started again; the client sends again, by the same name, what it does not know to be "
    "accepted. Effects that repeat an earlier one; units without one; questions to a person; seconds from the restart "
    "until the system says that all are done",
    "with --crash, the time until a call or its worker is believed to be dead: 2 s for an absent effect in "
    "keep-actors, for a task that a worker of Absurd holds, for an activity of Temporal; DBOS and Restate have none",
)
LEAVES_OUT: Final = (
    "isolation: only keep-actors runs each unit's code as an untrusted script in a jailed process; the others run "
    "trusted Python",
    "services that refuse a second request with the same key: with them, no system here has a second effect",
    "syncs of the peers, which this harness cannot count; several machines; power loss",
    "Temporal's server for production, which needs a database of its own: its development server is measured",
)


class Size(NamedTuple):
    """The sizes of a run."""

    crowds: tuple[Crowd, ...]
    repeats: int
    accepted: int
    """Units of each story of a crash."""
    kills: tuple[int, ...]
    """The numbers of effects after which a system is killed, each in a story of its own."""
    compared: tuple[Candidate, ...]
    compared_after_a_crash: tuple[Candidate, ...]


FULL: Final = Size(
    crowds=(Crowd(1, 200), Crowd(100, 1_000), Crowd(1_000, 2_000)),
    repeats=3,
    accepted=1_000,
    kills=(300, 800),
    compared=known.FULL,
    compared_after_a_crash=known.CRASH,
)
QUICK: Final = Size(
    crowds=(Crowd(1, 10), Crowd(100, 100)),
    repeats=1,
    accepted=100,
    kills=(50,),
    compared=known.QUICK,
    compared_after_a_crash=known.QUICK,
)


def run(
    report: Report,
    *,
    quick: bool,
    crash_table: bool = False,
    environments: Path | None = None,
    only: str | None = None,
) -> None:
    size = QUICK if quick else FULL
    candidates = named(size.compared_after_a_crash if crash_table else size.compared, only)
    with tempfile.TemporaryDirectory() as name:
        facts: dict[str, Value] = {
            **machine.facts(),
            "network": room().words(),
            "python_with_pgo": "yes" if has_pgo() else "no",
            "files_in": str(Path(name).parent),
            "fsync_us": machine.fsync_us(Path(name)),
        }
        report.about(MEASURES, LEAVES_OUT, facts)
        report.progress("environments")
        systems, skipped = available(candidates, environments or folder_of_cache())
        if skipped:
            table = report.table(
                "skipped", "Skipped", (Column("system", "system", width=16), Column("reason", "reason"))
            )
            for each in skipped:
                table.row(system=each.name, reason=each.reason)
        prepared = Path(name) / "prepared"
        prepared.mkdir()
        bench = Bench(prepared)
        if crash_table:
            crash.compare(report, systems, size.accepted, size.kills, crash.kill_and_restart(bench))
        else:
            throughput.compare(report, systems, size.crowds, size.repeats, bench.measure)


def named(candidates: tuple[Candidate, ...], only: str | None) -> tuple[Candidate, ...]:
    """The candidates with these names, separated by `;`. All without names."""
    if only is None:
        return candidates
    wanted = [name.strip() for name in only.split(";")]
    known_names = [each.name for each in candidates]
    if unknown := [name for name in wanted if name not in known_names]:
        raise SystemExit(f"--systems: there is no {unknown[0]!r} here; there are: {'; '.join(known_names)}")
    return tuple(each for each in candidates if each.name in wanted)


def has_pgo() -> bool:
    """True if this Python was built with profile-guided optimization."""
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
