"""Settings of a sheet: what is missing or cannot work is refused with a remedy."""

from pathlib import Path
from typing import Any

import pytest

from keep_actors.connectors import Catalog
from keep_actors.services import SettingsError, load_configuration
from keep_actors.services.sheet import Sheet, SheetColumn, SheetSettings

GOOD: dict[str, Any] = {
    "file": Path("a.csv"),
    "columns": {"id": "text", "name": "text"},
    "key": ("id",),
    "allow": ("read", "append", "update"),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "macros": ({"file": Path("a.xlsm")}, "file: has macros, which would be lost; save it as .xlsx"),
    "another format": ({"file": Path("a.ods")}, "file: a.ods is neither .csv nor .tsv nor .xlsx"),
    "an old format": ({"file": Path("a.xls")}, "file: a.xls is neither"),
    "no columns": ({"columns": {}, "key": ()}, "columns: is empty; name at least one"),
    "a column of the runtime": ({"columns": {"call": "text"}, "key": ()}, "columns.call: is a name of the runtime"),
    "a column that is no name": ({"columns": {"a b": "text"}, "key": ()}, "write `header` for a heading of any form"),
    "a heading twice": (
        {"columns": {"id": "text", "name": SheetColumn(type="text", header="id")}},
        "columns: two columns have the heading 'id'",
    ),
    "the heading of the calls": ({"call_column": "name"}, "columns: two columns have the heading 'name'"),
    "no heading for the calls": ({"call_column": " "}, "call_column: is empty"),
    "a key that is no column": ({"key": ("no",)}, "key: 'no' is not one of the columns"),
    "an update without a key": ({"key": ()}, "key: is empty; name the columns that identify a row"),
    "nothing to update": ({"key": ("id", "name")}, "allow: all columns are in the key"),
    "no reading": ({"allow": ("append",)}, 'allow: has no "read"'),
    "two delimiters": ({"delimiter": ",;"}, "delimiter: is not one character"),
    "a quote between cells": ({"delimiter": '"'}, "delimiter: is not one character"),
    "an unknown encoding": ({"encoding": "klingon"}, "encoding: 'klingon' is not known"),
    "an encoding of no texts": ({"encoding": "hex"}, "encoding: 'hex' is not known"),
    "an encoding of names": ({"encoding": "undefined"}, "encoding: 'undefined' is not known"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_are_refused_with_a_remedy(case: str) -> None:
    differences, words = REFUSED[case]
    with pytest.raises(SettingsError) as caught:
        Sheet(SheetSettings(**{**GOOD, **differences}))
    assert words in str(caught.value)


def test_the_methods_are_those_that_are_allowed() -> None:
    def methods(**differences: Any) -> set[str]:
        return set(Catalog([Sheet(SheetSettings(**{**GOOD, **differences}), name="book")]).methods)

    assert methods(allow=("read",), key=()) == {"book.rows"}
    assert methods(allow=("read", "append")) == {"book.rows", "book.getRow", "book.appendRow"}
    assert methods() == {"book.rows", "book.getRow", "book.appendRow", "book.updateRow"}


def test_the_key_identifies_a_change() -> None:
    catalog = Catalog([Sheet(SheetSettings(**GOOD))])
    update = catalog.methods["sheet.updateRow"]
    assert update.identity_of(update.decode_params('{"id": "7", "name": "x"}')) == '{"id":"7"}'


def test_a_section_of_keep_toml_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "keep.toml"
    path.write_text(
        '[connectors.book]\nkind = "sheet"\nfile = "people.csv"\nkey = ["id"]\nallow = ["read", "append"]\n'
        'columns = { id = "text", born = { type = "date", header = "Day of birth", required = true } }\n'
    )
    [book] = load_configuration(path)
    assert set(Catalog([book]).methods) == {"book.rows", "book.getRow", "book.appendRow"}
