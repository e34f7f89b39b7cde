"""Figures are drawn from what is there; what is missing is said; what is no result is refused."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.__main__ import main

ABOUT = {"benchmark": "scale", "measure": "about", "machine": "A <small> machine", "versions": "x 1", "date": "2026"}
HISTORY = [
    {"benchmark": "scale", "measure": "history", "history": rows, "due": 5, "cpu_ms": cpu}
    for rows, cpu in ((0, 2.26), (1000, 3.57))
]
PEERS = [
    {"benchmark": "peers", "measure": measure, "system": "A & B", "in_flight": size, "units_per_s": rate, "p50_ms": 7.5}
    for measure, size, rate in (("units", 10, 1.0), ("medians", 10, 123.0), ("medians", 100, 9876.0))
]
CRASH = {"benchmark": "peers", "measure": "crash", "system": "C", "kill_after": 77, "units": 99, "twice": 4, "lost": 0}
RECORDED = Path(__file__).parents[2] / "docs" / "results"


def results(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return str(path)


def words(path: Path) -> str:
    """All text of a figure, which is well-formed XML."""
    return "\n".join(ElementTree.parse(path).getroot().itertext())


def test_every_figure_has_its_values_as_text(tmp_path: Path) -> None:
    assert main(["plot", results(tmp_path / "all.jsonl", ABOUT, *HISTORY, *PEERS, CRASH)]) == 0
    assert {each.stem for each in tmp_path.glob("*.svg")} == {"peers", "latency", "peers-crash", "history"}
    history = words(tmp_path / "history.svg")
    assert "2.26, 3.57" in history
    assert "A <small> machine; x 1; 2026" in history
    assert "123, 9,876" in words(tmp_path / "peers.svg")
    assert "A & B, 10 in flight: p50 7.50 ms" in words(tmp_path / "latency.svg")
    crashes = words(tmp_path / "peers-crash.svg").split("\n")
    assert crashes.index("twice") < crashes.index("77 of 99") < crashes.index("4")
    assert "done after s" not in crashes, "no row has them"


def test_the_recorded_results_of_all_benchmarks_give_every_figure(tmp_path: Path) -> None:
    """The rows are those that the benchmarks write, not those that the figures wish for."""
    assert main(["plot", *map(str, sorted(RECORDED.glob("*.jsonl"))), "--to", str(tmp_path)]) == 0
    drawn = {"throughput", "peers", "latency", "peers-crash", "history"}
    assert {each.stem for each in tmp_path.glob("*.svg")} == drawn
    for figure in ("peers", "latency", "peers-crash"):
        assert "Restate" in words(tmp_path / f"{figure}.svg")
    for figure in drawn:
        assert (tmp_path / f"{figure}.svg").read_text("utf-8") == (RECORDED / f"{figure}.svg").read_text("utf-8")


def test_the_tables_of_the_page_are_those_of_the_recorded_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (RECORDED.parent / "benchmarks.md").read_text("utf-8")
    page.write_text(re.sub(r"(<!-- table: [^>]*-->\n).*?(<!-- end)", r"\1\2", text, flags=re.DOTALL), "utf-8")
    assert page.read_text("utf-8") != text, "the tables were taken out"
    files = map(str, sorted(RECORDED.glob("*.jsonl")))
    assert main(["plot", *files, "--to", str(tmp_path), "--page", str(page)]) == 0
    assert page.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("table", "said"), [("speed", "There is no table 'speed'"), ("killed", "No row of `bench peers`")]
)
def test_a_table_that_cannot_be_made_is_refused_and_the_page_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, said: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text := f"Before.\n<!-- table: {table} -->\nold\n<!-- end of the table -->\n", "utf-8")
    assert main(["plot", results(tmp_path / "some.jsonl", *HISTORY), "--page", str(page)]) == 2
    assert said in capsys.readouterr().err
    assert page.read_text("utf-8") == text


def test_a_figure_without_rows_is_not_drawn_and_its_fields_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", results(tmp_path / "some.jsonl", *HISTORY), "--to", str(tmp_path / "to")]) == 0
    assert [each.name for each in (tmp_path / "to").iterdir()] == ["history.svg"]
    out = capsys.readouterr().out
    assert "no latency.svg: no row has p50_ms" in out
    assert "no crashes.svg" in out
    assert "machine, versions and date not stated" in words(tmp_path / "to" / "history.svg")


def test_the_crashes_of_the_effects_benchmark_are_drawn(tmp_path: Path) -> None:
    row = {"benchmark": "effects", "measure": "effects", "killed": "before", "runs": 5, "checks_effects": "1",
           "checks_asks": 0, "checks_lost": 0, "dbos_effects": "2", "dbos_twice": 5, "dbos_lost": 0}  # fmt: skip
    assert main(["plot", results(tmp_path / "effects.jsonl", row)]) == 0
    told = words(tmp_path / "crashes.svg")
    assert "keep-actors, can check" in told
    assert "DBOS" in told
    assert "keep-actors, cannot" not in told, "it has no effects in the row"


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = [{**HISTORY[0], "cpu_ms": value} for value in (None, "fast", float("nan"), True)]
    assert main(["plot", results(tmp_path / "odd.jsonl", *odd)]) == 1
    assert "no history.svg" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ('{"benchmark": "scale", "measure": "x"}\nruntime: 100 workflows\n', "line 2: this is not JSON"),
        ("[1]\n", "line 1: this is JSON, but no object"),
        ('{"benchmark": "scale"}\n', 'no text "measure"'),
    ],
)
def test_what_is_no_result_is_refused_with_its_place_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, "utf-8")
    assert main(["plot", str(path)]) == 2
    err = capsys.readouterr().err
    assert str(path) in err
    assert said in err
    assert "--json" in err
    assert list(tmp_path.glob("*.svg")) == []


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl cannot be read (No such file" in capsys.readouterr().err
