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
from bench.peers.fuse import Fuse

ANSWER: Final = "paid"
NO_LIMIT: Final = "no limit of threads"
"""The setting of DBOS with its own default."""
PATIENCE_S: Final = 2
"""The time after which a process that was killed is believed to be gone, in the systems that wait for one."""


SENDERS: Final = 32
"""Units that are sent at a time in the story of a crash."""


class Task(StrEnum):
    """The tasks of a driver."""

    PREPARE = "prepare"
    """Write what every measurement begins with, and end."""
    MEASURE = "measure"
    """Say `ready`; at `go` work with `in_flight` units at a time; say the times; end at `end`."""
    ACCEPT = "accept"
    """Say `ready`; at `go` send all units, and work on them until killed."""
    FINISH = "finish"
    """Start on the files of a killed process, send what was not known to be accepted, work until all units are done,
    say so, and end."""


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
    def outside(self) -> "Outside":
        return Outside(Path(self.folder))

    @property
    def client(self) -> "Client":
        return Client(Path(self.folder), self.units)


class Outside(PaymentFile):
    """The service that is paid. A line need not survive a loss of power, so it is not synced."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "outside.txt", synced=False)
        self._fuse = Fuse(folder)

    def pay(self, order: str, key: str) -> None:
        is_last = self._fuse.draw()
        super().pay(order, key)
        if is_last:
            self._fuse.ring()


class Client:
    """The one who sends units, with a memory outside the machine that is killed.

    It sends a unit again, by the same name, if it was not told that the unit was accepted.
    """

    def __init__(self, folder: Path, units: int) -> None:
        self._path = folder / "accepted.txt"
        self._units = units

    def accepted(self, number: int) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{number}\n")

    def open_units(self) -> list[int]:
        """The units that are not known to be accepted."""
        known = self._path.read_text("utf-8").split() if self._path.exists() else []
        return sorted(set(range(self._units)) - {int(number) for number in known})


def order(number: int) -> str:
    """The name of a unit."""
    return f"order-{number}"


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
