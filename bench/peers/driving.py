"""Start drivers, talk with them, kill them. A driver and all its children are one group of processes."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.peers.systems import System
from bench.peers.unit import Plan

ROOT: Final = Path(__file__).parents[2]


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
            raise Failed(f"a driver said nothing: {self._words.read_text('utf-8', 'replace')[-2_000:]}")
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
            raise Failed(f"a driver ended with {self._process.returncode}: {self._words.read_text('utf-8')[-2_000:]}")

    def kill(self) -> None:
        """Kill it and all its children at once, as a loss of power would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def driving(system: System, plan: Plan) -> Iterator[Driver]:
    """Start the driver of a system. At the end of the block no process of it is left."""
    words = Path(plan.folder) / "stderr.txt"
    plan = plan._replace(program=system.program, setting=system.setting)
    command = [str(system.python), "-m", system.driver, plan.text()]
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
