"""Short ways to a connector for a server of the tests, and to calls of it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from keep_actors.connectors import CallOutcome, Catalog, MutationCall, ReadCall, ReadOutcome, Verdict
from keep_actors.outbound.checked import CheckedTransport
from keep_actors.outbound.web import Web
from keep_actors.services.http import Http, HttpCall, HttpSettings
from keep_storage.ids import Now, wall_clock
from tests.services.servers.web import WebServer

NOW = 1_700_000_000_000
ORDER = HttpCall(method="POST", path="/orders", body={"item": "string"})
READ = HttpCall(path="/orders")


class Shop:
    """An open connector with its methods."""

    def __init__(self, connector: Http) -> None:
        self.connector = connector
        self.methods = {each.name: each for each in Catalog([connector]).methods.values()}
        self.notes: list[str] = []

    def call(self, name: str, params: Mapping[str, Any], **about: Any) -> MutationCall:
        """A call of a mutation, as the host makes it."""

        async def keep(note: str) -> None:
            self.notes.append(note)

        facts: dict[str, Any] = {"sent_at": NOW, "attempt": 1, "idempotency_key": "k-1", **about}
        return MutationCall(
            workflow_id="wf_1",
            run_id="run_1",
            mutation_id="mut_1",
            params=self.methods[name].decode_params(_text(params)).values,
            keep_note=keep,
            **facts,
        )

    async def mutate(self, name: str, params: Mapping[str, Any] | None = None, **about: Any) -> CallOutcome:
        given = {"item": "cup"} if params is None else params
        method = self.methods[name]
        return await method.mutate(method.decode_params(_text(given)), self.call(name, given, **about), 5_000)

    async def reconcile(self, name: str, params: Mapping[str, Any] | None = None, **about: Any) -> Verdict:
        given = {"item": "cup"} if params is None else params
        method = self.methods[name]
        return await method.reconcile(self.call(name, given, **about), 5_000, method.settle_ms)

    async def read(self, name: str, params: Mapping[str, Any] | None = None) -> ReadOutcome:
        method = self.methods[name]
        given = method.decode_params(_text(params or {}))
        return await method.read(given, ReadCall(workflow_id="wf_1", run_id="run_1"), 5_000)


def _text(params: Mapping[str, Any]) -> str:
    return json.dumps(params)


def settings(server: WebServer, *, calls: Mapping[str, HttpCall], **given: Any) -> HttpSettings:
    return HttpSettings(base_url=server.url, allow=(server.address,), calls=calls, **given)


@asynccontextmanager
async def open_shop(
    server: WebServer, *, now: Now = wall_clock, calls: Mapping[str, HttpCall], **given: Any
) -> AsyncIterator[Shop]:
    of_the_shop = settings(server, calls=calls, **given)
    # Without the certificates of the system: reading them takes a tenth of a second.
    transport = CheckedTransport(allow=[("127.0.0.1", server.port)])
    web = Web(bytes_max=of_the_shop.bytes_max, timeout_s=of_the_shop.timeout_s, transport=transport)
    connector = Http(of_the_shop, name="shop", web=web, now=now)
    await connector.open()
    try:
        yield Shop(connector)
    finally:
        await connector.close()
