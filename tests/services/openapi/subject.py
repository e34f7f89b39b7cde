"""The shop as a subject of certification: an idempotency key, and a GET that finds an order by it."""

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from keep_actors.outbound.secret import Secret
from keep_actors.services.openapi import OpenApi, OpenApiReconcile, OpenApiRules, OpenApiSettings
from keep_actors.testing.certification import Certification, RunningService
from tests.services.openapi.serving import served
from tests.services.openapi.shop import API_KEY, shop, write_document

RECONCILE = OpenApiReconcile(operation="find_orders", parameters={"key": "$key"}, items="orders", found={"key": "$key"})


OPERATIONS = {
    "create_order": OpenApiRules(spread_body=True, identity=["customer"], reconcile=RECONCILE, settle_ms=1_000),
    "find_orders": OpenApiRules(),
    "GET /orders/{order_id}": OpenApiRules(name="order", by_id=True),
}


def shop_settings(document: Path, port: int, **more: Any) -> OpenApiSettings:
    """The settings of a connector for the shop at this port."""
    given: dict[str, Any] = {
        "base_url": f"http://127.0.0.1:{port}",
        "allow": [f"127.0.0.1:{port}"],
        "auth": {"ShopKey": Secret(API_KEY)},
        "operations": OPERATIONS,
    }
    return OpenApiSettings(document=document, **{**given, **more})


class OpenApiCertification(Certification):
    """A FastAPI service with its own document."""

    decisive: ClassVar[Mapping[str, bytes]] = {"createOrder": b"POST /orders"}

    def service(self) -> AbstractAsyncContextManager[RunningService]:
        return _running()

    def connector(self, service: RunningService) -> OpenApi:
        _, port = service.addresses["shop"]
        return OpenApi(shop_settings(Path(service.places["document"]), port), name="shop")

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        assert method == "createOrder"
        return {"customer": f"customer-{number}", "lines": [{"sku": "cup", "quantity": 2}]}

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        assert method == "createOrder"
        return _orders_of(Path(service.places["orders"]), params["customer"])


def _orders_of(path: Path, customer: str) -> int:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return sum(json.loads(line)["customer"] == customer for line in lines)


@asynccontextmanager
async def _running() -> AsyncIterator[RunningService]:
    with tempfile.TemporaryDirectory(prefix="keep-shop-") as name:
        orders = Path(name, "orders.jsonl")
        app = shop(orders)
        document = write_document(app, Path(name, "openapi.json"))
        with served(app) as port:
            yield RunningService(
                addresses={"shop": ("127.0.0.1", port)}, places={"document": str(document), "orders": str(orders)}
            )
