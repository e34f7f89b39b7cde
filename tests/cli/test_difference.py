"""The difference between two scripts: as `patch` reads it, exact about the ends of lines, and bounded in time."""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from keep_actors.text.difference import difference


@pytest.mark.skipif(
    shutil.which("patch") is None and "CI" not in os.environ, reason="`patch` is not installed; .ci/run installs it"
)
def test_a_difference_makes_the_new_text_of_the_old_one(tmp_path: Path) -> None:
    rng = random.Random(7)
    for _ in range(40):
        old = [rng.choice("abcdefgh") for _ in range(rng.randrange(1, 40))]
        new = [rng.choice("xyz") if rng.random() < 0.1 else each for each in old if rng.random() > 0.1] or ["x"]
        (tmp_path / "file").write_text("\n".join(old) + "\n", "utf-8")
        said = difference("\n".join(old), "\n".join(new), "old", "new")
        if not said:
            assert old == new
            continue
        subprocess.run(["patch", "-s", "file"], cwd=tmp_path, input=f"{said}\n", text=True, check=True)
        assert (tmp_path / "file").read_text("utf-8") == "\n".join(new) + "\n"


def test_a_new_script_is_shown_whole() -> None:
    assert difference("", "one\ntwo", "none", "new") == "--- none\n+++ new\n@@ -0,0 +1,2 @@\n+one\n+two"


def test_nothing_is_shown_of_what_is_the_same() -> None:
    assert difference("one\ntwo", "one\ntwo", "old", "new") == ""


@pytest.mark.parametrize("end", ["\x85", "\x0b", "\x0c", "\x1c", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line(end: str) -> None:
    """Python ends one at each of these: a comment would look like a line of code that runs."""
    said = difference("a", f"a\n// harmless{end}if (!approved) return;", "old", "new")
    assert said.splitlines(keepends=False) != said.split("\n")
    assert f"+// harmless{end}if (!approved) return;" in said.split("\n")


def test_a_line_that_differs_in_its_end_alone_is_shown() -> None:
    assert difference("a\nb", "a\r\nb", "old", "new").split("\n")[3:] == ["-a", "+a\r", " b"]


def test_a_script_that_was_made_to_be_slow_to_compare_is_shown_in_time() -> None:
    old = "\n".join(str(number % 150) for number in range(60_000))
    new = "\n".join(str(number * 7 % 151) for number in range(60_000))
    begin = time.process_time()
    said = difference(old, new, "old", "new")
    assert time.process_time() - begin < 5
    lines = said.split("\n")
    assert sum(each.startswith("-") for each in lines[2:]) + sum(each.startswith(" ") for each in lines) == 60_000
