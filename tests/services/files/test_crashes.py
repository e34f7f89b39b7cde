"""SIGKILL before every line of a call: afterwards it is known whether there was an effect, and there is never a second.

Some lines are in the middle of an atomic write or append; after each of them a reader sees the old file or the new one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keep_actors.connectors import Applied, NotApplied, Retry
from keep_actors.services.files import changes, mutations, notes, renaming, replacement
from tests.services.crashes import CrashPlan, files_of_modules
from tests.services.files.calls import writer

LINES_MAX = 400
TRACED = files_of_modules((changes, mutations, notes, renaming, replacement))


class Case(NamedTuple):
    """One mutation, files that are there before, and the files of the folder without and with its effect."""

    name: str
    params: dict[str, Any]
    before: dict[str, str | None]
    after: dict[str, str | None]


LONG = "long " * 20_000
CASES = {
    "a new file": Case("write", {"path": "a", "text": LONG}, {}, {"a": LONG}),
    "a file replaced": Case("write", {"path": "a", "text": LONG}, {"a": "old"}, {"a": LONG}),
    "a line more": Case("append", {"path": "a", "text": "line\n"}, {"a": "line\n"}, {"a": "line\nline\n"}),
    "a file deleted": Case("delete", {"path": "a"}, {"a": "old"}, {}),
    "a file moved": Case("move", {"path": "a", "to": "in/b"}, {"a": "x", "in": None}, {"in": None, "in/b": "x"}),
    "a folder": Case("makeFolder", {"path": "a"}, {}, {"a": None}),
}
"""None: a folder."""


def made(folder: Path, files: dict[str, str | None]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        if text is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_text(text)
    return folder


def files_of(folder: Path) -> dict[str, str | None]:
    paths = [path for path in folder.rglob("*") if not path.name.startswith(".keep-")]
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_text() for path in paths}


def crashed(case: Case, folder: Path, after: Callable[[Path, CrashPlan], None]) -> int:
    """Kill the call at each of its lines, do something after each time, and return the number of lines."""
    for line in range(1, LINES_MAX):
        root = made(folder / f"root-{line}", case.before)
        plan = CrashPlan(
            opened=partial(writer, root),
            traced=TRACED,
            notes=folder / f"note-{line}",
            name=case.name,
            params=case.params,
            kill_at=line,
        )
        if not plan.is_killed():
            assert files_of(root) == case.after
            return line - 1
        after(root, plan)
    raise AssertionError("the call has more lines")


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_was_killed_anywhere_is_known_to_have_happened_or_not(case: str, tmp_path: Path) -> None:
    wanted = CASES[case]
    told: list[type] = []

    def look(root: Path, plan: CrashPlan) -> None:
        there = files_of(root)
        assert there in (wanted.before, wanted.after), "a reader sees one or the other"
        verdict = plan.told()
        told.append(type(verdict))
        assert (type(verdict), there == wanted.after) in ((Applied, True), (NotApplied, False)), verdict
        if verdict == NotApplied():
            plan.make_again()
            assert files_of(root) == wanted.after
        assert [path.name for path in root.rglob(".keep-*") if path.name != ".keep-lock"] == []

    assert crashed(wanted, tmp_path, look) >= 15
    assert {*told} == {Applied, NotApplied}, "it was killed before its effect, and after it"


@pytest.mark.parametrize("case", ["a new file", "a file moved"])
def test_a_file_that_another_program_has_taken_away_is_not_made_again(case: str, tmp_path: Path) -> None:
    """A folder from which a program takes what comes: after a crash the file is gone, and was there."""
    wanted = CASES[case]
    target = wanted.params.get("to", wanted.params["path"])
    told: list[type] = []

    def take(root: Path, plan: CrashPlan) -> None:
        was_there = (root / target).exists()
        if was_there:
            (root / target).unlink()
        verdict = plan.told()
        told.append(type(verdict))
        assert isinstance(verdict, Retry if was_there else NotApplied), verdict

    crashed(wanted, tmp_path, take)
    assert {*told} == {Retry, NotApplied}
