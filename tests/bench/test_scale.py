"""The scale benchmark runs at tiny sizes, on the real runtime. How fast anything is, no test asks."""

import json
from pathlib import Path

import apsw
import pytest

from bench import scale
from bench.__main__ import main
from bench.history import write_history
from bench.scale import costs, recovering, waiting
from bench.scale.work import workflow_ids
from bench.shop import fill
from keep_storage import Store
from keep_storage.doctor import examine

TINY = scale.Size(
    costs.Size((costs.Crowd(2, 2), costs.Crowd(4, 1)), events_each=2, histories=(0, 50), due=3, rounds=1),
    unfinished=7,
    waiting=waiting.Size(5, busy=1, events_of_busy=3),
    idle=20,
    active=12,
)


def test_scale_prints_one_json_object_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "QUICK", TINY)
    assert main(["scale", "--quick", "--json"]) == 0
    about, *rest = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert about["measures"]
    assert about["leaves_out"]
    assert about["date"].endswith("UTC")
    rows = [each for each in rest if "goal" not in each]

    crowds = [each for each in rows if each["measure"] == "crowds"]
    assert [(each["workflows"], each["runs"]) for each in crowds] == [(2, 8), (4, 8)]
    history = [each for each in rows if each["measure"] == "history"]
    assert [(each["history"], each["due"], each["runs"]) for each in history] == [(0, 3, 6), (50, 3, 6), (50, 4, 8)]
    for row in crowds + history:
        assert row["cpu_ms"] == pytest.approx(row["host_cpu_ms"] + row["sandbox_cpu_ms"])
        assert 0 < row["storage_cpu_ms"] < row["host_cpu_ms"]

    [recovery] = [each for each in rows if each["measure"] == "recovery"]
    assert (recovery["unfinished"], recovery["in_flight"], recovery["runs"]) == (7, 2, 7)
    assert recovery["settled_s"] < recovery["first_work_s"] < recovery["all_done_s"]
    assert [each["state"] for each in rows if each["measure"] == "memory"] == ["idle", "active"]
    slow = [each for each in rows if each["measure"] == "slow service"]
    assert [(each["slots"], each["calls_at_once"] > 1) for each in slow] == [(16, True), (256, True)]
    fair = [each for each in rows if each["measure"] == "fairness"]
    assert [each["due"] for each in fair] == ["each once", "1 of them 4 times"]
    assert all(0 < each["p10_ms"] <= each["p50_ms"] <= each["max_ms"] for each in fair)
    assert len([each for each in rest if "goal" in each]) == 8


def test_a_written_history_keeps_every_invariant_and_is_shared_by_all(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    fill(path, 7, 1)
    write_history(path, 300)
    assert examine(path).problems == []
    connection = apsw.Connection(str(path))
    counts = [count for (count,) in connection.execute("SELECT COUNT(*) FROM runs GROUP BY workflow_id")]
    connection.close()
    assert (len(counts), sum(counts), max(counts) - min(counts)) == (7, 300, 1)


def test_every_workflow_of_the_dead_process_has_an_active_run(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    assert recovering.leave_unfinished(path, 7) == 2
    assert examine(path).problems == []
    assert len(workflow_ids(path)) == 7
    with Store.open(path):
        pass
    connection = apsw.Connection(str(path))
    [(active,)] = connection.execute("SELECT COUNT(*) FROM runs WHERE status = 'active'")
    connection.close()
    assert active == 7
