"""The cost of a run, by the number of workflows and by the history in the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench import machine
from bench.history import write_history
from bench.report import Column, Report
from bench.scale.work import Cost, copied, cost, together, workflow_ids
from bench.shop import fill

GOAL_RATIO: Final = 1.3

_COSTS: Final = (
    Column("runs", "runs"),
    Column("runs_per_s", "runs/s"),
    Column("host_cpu_ms", "host CPU ms", 2),
    Column("storage_cpu_ms", "of it storage", 2),
    Column("sandbox_cpu_ms", "sandbox", 2),
    Column("cpu_ms", "CPU ms", 2),
    Column("ratio", "ratio", 2),
    Column("load", "load", 1),
)
CROWDS: Final = (Column("workflows", "workflows"), *_COSTS)
HISTORIES: Final = (
    Column("history", "history"),
    Column("workflows", "workflows"),
    Column("due", "due"),
    Column("file_mb", "file MB"),
    *_COSTS,
)


class Crowd(NamedTuple):
    """The numbers of workflows, and of times that they are measured."""

    workflows: int
    rounds: int


class Size(NamedTuple):
    """`due` is the number of workflows that have something to do while the history grows."""

    crowds: tuple[Crowd, ...]
    events_each: int
    histories: tuple[int, ...]
    due: int
    rounds: int


def run(report: Report, size: Size, folder: Path) -> None:
    """The last crowd is the one whose history grows. It is compared with the cheapest of the others: small crowds pay
    more for each run, because fewer runs share a commit and the start of a worker."""
    assert len(size.crowds) > 1, "something is compared with something"
    assert size.histories[0] == 0, "the first file has no history"
    empty = _crowds(report, size, folder)
    _histories(report, size, folder, empty)


def _crowds(report: Report, size: Size, folder: Path) -> Cost:
    title = f"Cost of a run by the number of workflows ({size.events_each} runs each, no history)"
    table = report.table("crowds", title, CROWDS)
    found: list[Cost] = []
    for crowd in size.crowds:
        report.progress(f"{crowd.workflows:,} workflows")
        prepared = folder / f"crowd-{crowd.workflows}.db"
        fill(prepared, crowd.workflows, 0)
        ids, load = workflow_ids(prepared), machine.load()
        path = folder / "crowd.db"
        rounds = [cost(copied(prepared, path), ids, size.events_each) for _ in range(crowd.rounds)]
        found.append(together(rounds))
        ratio = found[-1].cpu_ms / _cheapest(found[:-1] or found).cpu_ms
        table.row(workflows=crowd.workflows, **_told(found[-1], ratio, load))
    cheapest = _cheapest(found[:-1])
    ratio = found[-1].cpu_ms / cheapest.cpu_ms
    words = (
        f"CPU per run at {size.crowds[-1].workflows:,} workflows within {GOAL_RATIO} times the cheapest smaller crowd"
    )
    report.goal("crowds", words, ratio, ratio <= GOAL_RATIO)
    return cheapest


def _cheapest(costs: Sequence[Cost]) -> Cost:
    return min(costs, key=lambda each: each.cpu_ms)


class File(NamedTuple):
    history: int
    path: Path
    rounds: list[Cost]


def _histories(report: Report, size: Size, folder: Path, empty: Cost) -> None:
    workflows = size.crowds[-1].workflows
    files = [File(rows, folder / f"history-{rows}.db", []) for rows in size.histories]
    for file in files:
        report.progress(f"a history of {file.history:,} events and runs")
        copied(folder / f"crowd-{workflows}.db", file.path)
        write_history(file.path, file.history)
    ids = workflow_ids(files[0].path)
    due, load = ids[: size.due], machine.load()
    report.progress(f"{size.due:,} workflows due, {size.rounds} rounds with each history in turn")
    for number in range(size.rounds):
        for file in files if number % 2 == 0 else files[::-1]:
            file.rounds.append(cost(file.path, due, size.events_each))
    title = f"Cost of a run by the events and runs of history ({size.events_each} runs for each workflow that is due)"
    table = report.table("history", title, HISTORIES)
    found = [together(file.rounds) for file in files]
    for file, each in zip(files, found, strict=True):
        file_mb = file.path.stat().st_size / 1e6
        told = _told(each, each.cpu_ms / found[0].cpu_ms, load)
        table.row(history=file.history, workflows=workflows, due=size.due, file_mb=file_mb, **told)
    _goal(report, files, found)
    report.progress(f"all {workflows:,} workflows due, with {files[-1].history:,} events and runs of history")
    load = machine.load()
    file_mb, both = files[-1].path.stat().st_size / 1e6, cost(files[-1].path, ids, size.events_each)
    ratio = both.cpu_ms / empty.cpu_ms
    told = _told(both, ratio, load)
    table.row(history=files[-1].history, workflows=workflows, due=workflows, file_mb=file_mb, **told)
    words = (
        f"CPU per run at {workflows:,} workflows and {files[-1].history:,} events of history "
        f"within {GOAL_RATIO} times the cheapest crowd without one"
    )
    report.goal("history", words, ratio, ratio <= GOAL_RATIO)


def _goal(report: Report, files: Sequence[File], found: Sequence[Cost]) -> None:
    ratio = found[-1].cpu_ms / found[0].cpu_ms
    words = f"CPU per run with {files[-1].history:,} events of history within {GOAL_RATIO} times that with none"
    report.goal("history", words, ratio, ratio <= GOAL_RATIO)


def _told(each: Cost, ratio: float, load: float) -> dict[str, float]:
    return {
        "runs": each.runs,
        "runs_per_s": each.runs_per_s,
        "host_cpu_ms": each.host_cpu_ms,
        "storage_cpu_ms": each.storage_cpu_ms,
        "sandbox_cpu_ms": each.sandbox_cpu_ms,
        "cpu_ms": each.cpu_ms,
        "ratio": ratio,
        "load": load,
    }
