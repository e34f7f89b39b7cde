"""Kill processes, start them again and audit them: count the effects outside, and examine the file.

The file of a killed process is checked before it is opened again: the kill must have come at the intended moment.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.effects.job import Kill, Moment
from bench.outside import PaymentFile
from keep_actors.sandbox_pool.pool import PoolMode
from keep_storage import reads
from keep_storage.doctor import examine
from keep_storage.model import EventStatus, MutationStatus
from keep_storage.sqlite import open_reader

ROOT: Final = Path(__file__).parents[2]


class Audit(NamedTuple):
    """The result of one story."""

    effects: int
    """Effects outside when nothing was left to do, before a person answered."""
    asks: bool
    """True if a person is asked about the outcome."""
    lost: bool
    """True if the event is neither done nor held with a question."""
    effects_at_last: int
    """Effects outside after a person has looked and answered."""


Story = Callable[[Kill], Audit]


class Broken(Exception):
    """The measurement itself failed."""


def keep_story(can_check: bool, sandbox: PoolMode) -> Story:
    """A keep-actors runtime that is killed and started again."""

    def story(kill: Kill) -> Audit:
        with tempfile.TemporaryDirectory() as name:
            folder, outside = Path(name), PaymentFile(Path(name) / "outside.txt")
            plan = {"folder": name, "can_check": can_check, "sandbox": sandbox}
            _dies("bench.effects.keep_life", plan, kill)
            _struck(kill, _keep_record(folder), KEEP_RECORDS)
            with _life("bench.effects.keep_life", plan) as process:
                found = _said(process)
                effects, asks = len(outside.payments()), found["questions"] > 0
                is_held = found["event"] == EventStatus.RESERVED and asks
                last = found
                if asks:  # the person looks into the file and answers truthfully
                    last = _said(process, "happened" if effects else "did_not_happen")
                _end(process)
            healthy = examine(folder / "keep.db")
            if not healthy.is_healthy:
                raise Broken(f"the file is damaged: {healthy.problems}")
            lost = not (found["event"] == EventStatus.CONSUMED or is_held) or last["event"] != EventStatus.CONSUMED
            return Audit(effects, asks, lost, len(outside.payments()))

    return story


def dbos_story(kill: Kill) -> Audit:
    """The same with DBOS, which is launched again and recovers."""
    with tempfile.TemporaryDirectory() as name:
        outside = PaymentFile(Path(name) / "outside.txt")
        plan = {"folder": name}
        _dies("bench.effects.dbos_life", plan, kill)
        _struck(kill, _dbos_record(Path(name)), DBOS_RECORDS)
        with _life("bench.effects.dbos_life", plan) as process:
            found = _said(process)
            _end(process)
        effects = len(outside.payments())
        return Audit(effects, asks=False, lost=found["status"] != "SUCCESS", effects_at_last=effects)


KEEP_RECORDS: Final[dict[Moment, object]] = {
    Moment.BEFORE_RECORD: None,
    Moment.RECORDED: MutationStatus.IN_FLIGHT,
    Moment.IN_CALL: MutationStatus.IN_FLIGHT,
    Moment.EFFECT: MutationStatus.IN_FLIGHT,
    Moment.ANSWERED: MutationStatus.IN_FLIGHT,
    Moment.AFTER_RECORD: MutationStatus.APPLIED,
}
"""The status of the call in the ledger after a kill at each moment."""

DBOS_RECORDS: Final[dict[Moment, object]] = {
    Moment.BEFORE_RECORD: 0,
    Moment.IN_CALL: 0,
    Moment.EFFECT: 0,
    Moment.ANSWERED: 0,
    Moment.AFTER_RECORD: 1,
}
"""The number of step results in DBOS after a kill at each moment. It records nothing before a step."""


def _struck(kill: Kill, found: object, expected: dict[Moment, object]) -> None:
    if kill.moment is not None and found != expected[kill.moment]:
        raise Broken(f"killed {kill.moment}, and the record is {found!r}, not {expected[kill.moment]!r}")


def _keep_record(folder: Path) -> MutationStatus | None:
    with closing(open_reader(str(folder / "keep.db"))) as reader, reader.snapshot():
        [workflow] = reads.workflows(reader)
        calls = [call for run in reads.runs(reader, workflow.id) for call in reads.mutations_of_run(reader, run.id)]
    return calls[0].status if calls else None


def _dbos_record(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "dbos.sqlite")) as connection:
        [count] = connection.execute("SELECT count(*) FROM operation_outputs").fetchone()
    assert isinstance(count, int), "a count is a number"
    return count


def _dies(module: str, plan: dict[str, Any], kill: Kill) -> None:
    """Run a process until it is killed. With a random time it may finish first."""
    with _life(module, {**plan, "publish": True, **kill._asdict()}) as process:
        _, words = process.communicate()
    ends = (-signal.SIGKILL,) if kill.moment is not None else (-signal.SIGKILL, 0)
    if process.returncode not in ends:
        raise Broken(f"it should have been killed {kill}, and ended with {process.returncode}: {words}")


@contextmanager
def _life(module: str, plan: dict[str, Any]) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", module, msgspec.json.encode(plan).decode()]
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _said(process: "subprocess.Popen[str]", verdict: str | None = None) -> dict[str, Any]:
    """Send a verdict, if any, and return the next line of output."""
    assert process.stdin, "it was opened with a pipe"
    assert process.stdout, "it was opened with a pipe"
    if verdict is not None:
        process.stdin.write(f"{verdict}\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise Broken(f"a restarted process said nothing: {process.communicate()[1]}")
    said: dict[str, Any] = json.loads(line)
    return said


def _end(process: "subprocess.Popen[str]") -> None:
    _, words = process.communicate()
    if process.returncode != 0:
        raise Broken(f"a restarted process ended with {process.returncode}: {words}")
