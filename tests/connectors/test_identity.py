from typing import Any

import msgspec
import pytest

from keep_actors.connectors import Connector, Similarity, mutation
from tests.connectors.world import method_of


class Target(msgspec.Struct, rename="camel"):
    sheet_id: str
    tab: str = "first"


class Writer(Connector):
    name = "writer"

    def __init__(self, said: Any = None) -> None:
        self.said = said
        self.compared: list[tuple[dict[str, Any], dict[str, Any]]] = []

    @mutation(identity=["row_id", "target"])
    async def write(self, target: Target, text: str, row_id: int = 1, bold: bool = False) -> None: ...

    @write.compare_payload
    def same_text(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        self.compared.append((old, new))
        if isinstance(self.said, Exception):
            raise self.said
        said: Similarity = self.said
        return said

    @mutation(identity=["to"])
    async def send(self, to: str, text: str) -> None: ...

    @mutation
    async def delete(self, row_id: int, tags: set[str], note: str | msgspec.UnsetType = msgspec.UNSET) -> None: ...

    @mutation
    async def tell(self, to: str, text: str) -> None: ...

    @tell.compare_payload
    def same_words(self, old: dict[str, Any], new: dict[str, Any]) -> Similarity:
        return self.same_text(old, new)


WRITE, SEND, DELETE = (method_of(Writer(), name) for name in ("write", "send", "delete"))


def test_identity_is_canonical_and_leaves_the_payload_out() -> None:
    given = (
        '{"target": {"sheetId": "s"}, "text": "a"}',
        '{"rowId": 1, "text": "b", "bold": true, "target": {"tab": "first", "sheetId": "s"}}',
    )
    texts = {WRITE.identity_of(WRITE.decode_params(each)) for each in given}
    assert texts == {'{"rowId":1,"target":{"sheetId":"s","tab":"first"}}'}


def test_another_target_has_another_identity() -> None:
    one = WRITE.identity_of(WRITE.decode_params('{"target": {"sheetId": "s"}, "text": "a"}'))
    other = WRITE.identity_of(WRITE.decode_params('{"target": {"sheetId": "s", "tab": "second"}, "text": "a"}'))
    assert one != other


def test_without_a_declared_identity_the_method_alone_is_identity() -> None:
    given = ('{"tags": ["b", "a"], "rowId": 4}', '{"tags": [], "rowId": 5, "note": "later"}')
    assert {DELETE.identity_of(DELETE.decode_params(each)) for each in given} == {"{}"}


def test_without_a_declared_identity_everything_is_payload() -> None:
    assert (
        DELETE.compare_payload('{"rowId": 1, "tags": ["a", "b"]}', '{"tags": ["b", "a"], "rowId": 1}') == "equivalent"
    )
    assert DELETE.compare_payload('{"rowId": 1, "tags": []}', '{"rowId": 1, "tags": ["a"]}') == "significant"
    writer = Writer("minor")
    assert method_of(writer, "tell").compare_payload('{"to": "a", "text": "x"}', '{"to": "b", "text": "y"}') == "minor"
    assert writer.compared == [({"to": "a", "text": "x"}, {"to": "b", "text": "y"})]


OLD = '{"target": {"sheetId": "s"}, "text": "a"}'
NEW = '{"target": {"sheetId": "s"}, "text": "b"}'


@pytest.mark.parametrize("said", ["equivalent", "minor", "significant"])
def test_the_connector_says_how_much_two_payloads_differ(said: Similarity) -> None:
    writer = Writer(said)
    assert method_of(writer, "write").compare_payload(OLD, NEW) == said
    assert writer.compared == [({"text": "a", "bold": False}, {"text": "b", "bold": False})]


def test_equal_payloads_are_equivalent_without_asking() -> None:
    writer = Writer(ValueError())
    same = '{"bold": false, "text": "a", "target": {"tab": "first", "sheetId": "s"}}'
    assert method_of(writer, "write").compare_payload(OLD, same) == "equivalent"
    assert writer.compared == []


@pytest.mark.parametrize("said", [ValueError("odd"), None, "same", True])
def test_a_comparison_that_fails_finds_a_significant_difference(said: object) -> None:
    assert method_of(Writer(said), "write").compare_payload(OLD, NEW) == "significant"


def test_without_a_comparison_every_difference_is_significant() -> None:
    assert SEND.compare_payload('{"to": "a", "text": "x"}', '{"to": "a", "text": "y"}') == "significant"
    assert SEND.compare_payload('{"to": "a", "text": "x"}', '{"text": "x", "to": "a"}') == "equivalent"


def test_another_target_is_a_significant_difference() -> None:
    assert DELETE.compare_payload('{"rowId": 1, "tags": []}', '{"rowId": 2, "tags": []}') == "significant"
    other = '{"target": {"sheetId": "other"}, "text": "a"}'
    assert method_of(Writer("minor"), "write").compare_payload(OLD, other) == "significant"


def test_parameters_that_no_longer_fit_differ_significantly() -> None:
    assert method_of(Writer("minor"), "write").compare_payload('{"old": 1}', NEW) == "significant"
