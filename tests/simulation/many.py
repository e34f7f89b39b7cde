"""Many seeds, on all cores, until they are done or the time is up."""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import count

import msgspec

from tests.simulation.story import Told, tell
from tests.simulation.trace import Figures

CHUNK = 20


class Batch(msgspec.Struct):
    """What some seeds came to."""

    figures: Figures
    failed: list[Told]


def some(seeds: list[int], failures_max: int = 1) -> Batch:
    """Let these seeds happen here, one after the other. Stops when enough have failed."""
    batch = Batch(Figures(settled_by={}, edges=set()), [])
    with quietly():
        for seed in seeds:
            told = tell(seed)
            batch.figures.add(told.figures)
            if told.violation:
                batch.failed.append(told)
                if len(batch.failed) >= failures_max:
                    break
    return batch


@contextmanager
def quietly() -> Iterator[None]:
    """A storm is no news: nothing is logged in the block."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def many(
    first: int,
    seeds: int,
    *,
    seconds: float | None = None,
    jobs: int | None = None,
    failures_max: int = 1,
    progress: Callable[[int, float, list[Told]], None] = lambda _, __, ___: None,
) -> Batch:
    """Let seeds happen on `jobs` cores. Ends early when the time is up, or when enough have failed.

    `progress` is told how many are done, after how many seconds, and which have failed since it was told.
    """
    total, began = Batch(Figures(settled_by={}, edges=set()), []), time.monotonic()
    jobs = jobs or os.cpu_count() or 1
    todo = _chunks(first, seeds)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_end_with, initargs=(os.getpid(),)) as pool:
        running: set[Future[Batch]] = set()
        while True:
            late = seconds is not None and time.monotonic() - began > seconds
            enough = len(total.failed) >= failures_max
            while len(running) < 2 * jobs and not late and not enough and (chunk := next(todo, None)):
                running.add(pool.submit(some, chunk, failures_max))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            batches = [each.result() for each in done]
            for batch in batches:
                total.figures.add(batch.figures)
                total.failed += batch.failed
            failed = [told for batch in batches for told in batch.failed]
            progress(total.figures.seeds, time.monotonic() - began, failed)
    total.failed.sort(key=lambda each: each.seed)
    return total


def _end_with(parent: int) -> None:
    """Who waits for work of a process that was killed would wait for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _chunks(first: int, seeds: int) -> Iterator[list[int]]:
    for start in count(first, CHUNK):
        if start >= first + seeds:
            return
        yield list(range(start, min(start + CHUNK, first + seeds)))
