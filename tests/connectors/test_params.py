import time
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from keep_actors.connectors import Connector, ParamsError, mutation, read
from keep_storage.model import FailureClass
from tests.connectors.world import method_of


class Colour(Enum):
    RED = "red"


class Cell(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    cell_id: str
    colour: Colour | None = None


class Strict(Connector):
    name = "strict"

    @mutation
    async def write(
        self,
        sheet_id: str,
        values: list[str],
        cells: list[Cell] = [],  # noqa: B006  # msgspec makes a new one for each call
        first_cell: Cell | None = None,
        limit: Annotated[int, msgspec.Meta(ge=1)] = 100,
        ratio: float = 0.5,
        mode: Literal["add", "set"] = "add",
        counts: dict[str, int] | None = None,
        by_number: dict[int, str] | None = None,
        either: int | str | None = None,
        due_at: datetime | None = None,
        note: str | msgspec.UnsetType = msgspec.UNSET,
    ) -> None: ...

    @read
    async def nothing(self) -> None: ...

    @read
    async def anything(self, value: Any) -> None: ...


WRITE = method_of(Strict(), "write")

MISFITS = [
    ('"values": ["a", "b", 3]', "values[2]", "expected string, got number"),
    ('"values": ["a", null]', "values[1]", "expected string, got null"),
    ('"values": null', "values", "expected array, got null"),
    ('"values": {}', "values", "expected array, got object"),
    ('"cells": [{"cellId": "a"}, {}]', "cells[1].cellId", "is required and missing"),
    ('"cells": [{"cellId": "a", "size": 1}]', "cells[0].size", "is not a known field"),
    ('"cells": [{"cellId": "a", "colour": "blue"}]', "cells[0].colour", "invalid enum value 'blue'"),
    ('"firstCell": {"cellId": true}', "firstCell.cellId", "expected string, got boolean"),
    ('"firstCell": []', "firstCell", "expected object or null, got array"),
    ('"limit": null', "limit", "expected integer, got null"),
    ('"limit": 1.5', "limit", "expected integer, got number"),
    ('"limit": "1"', "limit", "expected integer, got string"),
    ('"limit": 0', "limit", "expected integer >= 1"),
    ('"ratio": "1"', "ratio", "expected number, got string"),
    ('"mode": "drop"', "mode", "invalid enum value 'drop'"),
    ('"counts": {"a": "b"}', "counts[...]", "expected integer, got string"),
    ('"byNumber": {"a": "b"}', "byNumber", "a key of it: expected integer, got string"),
    ('"either": true', "either", "expected integer or string or null, got boolean"),
    ('"dueAt": "tomorrow"', "dueAt", "invalid RFC3339 encoded datetime"),
    ('"note": null', "note", "expected string, got null"),
]


@pytest.mark.parametrize(("given", "path", "message"), MISFITS)
def test_a_misfit_is_told_with_its_path_in_the_words_of_the_script(given: str, path: str, message: str) -> None:
    head = "" if '"values"' in given else '"values": [], '
    with pytest.raises(ParamsError) as refused:
        WRITE.decode_params(f'{{"sheetId": "s", {head}{given}}}')
    assert (refused.value.path, refused.value.message) == (path, message)
    assert str(refused.value) == f"strict.write: {path}: {message}"
    assert refused.value.failure_class is FailureClass.LOGIC


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("{}", "strict.write: sheetId: is required and missing"),
        ("[]", "strict.write: expected object, got array"),
        ("null", "strict.write: expected object, got null"),
        ('"text"', "strict.write: expected object, got string"),
        ("", "strict.write: not JSON: Input data was truncated"),
        ('{"sheetId": ', "strict.write: not JSON: Input data was truncated"),
        ('{"sheetId": "s", "values": []} and more', "strict.write: not JSON: JSON is malformed: trailing characters"),
        ('{"sheetId": "\ud800"}', "strict.write: not JSON: 'utf-8' codec can't encode character"),
    ],
)
def test_what_is_no_object_is_refused_as_a_whole(given: str, text: str) -> None:
    with pytest.raises(ParamsError) as refused:
        WRITE.decode_params(given)
    assert str(refused.value).startswith(text)


def test_an_unknown_parameter_is_refused_with_those_there_are() -> None:
    with pytest.raises(ParamsError) as refused:
        WRITE.decode_params('{"sheet_id": "s"}')
    assert str(refused.value).startswith(
        "strict.write: sheet_id: is not a known field; there are: sheetId, values, cells, firstCell, limit"
    )
    with pytest.raises(ParamsError, match=r"^strict\.nothing: limit: is not a known field; there are: none$"):
        method_of(Strict(), "nothing").decode_params('{"limit": 1}')


def test_a_message_stays_short_however_much_was_passed() -> None:
    for given in (f'{{"{"x" * 100_000}": 1}}', f'{{"sheetId": "s", "values": [], "mode": "{"x" * 100_000}"}}'):
        with pytest.raises(ParamsError) as refused:
            WRITE.decode_params(given)
        assert len(str(refused.value)) < 600


def test_values_nested_too_deep_are_refused() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(ParamsError, match="not JSON: maximum recursion depth"):
        method_of(Strict(), "anything").decode_params(f'{{"value": {deep}}}')


def test_defaults_are_filled_in_and_structs_are_made() -> None:
    text = '{"sheetId": "s", "values": [], "cells": [{"cellId": "a", "colour": "red"}], "ratio": 1}'
    params = WRITE.decode_params(text)
    assert params.json_text == text
    assert params.values == {
        "sheet_id": "s",
        "values": [],
        "cells": [Cell("a", Colour.RED)],
        "first_cell": None,
        "limit": 100,
        "ratio": 1.0,
        "mode": "add",
        "counts": None,
        "by_number": None,
        "either": None,
        "due_at": None,
        "note": msgspec.UNSET,
    }


def test_a_list_that_is_a_default_is_not_shared_between_calls() -> None:
    first = WRITE.decode_params('{"sheetId": "s", "values": []}')
    first.values["cells"].append("mine")
    assert WRITE.decode_params('{"sheetId": "s", "values": []}').values["cells"] == []


class Numbers(Connector):
    name = "numbers"

    @read
    async def total(self, values: list[float], of: Any = None) -> float:  # noqa: ARG002
        return sum(values)


@pytest.mark.parametrize("member", ["values", "of"])
@pytest.mark.parametrize("number", ["5e-324", "1.7976931348623157e+308", "1.2345678901234567890123e-300"])
def test_a_megabyte_of_numbers_that_take_long_to_read_is_refused_before_it_is_read(member: str, number: str) -> None:
    total = method_of(Numbers(), "total")
    numbers = ",".join([number] * (1_000_000 // (len(number) + 1)))
    before = time.thread_time()
    with pytest.raises(ParamsError, match="2,000 numbers with an exponent of three digits"):
        total.decode_params(f'{{"{member}":[{numbers}]}}')
    assert time.thread_time() - before < 0.25


def test_a_megabyte_of_nested_lists_is_refused_before_it_is_read() -> None:
    total = method_of(Numbers(), "total")
    lists = ",".join(["[" * 60 + "]" * 60] * 8_500)
    before = time.thread_time()
    with pytest.raises(ParamsError, match="200,000 lists and objects"):
        total.decode_params(f'{{"values":[],"of":[{lists}]}}')
    assert time.thread_time() - before < 0.25


def test_two_thousand_of_them_are_taken_and_text_that_looks_like_them_is_none() -> None:
    total = method_of(Numbers(), "total")
    texts = ",".join(['"5e-324"'] * 3_000)
    params = total.decode_params(f'{{"values":[{",".join(["5e-324"] * 2_000)}],"of":[{texts}]}}')
    assert len(params.values["values"]) == 2_000
    assert len(params.values["of"]) == 3_000
