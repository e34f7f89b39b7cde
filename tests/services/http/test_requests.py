"""The request of a call: each parameter in its place, the key, and nothing that a script could smuggle in."""

import base64
import hashlib
from typing import Any

import pytest

from keep_actors.connectors import DidNotHappen, Failed, Happened, ParamsError
from keep_actors.outbound.secret import Secret
from keep_actors.services.http import HttpBasic, HttpCall
from keep_storage.model import FailureClass
from tests.services.http.shop import ORDER, open_shop
from tests.services.servers.web import Received, Reply, WebServer, json_reply

pytestmark = pytest.mark.anyio

FULL = HttpCall(
    method="POST",
    path="/customers/{customerId}/orders",
    parameters={"customerId": "string"},
    query={"tag": "string[]?", "page[size]": "integer?", "draft": "boolean?"},
    header_parameters={"X-Region": "string?"},
    body={"item": "string", "count": {"type": "integer", "minimum": 1}, "note": "string?", "address": "object?"},
    result="object",
)
SLUG = HttpCall(path="/files/{name}", parameters={"name": "string"})


async def sent(call: HttpCall, params: dict[str, Any], **given: Any) -> Received:
    """The request that the service gets."""
    with WebServer(lambda _: json_reply({})) as server:
        async with open_shop(server, calls={"go": call}, **given) as shop:
            if shop.methods["go"].kind == "read":
                await shop.read("go", params)
            else:
                assert isinstance(await shop.mutate("go", params), Happened)
        [request] = server.received
        return request


async def test_each_parameter_stands_in_its_place() -> None:
    params = {"customerId": "ä b", "item": "cup", "count": 2, "address": {"city": "X"}}
    params |= {"tag": ["a&b", "c"], "pageSize": 5, "draft": True, "xRegion": "eu"}
    request = await sent(FULL, params)
    assert request.method == "POST"
    assert request.target == "/customers/%C3%A4%20b/orders?tag=a%26b&tag=c&page%5Bsize%5D=5&draft=true"
    assert request.headers["x-region"] == "eu"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {"item": "cup", "count": 2, "address": {"city": "X"}}


async def test_parameters_that_are_optional_may_be_left_out() -> None:
    request = await sent(FULL, {"customerId": "7", "item": "cup", "count": 1})
    assert request.target == "/customers/7/orders"
    assert "x-region" not in request.headers
    assert request.json == {"item": "cup", "count": 1}


@pytest.mark.parametrize("params", [{}, {"item": 7}, {"item": "cup", "more": 1}])
async def test_parameters_that_are_not_as_declared_are_refused(params: dict[str, Any]) -> None:
    with WebServer() as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            with pytest.raises(ParamsError):
                shop.methods["order"].decode_params(str(params).replace("'", '"'))


async def test_a_body_may_be_one_value() -> None:
    whole = HttpCall(method="PUT", path="/list", body="string[]")
    assert (await sent(whole, {"body": ["a", "b"]})).json == ["a", "b"]


async def test_a_call_without_parameters_has_no_body() -> None:
    request = await sent(HttpCall(method="POST", path="/start"), {})
    assert request.body == b""
    assert "content-type" not in request.headers


async def test_a_form_is_sent_as_a_form() -> None:
    form = HttpCall(
        method="POST",
        path="/charges",
        body={"amount": "integer", "expand": "string[]?"},
        encoding="form",
        reference_path="metadata[key]",
    )
    request = await sent(form, {"amount": 5, "expand": ["a", "b&c"]})
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.body.startswith(b"amount=5&expand=a&expand=b%26c&metadata%5Bkey%5D=")


# The key.


async def test_the_key_is_a_hash_and_the_same_for_every_attempt() -> None:
    with WebServer(lambda _: json_reply({})) as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            for attempt in (1, 2):
                await shop.mutate("order", idempotency_key="mut_7", attempt=attempt)
            await shop.mutate("order", idempotency_key="mut_8")
        first, second, other = (each.headers["idempotency-key"] for each in server.received)
    assert first == second == hashlib.sha256(b"shop\0mut_7").hexdigest()
    assert other != first


async def test_the_key_goes_where_the_service_expects_it() -> None:
    call = HttpCall(
        method="POST",
        path="/orders",
        body={"item": "string", "meta": "object?"},
        key_header="X-Request-Id",
        key_quotes=True,
        key_path="idempotency_key",
        reference_path="meta.reference",
        key_chars=40,
    )
    request = await sent(call, {"item": "cup", "meta": {"colour": "red"}})
    key = hashlib.sha256(b"shop\0k-1").hexdigest()[:40]
    assert request.headers["x-request-id"] == f'"{key}"'
    assert request.json == {
        "item": "cup",
        "idempotency_key": key,
        "meta": {"colour": "red", "reference": key},
    }


async def test_a_script_cannot_set_the_key() -> None:
    call = HttpCall(method="POST", path="/orders", body={"meta": "object"}, reference_path="meta.reference")
    with WebServer() as server:
        async with open_shop(server, calls={"order": call}) as shop:
            outcome = await shop.mutate("order", {"meta": {"reference": "mine"}})
            assert isinstance(outcome, DidNotHappen)
            assert outcome.cls is FailureClass.LOGIC
            assert server.received == []


async def test_a_read_has_no_key() -> None:
    assert "idempotency-key" not in (await sent(HttpCall(path="/orders"), {})).headers


async def test_a_post_may_read_by_the_word_of_the_operator() -> None:
    search = HttpCall(method="POST", path="/search", body={"text": "string"}, read=True)
    request = await sent(search, {"text": "cup"})
    assert request.json == {"text": "cup"}
    assert "idempotency-key" not in request.headers


# Nothing smuggled.

ESCAPES = ["..", ".", "", "a/b", "../admin", "a\\b", "a\r\nHost: x", "a\0b", "\x7f"]


@pytest.mark.parametrize("value", ESCAPES)
async def test_a_value_cannot_leave_its_segment_of_the_path(value: str) -> None:
    with WebServer() as server:
        async with open_shop(server, calls={"get": SLUG}) as shop:
            failed = await shop.read("get", {"name": value})
            assert isinstance(failed, Failed)
            assert failed.cls is FailureClass.LOGIC
            assert server.received == []


async def test_two_values_cannot_make_a_way_up_together() -> None:
    pair = HttpCall(path="/files/{a}{b}", parameters={"a": "string", "b": "string"})
    with WebServer() as server:
        async with open_shop(server, calls={"get": pair}) as shop:
            assert isinstance(await shop.read("get", {"a": ".", "b": "."}), Failed)
            assert server.received == []


SEGMENTS = {
    "%2e%2e": "%252e%252e",
    "@evil.example": "%40evil.example",
    "a?b=c#d": "a%3Fb%3Dc%23d",
    ";x=1": "%3Bx%3D1",
    "...": "...",
    "ü": "%C3%BC",
}


@pytest.mark.parametrize("value", SEGMENTS)
async def test_characters_with_a_meaning_in_urls_lose_it(value: str) -> None:
    assert (await sent(SLUG, {"name": value})).target == f"/files/{SEGMENTS[value]}"


@pytest.mark.parametrize("value", ["x\r\nX-Admin: 1", "x\ny", "x\0", "ü", "\x1b[2J"])
async def test_a_value_cannot_begin_another_header(value: str) -> None:
    call = HttpCall(method="POST", path="/x", header_parameters={"X-Region": "string"})
    with WebServer() as server:
        async with open_shop(server, calls={"go": call}) as shop:
            outcome = await shop.mutate("go", {"xRegion": value})
            assert isinstance(outcome, DidNotHappen)
            assert outcome.cls is FailureClass.LOGIC
            assert server.received == []


async def test_line_feeds_in_a_query_stay_values() -> None:
    call = HttpCall(path="/x", query={"q": "string"})
    request = await sent(call, {"q": "a\r\nX: 1&b=2"})
    assert request.target == "/x?q=a%0D%0AX%3A%201%26b%3D2"


# Credentials.


async def test_every_request_has_the_headers_of_the_settings() -> None:
    request = await sent(
        ORDER,
        {"item": "cup"},
        headers={"X-Version": "2026-01"},
        secret_headers={"X-Api-Key": Secret("s3cret-key")},
        bearer=Secret("t0ken"),
    )
    assert request.headers["x-version"] == "2026-01"
    assert request.headers["x-api-key"] == "s3cret-key"
    assert request.headers["authorization"] == "Bearer t0ken"


async def test_basic_authentication_is_encoded_and_hidden() -> None:
    encoded = base64.b64encode(b"ann:p4ssword").decode()
    with WebServer(lambda each: json_reply({"seen": each.headers["authorization"]})) as server:
        basic = HttpBasic(user="ann", password=Secret("p4ssword"))
        async with open_shop(server, calls={"order": ORDER}, basic=basic) as shop:
            assert await shop.mutate("order") == Happened('{"seen":"Basic [secret]"}')
        assert server.received[0].headers["authorization"] == f"Basic {encoded}"


async def test_a_secret_that_the_service_repeats_is_never_seen() -> None:
    with WebServer(lambda each: Reply(500, each.headers["x-api-key"].encode())) as server:
        secret = {"X-Api-Key": Secret("s3cret-key")}
        calls = {"order": ORDER, "orders": HttpCall(path="/orders")}
        async with open_shop(server, calls=calls, secret_headers=secret) as shop:
            seen = [await shop.mutate("order"), await shop.read("orders")]
            assert "s3cret-key" not in repr(seen)
            assert "[secret]" in repr(seen)
