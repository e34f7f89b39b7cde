from typing import Any, Literal

import msgspec
import pytest

from keep_actors.connectors import (
    Catalog,
    Connector,
    ConnectorDefinitionError,
    MutationCall,
    NotApplied,
    Retry,
    Verdict,
    mutation,
    read,
)
from tests.connectors.world import method_of, mutation_call

pytestmark = pytest.mark.anyio


class Row(msgspec.Struct, rename="camel"):
    row_id: str
    values: list[str]


class Sheets(Connector):
    name = "sheets"

    @read
    async def rows(self, spreadsheet_id: str, limit: int = 100) -> list[Row]:
        """The first rows.

        Oldest first.
        """
        return [Row(f"{spreadsheet_id}-{limit}", [])]

    @read(by_id=True, permission="sheets.read", timeout_ms=5_000)
    async def get_row(self, row_id: str) -> Row | None:
        return Row(row_id, []) if row_id else None

    @mutation(
        permission="sheets.write",
        risk="high",
        timeout_ms=9_000,
        settle_ms=2_000,
        identity=["spreadsheet_id"],
        check_hint="Look at the last row.",
        check_url=lambda call: f"https://sheets.example/{call.params['spreadsheet_id']}",
    )
    async def append_row(self, spreadsheet_id: str, values: list[str], call: MutationCall) -> Row:
        return Row(call.idempotency_key, [spreadsheet_id, *values])

    @append_row.reconcile
    async def find_row(self, call: MutationCall) -> Verdict:
        return NotApplied() if call.sent_at else Retry()

    @append_row.compare_payload
    def same_row(self, old: dict[str, Any], new: dict[str, Any]) -> Literal["equivalent", "minor", "significant"]:
        return "minor" if old == new else "significant"

    @mutation(name="wipe")
    async def delete_everything(self, from_: str = "") -> None: ...


CATALOG = Catalog([Sheets()])


def test_python_names_are_camel_case_in_javascript() -> None:
    assert set(CATALOG.methods) == {"sheets.rows", "sheets.getRow", "sheets.appendRow", "sheets.wipe"}
    append = CATALOG.methods["sheets.appendRow"]
    assert (append.connector, append.name, append.full_name) == ("sheets", "appendRow", "sheets.appendRow")
    assert append.decode_params('{"spreadsheetId": "s", "values": []}').values == {"spreadsheet_id": "s", "values": []}


def test_a_trailing_underscore_frees_a_python_keyword() -> None:
    assert CATALOG.methods["sheets.wipe"].decode_params('{"from": "a"}').values == {"from_": "a"}


def test_a_method_says_what_its_decorator_was_told() -> None:
    append, get_row = CATALOG.methods["sheets.appendRow"], CATALOG.methods["sheets.getRow"]
    assert (append.kind, append.permission, append.risk, append.by_id) == ("mutation", "sheets.write", "high", False)
    assert (append.timeout_ms, append.settle_ms, append.check_hint) == (9_000, 2_000, "Look at the last row.")
    assert append.reconcilable
    assert (get_row.kind, get_row.by_id, get_row.permission, get_row.timeout_ms) == ("read", True, "sheets.read", 5_000)


def test_a_method_has_careful_defaults() -> None:
    rows, wipe = CATALOG.methods["sheets.rows"], CATALOG.methods["sheets.wipe"]
    assert (rows.permission, rows.risk, rows.timeout_ms, rows.by_id) == ("sheets.rows", "low", None, False)
    assert (wipe.permission, wipe.risk, wipe.timeout_ms, wipe.settle_ms) == ("sheets.wipe", "medium", None, 0)
    assert not wipe.reconcilable
    assert wipe.check_hint == ""
    assert wipe.check_url_of(mutation_call()) is None


def test_the_docstring_is_the_description() -> None:
    assert CATALOG.methods["sheets.rows"].description == "The first rows.\n\nOldest first."
    assert CATALOG.methods["sheets.wipe"].description == ""


async def test_a_decorated_method_can_be_awaited_as_it_is_written() -> None:
    [row] = await Sheets().rows("s", limit=7)
    assert row.row_id == "s-7"
    assert await Sheets().find_row(mutation_call()) == NotApplied()


def test_the_schema_of_parameters_has_what_a_script_passes_and_not_what_the_host_does() -> None:
    assert CATALOG.methods["sheets.appendRow"].params_schema() == {
        "$ref": "#/$defs/sheets.appendRow",
        "$defs": {
            "sheets.appendRow": {
                "title": "sheets.appendRow",
                "type": "object",
                "properties": {
                    "spreadsheetId": {"type": "string"},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["spreadsheetId", "values"],
                "additionalProperties": False,
            }
        },
    }


def test_the_schema_of_a_result_is_that_of_its_annotation() -> None:
    schema = CATALOG.methods["sheets.getRow"].result_schema()
    assert schema["anyOf"] == [{"$ref": "#/$defs/Row"}, {"type": "null"}]
    assert set(schema["$defs"]["Row"]["properties"]) == {"rowId", "values"}
    assert CATALOG.methods["sheets.wipe"].result_schema() == {"type": "null"}


def test_a_derived_connector_has_the_methods_under_its_own_name() -> None:
    class Ledger(Sheets):
        name = "ledger"

        @read
        async def total(self) -> int:
            return 0

    methods = Catalog([Sheets(), Ledger()]).methods
    assert methods["ledger.rows"].permission == "ledger.rows"
    assert methods["ledger.appendRow"].permission == "sheets.write"
    assert "ledger.total" in methods
    assert "sheets.total" not in methods


def test_methods_can_come_from_a_class_that_is_no_connector() -> None:
    class Countable:
        @read
        async def how_many(self) -> int:
            return 0

    class Things(Countable, Connector):
        name = "things"

    assert set(Catalog([Things()]).methods) == {"things.howMany"}


def test_a_class_without_methods_can_be_derived_from() -> None:
    class Service(Connector):
        async def open(self) -> None: ...

    class Weather(Service):
        name = "weather"

        @read
        async def today(self) -> str:
            return "rain"

    assert set(Catalog([Weather()]).methods) == {"weather.today"}


def test_the_catalog_tells_the_sandbox_what_there_is() -> None:
    assert CATALOG.kinds() == {
        "sheets.rows": "read",
        "sheets.getRow": "read",
        "sheets.appendRow": "mutation",
        "sheets.wipe": "mutation",
    }
    methods = {"rows": "read", "getRow": "read", "appendRow": "mutation", "wipe": "mutation"}
    assert CATALOG.capabilities() == {"sheets": methods}
    assert CATALOG.get("sheets.rows") is CATALOG.methods["sheets.rows"]
    assert CATALOG.get("sheets.nothing") is None


def test_the_catalog_keeps_its_connectors_for_who_opens_them() -> None:
    sheets = Sheets()
    assert Catalog([sheets]).connectors == (sheets,)


async def test_a_connector_that_needs_no_lifecycle_can_be_opened_and_closed() -> None:
    sheets = Sheets()
    await sheets.open()
    await sheets.close()


@pytest.mark.parametrize(
    ("connectors", "text"),
    [
        ([Sheets(), Sheets()], "Sheets: has the name 'sheets' of another connector (Sheets)"),
        ([Sheets], "Sheets: is a class; pass an instance: `Sheets(…)`"),
        (["sheets"], "'sheets': is not a connector; derive its class from Connector"),
        ([Connector()], "Connector: has no method for scripts"),
    ],
)
def test_the_catalog_refuses_what_it_cannot_use(connectors: list[Any], text: str) -> None:
    with pytest.raises(ConnectorDefinitionError) as refused:
        Catalog(connectors)
    assert text in str(refused.value)


def test_a_person_is_shown_where_to_look() -> None:
    append = CATALOG.methods["sheets.appendRow"]
    params = append.decode_params('{"spreadsheetId": "s1", "values": []}')
    assert append.check_url_of(mutation_call(params)) == "https://sheets.example/s1"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "", 7, None])
def test_an_address_that_is_no_web_page_is_not_shown(url: Any) -> None:
    class Odd(Connector):
        name = "odd"

        @mutation(check_url=lambda _: url)
        async def act(self) -> None: ...

    assert method_of(Odd(), "act").check_url_of(mutation_call()) is None


def test_an_address_that_cannot_be_made_is_not_shown() -> None:
    append = CATALOG.methods["sheets.appendRow"]
    assert append.check_url_of(mutation_call()) is None  # the call has no spreadsheet_id


def test_a_call_cannot_be_changed() -> None:
    call = mutation_call()
    with pytest.raises(AttributeError):
        call.attempt = 2  # type: ignore[misc]


def test_costs_add_up_and_are_never_negative() -> None:
    call = mutation_call()
    assert call.cost_micros == 0
    call.report_cost(1_500)
    call.report_cost(500)
    assert call.cost_micros == 2_000
    with pytest.raises(ValueError, match="cannot be negative"):
        call.report_cost(-1)
    assert call.cost_micros == 2_000
    assert mutation_call().cost_micros == 0
