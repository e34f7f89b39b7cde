"""Fuzzing for longer: it ends by itself, keeps the input that does harm, and says so with its exit code."""

import subprocess
import sys
from pathlib import Path

from tests.fuzz import campaign


def planted(corpus: Path, seconds: float) -> campaign.Result:
    """What comes of the target with mistakes."""
    [result] = campaign.run(["planted"], seconds, number=7, at_once=1, corpus=corpus)
    return result


def test_the_smallest_input_that_does_harm_is_kept_and_tried_first_from_then_on(tmp_path: Path) -> None:
    found = planted(tmp_path, seconds=30)
    assert "it is too large" in found.error
    assert found.file is not None
    assert found.file.parent == tmp_path / "planted"
    assert found.file.read_bytes() == b"1000"
    again = planted(tmp_path, seconds=30)
    assert (again.tried, again.file) == (1, found.file)


def test_an_input_that_ends_the_process_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "it_once_did.txt").write_bytes(b"-1")
    result = planted(tmp_path, seconds=0)
    assert result.error == "The process ended."
    assert result.file is not None
    assert result.file.read_bytes() == b"-1"


def test_where_there_is_no_harm_every_file_of_the_corpus_was_tried(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    for number in range(3):
        (tmp_path / "planted" / f"{number}.txt").write_bytes(b"%d" % number)
    assert planted(tmp_path, seconds=0) == campaign.Result("planted", tried=3)


def test_the_command_counts_and_says_from_which_number_its_inputs_were_made() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "maintainer_answer", "--minutes", "0.01", "--seed", "7"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("1 target, ")
    assert last.endswith(" s, seed 7")
    assert " 0 failed, " in last
