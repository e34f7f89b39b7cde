"""What a call returns, in words and by example: whatever a connector's author can write, a person can be shown."""

import datetime
import decimal
import enum
import typing
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from keep_actors import ResultRefused
from keep_actors.api.expected import checked_result, expected_of
from keep_actors.connectors import Catalog, Connector, MutationCall, mutation
from keep_actors.connectors.signature import Signature


class Row(msgspec.Struct, rename="camel"):
    row_id: str
    values: list[int] = []
    note: str | None = None


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []
    parent: "Tree | None" = None


class Added(msgspec.Struct, tag="added"):
    id: str


class Changed(msgspec.Struct, tag="changed"):
    id: str
    at: datetime.datetime


class Colour(enum.Enum):
    RED = "red"


class Place(typing.TypedDict):
    x: int
    y: float


def signature(result_type: Any) -> Signature:
    return Signature(msgspec.Struct, {}, takes_call=False, result_type=result_type)


TYPES: list[tuple[Any, str]] = [
    (None, "null"),
    (str, "string"),
    (int, "number"),
    (float, "number"),
    (bool, "boolean"),
    (str | None, "string | null"),
    (Row, "{ rowId: string; values?: number[]; note?: string | null }"),
    (list[Row], "{ rowId: string; values?: number[]; note?: string | null }[]"),
    (dict[str, int], "{ [key: string]: number }"),
    (Literal["paid", "open"], '"open" | "paid"'),
    (Colour, '"red"'),
    (tuple[int, str], "[number, string]"),
    (Place, "{ x: number; y: number }"),
    (Any, "any"),
    (Tree, "{ name: string; children?: Tree[]; parent?: Tree | null }"),
]


@pytest.mark.parametrize(("result_type", "said"), TYPES, ids=str)
def test_a_type_is_said_in_words_and_its_example_fits(result_type: Any, said: str) -> None:
    expected = expected_of(signature(result_type))
    assert expected.type == said
    assert signature(result_type).result_text(msgspec.json.decode(expected.example)) == expected.example


ODD: list[Any] = [
    Added | Changed,
    bytes,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    set[int],
    tuple[str, ...],
    dict[str, Tree],
    list[Any],
    Annotated[int, Meta(ge=10)],
    Annotated[int, Meta(gt=10, multiple_of=7)],
    Annotated[int, Meta(le=-3)],
    Annotated[int, Meta(lt=0)],
    Annotated[float, Meta(ge=0.25, le=0.75)],
    Annotated[str, Meta(min_length=12)],
    Annotated[str, Meta(max_length=2)],
    Annotated[list[int], Meta(min_length=3)],
    Annotated[str, Meta(pattern="^ord-[0-9]+$", examples=["ord-7"])],
]


@pytest.mark.parametrize("result_type", ODD, ids=str)
def test_the_example_of_an_odd_type_fits_too(result_type: Any) -> None:
    expected = expected_of(signature(result_type))
    assert expected.type
    assert signature(result_type).result_text(msgspec.json.decode(expected.example)) == expected.example


def test_where_no_example_can_be_made_up_there_is_none() -> None:
    assert expected_of(signature(Annotated[str, Meta(pattern="^ord-[0-9]+$")])).example == ""


class Sheets(Connector):
    name = "sheets"

    @mutation
    async def append(self, call: MutationCall) -> Row:
        raise NotImplementedError


METHOD = Catalog([Sheets()]).get("sheets.append")


@pytest.mark.parametrize(
    ("given", "path", "problem"),
    [
        (None, "", "expected object, got null"),
        ({}, "rowId", "is required and missing"),
        ({"rowId": 7}, "rowId", "expected string, got number"),
        ({"rowId": "r", "values": [1, "two"]}, "values[1]", "expected integer, got string"),
        ({"rowId": ValueError}, "", "is not JSON: Encoding objects of type type is unsupported"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_with_its_place_and_an_example(given: object, path: str, problem: str) -> None:
    with pytest.raises(ResultRefused) as refused:
        checked_result(METHOD, "sheets.append", given)
    error = refused.value
    assert (error.call, error.path, error.problem) == ("sheets.append", path, problem)
    assert error.example == '{"rowId":"text","values":[1],"note":"text"}'
    words = (
        f"The result of sheets.append does not fit: {path + ': ' if path else ''}{problem}. Expected {error.expected}"
    )
    assert str(error) == f"{words}, for example {error.example}."


def test_what_fits_is_kept_as_the_connectors_own_answer_would_be() -> None:
    assert (
        checked_result(METHOD, "sheets.append", {"rowId": "r7", "more": 1}) == '{"rowId":"r7","values":[],"note":null}'
    )
    assert checked_result(METHOD, "sheets.append", Row("r7")) == '{"rowId":"r7","values":[],"note":null}'


def test_a_result_that_nobody_here_can_check_is_refused_with_what_to_do() -> None:
    with pytest.raises(ResultRefused, match=r"cannot be checked: this runtime has no gone\.call") as refused:
        checked_result(None, "gone.call", None)
    assert (refused.value.expected, refused.value.example) == ("", "")
