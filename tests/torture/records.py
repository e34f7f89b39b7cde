"""What no database knows: files that only grow, outside the runtime's reach. A process that dies takes nothing back.

`outside.txt` has a line for each effect, `published.txt` one before an order is published and one after that was
acknowledged, `halts.txt` the calls that began and the stops and starts between them, `answers.txt` what a person said
and what came of it, `notices.txt` what people were told.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from keep_actors.notices import Notice
from tests.torture.stories import Answer, name_of


class Effects:
    """The service behind the connector: it does what it is asked as often as it is asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done_about = Counter(label for label, _ in self.effects())
        """How often each call had its effect."""
        self.something_happened = anyio.Event()
        self.last = ""
        """The effect that happened last, in this life."""

    def effects(self) -> list[tuple[str, str]]:
        """Every effect there ever was: its label, and the key of the call."""
        return [(label, key) for label, key in map(str.split, lines(self._path))]

    async def do(self, label: str, key: str) -> None:
        await anyio.to_thread.run_sync(append, self._path, f"{label} {key}")
        self.done_about[label] += 1
        self.last = label
        self.something_happened.set()
        self.something_happened = anyio.Event()


class Published:
    """What a publisher wanted to publish, and of what it heard that it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        said = [line.split() for line in lines(path)]
        self.wanted = [order for word, order in said if word == "wanted"]
        self.acknowledged = [order for word, order in said if word == "acknowledged"]

    def note(self, word: Literal["wanted", "acknowledged"], order: str) -> None:
        append(self._path, f"{word} {order}")
        (self.wanted if word == "wanted" else self.acknowledged).append(order)


class Halts:
    """When calls began, and between which moments a person was sure that a workflow makes none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, word: Literal["began", "halted", "going", "stopped", "archived"], what: str) -> None:
        append(self._path, f"{word} {what}", is_synced=False)

    def count(self, word: str) -> int:
        return sum(1 for line in lines(self._path) if line.startswith(f"{word} "))

    def began_while_halted(self) -> Iterator[list[str]]:
        """The calls of each time that a workflow stood still. One may have been recorded before and begin a little
        later; there is never more than one."""
        since: dict[str, list[str]] = {}
        for word, what in map(str.split, lines(self._path)):
            if word == "halted":
                since[what] = []
            elif word == "going":
                yield since.pop(what, [])
            elif word == "began" and name_of(what) in since:
                since[name_of(what)].append(what)
        yield from since.values()


class Said(NamedTuple):
    """A person answers a question; `word` is `say` before, and then what came of it."""

    word: Literal["say", "heard", "refused"]
    answer: Answer
    approval_id: str
    key: str
    label: str


class Answers:
    """What a person said. An answer is written down before it is given, and again when it was taken or refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.said = [msgspec.convert(line.split(), Said) for line in lines(path)]

    def note(self, said: Said) -> None:
        append(self._path, " ".join(said))
        self.said.append(said)


class Notices:
    """What people were told, in the order in which it came, and how often."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.told = [msgspec.json.decode(line, type=Notice) for line in lines(path)]

    def note(self, notice: Notice) -> None:
        append(self._path, msgspec.json.encode(notice).decode())
        self.told.append(notice)


def lines(path: Path) -> list[str]:
    """What is there in whole. A process that dies may leave half a line, which then nobody has heard of."""
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []


def append(path: Path, line: str, *, is_synced: bool = True) -> None:
    """Add a line. Of a process that is killed, not cut off from its power, also what was not synced stays."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
        if is_synced:
            os.fsync(file)
    finally:
        os.close(file)
