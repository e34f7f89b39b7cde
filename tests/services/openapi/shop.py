"""A shop on FastAPI: orders with an idempotency key, found by it, behind an API key. Its state is a file."""

import json
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header, HTTPException, Query
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, Field

API_KEY = "shop-key-0123456789"


class Line(BaseModel):
    sku: str = Field(max_length=20, description="The article.")
    quantity: int = Field(ge=1, le=100)


class NewOrder(BaseModel):
    customer: str
    lines: list[Line] = Field(min_length=1)
    note: str | None = None
    channel: Literal["web", "phone"] = "web"


class Order(BaseModel):
    order_id: str = Field(alias="orderId")
    customer: str
    total: float
    status: Literal["open", "paid"]
    key: str


class Found(BaseModel):
    orders: list[Order]


class Ledger:
    """All orders, in a file: one line for each effect."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def all(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def place(self, key: str, asked: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            for each in self.all():
                if each["key"] == key:
                    if each["asked"] != asked:
                        raise HTTPException(422, "the key was used for another order")
                    return each
            total = sum(line["quantity"] for line in asked["lines"]) * 1.5
            order = {"orderId": f"o-{len(self.all()) + 1}", "customer": asked["customer"], "total": total}
            order |= {"status": "open", "key": key, "asked": asked}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(order)}\n")
            return order


def shop(path: Path) -> FastAPI:
    """The application, with its orders in this file."""
    app = FastAPI(title="Shop", version="1")
    ledger = Ledger(path)
    key_header = APIKeyHeader(name="X-Api-Key", scheme_name="ShopKey")

    def known(given: Annotated[str, Depends(key_header)]) -> None:
        if given != API_KEY:
            raise HTTPException(401, "who are you?")

    guarded = [Depends(known)]

    @app.post("/orders", status_code=201, operation_id="create_order", dependencies=guarded)
    def create_order(order: NewOrder, idempotency_key: Annotated[str, Header()]) -> Order:
        """Place an order."""
        return Order.model_validate(ledger.place(idempotency_key, order.model_dump()))

    @app.get("/orders", operation_id="find_orders", dependencies=guarded)
    def find_orders(
        key: str | None = None, status: Annotated[list[str] | None, Query(description="Any of these.")] = None
    ) -> Found:
        """Find orders."""
        found = [
            each for each in ledger.all() if key in (None, each["key"]) and (not status or each["status"] in status)
        ]
        return Found.model_validate({"orders": found})

    @app.get("/orders/{order_id}", operation_id="get_order", dependencies=guarded)
    def get_order(order_id: str) -> Order:
        """Look at one order."""
        for each in ledger.all():
            if each["orderId"] == order_id:
                return Order.model_validate(each)
        raise HTTPException(404, "no such order")

    return app


def write_document(app: FastAPI, path: Path) -> Path:
    """Write the document that FastAPI makes of the application."""
    path.write_text(json.dumps(app.openapi()), "utf-8")
    return path
