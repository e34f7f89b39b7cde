"""A process killed around an external call: what happened outside is counted, and a broken promise is an exit code."""

import json

import pytest

from bench import effects
from bench.__main__ import main
from bench.effects.job import Kill, Moment
from bench.effects.lives import Audit

CHECKED = {"checks_effects": "1", "checks_asks": 0, "checks_lost": 0, "cannot_lost": 0, "cannot_at_last": "1"}
"""Promises of keep-actors in every row."""


def test_effects_are_never_two_and_no_event_is_lost_wherever_a_process_is_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["effects", "--quick", "--json"]) == 0
    about, *rest = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert about["leaves_out"]
    rows = {each["killed"]: each for each in rest if "killed" in each}
    assert list(rows) == [*Moment, effects.RANDOM]
    for row in rows.values():
        assert {key: row[key] for key in CHECKED} == CHECKED
    told = {moment: (rows[moment]["cannot_effects"], rows[moment]["cannot_asks"]) for moment in Moment}
    assert told == {
        Moment.BEFORE_RECORD: ("1", 0),
        Moment.RECORDED: ("0", 1),
        Moment.IN_CALL: ("0", 1),
        Moment.EFFECT: ("1", 1),
        Moment.ANSWERED: ("1", 1),
        Moment.AFTER_RECORD: ("1", 0),
    }
    # What DBOS documents: a step whose result it has is not run again, and any other is.
    assert {moment: rows[moment]["dbos_effects"] for moment in Moment} == {
        Moment.BEFORE_RECORD: "1",
        Moment.RECORDED: None,
        Moment.IN_CALL: "1",
        Moment.EFFECT: "2",
        Moment.ANSWERED: "2",
        Moment.AFTER_RECORD: "1",
    }
    assert [each["kept"] for each in rest if "promise" in each] == [True] * 4


@pytest.mark.parametrize("audit", [Audit(2, False, False, 2), Audit(1, False, True, 1), Audit(0, False, False, 0)])
def test_a_broken_promise_is_an_exit_code(
    audit: Audit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(_: Kill) -> Audit:
        return audit

    monkeypatch.setattr(effects, "keep_story", lambda *_: story)
    monkeypatch.setattr(effects, "dbos_story", story)
    assert main(["effects", "--quick"]) == 1
    assert "BROKEN" in capsys.readouterr().out
