"""The job of all systems here: pay an order by appending a line to a file outside any database.

A process kills itself with SIGKILL, at a named moment around that call or at a random time in it.
"""

import os
import signal
import threading
import time
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn

ORDER: Final = "order-7"
ANSWER: Final = "paid"
LATENCY_S: Final = 0.02
"""The time from the call to its effect, and from the effect to the answer."""


class Moment(StrEnum):
    """The moments at which a process dies, in order."""

    BEFORE_RECORD = "before the ledger write"
    RECORDED = "after it, before the call"
    IN_CALL = "in the call, before the effect"
    EFFECT = "after the effect, before the answer"
    ANSWERED = "after the answer, before the record"
    AFTER_RECORD = "after the record"


class Kill(NamedTuple):
    """The time of a kill: at a moment, or `after_s` after the call began. Neither: the process is not killed."""

    moment: Moment | None = None
    after_s: float | None = None

    def reached(self, moment: Moment) -> None:
        """Die if this is the moment."""
        if moment is self.moment:
            die()

    def call_begins(self) -> None:
        """Start the timer of a random kill."""
        if self.after_s is not None:
            threading.Thread(target=_die_after, args=(self.after_s,), daemon=True).start()


def die() -> NoReturn:
    """Kill this process: nothing is flushed or closed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process does not outlive its SIGKILL")


def _die_after(seconds: float) -> None:
    time.sleep(seconds)
    die()
