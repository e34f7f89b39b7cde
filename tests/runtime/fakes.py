"""A connector that obeys a plan: it does well unless it was told to fail, to hang, to lose its answer or to lie.

`ctx.fake` has two reads, `search` and, by id, `get`, and four mutations: `add`, that nobody can check afterwards,
`put`, whose effect can be looked for, `note` and `mark`, that are told apart by their targets alone. What reached it is
in `calls`, what it did in `effects`, so a test can see that something was asked once, or never.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import msgspec

from keep_actors.connectors import (
    Applied,
    Connector,
    MutationCall,
    NotApplied,
    ReadCall,
    Retry,
    Similarity,
    mutation,
    read,
)

Work: TypeAlias = Callable[[], Any]
"""What a method does when nothing is in the way."""
Step: TypeAlias = Callable[[Work], Awaitable[Any]]
"""What happens at one call."""


async def ok(work: Work) -> Any:
    """All is well."""
    return work()


def fails(error: Exception) -> Step:
    """Nothing is done, and this is raised."""

    async def step(_: Work) -> Any:
        raise error

    return step


def applies_and_raises(error: Exception) -> Step:
    """It is done, and the answer gets lost."""

    async def step(work: Work) -> Any:
        work()
        raise error

    return step


async def answers_wrongly(work: Work) -> Any:
    """It is done, and the answer is of a type that the method does not declare."""
    work()
    return {"id": None}


class Hang:
    """A step that waits until it is released, and then does well, or what it was told to do then."""

    def __init__(self, then: Step = ok) -> None:
        self.reached = anyio.Event()
        self._released = anyio.Event()
        self._then = then

    async def __call__(self, work: Work) -> Any:
        self.reached.set()
        await self._released.wait()
        return await self._then(work)

    def release(self) -> None:
        """Let the call go on. A call that comes later does not wait."""
        self._released.set()


class Entry(msgspec.Struct, frozen=True):
    """What a mutation leaves outside, and what it returns."""

    id: str
    text: str


class Fake(Connector):
    """`plan` says what happens at the next calls of a method; after those, and without a plan, all is well."""

    name = "fake"

    def __init__(self) -> None:
        self.calls: list[str] = []
        """`add one`: every call that reached it, whatever became of it."""
        self.keys: list[str] = []
        """The idempotency key of each mutation that reached it."""
        self.effects: list[Entry] = []
        self.cost_micros = 0
        """What each call reports."""
        self._plans: defaultdict[str, deque[Step]] = defaultdict(deque)
        self._by_key: dict[str, Entry] = {}

    def plan(self, method: str, *steps: Step) -> None:
        """What happens at the next calls of a method, or of `reconcile`, one step for each."""
        self._plans[method].extend(steps)

    def hang(self, method: str, then: Step = ok) -> Hang:
        """The next call of this method hangs until it is released."""
        step = Hang(then)
        self.plan(method, step)
        return step

    @property
    def texts(self) -> list[str]:
        """What was done outside, in order."""
        return [entry.text for entry in self.effects]

    @property
    def done_twice(self) -> list[str]:
        """What must be empty at the end of every story."""
        return [text for text, count in Counter(self.texts).items() if count > 1]

    @read
    async def search(self, call: ReadCall, query: str = "") -> list[str]:
        """What there is."""
        call.report_cost(self.cost_micros)
        found: list[str] = await self._obey("search", query, lambda: [text for text in self.texts if query in text])
        return found

    @read(by_id=True)
    async def get(self, entry_id: str) -> str | None:
        """One of them."""
        texts = {entry.id: entry.text for entry in self.effects}
        found: str | None = await self._obey("get", entry_id, lambda: texts.get(entry_id))
        return found

    @mutation
    async def add(self, text: str, call: MutationCall) -> Entry:
        """Nobody can find out afterwards whether this happened."""
        return await self._change("add", text, call)

    @mutation
    async def put(self, text: str, call: MutationCall) -> Entry:
        """This can be looked for."""
        return await self._change("put", text, call)

    @put.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        found = self._by_key.get(call.idempotency_key)
        verdict = Applied(found) if found else NotApplied()
        answer: Applied | NotApplied | Retry = await self._obey("reconcile", call.params["text"], lambda: verdict)
        return answer

    @mutation(identity=["target"])
    async def note(self, target: str, text: str, call: MutationCall) -> Entry:
        """What is changed is the target; the text is payload."""
        return await self._change("note", f"{target}: {text}", call)

    @note.compare_payload
    def compare(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        if old["text"].split() == new["text"].split():
            return "equivalent"
        return "minor" if old["text"].casefold() == new["text"].casefold() else "significant"

    @mutation(identity=["target"])
    async def mark(self, target: str, text: str, call: MutationCall) -> Entry:
        """The same, and nobody can say how much two texts differ."""
        return await self._change("mark", f"{target}: {text}", call)

    async def _change(self, method: str, text: str, call: MutationCall) -> Entry:
        def work() -> Entry:
            entry = Entry(f"{method}_{len(self.effects) + 1}", text)
            self.effects.append(entry)
            self._by_key[call.idempotency_key] = entry
            return entry

        self.keys.append(call.idempotency_key)
        call.report_cost(self.cost_micros)
        entry: Entry = await self._obey(method, text, work)
        return entry

    async def _obey(self, method: str, shown: str, work: Work) -> Any:
        self.calls.append(f"{method} {shown}".strip())
        steps = self._plans[method]
        return await (steps.popleft() if steps else ok)(work)
