"""Lives of a runtime that all end by SIGKILL but the last; its workers and its zygote are killed under it as well."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.torture.audit import Audit
from tests.torture.person import Person
from tests.torture.receiver import Receiver
from tests.torture.records import Notices

ROOT: Final = Path(__file__).parents[2]
LIFE_S: Final = 3.0
"""At most so long is a life, once the runtime has opened its file."""
OPENING_S: Final = 1.0
"""One life in five ends before that, somewhere in so long a time."""
LAST_LIFE_S: Final = 240
AUDITED_IN_FULL: Final = 20
"""After so many lives only every tenth is audited: there is more and more to look at."""


class Told(NamedTuple):
    """What came of it. `problems` is empty, or something is very wrong."""

    problems: list[str]
    figures: Mapping[str, int]


class Torture:
    """A folder, a seed, and how far it has come."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._seed = seed
        self._say = say
        self._rng = random.Random(seed)
        notices = Notices(folder / "notices.txt")
        self._receiver = Receiver(notices, random.Random(f"{seed}/receiver"))
        self._person = Person(folder, notices, random.Random(f"{seed}/person"))
        self._lives = self._early = self._workers = self._zygotes = self._audits = 0

    def go_on_while(self, wanted: Callable[[int], bool]) -> Told:
        """Kill as long as it is wanted, which is asked with the number of kills; then let it come to its end."""
        with self._receiver.listening(), self._person.at_work():
            told = self._go_on_while(wanted)
        return told._replace(problems=[*told.problems, *self._receiver.problems, *self._person.problems])

    def _go_on_while(self, wanted: Callable[[int], bool]) -> Told:
        while wanted(self._lives):
            self._live_and_die()
            if problems := self._audited():
                return self._told(problems)
        self._say(f"after {self._lives} kills: the last life, which is to finish")
        with self._life("--finish") as process:
            try:
                code = process.wait(LAST_LIFE_S)
            except subprocess.TimeoutExpired:
                code = None
        audit = Audit(self._folder)
        problems = [] if code == 0 else [f"the last life ended with {code}"]
        return self._told([*problems, *audit.wrong(), *audit.unfinished()])

    def _live_and_die(self) -> None:
        self._lives += 1
        with self._life() as process:
            if self._rng.random() < 0.2:
                self._early += 1
                time.sleep(self._rng.uniform(0, OPENING_S))
            else:
                assert process.stdout, "it was opened with a pipe"
                process.stdout.readline()
                self._torment(process, time.monotonic() + self._rng.uniform(0.05, LIFE_S))
            process.kill()
            code = process.wait()
        assert code == -signal.SIGKILL, f"life {self._lives} of seed {self._seed} ended by itself, with {code}"

    def _torment(self, process: "subprocess.Popen[str]", until: float) -> None:
        """Kill workers, and now and then the zygote that makes them."""
        zygote_too = self._rng.random() < 0.2
        while (left := until - time.monotonic()) > 0 and process.poll() is None:
            time.sleep(min(left, self._rng.uniform(0.05, 1.0)))
            zygotes = children(process.pid)
            workers = [pid for zygote in zygotes for pid in children(zygote)]
            if zygote_too and zygotes:
                zygote_too = False
                self._zygotes += kill(self._rng.choice(zygotes))
            elif workers:
                self._workers += kill(self._rng.choice(workers))

    def _audited(self) -> list[str]:
        if not (self._folder / "keep.db").exists() or (self._lives > AUDITED_IN_FULL and self._lives % 10):
            return []
        self._audits += 1
        return Audit(self._folder).wrong()

    def _told(self, problems: list[str]) -> Told:
        kills = {
            "kills of the process": self._lives,
            "of these as it opened": self._early,
            "kills of a worker": self._workers,
            "kills of the zygote": self._zygotes,
            "audits after a kill": self._audits,
        }
        return Told(problems, {**kills, **Audit(self._folder).figures()})

    @contextmanager
    def _life(self, *more: str) -> Iterator["subprocess.Popen[str]"]:
        told = [str(self._folder), f"{self._seed}/{self._lives}", self._receiver.url]
        command = [sys.executable, "-m", "tests.torture.child", *told, *more]
        # Notices go to this machine, whatever its way to the outside is.
        environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()


def kill(pid: int) -> bool:
    """Whether it was there to be killed."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


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
