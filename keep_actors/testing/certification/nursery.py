"""A process that forks lives: it has imported everything already, so that a life begins at once.

`python -m keep_actors.testing.certification.nursery`. The first line of its input is the path for imports and the name
of the subject; every other one is a `LifeWanted`. It has one thread and no event loop: a fork of it is safe. It ends
with its input, and takes all lives with it.
"""

import os
import selectors
import signal
import sys
import traceback
from typing import Final, NoReturn

import msgspec

from keep_actors.testing.certification.life import LifePlan, LifeReport, live, subject_of

_CHUNK: Final = 64 * 1024


class LifeWanted(msgspec.Struct, frozen=True):
    """A life that is wanted."""

    number: int
    plan: LifePlan


class LifeBorn(msgspec.Struct, frozen=True, tag=True):
    """A life has begun."""

    number: int
    pid: int


class LifeEnded(msgspec.Struct, frozen=True, tag=True):
    """A life has ended: by a signal, or with its words."""

    number: int
    signal: int
    told: LifeReport | None


class Nursery:
    """The lives of this process, by the pipes on which they speak."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._lives: dict[int, tuple[int, int, bytearray]] = {}

    def run(self) -> None:
        """Bear lives until the input ends."""
        self._selector.register(0, selectors.EVENT_READ)
        wanted = bytearray()
        try:
            while True:
                for key, _ in self._selector.select():
                    chunk = os.read(key.fd, _CHUNK)
                    if key.fd:
                        self._heard(key.fd, chunk)
                        continue
                    if not chunk:
                        return
                    wanted += chunk
                    *lines, rest = wanted.split(b"\n")
                    wanted = bytearray(rest)
                    for line in lines:
                        self._bear(msgspec.json.decode(line, type=LifeWanted))
        finally:
            for _, pid, _ in self._lives.values():
                os.kill(pid, signal.SIGKILL)

    def _bear(self, wanted: LifeWanted) -> None:
        listening, speaking = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(listening)
            _become(wanted.plan, speaking)
        os.close(speaking)
        self._lives[listening] = (wanted.number, pid, bytearray())
        self._selector.register(listening, selectors.EVENT_READ)
        _say(LifeBorn(wanted.number, pid))

    def _heard(self, listening: int, chunk: bytes) -> None:
        number, pid, words = self._lives[listening]
        if chunk:
            words += chunk
            return
        self._selector.unregister(listening)
        os.close(listening)
        del self._lives[listening]
        _, status = os.waitpid(pid, 0)
        told = msgspec.json.decode(words, type=LifeReport) if words and os.WIFEXITED(status) else None
        _say(LifeEnded(number, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, told))


def _become(plan: LifePlan, speaking: int) -> NoReturn:
    """Live in the new process, and leave it without what its parent would do at its end."""
    code = 1
    try:
        # The input and the output are the nursery's.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        told = live(plan)
        os.write(speaking, msgspec.json.encode(told))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _say(words: LifeBorn | LifeEnded) -> None:
    os.write(1, msgspec.json.encode(words) + b"\n")


def main() -> None:
    """Import the subject, and bear lives."""
    first = bytearray()
    while not first.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return
        first += byte
    path, subject = msgspec.json.decode(first, type=tuple[list[str], str])
    sys.path[:] = path
    subject_of(subject)
    Nursery().run()


if __name__ == "__main__":
    main()
