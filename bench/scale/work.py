"""Give workflows of a closed file more to do, and measure the processing of it."""

import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import runtime
from bench.shop import TOPIC
from keep_storage import Ids, Operation, Store, reads, wall_clock
from keep_storage.operations import Publish, PublishEvents

_BATCH: Final = 500

PAYLOAD: Final = '{"order":1,"customer":"Jane Doe","lines":[{"sku":"A-1","count":2},{"sku":"B-7","count":1}]}'

_numbers: Final = itertools.count()
"""Every event of this process has another number, so that a file can be given more to do again and again."""


class Cost(NamedTuple):
    """CPU in milliseconds per run, and runs per second, over all rounds."""

    runs: int
    runs_per_s: float
    host_cpu_ms: float
    sandbox_cpu_ms: float
    storage_cpu_ms: float

    @property
    def cpu_ms(self) -> float:
        return self.host_cpu_ms + self.sandbox_cpu_ms


def workflow_ids(path: Path) -> list[str]:
    """The workflows of a closed file, oldest first."""
    with Store.open(path) as store:
        return [workflow.id for workflow in reads.workflows(store.queries())]


def publish(path: Path, workflows: Sequence[str], events_each: int) -> None:
    """Give each of these workflows so many events."""
    ids = Ids(wall_clock)
    with Store.open(path) as store:
        for first in range(0, len(workflows), _BATCH):
            batch: list[Operation[Any]] = [
                PublishEvents(workflow, tuple(_events(events_each, ids)))
                for workflow in workflows[first : first + _BATCH]
            ]
            for outcome in store.commit(batch):
                outcome.unwrap()


def _events(count: int, ids: Ids) -> Iterator[Publish]:
    for number in itertools.islice(_numbers, count):
        yield Publish(ids.new("evt"), TOPIC, f"order-{number:x}", f"Order {number}", PAYLOAD)


def cost(path: Path, workflows: Sequence[str], events_each: int) -> Cost:
    """Give these workflows events, and let a runtime process them."""
    publish(path, workflows, events_each)
    used = runtime.process(path, "jailed", runtime.Crowd(len(workflows), events_each))
    parts = (used[name] for name in ("runs_per_s", "host_cpu_ms", "sandbox_cpu_ms", "storage_cpu_ms"))
    return Cost(len(workflows) * events_each, *parts)


def together(costs: Sequence[Cost]) -> Cost:
    """The mean of several rounds, by their runs."""
    runs = sum(each.runs for each in costs)
    seconds = sum(each.runs / each.runs_per_s for each in costs)
    host, sandbox, storage = (
        sum(each.runs * part for each, part in zip(costs, parts, strict=True)) / runs
        for parts in (
            [each.host_cpu_ms for each in costs],
            [each.sandbox_cpu_ms for each in costs],
            [each.storage_cpu_ms for each in costs],
        )
    )
    return Cost(runs, runs / seconds, host, sandbox, storage)


def copied(prepared: Path, to: Path) -> Path:
    """A copy of a closed file, which replaces an earlier copy."""
    shutil.copyfile(prepared, to)
    return to
