"""A real process on a real file, killed with SIGKILL at random moments: what it acknowledged is there."""

import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keep_storage import StorageOwned, Store, reads
from keep_storage.sqlite import look_at
from tests.crash.busy_child import CALLERS
from tests.crash.child import drivers, line
from tests.crash.driver import NO_LIMIT
from tests.crash.life import recover
from tests.crash.truth import Ending, check, ending
from tests.storage.world import World

ROOT = Path(__file__).parents[2]
KILLS = 10
BATCH_MAX = 4
"""Journal entries of one commit: a batch has two operations, and recovery settles two runs and two sessions."""


@contextmanager
def child(path: Path, ledger: Path) -> Iterator[subprocess.Popen[str]]:
    """A process at work on the file. It is killed at the end, if it still lives."""
    command = [sys.executable, "-m", "tests.crash.child", str(path), str(ledger)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(process: subprocess.Popen[str], lines: int | None = None) -> list[str]:
    """So many lines, or all there will ever be: a pipe keeps what a dead process has written to it."""
    assert process.stdout
    return [each.rstrip("\n") for each in itertools.islice(process.stdout, lines)]


def journal_of(store: Store) -> list[str]:
    return [line(entry) for entry in reads.journal(store.queries(), limit=NO_LIMIT)]


def endings(path: Path, ledger: Path) -> list[Ending]:
    with Store.open(path) as store:
        return [ending(store.queries(), driver) for driver in drivers(ledger)]


@pytest.mark.parametrize("seed", [1])
def test_what_a_killed_process_acknowledged_is_there(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with child(tmp_path / "undisturbed.db", tmp_path / "undisturbed.txt") as process:
        length = len(said_by(process))
        assert process.wait() == 0
    path, ledger = tmp_path / "keep.db", tmp_path / "ledger.txt"
    known = 0
    for kill in range(KILLS):
        lines = rng.randrange(1, length // KILLS)
        story = f"seed {seed}, kill {kill} after {lines} lines"
        with child(path, ledger) as process:
            said = said_by(process, lines)
            process.send_signal(signal.SIGSTOP)  # so that it does not come to its end while another tries to start
            with pytest.raises(StorageOwned, match=str(process.pid)):
                Store.open(path)
            process.kill()
            said += said_by(process)
            assert process.wait() in (-signal.SIGKILL, 0), story  # it may have come to its end first
        assert look_at(str(path))[1] == [], story
        with Store.open(path) as store:  # the dead own nothing
            found = journal_of(store)
            acknowledged = known + len(said)
            assert found[known:acknowledged] == said, story
            assert len(found) - acknowledged <= BATCH_MAX, f"{story}: more than one batch was not acknowledged"
            check(store.queries(), *drivers(ledger))
            recover(store)
            check(store.queries(), *drivers(ledger))
            known = len(journal_of(store))
    with child(path, ledger) as process:
        said_by(process)
        assert process.wait() == 0, f"seed {seed}"
    assert endings(path, ledger) == endings(tmp_path / "undisturbed.db", tmp_path / "undisturbed.txt"), f"seed {seed}"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("lines", [1, 200, 1111])
def test_what_the_storage_actor_answered_before_it_was_killed_is_there(
    lines: int, backend: str, tmp_path: Path
) -> None:
    path = tmp_path / "keep.db"
    command = [sys.executable, "-m", "tests.crash.busy_child", str(path), backend]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        answered = said_by(process, lines)
        process.kill()
        answered += said_by(process)
    with Store.open(path) as store:
        world = World(store, deploy=False)
        there = list(world.states())
        assert set(answered) <= set(there)
        # What each caller got is without gaps: at most its last one was not answered.
        for caller in range(CALLERS):
            numbers = [int(each.partition("-")[2]) for each in there if each.startswith(f"{caller}-")]
            assert numbers == list(range(len(numbers)))
        assert len(there) - len(answered) <= CALLERS
        world.check()
