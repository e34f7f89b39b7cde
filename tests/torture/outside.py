"""The connector that leads outside."""

import random

import anyio

from keep_actors import Connector
from keep_actors.connectors import Applied, MutationCall, NotApplied, Retry, Transient, mutation, read
from tests.torture.records import Effects, Halts, Published
from tests.torture.stories import name_of

LATENCY_S = 0.005
"""How long a call is under way before its effect, and how long its answer is after it."""


class Outbox(Connector):
    """A service like others. With `chaos` it fails in every way a connector may, about every third time."""

    name = "outbox"

    def __init__(
        self,
        outside: Effects,
        chaos: random.Random | None = None,
        published: Published | None = None,
        halts: Halts | None = None,
    ) -> None:
        self._outside = outside
        self._chaos = chaos
        self._published = published
        self._halts = halts

    @read
    async def orders(self, book: str) -> list[str]:
        """What is to be done in a book."""
        self._perhaps(Transient("the service is busy"), OSError("connection reset"))
        assert self._published, "only who publishes has a book"
        return [order for order in self._published.wanted if name_of(order) == book]

    @mutation(check_hint="Look into outside.txt.")
    async def send(self, event: str, call: MutationCall) -> str:
        """Leaves no way to find out whether it happened."""
        return await self._do(event, call)

    @mutation(timeout_ms=500)
    async def post(self, event: str, call: MutationCall) -> str:
        """Can be looked up afterwards. What is not found then is not believed before its time is over."""
        return await self._do(event, call)

    @post.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        self._perhaps(OSError("connection reset"))
        if self._chaos and self._chaos.random() < 0.1:
            return Retry("the index is being built")
        keys = {key for _, key in self._outside.effects()}
        return Applied(call.params["event"]) if call.idempotency_key in keys else NotApplied()

    async def _do(self, label: str, call: MutationCall) -> str:
        if self._halts:
            self._halts.note("began", label)
        await anyio.sleep(LATENCY_S)
        self._perhaps(Transient("not now"), OSError("the request got lost"))
        await self._outside.do(label, call.idempotency_key)
        self._perhaps(OSError("the answer got lost"))
        await anyio.sleep(LATENCY_S)
        return label

    def _perhaps(self, *errors: Exception) -> None:
        if self._chaos and self._chaos.random() < 0.1:
            raise self._chaos.choice(errors)
