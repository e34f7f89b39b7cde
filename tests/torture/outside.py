"""What no database knows: two files that only grow, and a connector that leads to one of them.

`outside.txt` has a line for each effect. `published.txt` has a line before an event is published and one after that was
acknowledged. A process that dies takes nothing back of either.
"""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from keep_actors import Connector
from keep_actors.connectors import Applied, MutationCall, NotApplied, Retry, Transient, mutation, read

LATENCY_S = 0.005
"""How long a call is under way before its effect, and how long its answer is after it."""


def in_order_with(event: str) -> str:
    """What has the same is done in the order of its numbers: all of a workflow, or each third of one that parks."""
    name, _, number = event.partition("/")
    return f"{name}/{int(number) % 3}" if name.startswith("park") else name


class Outside:
    """The service behind the connector: it does what it is asked as often as it is asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done_about = Counter(event for event, _ in self.effects())
        """How often something was done about each event."""
        self.something_happened = anyio.Event()

    def effects(self) -> list[tuple[str, str]]:
        """Every effect there ever was: the event, and the key of the call."""
        return [(event, key) for event, key in map(str.split, _lines(self._path))]

    async def do(self, event: str, key: str) -> None:
        await anyio.to_thread.run_sync(_append, self._path, f"{event} {key}")
        self.done_about[event] += 1
        self.something_happened.set()
        self.something_happened = anyio.Event()


class Published:
    """What a publisher wanted to publish, and of what it heard that it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = [line.split() for line in _lines(path)]
        self.wanted = [event for word, event in lines if word == "wanted"]
        self.acknowledged = [event for word, event in lines if word == "acknowledged"]

    def note(self, word: Literal["wanted", "acknowledged"], event: str) -> None:
        _append(self._path, f"{word} {event}")
        (self.wanted if word == "wanted" else self.acknowledged).append(event)


class Outbox(Connector):
    """A service like others. With `chaos` it fails in every way a connector may, about every third time."""

    name = "outbox"

    def __init__(
        self, outside: Outside, chaos: random.Random | None = None, published: Published | None = None
    ) -> None:
        self._outside = outside
        self._chaos = chaos
        self._published = published

    @read
    async def orders(self, book: str) -> list[str]:
        """What is to be done in a book."""
        self._perhaps(Transient("the service is busy"), OSError("connection reset"))
        assert self._published, "only who publishes has a book"
        return [event for event in self._published.wanted if event.startswith(f"{book}/")]

    @mutation(check_hint="Look into outside.txt.")
    async def send(self, event: str, call: MutationCall) -> str:
        """Leaves no way to find out whether it happened."""
        return await self._do(event, call)

    @mutation
    async def post(self, event: str, call: MutationCall) -> str:
        """Can be looked up afterwards."""
        return await self._do(event, call)

    @post.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        self._perhaps(OSError("connection reset"))
        if self._chaos and self._chaos.random() < 0.1:
            return Retry("the index is being built")
        keys = {key for _, key in self._outside.effects()}
        return Applied(call.params["event"]) if call.idempotency_key in keys else NotApplied()

    async def _do(self, event: str, call: MutationCall) -> str:
        await anyio.sleep(LATENCY_S)
        self._perhaps(Transient("not now"), OSError("the request got lost"))
        await self._outside.do(event, call.idempotency_key)
        self._perhaps(OSError("the answer got lost"))
        await anyio.sleep(LATENCY_S)
        return event

    def _perhaps(self, *errors: Exception) -> None:
        if self._chaos and self._chaos.random() < 0.1:
            raise self._chaos.choice(errors)


def _lines(path: Path) -> list[str]:
    """What is there in whole. A process that dies may leave half a line, which then nobody has heard of."""
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []


def _append(path: Path, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
