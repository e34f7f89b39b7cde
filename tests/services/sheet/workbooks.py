"""Workbooks as people have them, and archives as nobody should have them."""

import io
import zipfile
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import openpyxl  # type: ignore[import-untyped]  # it has no types
from openpyxl.formatting.rule import CellIsRule  # type: ignore[import-untyped]
from openpyxl.styles import Font, PatternFill  # type: ignore[import-untyped]
from openpyxl.workbook.defined_name import DefinedName  # type: ignore[import-untyped]
from openpyxl.worksheet.datavalidation import DataValidation  # type: ignore[import-untyped]

from tests.services.sheet.sheets import made

SHEET: Final = "xl/worksheets/sheet1.xml"


def edited(file: Path, edit: Callable[[dict[str, bytes]], None]) -> Path:
    """Change the parts of a workbook."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    edit(parts)
    return packed(file, parts)


def packed(file: Path, parts: Mapping[str, bytes]) -> Path:
    """Write an archive."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return file


def with_element(file: Path, element: bytes, behind: bytes = b"</sheetData>", part: str = SHEET) -> Path:
    """Add an element to a part."""

    def add(parts: dict[str, bytes]) -> None:
        assert behind in parts[part]
        parts[part] = parts[part].replace(behind, behind + element, 1)

    return edited(file, add)


def with_part(file: Path, name: str, content: bytes) -> Path:
    """Add a part."""
    return edited(file, lambda parts: parts.update({name: content}))


def decorated(file: Path) -> Path:
    """A workbook with everything that a person may have done to it, and that is kept."""
    book = openpyxl.load_workbook(made(file))
    sheet = book.active
    sheet["A1"].font = Font(bold=True, color="FFFF0000")
    sheet["B2"].fill = PatternFill("solid", fgColor="FF00FF00")
    sheet["C2"].number_format = "#,##0.00 €"
    sheet.column_dimensions["B"].width = 42
    sheet.row_dimensions[2].height = 33
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = "A1:C3"
    sheet.conditional_formatting.add("C2:C99", CellIsRule(operator="greaterThan", formula=["15"], font=Font(bold=True)))
    valid = DataValidation(type="list", formula1='"Ann,Bob,Cleo"')
    valid.add("B2:B99")
    sheet.add_data_validation(valid)
    sheet["B3"].hyperlink = "https://example.com/bob"
    sheet.oddHeader.center.text = "People"
    other = book.create_sheet("Other")
    other["A1"], other["B7"] = "kept", date(2026, 11, 19)
    other.merge_cells("D1:E2")
    other.sheet_state = "hidden"
    book.defined_names["names"] = DefinedName("names", attr_text="Sheet!$B$2:$B$3")
    book.save(file)
    return file


def looks(file: Path) -> dict[str, Any]:
    """What a person sees in it."""
    book = openpyxl.load_workbook(file)
    sheet, other = book["Sheet"], book["Other"]
    [rules] = [each.rules for each in sheet.conditional_formatting]
    [valid] = sheet.data_validations.dataValidation
    return {
        "font": (sheet["A1"].font.b, sheet["A1"].font.color.rgb),
        "fill": sheet["B2"].fill.fgColor.rgb,
        "format": sheet["C2"].number_format,
        "width": sheet.column_dimensions["B"].width,
        "height": sheet.row_dimensions[2].height,
        "pane": sheet.freeze_panes,
        "filter": sheet.auto_filter.ref,
        "rule": (rules[0].operator, rules[0].formula, rules[0].dxf.font.b),
        "valid": (valid.formula1, str(valid.sqref)),
        "link": sheet["B3"].hyperlink.target,
        "header": sheet.oddHeader.center.text,
        "other": [[cell.value for cell in row] for row in other.iter_rows()],
        "merged": str(other.merged_cells),
        "hidden": other.sheet_state,
        "names": book.defined_names["names"].attr_text,
    }


def calculated(file: Path, on: str = "Sheet") -> Path:
    """A workbook with a formula and the value that a program has calculated for it."""
    book = openpyxl.load_workbook(made(file, [("1", "Ann", 10)]))
    sheet = book["Sheet"] if on == "Sheet" else book.create_sheet(on)
    sheet["C3"] = "=C2*2"
    if on == "Sheet":
        sheet["A3"], sheet["B3"] = "2", "Bob"
    book.save(file)
    part = SHEET if on == "Sheet" else "xl/worksheets/sheet2.xml"

    def remember(parts: dict[str, bytes]) -> None:
        before = parts[part]
        parts[part] = before.replace(b"<f>C2*2</f><v />", b"<f>C2*2</f><v>20</v>").replace(
            b"<f>C2*2</f><v/>", b"<f>C2*2</f><v>20</v>"
        )
        assert parts[part] != before

    return edited(file, remember)


def bytes_of(book: Any) -> bytes:
    """A workbook as a file."""
    with io.BytesIO() as file:
        book.save(file)
        return file.getvalue()
