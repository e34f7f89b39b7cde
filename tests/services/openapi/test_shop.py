"""The operations of a FastAPI service, by its own document: types, calls, errors, and unknown outcomes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keep_actors.authoring.typescript import declarations
from keep_actors.authoring.writing import writing_prompt
from keep_actors.connectors import (
    Answer,
    Applied,
    Catalog,
    DidNotHappen,
    Failed,
    Happened,
    MutationCall,
    NotApplied,
    ParamsError,
    ReadCall,
)
from keep_actors.outbound.secret import Secret
from keep_actors.services.openapi import OpenApi, OpenApiReconcile, OpenApiRules
from keep_actors.services.openapi.document import read_document
from keep_actors.services.openapi.method import Documents, operation_of
from keep_actors.services.openapi.operation import read_operation
from keep_storage.model import FailureClass
from tests.services.openapi.serving import served
from tests.services.openapi.shop import API_KEY, shop, write_document
from tests.services.openapi.subject import shop_settings

READ = ReadCall(workflow_id="wf_1", run_id="run_1")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return write_document(shop(tmp_path / "orders.jsonl"), tmp_path / "openapi.json")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with served(shop(tmp_path / "orders.jsonl")) as port:
        yield port


def order_call(params: dict[str, Any], key: str = "k1", attempt: int = 1) -> MutationCall:
    return MutationCall(
        idempotency_key=key,
        workflow_id="wf_1",
        run_id="run_1",
        mutation_id="mut_1",
        params=params,
        sent_at=1,
        attempt=attempt,
    )


ORDER = {"customer": "ann", "lines": [{"sku": "cup", "quantity": 2}]}


@pytest.mark.anyio
async def test_an_order_is_placed_once_and_found_by_its_key(document: Path, port: int, tmp_path: Path) -> None:
    connector = OpenApi(shop_settings(document, port), name="shop")
    catalog = Catalog([connector])
    create = catalog.methods["shop.createOrder"]
    async with catalog.opened():
        params = create.decode_params(json.dumps(ORDER))
        call = order_call(dict(params.values))
        assert await create.reconcile(call, 5_000, 60_000) == NotApplied()
        first = await create.mutate(params, call, 5_000)
        assert isinstance(first, Happened)
        made = json.loads(first.json_text)
        assert (made["orderId"], made["customer"], made["total"], made["status"]) == ("o-1", "ann", 3.0, "open")
        assert await create.mutate(params, order_call(dict(params.values)), 5_000) == first
        assert await create.reconcile(call, 5_000) == Applied(first.json_text)
        other = create.decode_params(json.dumps({**ORDER, "note": "more"}))
        refused = await create.mutate(other, order_call(dict(other.values), attempt=2), 5_000)
        assert isinstance(refused, DidNotHappen)
        assert refused.cls is FailureClass.INTERNAL
        assert "the key was used for another order" in refused.message
        read = catalog.methods["shop.findOrders"]
        found = await read.read(read.decode_params('{"status": ["open", "paid"]}'), READ, 5_000)
        assert isinstance(found, Answer)
        assert [each["orderId"] for each in json.loads(found.json_text)["orders"]] == ["o-1"]
        one = catalog.methods["shop.order"]
        assert one.by_id
        assert isinstance(await one.read(one.decode_params('{"order_id": "o-1"}'), READ, 5_000), Answer)
        gone = await one.read(one.decode_params('{"order_id": "o-9"}'), READ, 5_000)
        assert isinstance(gone, Failed)
        assert gone.cls is FailureClass.PRECONDITION
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 1


@pytest.mark.anyio
async def test_a_wrong_key_of_the_service_is_a_matter_for_a_person_and_never_shown(document: Path, port: int) -> None:
    wrong = "wrong-key-0123456789"
    connector = OpenApi(shop_settings(document, port, auth={"ShopKey": Secret(wrong)}), name="shop")
    catalog = Catalog([connector])
    create = catalog.methods["shop.createOrder"]
    async with catalog.opened():
        params = create.decode_params(json.dumps(ORDER))
        outcome = await create.mutate(params, order_call(dict(params.values)), 5_000)
    assert isinstance(outcome, DidNotHappen)
    assert outcome.cls is FailureClass.AUTH
    assert wrong not in outcome.message


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"customer": "ann"}, "lines: is required"),
        ({**ORDER, "lines": []}, "lines: expected array of length >= 1"),
        ({**ORDER, "lines": [{"sku": "cup", "quantity": 0}]}, "lines[0].quantity"),
        ({**ORDER, "lines": [{"sku": "c" * 21, "quantity": 1}]}, "lines[0].sku"),
        ({**ORDER, "channel": "pigeon"}, "channel"),
        ({**ORDER, "total": 0}, "total: is not a known field"),
        ({**ORDER, "idempotency-key": "mine"}, "idempotency-key: is not a known field"),
    ],
)
def test_what_the_document_refuses_is_refused_before_anything_is_sent(
    document: Path, params: dict[str, Any], words: str
) -> None:
    create = Catalog([OpenApi(shop_settings(document, 1), name="shop")]).methods["shop.createOrder"]
    with pytest.raises(ParamsError) as caught:
        create.decode_params(json.dumps(params))
    assert words in str(caught.value)


def test_editors_and_models_see_the_types_of_the_document(document: Path) -> None:
    catalog = Catalog([OpenApi(shop_settings(document, 1), name="shop")])
    types = declarations(catalog)
    assert "createOrder(params: { customer: string; lines: types." in types
    assert '"phone"' in types
    prompt = writing_prompt(catalog)
    assert 'POST /orders. The service says: "Place an order."' in prompt
    assert 'The service says of parameters: status: "Any of these."' in prompt


def test_the_body_is_one_parameter_unless_it_is_spread(document: Path) -> None:
    settings = shop_settings(document, 1, operations={"create_order": OpenApiRules()})
    create = Catalog([OpenApi(settings, name="shop")]).methods["shop.createOrder"]
    assert create.signature.names == ["body"]
    create.decode_params(json.dumps({"body": ORDER}))
    assert not create.reconcilable
    assert create.risk == "medium"


def test_the_credentials_are_hidden_in_all_that_leaves_the_connector(document: Path) -> None:
    connector = OpenApi(shop_settings(document, 1), name="shop")
    assert API_KEY in [each.reveal() for each in connector.__hidden__]


@pytest.mark.parametrize(
    ("value", "asked"),
    [("$key", None), ("$$key", "/orders/%24key"), ("a/b {c}", "/orders/a%2Fb%20%7Bc%7D"), (7, "/orders/7")],
)
def test_a_dollar_in_a_path_of_a_reconcile_is_a_name_and_two_are_a_text(document: Path, value: Any, asked: str) -> None:
    found = read_operation(read_document(document, ""), "create_order")
    documents = Documents.of(read_document(document, ""))
    how = OpenApiReconcile(operation="GET /orders/{order_id}", parameters={"order_id": value}, found={"key": "$key"})
    made = operation_of(documents, "shop", found, OpenApiRules(reconcile=how)).rules.reconcile
    assert made is not None
    assert made.path == (asked or "/orders/{key}")
