"""A shop that takes orders, for certification: its orders are in memory, and can be counted without a connector."""

import json
import threading
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread

from tests.services.servers.web import Received, Reply, WebServer, json_reply


class OrderDesk:
    """Answers requests. With `keeps_keys`, a repeated key brings the first answer; otherwise it is another order."""

    def __init__(self, *, keeps_keys: bool) -> None:
        self._keeps_keys = keeps_keys
        self._orders: list[dict[str, Any]] = []
        self._answers: dict[str, Reply] = {}
        self._lock = threading.Lock()

    def answer(self, request: Received) -> Reply:
        with self._lock:
            if request.method == "POST":
                return self._ordered(request)
            wanted = request.query
            return json_reply({"orders": [each for each in self._orders if wanted.items() <= each.items()]})

    def _ordered(self, request: Received) -> Reply:
        key = request.headers["idempotency-key"]
        if self._keeps_keys and key in self._answers:
            return self._answers[key]
        order = {"id": f"o-{len(self._orders) + 1}", **request.json}
        self._orders.append(order)
        self._answers[key] = json_reply(order, 201)
        return self._answers[key]


def orders_desk(*, keeps_keys: bool) -> WebServer:
    """A server for it."""
    return WebServer(OrderDesk(keeps_keys=keeps_keys).answer)


async def count_orders(port: int, **wanted: str) -> int:
    """The number of orders that have these values."""
    return await anyio.to_thread.run_sync(_counted, port, wanted)


def _counted(port: int, wanted: dict[str, str]) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", f"/orders?{urlencode(wanted)}")
        return len(json.loads(connection.getresponse().read())["orders"])
    finally:
        connection.close()
