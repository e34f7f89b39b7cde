"""The rules for every connector, and the whole way of a call through a runtime: both kinds of service, and neither."""

import msgspec
import pytest

from keep_actors.services.http import Http, HttpCall, HttpSettings
from keep_actors.testing.connector_suite import check_connector
from tests.services.http.orders import orders_desk
from tests.services.http.subject import ASKED, NEITHER

pytestmark = pytest.mark.anyio

ORDERS = HttpCall(
    path="/orders",
    query={"customer": "string?"},
    result_path="orders",
    result="object[]",
    description="The orders of a customer.",
)


@pytest.mark.parametrize("call", [ASKED, NEITHER], ids=["asked", "neither"])
async def test_a_runtime_can_rely_on_it(call: HttpCall) -> None:
    soon = msgspec.structs.replace(call, settle_ms=50)
    with orders_desk(keeps_keys=True) as server:
        settings = HttpSettings(base_url=server.url, allow=[server.address], calls={"order": soon, "orders": ORDERS})
        report = await check_connector(
            Http(settings, name="shop"),
            examples={"order": {"customer": "ann", "item": "cup"}, "orders": {"customer": "nobody"}},
        )
    assert not report.findings, report
