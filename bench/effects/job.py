"""The one job that every system here is given: an order is paid by appending a line to a file that no database knows.

A process that is to die does so by its own SIGKILL, at a named moment around that call or at a random time in it.
"""

import os
import signal
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

ORDER: Final = "order-7"
ANSWER: Final = "paid"
LATENCY_S: Final = 0.02
"""How long the call is under way before its effect, and how long its answer is after it."""


class Moment(StrEnum):
    """When the process dies. In the order in which they come."""

    BEFORE_RECORD = "before the ledger write"
    RECORDED = "after it, before the call"
    IN_CALL = "in the call, before the effect"
    EFFECT = "after the effect, before the answer"
    ANSWERED = "after the answer, before the record"
    AFTER_RECORD = "after the record"


class Kill(NamedTuple):
    """When a life ends: at a moment, or so long after its call began. Neither: it comes to its end."""

    moment: Moment | None = None
    after_s: float | None = None

    def reached(self, moment: Moment) -> None:
        """This moment has come. Whoever was to die then does not return."""
        if moment is self.moment:
            die()

    def call_begins(self) -> None:
        """Whoever is to die at a random time has not long to live."""
        if self.after_s is not None:
            threading.Thread(target=_die_after, args=(self.after_s,), daemon=True).start()


def die() -> NoReturn:
    """The way the kernel ends a process: nothing is flushed, closed or said."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process does not outlive its SIGKILL")


def _die_after(seconds: float) -> None:
    time.sleep(seconds)
    die()


class Outside:
    """The service that is paid through: it does what it is asked as often as it is asked, and forgets nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pay(self, order: str, key: str) -> None:
        """One line for each effect, on the disk before it counts as one."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{order} {key}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)

    def payments(self) -> list[str]:
        """Every effect there ever was."""
        return self._path.read_text("utf-8").splitlines() if self._path.exists() else []
