"""Start drivers, talk with them, kill them. A driver and all its children share a room, if the machine has rooms."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.peers.processes import is_alive, tree
from bench.peers.room import room
from bench.peers.systems import System
from bench.peers.unit import Plan

ROOT: Final = Path(__file__).parents[2]
_GONE_S: Final = 30


class Failed(Exception):
    """A driver did not do its task: the measurement itself failed."""


class Driver:
    """A running driver."""

    def __init__(self, process: "subprocess.Popen[str]", words: Path) -> None:
        self._process = process
        self._words = words

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> dict[str, Any]:
        """Wait for the driver's next line."""
        assert self._process.stdout, "it was opened with a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"a driver said nothing: {self.words()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, word: str) -> None:
        assert self._process.stdin, "it was opened with a pipe"
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Wait for its end."""
        self._process.communicate()
        if self._process.returncode != 0:
            raise Failed(f"a driver ended with {self._process.returncode}: {self.words()}")

    def words(self) -> str:
        """Its last words on stderr."""
        return self._words.read_text("utf-8", "replace")[-2_000:]

    def kill(self) -> None:
        """Kill it and all its descendants at once, as a loss of power would; return when none of them is left.

        The first process of a room takes all others with it, also those that made a session of their own, as the
        children of PostgreSQL do.
        """
        first = _first_of_room(self.pid) if room().command else None
        if first is not None:
            _kill(first)
        victims = [process.pid for process in tree(self.pid)]
        for victim in victims:
            if first is None or victim != self.pid:  # `unshare` ends by itself, after all processes of the room
                _kill(victim)
        self._process.wait()
        until = time.monotonic() + _GONE_S
        while any(is_alive(victim) for victim in victims):
            if time.monotonic() > until:
                raise Failed("processes of a driver did not end when they were killed")
            time.sleep(0.001)


def _first_of_room(unshare: int) -> int | None:
    try:
        children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def driving(system: System, plan: Plan) -> Iterator[Driver]:
    """Start the driver of a system. At the end of the block no process of it is left."""
    words = Path(plan.folder) / "stderr.txt"
    plan = plan._replace(program=system.program, setting=system.setting)
    command = [*room().command, str(system.python), "-m", system.driver, plan.text()]
    pipe = subprocess.PIPE
    with (
        words.open("ab") as errors,
        subprocess.Popen(
            command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True, start_new_session=True
        ) as process,
    ):
        driver = Driver(process, words)
        try:
            yield driver
        finally:
            driver.kill()
