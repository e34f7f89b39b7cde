"""The connector of these tests: a `Fake` of the testing kit, with short words for what reached it and what it did.

`ctx.fake` has two reads, `search` and, by id, `get`, and four mutations: `add`, which cannot be checked afterwards,
`put`, whose effect can be looked for, `note` and `mark`, which are told apart by their targets alone.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from keep_actors import testing
from keep_actors.connectors import (
    Applied,
    Connector,
    MutationCall,
    NotApplied,
    Retry,
    Similarity,
    mutation,
    read,
)
from keep_actors.testing import Attempt, Hang, Step, ok, raises

__all__ = ["Attempt", "Entry", "Fake", "Hang", "Step", "answers_wrongly", "applies_and_raises", "ok", "raises"]


def applies_and_raises(error: Exception) -> Step:
    """It is done, and the answer gets lost."""

    async def step(attempt: Attempt) -> Any:
        attempt.do()
        raise error

    return step


async def answers_wrongly(attempt: Attempt) -> Any:
    """It is done, and the answer is of a type that the method does not declare."""
    attempt.do()
    return {"id": None}


class Entry(msgspec.Struct, frozen=True):
    """A mutation leaves this outside, and returns it."""

    id: str
    text: str


class Service(Connector):
    name = "fake"

    @read
    async def search(self, query: str = "") -> list[str]:
        """What there is."""
        raise NotImplementedError(query)

    @read(by_id=True)
    async def get(self, entry_id: str) -> str | None:
        """One of them."""
        raise NotImplementedError(entry_id)

    @mutation
    async def add(self, text: str) -> Entry:
        """Nobody can find out afterwards whether this happened."""
        raise NotImplementedError(text)

    @mutation
    async def put(self, text: str) -> Entry:
        """This can be looked for."""
        raise NotImplementedError(text)

    @put.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        raise NotImplementedError(call)

    @mutation(identity=["target"])
    async def note(self, target: str, text: str) -> Entry:
        """What is changed is the target; the text is payload."""
        raise NotImplementedError(target, text)

    @note.compare_payload
    def compare(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        if old["text"].split() == new["text"].split():
            return "equivalent"
        return "minor" if old["text"].casefold() == new["text"].casefold() else "significant"

    @mutation(identity=["target"])
    async def mark(self, target: str, text: str) -> Entry:
        """The same, and nobody can say how much two texts differ."""
        raise NotImplementedError(target, text)


class Fake(testing.Fake):
    """`plan` says what happens at the next calls of a method; after those, and without a plan, all is well."""

    def __init__(self) -> None:
        super().__init__(Service)
        self.answer("search", lambda given: [text for text in self.texts if given.get("query", "") in text])
        self.answer("get", lambda given: {each.id: each.text for each in self.effects}.get(given["entry_id"]))
        for method in ("add", "put", "note", "mark"):
            self.answer(method, lambda given, method=method: Entry(f"{method}_{len(self.effects) + 1}", _shown(given)))

    def plan(self, method: str, *steps: Step) -> None:
        """What happens at the next calls of a method, or of `reconcile`, one step for each."""
        super().plan("put reconcile" if method == "reconcile" else method, *steps)

    @property
    def calls(self) -> list[str]:
        """`add one`: every call that reached it, whatever became of it."""
        return [f"{_word(each.method)} {_shown(each.params)}".strip() for each in self.world.asked]

    @property
    def keys(self) -> list[str]:
        """The idempotency key of each mutation that reached it."""
        return [each.key for each in self.world.asked if each.key and not each.method.endswith("reconcile")]

    @property
    def effects(self) -> list[Entry]:
        """What was done outside, in order."""
        return [each.result for each in self.world.effects]

    @property
    def texts(self) -> list[str]:
        """The texts of that."""
        return [entry.text for entry in self.effects]

    @property
    def done_twice(self) -> list[str]:
        """What must be empty at the end of every story."""
        return [text for text, count in Counter(self.texts).items() if count > 1]


def _word(method: str) -> str:
    return "reconcile" if method.endswith("reconcile") else method.removeprefix("fake.")


def _shown(params: Mapping[str, Any]) -> str:
    return ": ".join(str(each) for each in params.values())
