"""The unit of work of all systems, and the conversation between a driver and the harness.

A unit is three durable steps: prepare the order, pay for it by one external call, note the payment. Imports only the
standard library. A driver prints one JSON object per line; the harness answers with lines of one word.
"""

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bench.outside import PaymentFile

ANSWER: Final = "paid"
NO_LIMIT: Final = "no limit of threads"
"""The setting of DBOS with its own default."""


class Task(StrEnum):
    """The tasks of a driver."""

    PREPARE = "prepare"
    """Write what every measurement begins with, and end."""
    MEASURE = "measure"
    """Say `ready`; at `go` work with `in_flight` units at a time; say the times; end at `end`."""
    ACCEPT = "accept"
    """Accept all units, say so, and work on them until killed."""
    FINISH = "finish"
    """Start on the files of a killed process, work until all units are done, say so, and end."""


class Plan(NamedTuple):
    """The options of a driver."""

    task: Task
    folder: str
    in_flight: int
    units: int
    program: str = ""
    """The path of a server's program, for a system that has one."""
    setting: str = ""
    """A setting of the system that is not the usual one here."""

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**{**fields, "task": Task(fields["task"])})

    def text(self) -> str:
        return json.dumps(self._asdict())

    @property
    def outside(self) -> PaymentFile:
        """The service that is paid. A line need not survive a loss of power, so it is not synced."""
        return PaymentFile(Path(self.folder) / "outside.txt", synced=False)


def prepare(order: str) -> dict[str, str]:
    """Do the first step."""
    return {"order": order, "customer": "Jane Doe"}


def note(answer: str) -> dict[str, str]:
    """Do the third step."""
    return {"last": answer}


class Stopwatch:
    """Measures the whole work and each unit of it."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._taken_s: list[float] = []

    def unit_took(self, seconds: float) -> None:
        self._taken_s.append(seconds)

    def say(self, **more: Any) -> None:
        """Tell the harness. Called at the end of the work."""
        seconds = time.perf_counter() - self._started
        say(seconds=seconds, taken_ms=[1000 * each for each in self._taken_s], **more)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def told(word: str) -> bool:
    """Wait for a word of the harness. False if the harness has ended."""
    line = sys.stdin.readline().strip()
    assert line in (word, ""), f"expected {word!r}, not {line!r}"
    return line == word
