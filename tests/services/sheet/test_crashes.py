"""SIGKILL before every line of a change: the sheet is whole, the verdict is right, and no effect is there twice."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keep_actors.connectors import Applied, NotApplied
from keep_actors.services.files import notes, replacement
from keep_actors.services.sheet import connector
from tests.services.crashes import CrashPlan, files_of_modules
from tests.services.sheet.sheets import ROWS, caller, made, people_see, texts

LINES_MAX = 400
TRACED = files_of_modules((connector, notes, replacement))


class Case(NamedTuple):
    """One mutation, the rows that are there before, and the rows with its effect."""

    name: str
    params: dict[str, Any]
    before: list[Any] | None
    after: list[Any]


STEPS = {("csv", "a row more"): 1}
"""Every so many lines are tried; else every second: the steps are the same, and those of a workbook take longer."""
CASES = {
    "a row more": Case("appendRow", {"id": "3", "name": "Cleo", "amount": 30}, [*ROWS], [*ROWS, ("3", "Cleo", 30)]),
    "a row changed": Case("updateRow", {"id": "1", "amount": 11}, [*ROWS], [("1", "Ann", 11), ROWS[1]]),
    "a new file": Case("appendRow", {"id": "3", "name": "Cleo", "amount": 30}, None, [("3", "Cleo", 30)]),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["csv", "xlsx"])
@pytest.mark.parametrize("case", CASES)
def test_a_change_that_was_killed_anywhere_is_whole_or_not_there(case: str, kind: str, tmp_path: Path) -> None:
    wanted = CASES[case]
    before, after = None if wanted.before is None else texts(wanted.before), texts(wanted.after)
    told: list[type] = []
    for line in range(1, LINES_MAX, STEPS.get((kind, case), 2)):
        (folder := tmp_path / str(line)).mkdir()
        file = folder / f"sheet.{kind}"
        if wanted.before is not None:
            made(file, wanted.before)
        crash = CrashPlan(
            opened=partial(caller, file, create=True),
            traced=TRACED,
            notes=tmp_path / f"note-{line}",
            name=wanted.name,
            params=wanted.params,
            kill_at=line,
        )
        if not crash.is_killed():
            assert people_see(file) == after
            break
        there = people_see(file) if file.exists() else None
        assert there in (before, after), "a reader sees one or the other"
        verdict = crash.told()
        told.append(type(verdict))
        assert (type(verdict), there == after) in ((Applied, True), (NotApplied, False)), verdict
        if verdict == NotApplied():
            crash.make_again()
        assert people_see(file) == after
        assert [path.name for path in folder.iterdir() if path.name not in (file.name, ".keep-lock")] == []
    else:
        raise AssertionError("the call has more lines")
    assert set(told) == {Applied, NotApplied}
