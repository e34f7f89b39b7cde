"""The outside of a story: a shop with orders and chores, that answers, refuses, hangs, and loses what it is told."""

import random
from collections.abc import Callable
from typing import Any, Final

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


class Moods:
    """How the shop behaves at each call. `arrives` is told of every mutation before anything else happens.

    `lost_sight` is told of each that is on its way, of which nobody will hear.
    """

    def __init__(
        self, rng: random.Random, bad: float, arrives: Callable[[MutationCall], None], lost_sight: Callable[[], None]
    ) -> None:
        self.on = True
        self._rng = rng
        self._bad = bad
        self._arrives = arrives
        self._lost_sight = lost_sight

    def __call__(self, method: str) -> Step:
        rng = self._rng
        bad = self.on and rng.random() < self._bad
        latency_s = rng.choice([0, 0, 0.05, 1, 8]) if self.on else 0
        if method.endswith("reconcile"):
            return _after(latency_s, rng.choice([cannot_tell, cannot_tell, transient, _hangs]) if bad else ok)
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
            self._arrives(attempt.call)
            landed = False
            try:
                await anyio.sleep(latency_s)
                landed = step is not _hangs
                return await step(attempt)
            finally:
                # Cut off on its way, by a timeout or by the end of its process: it may still arrive, or not.
                if not landed and self._rng.random() < 0.5:
                    self._lands(attempt, self._rng.choice([0, 5_000, SETTLE_MS]))

        return arriving

    async def _on_its_way(self, attempt: Attempt) -> Any:
        self._lands(attempt, self._rng.choice([1_000, 10_000, SETTLE_MS]))
        raise Uncertain("simulated: the connection broke")

    def _lands(self, attempt: Attempt, after_ms: int) -> None:
        """It happens later, but not later than the connector has promised."""
        attempt.do_later(after_ms, within_ms=TIMEOUT_MS + SETTLE_MS - 1)
        self._lost_sight()

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
