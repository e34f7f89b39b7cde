"""Rows of a CSV file and of a workbook: adding, changing, finding, and what is refused."""

import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from keep_actors.connectors import Catalog, DidNotHappen, Failed, Happened
from keep_actors.services.sheet import Sheet, SheetColumn
from keep_actors.services.sheet.grid import call_mark
from keep_actors.testing.connector_suite import check_connector
from keep_storage.model import FailureClass
from tests.services.files.calls import said
from tests.services.sheet.sheets import (
    HEADER,
    ROWS,
    caller,
    cells,
    content,
    hidden_columns,
    made,
    ours,
    people_see,
    put,
    rights,
    row,
    settings,
    texts,
)

pytestmark = pytest.mark.anyio


async def test_a_runtime_can_rely_on_it(file: Path) -> None:
    report = await check_connector(
        Sheet(settings(file, key=(), allow=("read", "append"))),
        examples={"rows": {"where": {"id": "1"}}, "appendRow": dict(row())},
    )
    assert not report.findings, report
    report = await check_connector(
        Sheet(settings(file, allow=("read", "update"))),
        examples={"rows": {}, "getRow": {"id": "1"}, "updateRow": {"id": "1", "amount": 11}},
    )
    assert not report.findings, report


async def test_a_row_is_added_at_the_end(file: Path) -> None:
    assert said(await caller(file).mutate("appendRow", dict(row()))) == row()
    assert people_see(file) == texts([*ROWS, ("3", "Cleo", 30)])
    assert ours(file.parent) == []


async def test_a_row_is_changed_in_the_columns_that_are_given(file: Path) -> None:
    sheet = caller(file)
    changed = said(await sheet.mutate("updateRow", {"id": "2", "amount": -5}))
    assert changed == {"id": "2", "name": "Bob", "amount": -5}
    assert said(await sheet.mutate("updateRow", {"id": "1", "name": None}))["name"] is None
    assert people_see(file) == texts([("1", None, 10), ("2", "Bob", -5)])


async def test_rows_are_found_by_their_cells_page_by_page(file: Path) -> None:
    made(file, [(str(number), "even" if number % 2 == 0 else "odd", number) for number in range(10)])
    sheet = caller(file)
    page = said(await sheet.read("rows", where={"name": "even"}, limit=3))
    assert ([each["id"] for each in page["rows"]], page["next"]) == (["0", "2", "4"], 3)
    page = said(await sheet.read("rows", where={"name": "even"}, limit=3, offset=page["next"]))
    assert ([each["id"] for each in page["rows"]], page["next"]) == (["6", "8"], None)
    assert said(await sheet.read("rows", where={"name": "even", "amount": 4}))["rows"] == [
        {"id": "4", "name": "even", "amount": 4}
    ]
    assert said(await sheet.read("getRow", id="7"))["amount"] == 7
    assert said(await sheet.read("getRow", id="70")) is None


async def test_a_page_ends_where_the_answer_would_be_too_large_for_a_script(file: Path) -> None:
    made(file, [(str(number), "é" * 30_000, number) for number in range(20)])
    sheet = caller(file)
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        text = (await sheet.read("rows", offset=offset)).json_text  # type: ignore[union-attr]  # it answers
        assert len(text.encode()) < 600_000
        page = msgspec.json.decode(text)
        found += [each["id"] for each in page["rows"]]
        offset = page["next"]
    assert found == [str(number) for number in range(20)]


async def test_a_row_that_is_too_large_for_a_script_is_not_changed(file: Path) -> None:
    """The change would be there, and its answer could not be told."""
    columns = {"id": "text", **{f"c{number}": "text" for number in range(20)}}
    before = content(made(file, [["1", *["x" * 30_000] * 20]], list(columns)))
    sheet = caller(file, columns=columns)
    outcome = await sheet.mutate("updateRow", {"id": "1", "c0": "new"})
    assert isinstance(outcome, DidNotHappen), outcome
    assert "scripts get at most 512,000" in outcome.message
    assert content(file) == before
    assert isinstance(await sheet.read("rows"), Failed)


async def test_the_keys_of_calls_are_in_a_column_that_scripts_do_not_see(file: Path) -> None:
    sheet = caller(file)
    await sheet.mutate("appendRow", dict(row()))
    await sheet.mutate("updateRow", {"id": "1", "amount": 11})
    header, first, second, third = cells(file)
    assert header == [*HEADER, "keep_call"]
    marks = [first[3].split(), (second[3] or "").split(), third[3].split()]
    assert [len(each) for each in marks] == [2, 0, 1], "an update keeps the place of the call that added the row"
    assert set(said(await sheet.read("getRow", id="3"))) == set(HEADER)
    if file.suffix == ".xlsx":
        assert hidden_columns(file) == ["D"]


@pytest.mark.parametrize("formula_text", ["escape", "keep", "refuse"])
async def test_a_row_that_was_changed_often_keeps_the_calls_that_came_last(formula_text: str, file: Path) -> None:
    sheet = caller(file, formula_text=formula_text)
    calls = [sheet.call("updateRow", {"id": "1", "amount": number}) for number in range(10)]
    for number, call in enumerate(calls):
        assert isinstance(await sheet.mutate("updateRow", {"id": "1", "amount": number}, call), Happened)
    assert cells(file)[1][3].split() == [".", *(call_mark(call.idempotency_key) for call in calls[2:])]


async def test_a_key_column_of_another_name_is_used(file: Path) -> None:
    await caller(file, call_column="reference").mutate("appendRow", dict(row()))
    assert cells(file)[0][-1] == "reference"


async def test_columns_have_headings_of_their_own_and_may_stand_in_any_order(file: Path) -> None:
    made(file, [("x", "B-1", "left")], ["Total, gross", "Booking no.", "note"])
    columns = {
        "number": SheetColumn(type="text", header="Booking no."),
        "total": SheetColumn(type="text", header="Total, gross"),
    }
    sheet = caller(file, columns=columns, key=("number",))
    await sheet.mutate("updateRow", {"number": "B-1", "total": "y"})
    assert people_see(file) == [["y", "B-1", "left"]]


async def test_every_type_comes_back_as_it_was_written(file: Path) -> None:
    columns = {"id": "text", "n": "number", "i": "integer", "b": "boolean", "d": "date"}
    made(file, [], list(columns))
    sheet = caller(file, columns=columns)
    values: list[dict[str, Any]] = [
        {"id": "00" + str(place), "n": n, "i": i, "b": b, "d": d}
        for place, (n, i, b, d) in enumerate(
            [
                (0.1 + 0.2, 2**53 - 1, True, "2026-11-19"),
                (-1e300, -(2**53) + 1, False, "1999-12-31"),
                (5.0, 0, None, None),
            ]
        )
    ]
    for each in values:
        assert said(await sheet.mutate("appendRow", each)) == each
    assert said(await sheet.read("rows"))["rows"] == values


async def test_a_missing_file_is_made_with_its_header_if_that_is_allowed(file: Path) -> None:
    put(file, None)
    assert isinstance(await caller(file).mutate("appendRow", dict(row())), DidNotHappen)
    assert content(file) is None
    sheet = caller(file, create=True)
    assert said(await sheet.read("rows")) == {"rows": [], "next": None}
    assert isinstance(await sheet.mutate("appendRow", dict(row())), Happened)
    assert cells(file)[0] == [*HEADER, "keep_call"]
    assert people_see(file) == texts([("3", "Cleo", 30)])


async def test_without_the_right_there_are_no_mutations(file: Path) -> None:
    kinds = Catalog([Sheet(settings(file, allow=("read",)))]).kinds()
    assert kinds == {"sheet.rows": "read", "sheet.getRow": "read"}


LOGIC, CHANGED = FailureClass.LOGIC, FailureClass.PRECONDITION
REFUSED: dict[str, tuple[str, dict[str, Any], FailureClass, str]] = {
    "a key that is there": ("appendRow", {"id": "1", "name": "x", "amount": 1}, CHANGED, "has this key already"),
    "no row of the key": ("updateRow", {"id": "9", "amount": 1}, CHANGED, "no row has this key"),
    "nothing to change": ("updateRow", {"id": "1"}, LOGIC, "no column is given but the key"),
    "an empty key": ("appendRow", {"id": "", "name": "x", "amount": 1}, LOGIC, "id is empty"),
    "a NUL character": ("appendRow", {"id": "3", "name": "a\0b", "amount": 1}, LOGIC, "name: a cell"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_change_changes_nothing(case: str, file: Path) -> None:
    before = content(file)
    name, params, cls, words = REFUSED[case]
    outcome = await caller(file).mutate(name, params)
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is cls, outcome
    assert words in outcome.message
    assert content(file) == before
    assert ours(file.parent) == []


SHEETS: dict[str, tuple[list[Any], list[Any], str]] = {
    "a column is missing": ([("1", "Ann")], ["id", "name"], "the header has no 'amount'"),
    "a column is there twice": ([("1", "Ann", 1, 2)], [*HEADER, "amount"], "'amount' more than once"),
    "two rows have one key": ([("1", "a", 1), ("1", "b", 2)], list(HEADER), "rows 2 and 3 have the same key"),
    "there are too many rows": ([(str(n), "x", n) for n in range(101)], list(HEADER), "rows"),
    "a cell has another type": ([("1", "Ann", "many")], list(HEADER), "'amount' is not an integer"),
}


@pytest.mark.parametrize("case", SHEETS)
async def test_a_sheet_that_is_not_as_it_should_be_is_not_changed(case: str, file: Path) -> None:
    rows, header, words = SHEETS[case]
    before = content(made(file, rows, header))
    outcome = await caller(file, rows_max=100).mutate("updateRow", {"id": "1", "name": "new"})
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is CHANGED
    assert words in outcome.message
    assert content(file) == before


async def test_a_cell_of_another_type_spoils_only_its_own_row(file: Path) -> None:
    made(file, [("1", "Ann", "many"), ("2", "Bob", 2)])
    sheet = caller(file)
    assert said(await sheet.read("getRow", id="2"))["amount"] == 2
    assert isinstance(await sheet.read("getRow", id="1"), Failed)
    assert isinstance(await sheet.mutate("updateRow", {"id": "2", "amount": 3}), Happened)


async def test_a_file_that_is_too_large_is_neither_read_nor_written(file: Path) -> None:
    size = len(content(file) or b"")
    outcome = await caller(file, bytes_max=size - 1).read("rows")
    assert isinstance(outcome, Failed), outcome
    assert f"more than {size - 1:,} bytes" in outcome.message
    grown = await caller(file, bytes_max=size).mutate(
        "appendRow", dict(row(name="long" * 2_000 + os.urandom(2_000).hex()))
    )
    assert isinstance(grown, DidNotHappen), grown
    assert grown.cls is CHANGED
    assert people_see(file) == texts(ROWS)


async def test_a_link_to_the_sheet_stays_a_link(file: Path) -> None:
    folder = file.parent / "links"
    folder.mkdir()
    link = folder / file.name
    link.symlink_to(file)
    assert isinstance(await caller(link).mutate("appendRow", dict(row())), Happened)
    assert link.is_symlink()
    assert len(people_see(file)) == 3


async def test_a_change_keeps_the_rights_of_the_file(file: Path) -> None:
    await anyio.Path(file).chmod(0o640)
    await caller(file).mutate("appendRow", dict(row()))
    assert rights(file) == 0o640


async def test_a_sheet_that_does_not_fit_its_settings_stops_the_start(file: Path) -> None:
    made(file, [], ["id", "name"])
    with pytest.raises(Exception, match="the header has no 'amount'"):
        await Sheet(settings(file)).open()
