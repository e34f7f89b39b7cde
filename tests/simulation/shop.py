"""The outside of a story: a shop with orders and chores, that answers, refuses, hangs, and loses what it is told."""

import random
from typing import Any, Final, Protocol

import anyio
import msgspec

from keep_actors import Connector, MutationCall, mutation, read
from keep_actors.connectors import (
    Applied,
    ConnectorBug,
    InvalidCall,
    NotApplied,
    PermissionDenied,
    Retry,
    Uncertain,
)
from keep_actors.testing import Attempt, Fake, auth, cannot_tell, fail, lose_the_answer, lose_the_request, ok, transient
from keep_actors.testing.plans import Step, raises

SETTLE_MS: Final = 20_000
TIMEOUT_MS: Final = 60_000


class Order(msgspec.Struct, frozen=True):
    id: str
    n: int
    poison: bool
    k: str


class Receipt(msgspec.Struct, frozen=True):
    id: str


class Shop(Connector):
    """`add` cannot be looked for afterwards, `put` can."""

    name = "shop"

    @read
    async def feed(self, flow: str, after: int) -> list[Order]:
        """The orders of a workflow after this number."""
        raise NotImplementedError(flow, after)

    @read
    async def look(self, query: str) -> list[str]:
        """Something to read."""
        raise NotImplementedError(query)

    @read
    async def chores(self, flow: str) -> list[str]:
        """What a job finds to do."""
        raise NotImplementedError(flow)

    @mutation(timeout_ms=TIMEOUT_MS)
    async def add(self, flow: str, by: str, ids: list[str], words: str = "") -> Receipt:
        """Nobody can find out afterwards whether this happened."""
        raise NotImplementedError(flow, by, ids, words)

    @mutation(timeout_ms=TIMEOUT_MS, settle_ms=SETTLE_MS)
    async def put(self, flow: str, by: str, ids: list[str], words: str = "") -> Receipt:
        """This can be looked for."""
        raise NotImplementedError(flow, by, ids, words)

    @put.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        raise NotImplementedError(call)


class Watcher(Protocol):
    """Is told of every call at the shop."""

    def arrives(self, call: MutationCall) -> None:
        """A mutation, before anything else happens."""

    def notes(self, call: MutationCall, text: str, *, is_durable: bool) -> None:
        """A note, before it is kept and when the shop was told that it is."""

    def looks(self, call: MutationCall) -> None:
        """The shop is asked what became of a call."""

    def lost_sight(self) -> None:
        """A mutation is on its way, and nobody will hear of it."""


class Moods:
    """How the shop behaves at each call."""

    def __init__(self, rng: random.Random, bad: float, watcher: Watcher) -> None:
        self.on = True
        self._rng = rng
        self._bad = bad
        self._watcher = watcher
        self._notes = random.Random(rng.random())

    def __call__(self, method: str) -> Step:
        rng = self._rng
        bad = self.on and rng.random() < self._bad
        latency_s = rng.choice([0, 0, 0.05, 1, 8]) if self.on else 0
        if method.endswith("reconcile"):
            return self._check(
                _after(latency_s, rng.choice([cannot_tell, cannot_tell, transient, _hangs]) if bad else ok)
            )
        if method not in ("add", "put"):
            return _after(latency_s, rng.choice([transient, transient, auth, _bug]) if bad else ok)
        return self._mutation(latency_s, self._bad_mutation() if bad else ok)

    def _bad_mutation(self) -> Step:
        rng = self._rng
        doubt = [lose_the_answer, lose_the_answer, lose_the_request, self._on_its_way, _hangs, self._does_and_hangs]
        sure = [transient, transient, fail, auth, _bug, raises(InvalidCall("no")), raises(PermissionDenied("no"))]
        return rng.choice(doubt if rng.random() < 0.8 else sure)

    def _mutation(self, latency_s: float, step: Step) -> Step:
        async def arriving(attempt: Attempt) -> Any:
            assert isinstance(attempt.call, MutationCall), "reads are made elsewhere"
            self._watcher.arrives(attempt.call)
            landed = False
            try:
                await self._note(attempt.call)
                await anyio.sleep(latency_s)
                landed = step is not _hangs
                return await step(attempt)
            finally:
                # Cut off on its way, by a timeout or by the end of its process: it may still arrive, or not.
                if not landed and self._rng.random() < 0.5:
                    self._lands(attempt, self._rng.choice([0, 5_000, SETTLE_MS]))

        return arriving

    async def _note(self, call: MutationCall) -> None:
        """Keep up to two notes, as of ids that the shop gave."""
        for number in range(self._notes.choice([0, 0, 1, 2])):
            text = f"task {call.attempt}.{number}"
            self._watcher.notes(call, text, is_durable=False)
            await call.note(text)
            self._watcher.notes(call, text, is_durable=True)

    def _check(self, step: Step) -> Step:
        async def looking(attempt: Attempt) -> Any:
            assert isinstance(attempt.call, MutationCall), "only mutations are looked for"
            self._watcher.looks(attempt.call)
            return await step(attempt)

        return looking

    async def _on_its_way(self, attempt: Attempt) -> Any:
        self._lands(attempt, self._rng.choice([1_000, 10_000, SETTLE_MS]))
        raise Uncertain("simulated: the connection broke")

    def _lands(self, attempt: Attempt, after_ms: int) -> None:
        """It happens later, but not later than the connector has promised."""
        attempt.do_later(after_ms, within_ms=TIMEOUT_MS + SETTLE_MS - 1)
        self._watcher.lost_sight()

    async def _does_and_hangs(self, attempt: Attempt) -> Any:
        attempt.do()
        await anyio.sleep(10 * TIMEOUT_MS)


def _after(latency_s: float, step: Step) -> Step:
    async def later(attempt: Attempt) -> Any:
        await anyio.sleep(latency_s)
        return await step(attempt)

    return later


async def _hangs(_: Attempt) -> Any:
    await anyio.sleep(10 * TIMEOUT_MS)


async def _bug(_: Attempt) -> Any:
    raise ConnectorBug("simulated: a bug of the connector")


def fake_shop(orders: dict[str, list[Order]], chores: dict[str, list[str]]) -> Fake:
    """The shop, with these orders and chores for each workflow."""
    fake = Fake(Shop, answers={"look": []})
    fake.answer("feed", lambda given: [each for each in orders[given["flow"]] if each.n > given["after"]])
    fake.answer("chores", lambda given: list(chores[given["flow"]]))
    receipts = iter(range(1, 1 << 30))
    for method in ("add", "put"):
        fake.answer(method, lambda _: Receipt(f"receipt-{next(receipts)}"))
    return fake
