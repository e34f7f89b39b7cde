"""The benchmarks run and say what they promise. How fast anything is, no test asks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import cli, runtime, sandbox, storage
from bench.__main__ import BENCHMARKS, main
from bench.storage import footprint, memory, scale
from bench.storage.throughput import Crowd
from keep_storage.doctor import examine

ROOT = Path(__file__).parents[2]

TINY = storage.Size(
    (Crowd(1, 2, 2, 2), Crowd(16, 1, 0, 1)),
    memory=memory.Size(8, 64),
    scale=scale.Size(1_000, 2_000, rounds=1),
    footprint=(footprint.Size(1, 20, 0), footprint.Size(64, 1, 100)),
)


def test_without_a_name_the_benchmarks_are_listed() -> None:
    said = subprocess.run([sys.executable, "-m", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name, benchmark in BENCHMARKS.items():
        assert name in said.stdout
        assert benchmark.summary in said.stdout


def test_an_unknown_benchmark_is_refused_and_the_known_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storge"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'storge'" in err
    assert "storage" in err


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "QUICK", TINY)


@pytest.mark.usefixtures("tiny")
def test_storage_prints_one_json_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "--quick", "--json"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert {each["benchmark"] for each in objects} == {"storage"}
    about, *rest = objects
    assert about["measure"] == "about"
    assert about["measures"]
    assert about["leaves_out"]

    results = [each for each in rest if "goal" not in each]
    cycles = [each for each in results if each["measure"] == "cycles"]
    assert [each["callers"] for each in cycles] == [1, 16]
    assert all(each["ours_per_s"] > 0 and each["floor_per_s"] > 0 and each["ratio_to_floor"] > 0 for each in cycles)
    assert [each["aiosqlite_per_s"] is None for each in cycles] == [False, True]
    assert (cycles[0]["commits"], cycles[0]["ops_per_commit"]) == (10, 1.0)

    left = [each for each in results if each["measure"] == "bytes"]
    assert [(each["callers"], each["history_runs"], each["runs"]) for each in left] == [(1, 0, 20), (64, 100, 64)]
    assert left[0]["log_bytes"] > left[1]["log_bytes"] > 0, "a commit that many share writes less for each"
    assert all(each["log_pages"] > 0 and each["cpu_us"] > 0 for each in left)
    by_table = {each["name"]: each for each in results if each["measure"] == "bytes_by_table"}
    assert by_table["mutations"]["rows"] == 1
    assert by_table["journal"]["file_bytes"] > 0

    assert [each["cycles"] for each in results if each["measure"] == "memory"] == list(range(8, 65, 8))
    assert [each["operation"] for each in results if each["measure"] == "scale"] == ["peek", "claim", "publish"]

    goals = [each for each in rest if "goal" in each]
    assert [each["measure"] for each in goals] == [
        "memory",
        "bytes",
        "bytes",
        "bytes",
        "bytes",
        "scale",
        "scale",
        "scale",
    ]
    assert all(isinstance(each["met"], bool) for each in goals)


@pytest.mark.usefixtures("tiny")
def test_storage_tells_people_what_it_measures_and_which_goals_were_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert out.index("Measures:") < out.index("Leaves out:") < out.index("Consumer cycles") < out.index("\nGoals\n")
    assert len(err.splitlines()) == 5  # a line per stage, for whoever waits


def test_sandbox_prints_one_json_object_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "QUICK", sandbox.Size(invocations=3, first=2, crowd=3))
    assert main(["sandbox", "--quick", "--json"]) == 0
    about, *rest = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert about["leaves_out"]
    rows = [each for each in rest if "how" in each]
    assert {each["how"] for each in rows} == {"image", "loaded each time", "crowd, 3 by 3", "crowd, in turn", "thread"}
    assert len(rows) == 10
    assert len([each for each in rest if "goal" in each]) == 3


def test_runtime_prints_one_json_object_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "QUICK", (runtime.Crowd(1, 5), runtime.Crowd(8, 2)))
    assert main(["runtime", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    about, *rest = [json.loads(line) for line in out.splitlines()]
    assert about["measures"]
    assert about["leaves_out"]
    assert len(err.splitlines()) == 2

    rows = [each for each in rest if "goal" not in each]
    told = [(each["mode"], each["workflows"], each["runs"]) for each in rows]
    assert told == [("jailed", 1, 5), ("thread", 1, 5), ("jailed", 8, 16), ("thread", 8, 16)]
    rooms = ("loop_cpu_ms", "storage_cpu_ms", "reading_cpu_ms", "rest_cpu_ms")
    for row in rows:
        assert row["host_cpu_ms"] == pytest.approx(sum(row[room] for room in rooms))
        assert min(row[room] for room in rooms) > 0
        assert (row["sandbox_cpu_ms"] > 0) == (row["mode"] == "jailed")
        assert row["p50_ms"] <= row["p99_ms"]
        # A commit is a sync, and nothing here is large enough for a checkpoint.
        assert row["syncs_per_run"] == pytest.approx(row["commits_per_run"])
    # Three for each run, when no other shares them; the last one ends the session too.
    assert [row["commits_per_run"] for row in rows[:2]] == [pytest.approx(3.0)] * 2
    assert len([each for each in rest if "goal" in each]) == 2 * 2 + 2 * 2


def test_cli_prints_one_json_object_per_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "QUICK", cli.Size(20, 200, starts=1))
    assert main(["cli", "--quick", "--json"]) == 0
    out, err = capsys.readouterr()
    about, *rest = [json.loads(line) for line in out.splitlines()]
    assert about["leaves_out"]
    assert len(err.splitlines()) == 3
    rows = [each for each in rest if "goal" not in each]
    assert [each["command"] for each in rows] == list(cli.COMMANDS)
    assert all(0 < each["large_p50_ms"] <= each["large_max_ms"] for each in rows)
    assert len([each for each in rest if "goal" in each]) == 2


def test_the_large_file_of_the_cli_benchmark_keeps_every_invariant(tmp_path: Path) -> None:
    cli.fill(tmp_path / "keep.db", 300)
    report = examine(tmp_path / "keep.db")
    assert report.problems == []
