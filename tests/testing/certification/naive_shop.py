"""A connector for an HTTP service as one writes it first, against a real server; and one whose client blocks."""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar
from urllib.request import Request, urlopen
from uuid import uuid4

import httpx2

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, Transient, mutation
from keep_actors.testing.certification import Certification, RunningService
from tests.services.http import subject
from tests.services.http.orders import count_orders

CLIENT_S = 1.5


class NaiveShop(Connector):
    """Every error of its client is transient, each request has a new key, and it looks for what it has ordered."""

    name = "shop"

    def __init__(self, url: str) -> None:
        self.url = url

    @mutation(identity=["customer"])
    async def order(self, customer: str, item: str) -> str:
        """Order something."""
        return await self.ordered({"customer": customer, "item": item})

    async def ordered(self, order: dict[str, str]) -> str:
        headers = {"Idempotency-Key": uuid4().hex}
        try:
            async with httpx2.AsyncClient(base_url=self.url, timeout=CLIENT_S, verify=False) as client:
                answer = await client.post("/orders", json=order, headers=headers)
                answer.raise_for_status()
        except httpx2.HTTPError as error:
            raise Transient(f"the shop cannot be reached: {error}") from error
        return str(answer.json()["id"])

    @order.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        async with httpx2.AsyncClient(base_url=self.url, timeout=CLIENT_S, verify=False) as client:
            answer = await client.get("/orders", params={"customer": call.params["customer"]})
        found = answer.json()["orders"]
        return Applied(found[0]["id"]) if found else NotApplied()


class NaiveShopCertification(Certification):
    """With the orders desk of the tests of `http`."""

    decisive: ClassVar[Mapping[str, bytes]] = {"order": b"POST /orders"}
    patience_ms = 5_000
    made: ClassVar[type[NaiveShop]] = NaiveShop

    def service(self) -> AbstractAsyncContextManager[RunningService]:
        return subject.HttpCertification().service()

    def connector(self, service: RunningService) -> Connector:
        host, port = service.addresses["shop"]
        return self.made(f"http://{host}:{port}")

    def example(self, _: str, number: int) -> Mapping[str, Any]:
        return {"customer": f"customer-{number}", "item": "cup"}

    async def effects(self, service: RunningService, _: str, params: Mapping[str, Any]) -> int:
        return await count_orders(int(service.places["port"]), customer=params["customer"])


class BlockingShop(NaiveShop):
    """Its client is the one of the standard library, in the event loop."""

    async def ordered(self, order: dict[str, str]) -> str:
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid4().hex}
        request = Request(f"{self.url}/orders", json.dumps(order).encode(), headers)
        with urlopen(request) as answer:  # noqa: ASYNC210  # that is what is wrong with it
            return str(json.load(answer)["id"])


class BlockingShopCertification(NaiveShopCertification):
    made = BlockingShop
