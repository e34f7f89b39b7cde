"""A whole runtime killed with SIGKILL at random moments, and its sandbox under it: nothing is done twice or lost."""

import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from anyio.lowlevel import checkpoint

import keep_actors
from keep_actors import Keep, Policy
from keep_actors.policy import Backoff
from keep_storage import Store, invariants, reads
from keep_storage.model import Event, EventStatus, MutationStatus, RunStatus, Workflow
from keep_storage.sqlite import look_at
from keep_storage.transaction import Queries
from keep_storage.transitions import UNCERTAIN
from tests.crash.driver import NO_LIMIT
from tests.runtime.sigkill_child import EVENTS, WORKFLOWS, Outbox, script

log = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
KILLS = 6
LINES_MAX = 250
"""A run is eight lines of the journal: so many runs at most come to their end between two kills."""
MOMENT_S = 0.03
"""About as long as a run takes: the kill strikes anywhere in it, not only after what was heard."""


class Count(NamedTuple):
    """What became of events."""

    consumed: int = 0
    held: int = 0
    """By a run whose call nobody knows the outcome of."""
    happened: int = 0
    """Of those that are held: it happened all the same."""
    waiting: int = 0
    """Behind a held one."""

    def __add__(self, other: object) -> "Count":
        assert isinstance(other, Count)
        return Count(*(mine + its for mine, its in zip(self, other, strict=True)))


def effects(ledger: Path) -> Counter[str]:
    """How often something was done outside about each event."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return Counter(line.split()[0] for line in lines)


def check_always(path: Path, ledger: Path, story: str) -> None:
    """What is true at every moment, however a process ended."""
    assert look_at(str(path))[1] == [], story
    with Store.open(path) as store:
        broken = invariants.check(store.queries(), deep=True)
    assert not broken, f"{story}: {broken}"
    twice = {event: times for event, times in effects(ledger).items() if times > 1}
    assert not twice, f"{story}: done more than once: {twice}"


def count(path: Path, ledger: Path, expected: dict[str, int], story: str) -> Count:
    """What became of everything, when there is nothing left to do. `expected` is how many events each workflow has."""
    check_always(path, ledger, story)
    done = effects(ledger)
    total = Count()
    with Store.open(path) as store:
        q = store.queries()
        for name, events in expected.items():
            workflow = reads.workflow_by_name(q, name)
            assert workflow, f"{story}: {name} was lost"
            total += count_in(q, workflow, events, done, f"{story}: {name}")
    assert sum(done.values()) <= total.consumed + total.held, f"{story}: effects of nothing: {done}"
    return total


def count_in(q: Queries, workflow: Workflow, events: int, done: Counter[str], story: str) -> Count:
    found = reads.events(q, workflow.id, "in", limit=NO_LIMIT)
    assert [event.message_id for event in found] == [f"{workflow.name}/{i}" for i in range(events)], story
    followed = {event.message_id for event in reads.events(q, workflow.id, "done", limit=NO_LIMIT)}
    of_each = [what_became_of(q, event, done[event.message_id], event.message_id in followed, story) for event in found]
    total = sum(of_each, start=Count())
    assert total.held == bool(workflow.error), f"{story}: {workflow.error!r}, and holds {total.held}"
    assert total.held or not total.waiting, f"{story}: {total.waiting} events wait for nothing"
    assert len(followed) == total.consumed, f"{story}: something came of nothing"
    return total


def what_became_of(q: Queries, event: Event, effects: int, is_followed: bool, story: str) -> Count:
    story = f"{story}: {event.message_id} is {event.status}"
    runs = [reads.run(q, held.run_id) for held in reads.reservations_of_event(q, event.id)]
    committed = [run for run in runs if run and run.status is RunStatus.COMMITTED]
    if event.status is EventStatus.CONSUMED:
        assert (len(committed), effects, is_followed) == (1, 1, True), story
        outcomes = [mutation.status for run in runs if run for mutation in reads.mutations_of_run(q, run.id)]
        assert outcomes.count(MutationStatus.APPLIED) == 1, f"{story}: {outcomes}"
        return Count(consumed=1)
    assert not committed, story
    assert not is_followed, story
    if event.status is EventStatus.PENDING:
        assert effects == 0, f"{story}, and would be done again"
        return Count(waiting=1)
    assert event.status is EventStatus.RESERVED, story
    assert event.reserved_by_run_id, story
    holder = reads.run(q, event.reserved_by_run_id)
    assert holder, story
    assert holder.status is RunStatus.PAUSED_RECONCILIATION, f"{story} by a run that is {holder.status}"
    [mutation] = reads.mutations_of_run(q, holder.id)
    assert mutation.status in UNCERTAIN, f"{story} by a run that knows: {mutation.status}"
    # Only a call that can be looked up is looked up; any other waits for a person.
    assert mutation.reconcilable or mutation.status is MutationStatus.INDETERMINATE, f"{story}: {mutation.status}"
    return Count(held=1, happened=effects)


@contextmanager
def life(path: Path, ledger: Path) -> Iterator[subprocess.Popen[str]]:
    """A process at work. It is killed at the end, if it still lives."""
    command = [sys.executable, "-m", "tests.runtime.sigkill_child", str(path), str(ledger)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def hear(process: "subprocess.Popen[str]", lines: int | None = None) -> int:
    """Wait for so many lines, or for the end. Returns how many came."""
    assert process.stdout
    return sum(1 for _ in itertools.islice(process.stdout, lines))


@pytest.mark.parametrize("seed", [1])
def test_a_runtime_that_is_killed_again_and_again_does_nothing_twice_and_loses_nothing(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    path, ledger = tmp_path / "keep.db", tmp_path / "ledger.txt"
    for kill in range(KILLS):
        lines = rng.randrange(1, LINES_MAX)
        story = f"seed {seed}, kill {kill} after {lines} lines"
        with life(path, ledger) as process:
            assert hear(process, lines) == lines, f"{story}: it came to its end first; give it more events"
            time.sleep(rng.uniform(0, MOMENT_S))
            process.kill()
            assert process.wait() == -signal.SIGKILL, story
        check_always(path, ledger, story)
    with life(path, ledger) as process:
        hear(process)
        assert process.wait() == 0, f"seed {seed}"
    total = count(path, ledger, dict.fromkeys(WORKFLOWS, EVENTS), f"seed {seed}")
    log.info("seed %d: %s; interrupted: %s", seed, total, interrupted(path))
    assert total.consumed + total.held + total.waiting == len(WORKFLOWS) * EVENTS
    assert total.consumed > len(WORKFLOWS) * EVENTS / 4, f"seed {seed}: {total}: those that are not held go on"
    assert interrupted(path), f"seed {seed}: no kill ever met a run"


def interrupted(path: Path) -> Counter[str]:
    """The runs that did not come to their end, by status."""
    with Store.open(path) as store:
        q = store.queries()
        runs = [run for each in reads.workflows(q) for run in reads.runs(q, each.id, limit=NO_LIMIT)]
    return Counter(run.status.value for run in runs if run.status is not RunStatus.COMMITTED)


# The sandbox alone.

IN_DANGER = dict.fromkeys(WORKFLOWS[:12], EVENTS)
WORKER_KILLS = 100
ZYGOTE_KILLS = 3
"""Fewer than the pool accepts in so short a time."""
PATIENT = Policy(retry=Backoff(first_ms=10, cap_ms=50, attempts_max=1_000))


@pytest.mark.anyio
@pytest.mark.parametrize("seed", [1])
async def test_a_sandbox_that_is_killed_again_and_again_delays_runs_and_nothing_else(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path, ledger = tmp_path / "keep.db", tmp_path / "ledger.txt"
    async with (
        keep_actors.open(path, connectors=[Outbox(ledger)], policy=PATIENT) as keep,
        anyio.create_task_group() as tasks,
    ):
        for name, events in IN_DANGER.items():
            await keep.deploy(script(name, events), grants="declared")
        tasks.start_soon(kill_at_random, rng)
        await until_done(keep)
        tasks.cancel_scope.cancel()
    total = count(path, ledger, IN_DANGER, f"seed {seed}")
    log.info("seed %d: %s; interrupted: %s", seed, total, interrupted(path))
    assert total == Count(consumed=sum(IN_DANGER.values()))
    assert set(interrupted(path)) == {RunStatus.PAUSED_TRANSIENT}


@pytest.mark.anyio
async def test_a_zygote_that_is_killed_as_it_starts_is_replaced_like_any_other(tmp_path: Path) -> None:
    async with keep_actors.open(tmp_path / "keep.db", connectors=[Outbox(tmp_path / "ledger.txt")]) as keep:
        [first] = children(os.getpid())
        kill(first)
        # As soon as it is there: until it has said so, there is nobody to be heard of.
        while not (second := set(children(os.getpid())) - {first}):
            await checkpoint()
        kill(*second)
        await keep.deploy(script("send-1"), grants="declared")
        await keep.wait_idle()
        assert len(await keep.events("send-1", "done")) == EVENTS


async def kill_at_random(rng: random.Random) -> None:
    """Kill workers, and now and then the zygote that makes them."""
    victims = ["worker"] * WORKER_KILLS + ["zygote"] * ZYGOTE_KILLS
    rng.shuffle(victims)
    for victim in victims:
        await anyio.sleep(rng.uniform(0, MOMENT_S))
        zygotes = children(os.getpid())
        workers = [pid for zygote in zygotes for pid in children(zygote)]
        if found := workers if victim == "worker" else zygotes:
            kill(rng.choice(found))


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it may have been quicker
        os.kill(pid, signal.SIGKILL)


def children(parent: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(text.rpartition(")")[2].split()[1]) == parent:
            found.append(int(stat.parent.name))
    return found


async def until_done(keep: Keep) -> None:
    """Wait until every event has been consumed: what was cut short is tried again a moment later."""
    for name, events in IN_DANGER.items():
        while len(await keep.events(name, "done")) < events:
            await keep.wait_idle()
            await anyio.sleep(MOMENT_S)
