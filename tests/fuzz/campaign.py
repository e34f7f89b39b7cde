"""Fuzzing for longer: the corpus of a target first, then inputs that are made up, until the time is over.

Each target has a process of its own, because what is looked for may end one. An input that does harm is written into
the corpus, as small as it could be made; one that ends its process, as it was.
"""

import faulthandler
import hashlib
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any, Final

from hypothesis import settings

from tests.fuzz.target import CORPUS, Target
from tests.fuzz.targets import target as target_named

ONE_INPUT_S: Final = 60
"""An input that takes longer does harm: something hangs."""
SHRINKING_S: Final = 400
"""Hypothesis gives up making an input smaller after five minutes."""
_BATCH_S: Final = 20
_BATCH: Final = 5_000
_LENGTH_BYTES: Final = 8


class TookTooLong(Exception):
    """An input was not done after `ONE_INPUT_S`."""


class _TimeIsOver(BaseException):
    """Not an `Exception`, which Hypothesis would take for harm."""


@dataclass(frozen=True)
class Result:
    """One target, tried for some time."""

    name: str
    tried: int
    error: str = ""
    """Why the last input did harm; empty, if none did."""
    file: Path | None = None
    """The input that did."""


def run(names: list[str], seconds: float, number: int, at_once: int, corpus: Path = CORPUS) -> list[Result]:
    """Try each of the targets for so long, some of them at once."""
    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(partial(_in_its_own_process, seconds=seconds, number=number, corpus=corpus), names))


def _in_its_own_process(name: str, seconds: float, number: int, corpus: Path) -> Result:
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as process:
        current = Path(folder) / "input"
        try:
            result = process.submit(try_for, name, seconds, number, corpus, current).result()
        except BrokenProcessPool:
            result = Result(name, 0, "The process ended.", _kept(target_named(name), _written(current), corpus))
    where = f"see {result.file}" if result.file else "see below"
    tell(f"{name}: {f'FAILED, {where}' if result.error else f'{result.tried:,} inputs, nothing found'}")
    return result


def try_for(name: str, seconds: float, number: int, corpus: Path, current: Path) -> Result:
    """Try a target in this process. The input that is being tried is in the file `current`."""
    logging.getLogger().addHandler(logging.NullHandler())  # a runtime says something of every run that fails
    signal.signal(signal.SIGALRM, _took_too_long)
    faulthandler.dump_traceback_later(seconds + SHRINKING_S + 2 * ONE_INPUT_S, exit=True)
    target = target_named(name)
    if reason := target.prepare():
        return Result(name, 0, f"It cannot be tried here: {reason}")
    trial = _Trial(target, time.monotonic() + seconds, current)
    try:
        for file in sorted((corpus / name).glob("*")):
            try:
                trial.check(target.read(file.read_bytes()))
            except Exception:
                return Result(name, trial.tried, traceback.format_exc(), file)
        tell(f"{name}: {trial.tried} files of the corpus do no harm")
        while not trial.is_over:
            trial.batch_end = time.monotonic() + _BATCH_S
            try:
                with suppress(_TimeIsOver):
                    target.try_with(trial.check_in_time, settings(max_examples=_BATCH), number)
            except Exception:
                return Result(name, trial.tried, traceback.format_exc(), _kept(target, trial.harmful, corpus))
            number += 1
            tell(f"{name}: {trial.tried:,} inputs")
        return Result(name, trial.tried)
    finally:
        faulthandler.cancel_dump_traceback_later()


class _Trial:
    """What was tried until now, and the last input that did harm."""

    def __init__(self, target: Target, end: float, current: Path) -> None:
        self._target, self._end = target, end
        self._current = os.open(current, os.O_WRONLY | os.O_CREAT, 0o600)
        self.batch_end = end
        self.tried = 0
        self.harmful: bytes | None = None

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def check_in_time(self, made_up: Any) -> None:
        """Check it, unless the time is over. What did harm has to do so again when it is made smaller, however late."""
        if self.harmful is None and time.monotonic() >= min(self.batch_end, self._end):
            raise _TimeIsOver
        self.check(made_up)

    def check(self, made_up: Any) -> None:
        """Check it, and remember it if it does harm."""
        self.tried += 1
        data = self._target.write(made_up)
        # With its length, because to cut a file costs more than all the rest.
        os.pwrite(self._current, len(data).to_bytes(_LENGTH_BYTES) + data, 0)
        signal.alarm(ONE_INPUT_S)
        try:
            self._target.check(made_up)
        except Exception:
            self.harmful = data  # the last one that Hypothesis tries is the smallest
            raise
        finally:
            signal.alarm(0)


def _written(current: Path) -> bytes | None:
    if not current.exists():
        return None  # it ended before its first input
    data = current.read_bytes()
    return data[_LENGTH_BYTES:][: int.from_bytes(data[:_LENGTH_BYTES])]


def _took_too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TookTooLong(f"An input was not done after {ONE_INPUT_S} s.")


def _kept(target: Target, data: bytes | None, corpus: Path) -> Path | None:
    if data is None:
        return None  # the making of inputs has failed, not one of them
    folder = corpus / target.name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"found_{hashlib.sha256(data).hexdigest()[:12]}{target.suffix}"
    file.write_bytes(data)
    return file


def tell(line: str) -> None:
    """At once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
