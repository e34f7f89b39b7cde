"""`keep.toml`: a service and its calls; and what could not work, or would prove nothing, refused with a remedy."""

from pathlib import Path
from textwrap import dedent

import pytest

from keep_actors.connectors import Catalog, Method
from keep_actors.services import ConfigurationError, load_configuration

SERVICE = '[connectors.shop]\nkind = "http"\nbase_url = "https://shop.example/v1"\n'
ORDER = '[connectors.shop.calls.order]\nmethod = "POST"\npath = "/orders"\nbody = { item = "string" }\n'
GET = '[connectors.shop.calls.order]\npath = "/orders"\n'


def methods(folder: Path, text: str) -> dict[str, Method]:
    (folder / "keep.toml").write_text(dedent(text), "utf-8")
    return dict(Catalog(load_configuration(folder / "keep.toml")).methods)


def test_calls_become_methods_with_types_kinds_and_risks(tmp_path: Path) -> None:
    found = methods(
        tmp_path,
        """
        [connectors.shop]
        kind = "http"
        base_url = "https://shop.example/v1"

        [connectors.shop.calls.getOrder]
        path = "/orders/{orderId}"
        parameters = { orderId = "string" }
        by_id = true
        description = "One order."

        [connectors.shop.calls.search]
        method = "POST"
        path = "/search"
        body = { text = "string" }
        read = true

        [connectors.shop.calls.createOrder]
        method = "post"
        path = "/customers/{customerId}/orders"
        parameters = { customerId = "string" }
        body = { item = "string", count = { type = "integer", minimum = 1, optional = true } }
        identity = ["customerId", "item"]
        risk = "high"
        timeout_ms = 9000
        settle_ms = 1000
        result = { type = "object", properties = { id = { type = "string" } }, required = ["id"] }
        reconcile = { path = "/orders", query = { reference = "$key" }, found = { reference = "$key" } }

        [connectors.shop.calls.fetchOnce]
        path = "/take"
        read = false
        """,
    )
    assert {name: each.kind for name, each in found.items()} == {
        "shop.getOrder": "read",
        "shop.search": "read",
        "shop.createOrder": "mutation",
        "shop.fetchOnce": "mutation",
    }
    create, get = found["shop.createOrder"], found["shop.getOrder"]
    assert (get.by_id, get.risk, get.description) == (True, "low", "One order.")
    assert (create.risk, create.timeout_ms, create.settle_ms, create.reconcilable) == ("high", 9000, 1000, True)
    assert create.marks_sent
    params = create.decode_params('{"customerId": "7", "item": "cup", "count": 2}')
    assert create.identity_of(params) == '{"customerId":"7","item":"cup"}'
    assert found["shop.fetchOnce"].check_hint == "Look at https://shop.example/v1 for the effect of GET /take."


WRONG = {
    "no calls": (SERVICE + "calls = {}", "calls: is empty; write a section [connectors.shop.calls.NAME]"),
    "no address": (
        '[connectors.shop]\nkind = "http"\nbase_url = "shop"\n' + GET,
        "base_url: is no address of a service",
    ),
    "a user in it": (SERVICE.replace("//", "//ann@") + GET, "base_url: is no address of a service"),
    "a query in it": (SERVICE.replace("/v1", "/v1?x=1") + GET, "base_url: is no address of a service"),
    "a fragment in it": (SERVICE.replace("/v1", "/v1#x") + GET, "base_url: is no address of a service"),
    "a wrong port": (SERVICE.replace("/v1", ":99999") + GET, "base_url: is no address of a service"),
    "another scheme": (SERVICE.replace("https", "ftp") + GET, "base_url: is no address of a service"),
    "not encrypted": (SERVICE.replace("https", "http") + GET, 'or allow = ["shop.example:80"]'),
    "a wrong address to allow": (SERVICE + 'allow = ["shop"]\n' + GET, "allow: 'shop' is not host:port"),
    "no bytes": (SERVICE + "bytes_max = 0\n" + GET, "bytes_max: is 0; write 1 to 50000000"),
    "no time": (SERVICE + "timeout_s = 0\n" + GET, "timeout_s: is 0"),
    "a header of the connector": (
        SERVICE + 'headers = { Host = "x" }\n' + GET,
        "headers.host: is set by the connector",
    ),
    "a header of two lines": (SERVICE + 'headers = { X = "a\\r\\nb" }\n' + GET, "headers.x: the value of the header x"),
    "a header twice": (SERVICE + 'headers = { X = "1", x = "2" }\n' + GET, "has a header twice"),
    "a secret in the file": (SERVICE + 'bearer = "s3cret"\n' + GET, "a secret does not stand in this file"),
    "an unknown setting": (SERVICE + ORDER + "idemptotent = true\n", "is not a known field"),
    "an unknown type": (
        SERVICE + GET + 'query = { a = "text" }\n',
        "calls.order.query.a: 'text' is no type; write one",
    ),
    "no path": (SERVICE + GET.replace("/orders", "orders"), "calls.order.path: 'orders' is no path"),
    "another host": (
        SERVICE + GET.replace("/orders", "//evil.example/x"),
        "calls.order.path: '//evil.example/x' is no",
    ),
    "a query in the path": (SERVICE + GET.replace("/orders", "/orders?a=1"), "without a query"),
    "dots": (SERVICE + GET.replace("/orders", "/a/../b"), "has . or .. in it"),
    "spelled dots": (SERVICE + GET.replace("/orders", "/a/%2E%2e/b"), "has . or .. in it"),
    "a missing parameter": (SERVICE + GET.replace("/orders", "/orders/{id}"), "has no type for 'id' of the path"),
    "an idle parameter": (SERVICE + GET + 'parameters = { id = "string" }\n', "has 'id', which is not in the path"),
    "an optional segment": (
        SERVICE + GET.replace("/orders", "/orders/{id}") + 'parameters = { id = "string?" }\n',
        "stands in the path, and cannot be optional",
    ),
    "a name twice": (
        SERVICE + ORDER + 'query = { item = "string" }\n',
        "calls.order.body.item: is there twice",
    ),
    "a body of a GET": (SERVICE + GET + 'body = { a = "string" }\n', "body: belongs to no GET"),
    "another method": (SERVICE + ORDER.replace("POST", "TRACE"), "method: is 'TRACE'; write one of GET"),
    "a script's Host": (SERVICE + ORDER + 'header_parameters = { Host = "string" }\n', "is not for scripts"),
    "a script's cookie": (SERVICE + ORDER + 'header_parameters = { Cookie = "string" }\n', "is not for scripts"),
    "a script's key": (SERVICE + ORDER + 'header_parameters = { idempotency-key = "string" }\n', "is not for scripts"),
    "a header of settings": (
        SERVICE + 'headers = { X-Team = "a" }\n' + ORDER + 'header_parameters = { X-Team = "string" }\n',
        "is not for scripts",
    ),
    "no name of a header": (SERVICE + ORDER + 'key_header = "a b"\n', "key_header: 'a b' cannot have the key"),
    "the key as credentials": (SERVICE + ORDER + 'key_header = "Authorization"\n', "cannot have the key"),
    "the key in a parameter": (SERVICE + ORDER + 'key_path = "item"\n', "'item' is a parameter of scripts"),
    "no path of the key": (SERVICE + ORDER + 'key_path = "a..b"\n', "key_path: 'a..b' is no path"),
    "a short key": (SERVICE + ORDER + "key_chars = 8\n", "key_chars: is 8; write 32 to 64"),
    "a read by id that changes": (SERVICE + ORDER + "by_id = true\n", "by_id: is for reads"),
    "an effect of a read": (SERVICE + GET + "happened = [409]\n", "happened: is for calls that change something"),
    "an unknown identity": (SERVICE + ORDER + 'identity = ["sku"]\n', "identity: names 'sku', which is no parameter"),
    "no status": (SERVICE + ORDER + "happened = [20]\n", "happened: 20 is no status"),
    "a status twice": (
        SERVICE + ORDER + "happened = [409]\ndid_not_happen = [409]\n",
        "has 409, and so has `happened`",
    ),
    "replay without an end": (SERVICE + ORDER + "replay = true\n", "key_lifetime: is needed for replay"),
    "replay without a key": (
        SERVICE + ORDER + 'replay = true\nkey_lifetime = "24h"\nkey_header = ""\n',
        "replay: needs a key",
    ),
    "no time at all": (
        SERVICE + ORDER + 'key_lifetime = "a day"\n',
        "calls.order.key_lifetime: is 'a day'; write a number and s",
    ),
    "too short a time": (SERVICE + ORDER + 'replay = true\nkey_lifetime = "5min"\n', "key_lifetime: is too short"),
    "two ways to find out": (
        SERVICE
        + ORDER
        + 'replay = true\nkey_lifetime = "24h"\nreconcile = { path = "/orders", found = { reference = "$key" } }\n',
        "replay: is not needed beside reconcile",
    ),
    "nowhere to ask": (SERVICE + ORDER + 'reconcile = { found = { a = "$key" } }\n', "reconcile.path: is missing"),
    "nothing to find": (SERVICE + ORDER + 'reconcile = { path = "/orders" }\n', "reconcile.found: is missing"),
    "the effect of any call": (
        SERVICE + ORDER + 'reconcile = { path = "/orders", found = { state = "paid" } }\n',
        "would find the effect of any call",
    ),
    "an unknown value": (
        SERVICE + ORDER + 'reconcile = { path = "/orders", found = { a = "$sku" } }\n',
        "names $sku, which is neither $key nor a parameter",
    ),
    "an unknown segment": (
        SERVICE + ORDER + 'reconcile = { path = "/orders/{sku}", found = { a = "$key" } }\n',
        "names $sku, which is neither $key nor a parameter",
    ),
    "a key that is not sent": (
        SERVICE + ORDER + 'key_header = ""\nreconcile = { path = "/orders", found = { a = "$key" } }\n',
        "looks for $key, which no request has",
    ),
    "a parameter named key": (
        SERVICE + ORDER.replace("item", "key") + 'reconcile = { path = "/orders", found = { a = "$key" } }\n',
        "there is a parameter `key`; rename that",
    ),
    "a state without polling": (
        SERVICE + ORDER + 'reconcile = { path = "/orders", found = { a = "$key" }, failed = { b = 1 } }\n',
        "reconcile.failed: is for poll_location",
    ),
    "polling without a state": (
        SERVICE + ORDER + "reconcile = { poll_location = true, applied = [200] }\n",
        "reconcile.found: is needed to poll",
    ),
    "text with fields": (
        SERVICE + ORDER + 'answer = "text"\nresult_path = "a"\n',
        'result_path: needs answer = "json"',
    ),
    "nothing with a type": (SERVICE + ORDER + 'answer = "none"\nresult = "object"\n', 'result: needs answer = "json"'),
    "HEAD with an answer": (
        SERVICE + GET + 'method = "HEAD"\n',
        'answer: to HEAD there is none; write answer = "none"',
    ),
    "another risk": (SERVICE + ORDER + 'risk = "some"\n', "risk"),
    "a reserved name": (SERVICE + GET.replace("calls.order", "calls.then"), "'then' has a special meaning"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_work_is_refused_with_its_place_and_a_remedy(case: str, tmp_path: Path) -> None:
    text, words = WRONG[case]
    with pytest.raises(ConfigurationError) as caught:
        methods(tmp_path, text)
    assert "[connectors.shop]" in str(caught.value)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)
