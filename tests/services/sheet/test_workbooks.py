"""Workbooks of people: what is kept, what would be lost and is refused, and archives that are traps."""

import os
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]  # it has no types
import pytest

from keep_actors.connectors import DidNotHappen, Failed, Happened
from keep_actors.services.service import SettingsError
from keep_actors.services.sheet import Sheet
from keep_actors.services.sheet.parts import LOST_INSIDE
from keep_storage.model import FailureClass
from tests.services.files.calls import said
from tests.services.sheet.sheets import caller, content, formulas_of, made, people_see, put, row, settings, texts
from tests.services.sheet.workbooks import (
    SHEET,
    calculated,
    decorated,
    edited,
    looks,
    packed,
    with_element,
    with_part,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return made(tmp_path / "book.xlsx")


async def test_the_work_of_a_person_is_kept(file: Path) -> None:
    before = looks(decorated(file))
    sheet = caller(file)
    assert isinstance(await sheet.mutate("appendRow", dict(row())), Happened)
    assert isinstance(await sheet.mutate("updateRow", {"id": "1", "amount": 11}), Happened)
    assert looks(file) == before
    assert people_see(file) == texts([("1", "Ann", 11), ("2", "Bob", 20), ("3", "Cleo", 30)])


async def test_the_worksheet_of_the_settings_is_used(file: Path) -> None:
    book = openpyxl.load_workbook(file)
    for cell in book.create_sheet("People").iter_rows(max_row=1, max_col=3):
        cell[0].value, cell[1].value, cell[2].value = "id", "name", "amount"
    book.save(file)
    await caller(file, worksheet="People").mutate("appendRow", dict(row()))
    found = openpyxl.load_workbook(file)
    assert [cell.value for cell in found["People"][2]][:3] == ["3", "Cleo", 30]
    assert found["Sheet"].max_row == 3
    missing = await caller(file, worksheet="Nobody").read("rows")
    assert isinstance(missing, Failed)
    assert "no worksheet 'Nobody'; it has: Sheet, People" in missing.message


async def test_only_the_column_of_the_calls_is_hidden_among_columns_of_one_width(file: Path) -> None:
    book = openpyxl.load_workbook(file)
    wide = book.active.column_dimensions["A"]
    wide.min, wide.max, wide.width, wide.number_format = 1, 16_384, 20, "0.000"
    book.save(file)
    assert isinstance(await caller(file).mutate("appendRow", dict(row())), Happened)
    spans = openpyxl.load_workbook(file).active.column_dimensions.values()
    assert sorted((each.min, each.max, each.hidden) for each in spans) == [
        (1, 3, False),
        (4, 4, True),
        (5, 16_384, False),
    ]
    assert {(each.width, each.number_format) for each in spans if not each.hidden} == {(20, "0.000")}


@pytest.mark.parametrize("on", ["Sheet", "Sums"])
async def test_calculated_values_are_read_and_not_lost(on: str, file: Path) -> None:
    before = content(calculated(file, on))
    sheet = caller(file)
    if on == "Sheet":
        assert said(await sheet.read("getRow", id="2"))["amount"] == 20
    outcome = await sheet.mutate("updateRow", {"id": "1", "amount": 11})
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is FailureClass.PRECONDITION
    assert "the workbook has formulas" in outcome.message
    assert content(file) == before


async def test_formulas_stay_and_are_calculated_again_if_the_operator_says_so(file: Path) -> None:
    sheet = caller(calculated(file), formulas="recalculate")
    assert isinstance(await sheet.mutate("updateRow", {"id": "1", "amount": 11}), Happened)
    assert formulas_of(file) == ["C3"]
    assert openpyxl.load_workbook(file).calculation.fullCalcOnLoad
    read = await sheet.read("getRow", id="2")
    assert isinstance(read, Failed)
    assert "is a formula without a value; open the workbook" in read.message


async def test_a_formula_of_another_namespace_prefix_is_seen(file: Path) -> None:
    def prefix(parts: dict[str, bytes]) -> None:
        main = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        cell = b'<x:c r="C9" xmlns:x="' + main + b'"><x:f>1+1</x:f><x:v>2</x:v></x:c>'
        parts[SHEET] = parts[SHEET].replace(b"</sheetData>", b'<row r="9">' + cell + b"</row></sheetData>")

    outcome = await caller(edited(file, prefix)).mutate("updateRow", {"id": "1", "amount": 11})
    assert isinstance(outcome, DidNotHappen), outcome
    assert "has formulas" in outcome.message


LOST = {
    "macros": ("xl/vbaProject.bin", b"\xd0\xcf\x11\xe0"),
    "a chart": ("xl/charts/chart1.xml", b"<c/>"),
    "a picture": ("xl/media/image1.png", b"\x89PNG"),
    "comments": ("xl/comments1.xml", b"<comments/>"),
    "a pivot table": ("xl/pivotTables/pivotTable1.xml", b"<p/>"),
    "a table": ("xl/tables/table1.xml", b"<table/>"),
    "controls": ("xl/activeX/activeX1.xml", b"<a/>"),
    "a signature": ("_xmlsignatures/sig1.xml", b"<s/>"),
}


@pytest.mark.parametrize("case", LOST)
async def test_a_workbook_with_parts_that_would_be_lost_is_read_and_not_changed(case: str, file: Path) -> None:
    name, part = LOST[case]
    before = content(with_part(file, name, part))
    sheet = caller(file)
    assert len(said(await sheet.read("rows"))["rows"]) == 2
    outcome = await sheet.mutate("appendRow", dict(row()))
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is FailureClass.PRECONDITION
    assert name in outcome.message
    assert content(file) == before


INSIDE = {
    "extLst": b'<extLst><ext uri="{x}"/></extLst>',
    "protectedRanges": b'<protectedRanges><protectedRange name="r" sqref="A1"/></protectedRanges>',
    "dataConsolidate": b"<dataConsolidate/>",
    "customSheetViews": b'<customSheetViews><customSheetView guid="{00000000-0000-0000-0000-000000000001}"/>'
    b"</customSheetViews>",
    "cellWatches": b'<cellWatches><cellWatch r="A1"/></cellWatches>',
    "customProperties": b"<customProperties/>",
}


@pytest.mark.filterwarnings("ignore:Unknown extension:UserWarning")  # the library says what the connector refuses
@pytest.mark.parametrize("name", INSIDE)
async def test_a_worksheet_with_something_that_would_be_lost_is_not_changed(name: str, file: Path) -> None:
    before = content(with_element(file, INSIDE[name]))
    outcome = await caller(file).mutate("appendRow", dict(row()))
    assert isinstance(outcome, DidNotHappen), outcome
    assert "a change would lose parts of the workbook" in outcome.message
    assert content(file) == before


@pytest.mark.parametrize(
    "element",
    [
        b'<fileSharing readOnlyRecommended="1"/>',
        b'<customWorkbookViews><customWorkbookView name="v" guid="{00000000-0000-0000-0000-000000000001}"'
        b' windowWidth="1" windowHeight="1" activeSheetId="1"/></customWorkbookViews>',
    ],
)
async def test_a_workbook_with_something_that_would_be_lost_is_not_changed(element: bytes, file: Path) -> None:
    with_element(file, element, behind=b"</sheets>", part="xl/workbook.xml")
    outcome = await caller(file).mutate("appendRow", dict(row()))
    assert isinstance(outcome, DidNotHappen), outcome
    assert "would lose" in outcome.message


def test_every_loss_inside_of_a_part_is_tried() -> None:
    tried = b"".join(INSIDE.values()) + b"<customWorkbookViews><fileSharing/><rPh>"
    assert all(mark.search(tried) for _, mark, _ in LOST_INSIDE)


def test_a_workbook_with_macros_is_refused_from_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has macros, which would be lost"):
        Sheet(settings(tmp_path / "book.xlsm"))


# Traps.


def many_tags() -> bytes:
    """XML that cannot be packed well."""
    return b"<styleSheet>" + b"".join(b'<a b="%b"/>' % os.urandom(4).hex().encode() for _ in range(400_001))


def nothing(_: Path) -> None:
    """Return nothing."""


def _bomb(file: Path) -> None:
    packed(file, {"[Content_Types].xml": b"x", "xl/worksheets/sheet1.xml": b"\0" * 40_000_000})


def _many_parts(file: Path) -> None:
    packed(file, {f"xl/media/{number}.png": b"" for number in range(2_001)})


def _two_of_a_name(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(SHEET, b"<worksheet/>")


def _odd_packing(file: Path) -> None:
    with zipfile.ZipFile(file, "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("xl/media/a.png", b"x" * 1_000)


def _broken(file: Path) -> None:
    data = bytearray(file.read_bytes())
    at = data.index(b"xl/worksheets/sheet1.xml") + 40
    data[at : at + 20] = b"\xff" * 20
    file.write_bytes(data)


ENTITY = b'<!DOCTYPE w [<!ENTITY e SYSTEM "file:///etc/hostname">]>'


def _replaced(text: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        edited(file, lambda parts: parts.update({SHEET: text(parts[SHEET])}))

    return replace


def _as_utf_16(part: bytes) -> bytes:
    return (b'<?xml version="1.0" encoding="UTF-16"?>' + ENTITY + part).decode().encode("utf-16")


def _as_ebcdic(part: bytes) -> bytes:
    return b'<?xml version="1.0" encoding="cp037"?>' + (ENTITY + part).decode().encode("cp037")


def _laughs(part: bytes) -> bytes:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 9))
    return f'<!DOCTYPE w [<!ENTITY l0 "ha">{levels}]>'.encode() + part.replace(b"Ann", b"&l8;")


TRAPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "an archive that grows": (_bomb, "grows too much"),
    "too many parts": (_many_parts, "too many parts"),
    "a part twice": (_two_of_a_name, "one of them twice"),
    "an odd packing": (_odd_packing, "packed in a way"),
    "a broken archive": (_broken, "that can be read"),
    "no archive": (lambda file: nothing(put(file, b"id,name\n")), "that can be read"),
    "an archive of something else": (lambda file: nothing(packed(file, {"a.txt": b"x"})), "that can be read"),
    "an entity of a file": (_replaced(lambda part: ENTITY + part.replace(b"Ann", b"&e;")), "declares entities"),
    "an entity that grows": (_replaced(_laughs), "declares entities"),
    "an entity in another encoding": (_replaced(_as_utf_16), "is not UTF-8"),
    "an entity in an encoding of mainframes": (_replaced(_as_ebcdic), "is not UTF-8"),
    "XML that does not end": (_replaced(lambda part: part[:-20]), "that can be read"),
    "a cell far outside": (
        _replaced(
            lambda part: part.replace(b"</sheetData>", b'<row r="49999"><c r="RR49999"><v>1</v></c></row></sheetData>')
        ),
        "remove what is far outside",
    ),
    "a cell at the end": (
        _replaced(
            lambda part: part.replace(
                b"</sheetData>", b'<row r="1048576"><c r="A1048576"><v>1</v></c></row></sheetData>'
            )
        ),
        "`rows_max` of the settings decides",
    ),
    "styles without end": (
        lambda file: nothing(edited(file, lambda parts: parts.update({"xl/styles.xml": many_tags()}))),
        "is too large to be read",
    ),
}


@pytest.mark.parametrize("case", TRAPS)
@pytest.mark.timeout(20)
async def test_a_trap_is_refused_without_much_memory(case: str, file: Path) -> None:
    set_trap, words = TRAPS[case]
    set_trap(file)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sheet = caller(file)
    read, changed = await sheet.read("rows"), await sheet.mutate("appendRow", dict(row()))
    assert isinstance(read, Failed), read
    assert isinstance(changed, DidNotHappen), changed
    assert (read.cls, changed.cls) == (FailureClass.PRECONDITION, FailureClass.PRECONDITION), (read, changed)
    assert words in read.message, read
    assert words in changed.message, changed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 200_000, "kilobytes"


async def test_rows_of_equal_values_are_no_trap(file: Path) -> None:
    made(file, [("1", "Ann", 1), *[("x", "x" * 1_000, 0)] * 3_000])
    assert isinstance(await caller(file).mutate("updateRow", {"id": "1", "amount": 2}), Happened)


async def test_a_trap_on_another_worksheet_is_not_written(file: Path) -> None:
    book = openpyxl.load_workbook(file)
    book.create_sheet("Far")["XFD1048576"] = 1
    book.save(file)
    sheet = caller(file)
    assert len(said(await sheet.read("rows"))["rows"]) == 2
    outcome = await sheet.mutate("appendRow", dict(row()))
    assert isinstance(outcome, DidNotHappen), outcome
    assert "the worksheet 'Far' reaches to row 1,048,576" in outcome.message


ODD_CELLS: dict[str, tuple[dict[str, Any], str]] = {
    "a text with a code": ({"name": "a_x000D_b"}, "_x000D_"),
    "a text that is too long": ({"name": "x" * 32_768}, "32,767"),
    "a control character": ({"name": "a\x07b"}, "cannot have"),
}


@pytest.mark.parametrize("case", ODD_CELLS)
async def test_a_text_that_a_workbook_cannot_hold_is_refused(case: str, file: Path) -> None:
    differences, words = ODD_CELLS[case]
    outcome = await caller(file).mutate("appendRow", dict(row(**differences)))
    assert isinstance(outcome, DidNotHappen), outcome
    assert outcome.cls is FailureClass.LOGIC
    assert words in outcome.message


async def test_all_digits_of_numbers_are_kept(file: Path) -> None:
    sheet = caller(file, columns={"id": "text", "name": "text", "amount": "number"})
    await sheet.mutate("appendRow", dict(row(amount=0.1 + 0.2)))
    assert isinstance(await sheet.mutate("updateRow", {"id": "1", "name": "x"}), Happened)
    assert said(await sheet.read("getRow", id="3"))["amount"] == 0.1 + 0.2


async def test_a_date_before_all_programs_agree_is_refused(file: Path) -> None:
    made(file, [], ["id", "day"])
    sheet = caller(file, columns={"id": "text", "day": "date"})
    outcome = await sheet.mutate("appendRow", {"id": "1", "day": "1900-02-28"})
    assert isinstance(outcome, DidNotHappen), outcome
    assert "no date before 1900-03-01" in outcome.message


async def test_a_merged_cell_is_not_written(file: Path) -> None:
    book = openpyxl.load_workbook(file)
    book.active.merge_cells("B2:B3")
    book.save(file)
    outcome = await caller(file).mutate("updateRow", {"id": "2", "name": "x"})
    assert isinstance(outcome, DidNotHappen), outcome
    assert "merged" in outcome.message
