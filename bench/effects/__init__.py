"""Count the effects of a call when its process is killed around it, beside DBOS.

A promise and not only a measurement: after two effects, or a lost event, the exit code is 1.
"""

import importlib.metadata
import os
import random
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from bench import machine
from bench.effects.job import LATENCY_S, Kill, Moment
from bench.effects.lives import DBOS_RECORDS, Audit, Story, dbos_story, keep_story
from bench.report import Column, Report, Value
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import JailUnavailable
from keep_sandbox.jail import check_available

MEASURES: Final = (
    "one job: an order arrives and is paid for, by a call that appends a synced line to a file outside the database",
    "a real process that ends itself with SIGKILL at a moment around that call, or at a random time in it, and a "
    "second process that starts on the same files and works until nothing is left to do",
    "effects: lines in the file outside, counted by the process that started both; asks: it is a question to a person "
    "whether the call happened; lost: not done, and no question either",
    "at last: the person looks into the file and answers truthfully; the lines are counted again",
    "keep-actors twice: with a connector that can find out whether a call happened, and with one that cannot. Before a "
    "second process starts, the file of the first is looked into: the kill must have struck where the row says",
    "DBOS with its documented defaults and its SQLite system database, killed at the moments that it has too; the "
    "function that records a step's result is wrapped to have a moment before and after it. It records nothing before "
    "a step, so `-` stands where keep-actors has just written its ledger",
)
LEAVES_OUT: Final = (
    "services that refuse a second request with the same key. DBOS documents that steps run at least once; such a key "
    "(its workflow id, say, which a recovery keeps) is the remedy, and with it neither system pays twice. The service "
    "here does what it is asked as often as it is asked",
    "DBOS on PostgreSQL, which it recommends for production: the order of effect and record is the same there",
    "power loss, and processes that hang instead of dying; how long anything takes",
)

SEED: Final = 7
RANDOM: Final = "at a random time in the call"
WINDOW_S: Final = 2 * LATENCY_S + 0.02
"""From the start of the call until its answer is certainly recorded, on a quiet machine."""

COLUMNS: Final = (
    Column("killed", "killed", width=36),
    Column("runs", "runs"),
    Column("checks_effects", "keep, can check: effects"),
    Column("checks_asks", "asks"),
    Column("checks_lost", "lost"),
    Column("cannot_effects", "keep, cannot: effects"),
    Column("cannot_asks", "asks"),
    Column("cannot_lost", "lost"),
    Column("cannot_at_last", "at last"),
    Column("dbos_effects", "DBOS: effects"),
    Column("dbos_twice", "twice"),
    Column("dbos_lost", "lost"),
)


class Size(NamedTuple):
    """The numbers of kills at each moment, and at random times."""

    repetitions: int
    at_random: int


FULL: Final = Size(repetitions=5, at_random=40)
QUICK: Final = Size(repetitions=1, at_random=1)


class Stories(NamedTuple):
    """The systems that are killed."""

    checks: Story
    cannot: Story
    dbos: Story


def run(report: Report, *, quick: bool) -> None:
    size, sandbox, rng = QUICK if quick else FULL, _sandbox(), random.Random(SEED)
    facts: dict[str, Value] = {
        **machine.facts(),
        "sandbox": sandbox,
        "dbos": importlib.metadata.version("dbos"),
        "seed": SEED,
    }
    report.about(MEASURES, LEAVES_OUT, facts)
    stories = Stories(keep_story(True, sandbox), keep_story(False, sandbox), dbos_story)
    rows: dict[str, list[Kill]] = {str(moment): [Kill(moment)] * size.repetitions for moment in Moment}
    rows[RANDOM] = [Kill(after_s=rng.uniform(0, WINDOW_S)) for _ in range(size.at_random)]
    table = report.table("effects", "What happened outside, after a kill and a restart", COLUMNS)
    ours: list[Audit] = []
    # DBOS spends most of the time waiting for its queue to be polled, so run more processes than cores.
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        started = {name: _start(pool, stories, kills) for name, kills in rows.items()}
        for name, kills in rows.items():
            report.progress(f"killed {name}, {len(kills)} times each")
            checks, cannot, dbos = ([each.result() for each in futures] for futures in started[name])
            ours += checks + cannot
            table.row(
                killed=name,
                runs=len(kills),
                checks_effects=_range([each.effects for each in checks]),
                checks_asks=sum(each.asks for each in checks),
                checks_lost=sum(each.lost for each in checks),
                cannot_effects=_range([each.effects for each in cannot]),
                cannot_asks=sum(each.asks for each in cannot),
                cannot_lost=sum(each.lost for each in cannot),
                cannot_at_last=_range([each.effects_at_last for each in cannot]),
                dbos_effects=_range([each.effects for each in dbos]),
                dbos_twice=sum(each.effects > 1 for each in dbos) if dbos else None,
                dbos_lost=sum(each.lost for each in dbos) if dbos else None,
            )
    _promises(report, ours)


def _start(pool: ThreadPoolExecutor, stories: Stories, kills: Sequence[Kill]) -> list[list[Future[Audit]]]:
    return [[pool.submit(story, kill) for kill in kills if _has(story, kill)] for story in stories]


def _has(story: Story, kill: Kill) -> bool:
    return story is not dbos_story or kill.moment is None or kill.moment in DBOS_RECORDS


def _promises(report: Report, ours: Sequence[Audit]) -> None:
    runs = f"of {len(ours)} runs"
    twice = sum(each.effects_at_last > 1 for each in ours)
    report.promise("effects", f"keep-actors: more than one effect, {runs}: none", twice, kept=not twice)
    lost = sum(each.lost for each in ours)
    report.promise("effects", f"keep-actors: lost events, {runs}: none", lost, kept=not lost)
    guessed = sum(each.effects != 1 and not each.asks for each in ours)
    report.promise(
        "effects", f"keep-actors: neither one effect nor a question, {runs}: none", guessed, kept=not guessed
    )
    other = sum(each.effects_at_last != 1 for each in ours)
    report.promise("effects", f"keep-actors: not exactly one effect at last, {runs}: none", other, kept=not other)


def _range(effects: Sequence[int]) -> str | None:
    """`1`; `0 to 1` if they differ; None if there are none."""
    if not effects:
        return None
    least, most = min(effects), max(effects)
    return str(least) if least == most else f"{least} to {most}"


def _sandbox() -> PoolMode:
    try:
        check_available("jailed")
    except JailUnavailable:
        return "wasm"
    return "jailed"
