"""`python -m bench NAME [--quick] [--json]`. Without a name: the list of benchmarks. `plot` draws their results."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from bench import plot
from bench.report import Report


class Benchmark(NamedTuple):
    """A summary, and the module whose `run(report, quick=...)` does it."""

    summary: str
    module: str


BENCHMARKS: Final = {
    "storage": Benchmark(
        "cycles per second beside raw APSW and aiosqlite; bytes per run; memory; large topics", "bench.storage"
    ),
    "sandbox": Benchmark("one invocation in a kept worker, a one-shot worker and a thread", "bench.sandbox"),
    "runtime": Benchmark("whole consumer runs at 1, 100 and 1,000 workflows; CPU by room; syncs", "bench.runtime"),
    "scale": Benchmark("what 10,000 workflows and a million events of history cost; recovery; fairness", "bench.scale"),
    "cli": Benchmark("`keep status` and similar commands, with a million events and mutations", "bench.cli"),
    "effects": Benchmark(
        "a process killed around an external call: how often it happened, beside DBOS", "bench.effects"
    ),
    "peers": Benchmark(
        "the same unit of work on DBOS, Restate, Absurd and Temporal: units/s, CPU, memory; with --crash: effects "
        "after a kill",
        "bench.peers.comparison",
    ),
}


PLOT: Final = "plot"


class Runs(Protocol):
    """The interface of a benchmark's module."""

    def run(self, report: Report, *, quick: bool, **more: Any) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [PLOT]:
        return plot.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure this project beside its peers.")
    parser.add_argument("name", nargs="?", help="the benchmark; leave it out for the list")
    parser.add_argument("--quick", action="store_true", help="smaller and noisier, in less than 40 seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--crash", action="store_true", help="peers only: kill each system, and count effects")
    parser.add_argument("--environments", type=Path, metavar="DIR", help="peers only: the folder of their packages")
    parser.add_argument(
        "--systems", metavar="NAMES", help="peers only: these and no others, separated by `;`: 'keep-actors; Restate'"
    )
    chosen = parser.parse_args(arguments)
    if chosen.name is None:
        print(listing())
        return 0
    benchmark = BENCHMARKS.get(chosen.name)
    if benchmark is None:
        print(f"There is no benchmark {chosen.name!r}.\n{listing()}", file=sys.stderr)
        return 2
    more = {"crash_table": chosen.crash, "environments": chosen.environments, "only": chosen.systems}
    if chosen.name != "peers" and any(more.values()):
        parser.error("--crash, --environments and --systems are options of `peers`")
    # Imported when needed: the peers of the other benchmarks may not be installed.
    module: Runs = importlib.import_module(benchmark.module)
    report = Report(chosen.name, as_json=chosen.json)
    module.run(report, quick=chosen.quick, **(more if chosen.name == "peers" else {}))
    report.end()
    return 0 if report.kept else 1


def listing() -> str:
    lines = [f"  {name:10} {benchmark.summary}" for name, benchmark in BENCHMARKS.items()]
    figures = f"Figures of their results: python -m bench {PLOT} FILE.jsonl... [--to FOLDER]"
    return "\n".join(["Benchmarks, each with --quick and --json:", *lines, figures])


if __name__ == "__main__":
    sys.exit(main())
