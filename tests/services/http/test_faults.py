"""The outcome of a call whose service breaks off, falls silent, or answers nonsense: with real sockets."""

import socket
from typing import Any

import anyio
import pytest

from keep_actors.connectors import DidNotHappen, Failed, Happened, ReadCall, Unknown
from keep_actors.services.http import HttpCall
from keep_storage.model import FailureClass
from tests.services.http.shop import ORDER, READ, open_shop
from tests.services.servers.web import BROKEN, MISFITTING, UNUSABLE, Connection, Fault, Reply, WebServer, json_reply

pytestmark = pytest.mark.anyio

LIMITS: dict[str, Any] = {"timeout_s": 0.2, "bytes_max": 100_000}
TYPED = HttpCall(method="POST", path="/orders", body={"item": "string"}, result="object")


@pytest.mark.parametrize(
    "fault", [*BROKEN.values(), *UNUSABLE.values(), *MISFITTING.values()], ids=lambda each: each.__name__
)
async def test_a_mutation_that_was_sent_and_has_no_answer_that_fits_is_unknown(fault: Fault) -> None:
    with WebServer(fault=fault) as server:
        async with open_shop(server, calls={"order": TYPED}, **LIMITS) as shop:
            assert isinstance(await shop.mutate("order"), Unknown)
            assert server.connections == 1, "nothing is repeated"


@pytest.mark.parametrize("fault", BROKEN.values(), ids=lambda each: each.__name__)
async def test_a_read_that_broke_may_be_made_again(fault: Fault) -> None:
    with WebServer(fault=fault) as server:
        async with open_shop(server, calls={"orders": READ}, **LIMITS) as shop:
            failed = await shop.read("orders")
            assert isinstance(failed, Failed)
            assert failed.cls is FailureClass.TRANSIENT


@pytest.mark.parametrize("fault", UNUSABLE.values(), ids=lambda each: each.__name__)
async def test_a_read_whose_answer_cannot_be_used_asks_a_person(fault: Fault) -> None:
    with WebServer(fault=fault) as server:
        async with open_shop(server, calls={"orders": READ}, **LIMITS) as shop:
            failed = await shop.read("orders")
            assert isinstance(failed, Failed)
            assert failed.cls is FailureClass.PRECONDITION


async def test_a_refused_connection_did_not_happen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with WebServer() as server:
        server.port = port  # closed, and still ours to name
        async with open_shop(server, calls={"order": ORDER, "orders": READ}) as shop:
            outcome = await shop.mutate("order")
            assert isinstance(outcome, DidNotHappen)
            assert outcome.cls is FailureClass.TRANSIENT
            failed = await shop.read("orders")
            assert isinstance(failed, Failed)
            assert failed.cls is FailureClass.TRANSIENT


async def test_a_call_that_was_abandoned_sends_nothing() -> None:
    with WebServer() as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            method = shop.methods["order"]
            call = shop.call("order", {"item": "cup"})
            call.end()
            outcome = await method.mutate(method.decode_params('{"item": "cup"}'), call, 5_000)
            assert isinstance(outcome, DidNotHappen)
            assert server.received == []


async def test_every_mutation_has_a_connection_of_its_own() -> None:
    with WebServer(lambda _: json_reply({"id": 1}, 201)) as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            for number in range(3):
                assert isinstance(await shop.mutate("order", idempotency_key=f"k-{number}"), Happened)
            assert [each.connection for each in server.received] == [1, 2, 3]


async def test_an_answer_is_asked_for_without_compression() -> None:
    with WebServer() as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            await shop.mutate("order")
            assert server.received[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_mutation_follows_no_redirect(status: int) -> None:
    with WebServer(lambda _: Reply(status, b"", {"location": "/elsewhere"})) as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            outcome = await shop.mutate("order")
            assert isinstance(outcome, DidNotHappen if status in (307, 308) else Unknown)
            assert [each.path for each in server.received] == ["/orders"]


async def test_an_empty_answer_is_fine_if_none_was_declared() -> None:
    with WebServer(lambda _: Reply(204, b"")) as server:
        silent = HttpCall(method="DELETE", path="/orders/{id}", parameters={"id": "string"}, answer="none")
        async with open_shop(server, calls={"cancel": silent}) as shop:
            assert await shop.mutate("cancel", {"id": "7"}) == Happened("null")


async def test_an_answer_of_text_is_text() -> None:
    with WebServer(lambda _: Reply(200, "größer".encode())) as server:
        async with open_shop(server, calls={"order": HttpCall(method="POST", path="/x", answer="text")}) as shop:
            assert await shop.mutate("order", {}) == Happened('"größer"')


async def test_a_refusal_of_status_200_did_not_happen_if_the_operator_says_how_it_looks() -> None:
    refusing = HttpCall(method="POST", path="/chat.post", body={"item": "string"}, refused={"ok": False})
    with WebServer(lambda each: json_reply({"ok": each.json["item"] == "cup"})) as server:
        async with open_shop(server, calls={"post": refusing}) as shop:
            assert isinstance(await shop.mutate("post", {"item": "cup"}), Happened)
            assert isinstance(await shop.mutate("post", {"item": "pot"}), DidNotHappen)


# Bounds of time and size that no single wait would notice.


def _dripping(head: bytes, drop: bytes) -> Fault:
    def fault(connection: Connection) -> None:
        connection.read()
        connection.write(head)
        while not connection.left_within(0.02):
            connection.write(drop)

    return fault


DRIPS = {
    "a body": _dripping(b"HTTP/1.1 201 Created\r\ncontent-length: 100000\r\n\r\n", b" "),
    "chunks": _dripping(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a header": _dripping(b"HTTP/1.1 201 Created\r\nx: ", b"x"),
    "headers": _dripping(b"HTTP/1.1 201 Created\r\n", b"x: x\r\n"),
    "interim answers": _dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
}


@pytest.mark.parametrize("drip", DRIPS)
async def test_an_answer_that_drips_for_ever_ends_with_the_time_of_the_call(drip: str) -> None:
    with WebServer(fault=DRIPS[drip]) as server:
        async with open_shop(server, calls={"order": ORDER, "orders": READ}) as shop:
            method, began = shop.methods["order"], anyio.current_time()
            params = method.decode_params('{"item": "cup"}')
            assert isinstance(await method.mutate(params, shop.call("order", {"item": "cup"}), 250), Unknown)
            read = shop.methods["orders"]
            failed = await read.read(read.decode_params("{}"), ReadCall(workflow_id="wf_1", run_id="run_1"), 250)
            assert isinstance(failed, Failed)
            assert failed.cls is FailureClass.TRANSIENT
            assert anyio.current_time() - began < 3


FLOODS = {
    "a body without end": (b"HTTP/1.1 201 Created\r\n\r\n", b"x" * 65_536),
    "headers without end": (b"HTTP/1.1 201 Created\r\n", b"x: " + b"x" * 60_000 + b"\r\n"),
    "chunks without end": (
        b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n",
        b"400\r\n" + b"x" * 1024 + b"\r\n",
    ),
    "another coding": (b"HTTP/1.1 201 Created\r\ntransfer-encoding: gzip, chunked\r\n\r\n", b"1\r\nx\r\n"),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_an_answer_without_end_is_left_soon(flood: str) -> None:
    head, more = FLOODS[flood]

    def fault(connection: Connection) -> None:
        connection.read()
        connection.write(head)
        while True:
            connection.write(more)

    with WebServer(fault=fault) as server:
        async with open_shop(server, calls={"order": ORDER, "orders": READ}, **LIMITS) as shop:
            began = anyio.current_time()
            assert isinstance(await shop.mutate("order"), Unknown)
            assert isinstance(await shop.read("orders"), Failed)
            assert anyio.current_time() - began < 3
