"""The threat model is a table, and every line of it has a test that shows it."""

import re
from pathlib import Path

from tests.fuzz.targets import targets

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


def test_the_table_says_who_tries_what_and_every_target_that_it_names_is_fuzzed() -> None:
    text = (HERE / "docs/security.md").read_text("utf-8")
    assert "| attacker | what they hold | what stops them | test that shows it |" in text
    assert set(re.findall(r"\(target `(\w+)`\)", text)) <= set(targets())
    listed = text.partition("\n## Fuzzing\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == set(targets())
