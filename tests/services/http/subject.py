"""Three services for certification: one can be asked, one promises to replay, one does neither."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

from keep_actors.services.http import Http, HttpCall, HttpReconcile, HttpSettings
from keep_actors.testing.certification import Certification, RunningService
from tests.services.http.orders import count_orders, orders_desk

ASKED = HttpCall(
    method="POST",
    path="/orders",
    body={"customer": "string", "item": "string"},
    identity=["customer"],
    reference_path="reference",
    settle_ms=1_000,
    reconcile=HttpReconcile(path="/orders", query={"reference": "$key"}, items="orders", found={"reference": "$key"}),
    result={"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    description="Order something.",
)
REPLAYED = HttpCall(
    method="POST",
    path="/orders",
    body={"customer": "string", "item": "string"},
    identity=["customer"],
    replay=True,
    key_lifetime="24h",
    description="Order something.",
)
NEITHER = HttpCall(
    method="POST",
    path="/orders",
    body={"customer": "string", "item": "string"},
    identity=["customer"],
    description="Order something.",
)


class _Orders(Certification):
    """Orders of a shop."""

    decisive: ClassVar[Mapping[str, bytes]] = {"order": b"POST /orders"}
    call: ClassVar[HttpCall]
    keeps_keys: ClassVar[bool] = True

    def service(self) -> AbstractAsyncContextManager[RunningService]:
        return _running(keeps_keys=self.keeps_keys)

    def connector(self, service: RunningService) -> Http:
        host, port = service.addresses["shop"]
        address = f"{host}:{port}"
        return Http(
            HttpSettings(base_url=f"http://{address}", allow=[address], calls={"order": self.call}), name="shop"
        )

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        assert method == "order"
        return {"customer": f"customer-{number}", "item": "cup"}

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        assert method == "order"
        return await count_orders(int(service.places["port"]), customer=params["customer"])


class HttpCertification(_Orders):
    """The service stores the key with the order, and can be asked for it."""

    call = ASKED


class HttpReplayCertification(_Orders):
    """The service promises to answer a repeated key with its first answer."""

    call = REPLAYED
    reconcile_repeats = True


class HttpNeitherCertification(_Orders):
    """The service ignores the key, and cannot be asked."""

    call = NEITHER
    keeps_keys = False
    refuses_repetition = False


@asynccontextmanager
async def _running(*, keeps_keys: bool) -> AsyncIterator[RunningService]:
    with orders_desk(keeps_keys=keeps_keys) as server:
        yield RunningService(addresses={"shop": ("127.0.0.1", server.port)}, places={"port": str(server.port)})
