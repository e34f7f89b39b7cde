"""Requests go to the service in the settings and nowhere else: not by its name, a redirect, or a name that changes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from keep_actors.connectors import Answer, DidNotHappen, Failed
from keep_actors.outbound.checked import CheckedTransport
from keep_actors.outbound.secret import Secret
from keep_actors.outbound.web import Web
from keep_actors.services import load_configuration
from keep_actors.services.http import Http, HttpSettings
from keep_storage.model import FailureClass
from tests.services.http.shop import ORDER, READ, Shop
from tests.services.servers.web import Received, Reply, WebServer, json_reply

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.215.14"
HERE = "127.0.0.1"


class Network:
    """Names as the test says; every connection ends at one server, and its address is written down."""

    def __init__(self, server: WebServer, **names: Sequence[str]) -> None:
        self.server = server
        self.names = {name.replace("_", "."): list(addresses) for name, addresses in names.items()}
        self.connected: list[tuple[str, int]] = []

    async def resolve(self, host: str, _: int) -> Sequence[str]:
        addresses = self.names.get(host, [host])
        return [addresses.pop(0) if len(addresses) > 1 else addresses[0]]

    async def connect(self, address: str, port: int, timeout_s: float | None) -> httpcore2.AsyncNetworkStream:
        self.connected.append((address, port))
        return await httpcore2.AnyIOBackend().connect_tcp(HERE, self.server.port, timeout=timeout_s)


@asynccontextmanager
async def shop_at(network: Network, **given: Any) -> AsyncIterator[Shop]:
    """A connector for http://shop.example, which has a public address, as far as the network says so."""
    transport = CheckedTransport(allow=given.pop("allowed", ()), resolve=network.resolve, connect=network.connect)
    settings = HttpSettings(
        base_url="http://shop.example",
        allow=("shop.example:80",),
        calls={"order": ORDER, "orders": READ},
        bearer=Secret("t0ken"),
        secret_headers={"X-Api-Key": Secret("s3cret-key")},
        **given,
    )
    connector = Http(settings, name="shop", web=Web(transport=transport))
    await connector.open()
    try:
        yield Shop(connector)
    finally:
        await connector.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "127.1", "[::ffff:127.0.0.1]"])
async def test_a_service_on_this_machine_is_refused_unless_it_is_allowed(host: str, tmp_path: Path) -> None:
    with WebServer() as server:
        text = f'[connectors.shop]\nkind = "http"\nbase_url = "https://{host}:{server.port}"\n'
        text += '[connectors.shop.calls.order]\nmethod = "POST"\npath = "/orders"\nbody = { item = "string" }\n'
        text += '[connectors.shop.calls.orders]\npath = "/orders"\n'
        (tmp_path / "keep.toml").write_text(text, "utf-8")
        [connector] = load_configuration(tmp_path / "keep.toml")
        assert isinstance(connector, Http)
        await connector.open()
        outcome, failed = await Shop(connector).mutate("order"), await Shop(connector).read("orders")
        await connector.close()
        assert server.connections == 0
    assert isinstance(outcome, DidNotHappen)
    assert isinstance(failed, Failed)
    assert outcome.cls is failed.cls is FailureClass.PRECONDITION
    assert 'to allow it write allow = ["' in failed.message


async def test_a_service_on_this_machine_is_reached_if_it_is_allowed(tmp_path: Path) -> None:
    with WebServer(lambda _: json_reply([1])) as server:
        text = f'[connectors.shop]\nkind = "http"\nbase_url = "{server.url}"\nallow = ["{server.address}"]\n'
        (tmp_path / "keep.toml").write_text(text + '[connectors.shop.calls.orders]\npath = "/orders"\n', "utf-8")
        [connector] = load_configuration(tmp_path / "keep.toml")
        assert isinstance(connector, Http)
        await connector.open()
        assert await Shop(connector).read("orders") == Answer("[1]")
        await connector.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.5"])
async def test_a_name_that_means_an_address_inside_is_refused(address: str) -> None:
    with WebServer() as server:
        network = Network(server, shop_example=[address])
        async with shop_at(network) as shop:
            outcome, failed = await shop.mutate("order"), await shop.read("orders")
    assert isinstance(outcome, DidNotHappen)
    assert isinstance(failed, Failed)
    assert network.connected == []


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data", "http://127.0.0.1:80/", "http://[::1]/"])
async def test_a_redirect_inside_is_refused(target: str) -> None:
    with WebServer(lambda _: Reply(302, b"", {"location": target})) as server:
        network = Network(server, shop_example=[PUBLIC])
        async with shop_at(network) as shop:
            failed = await shop.read("orders")
    assert isinstance(failed, Failed)
    assert failed.cls is FailureClass.PRECONDITION
    assert network.connected == [(PUBLIC, 80)]
    assert len(server.received) == 1


async def test_a_name_that_changes_its_address_is_checked_for_each_connection() -> None:
    with WebServer(lambda _: json_reply({})) as server:
        network = Network(server, shop_example=[PUBLIC, HERE])
        async with shop_at(network) as shop:
            first, second = await shop.read("orders"), await shop.mutate("order")
    assert first == Answer("{}")
    assert isinstance(second, DidNotHappen)
    assert network.connected == [(PUBLIC, 80)]


async def test_a_read_follows_redirects_and_leaves_its_credentials_at_another_origin() -> None:
    def answer(request: Received) -> Reply:
        match request.path:
            case "/orders":
                return Reply(302, b"", {"location": "/v2/orders"})
            case "/v2/orders":
                return Reply(307, b"", {"location": "http://archive.example/orders"})
            case _:
                return json_reply([1])

    with WebServer(lambda each: answer(each) if each.headers["host"] == "shop.example" else json_reply([1])) as server:
        network = Network(server, shop_example=[PUBLIC], archive_example=[PUBLIC])
        async with shop_at(network) as shop:
            assert await shop.read("orders") == Answer("[1]")
    at_home, at_home_too, elsewhere = server.received
    for request in (at_home, at_home_too):
        assert request.headers["authorization"] == "Bearer t0ken"
        assert request.headers["x-api-key"] == "s3cret-key"
    assert elsewhere.headers["host"] == "archive.example"
    assert "t0ken" not in str(elsewhere)
    assert "s3cret-key" not in str(elsewhere)


async def test_a_ring_of_redirects_ends() -> None:
    with WebServer(lambda _: Reply(302, b"", {"location": "/orders"})) as server:
        async with shop_at(Network(server, shop_example=[PUBLIC])) as shop:
            failed = await shop.read("orders")
    assert isinstance(failed, Failed)
    assert failed.cls is FailureClass.PRECONDITION
    assert len(server.received) == 6
