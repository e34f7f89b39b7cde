"""Ten thousand workflows that rest cost next to nothing, and of a thousand that are due none is forgotten.

python -m tests.runtime.test_scale FILE: open a runtime on the file, rest for a while, and say what that took.
"""

import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import msgspec
import pytest

import keep_actors
from bench.shop import Shop, fill
from keep_storage import Store, reads, wall_clock
from tests.crash.driver import NO_LIMIT

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
RESTING = 10_000
REST_S = 3.0
RSS_MIB_MAX = 150
CPU_MAX = 0.01
DUE = 1_000
WAIT_RATIO_MAX = 3.0


class Rest(msgspec.Struct):
    """What it took to open a runtime and to do nothing."""

    workflows: int
    rss_bytes: int
    cpu: float
    """Of one core, while it rested."""
    wrote: bool


async def rest(path: Path) -> Rest:
    async with keep_actors.open(path) as keep:
        await keep.wait_idle()
        files, cpu_s = written(path), time.process_time()
        await anyio.sleep(REST_S)
        cpu = (time.process_time() - cpu_s) / REST_S
        return Rest(len(await keep.workflows()), rss_bytes(), cpu, wrote=written(path) != files)


def written(path: Path) -> list[tuple[int, int]]:
    """The size of the database and of its log, and when they were last written to."""
    found = [path.stat(), Path(f"{path}-wal").stat()]
    return [(each.st_size, each.st_mtime_ns) for each in found]


def rss_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kib) * 1024


def rest_in_a_process(path: Path) -> Rest:
    command = [sys.executable, "-m", "tests.runtime.test_scale", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Rest)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has now")
def test_ten_thousand_workflows_that_rest_cost_little_memory_no_cpu_and_no_writes(tmp_path: Path) -> None:
    fill(tmp_path / "none.db", 0, events_each=0)
    fill(tmp_path / "many.db", RESTING, events_each=0)
    none, many = rest_in_a_process(tmp_path / "none.db"), rest_in_a_process(tmp_path / "many.db")
    assert (none.workflows, many.workflows) == (0, RESTING)
    more_mib = (many.rss_bytes - none.rss_bytes) / MIB
    assert more_mib < RSS_MIB_MAX, f"{more_mib:.0f} MiB more than an empty runtime"
    assert many.cpu < CPU_MAX, f"{many.cpu:.2%} of a core for nothing"
    assert not many.wrote


def test_of_a_thousand_workflows_that_are_due_at_once_none_waits_much_longer_than_the_others(tmp_path: Path) -> None:
    path, shop = tmp_path / "keep.db", Shop()
    fill(path, DUE, events_each=1)

    async def work() -> int:
        async with keep_actors.open(path, connectors=[shop], sandbox="thread") as keep:
            due_at = wall_clock()
            await keep.wait_idle()
        return due_at

    due_at = anyio.run(work)
    with Store.open(path) as store:
        journal = reads.journal(store.queries(), limit=NO_LIMIT)
    commits = [entry for entry in journal if entry.operation == "commit_consumer"]
    assert shop.filed == DUE
    assert set(Counter(entry.workflow_id for entry in commits).values()) == {1}
    waits = [entry.at - due_at for entry in commits]
    assert len(waits) == DUE
    longest, median = max(waits), statistics.median(waits)
    assert longest <= WAIT_RATIO_MAX * median, f"{longest} ms, and the median is {median} ms"


if __name__ == "__main__":
    print(msgspec.json.encode(anyio.run(rest, Path(sys.argv[1]))).decode())  # noqa: T201  # for the test above
