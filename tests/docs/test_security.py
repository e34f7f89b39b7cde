"""The threat model is a table, and every line of it has a test that shows it."""

import re
from pathlib import Path

HERE = Path(__file__).parents[2]
LINES = re.findall(r"^\| .*::.*\|$", (HERE / "docs/security.md").read_text("utf-8"), re.MULTILINE)


def test_every_line_of_the_threat_model_names_tests_that_exist() -> None:
    assert LINES, "the table is there"
    for line in LINES:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == 4, line
        assert all(cells), line
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cells[-1]):
            assert re.search(rf"def {name}\b", (HERE / file).read_text("utf-8")), f"{file} has no {name}"
        assert cells[-1].count("::") == len(re.findall(r"`tests/[\w/]+\.py::\w+`", cells[-1])) > 0, line
