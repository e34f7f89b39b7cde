"""The demo: start a runtime, kill it in the middle of a payment, start it again, compare, leave one question open."""

import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from keep_actors.demo import account
from keep_actors.demo.account import INVOICES
from keep_actors.demo.services import KILLED, MARK, UNANSWERED, read_outside, scripts
from keep_storage.doctor import examine
from keep_storage.errors import StorageOwned
from keep_storage.ownership import Ownership, owner_of

PACE_S: Final = 0.8
"""How long a service takes to answer when a person reads along."""
_WITHIN_S: Final = 50
_LOOK_S: Final = 0.03
_NEW_GROUP: Final = int(getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))
"""The counterpart of a session of its own, on Windows."""


class DemoFailed(Exception):
    """The demo cannot begin or go on. The text is for people."""


def claim(folder: Path) -> Ownership:
    """Make the folder, or empty one of an earlier demo, and write the scripts. Raises `DemoFailed`."""
    db, mark = folder / "keep.db", folder / MARK
    if folder.exists() and not mark.is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise DemoFailed(f"{folder} is no demo's folder, and nothing in it is touched. Name another: --dir")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
        lock = Ownership.take(mark)
        if (owner := owner_of(db)) is not None:
            raise DemoFailed(f"A runtime has {db} (process {owner}). End it, or name another folder: --dir")
        for each in [*folder.glob("keep.db*"), folder / "outside.jsonl", folder / "runtime.log"]:
            each.unlink(missing_ok=True)
        for name, source in scripts().items():
            (folder / name).write_text(source, "utf-8")
    except StorageOwned:
        raise DemoFailed(f"Another demo is running in {folder}. Wait for its end, or name another: --dir") from None
    except OSError as error:
        raise DemoFailed(f"{folder} cannot be used: {error.strerror}. Name another folder: --dir") from None
    return lock


class Stage:
    """One demo in a folder that was claimed. `tell` is given each step and its facts."""

    def __init__(self, folder: Path, tell: Callable[..., None], pace_s: float) -> None:
        self._folder, self._db, self._tell, self._pace_s = folder, folder / "keep.db", tell, pace_s
        self._seen = 0
        self._played: set[str] = set()

    async def play(self, keep: list[str]) -> bool:
        """Play it, and return True if all its claims hold. `keep` is how the command is called here."""
        began = time.monotonic()
        self._tell("began", folder=str(self._folder))
        try:
            with anyio.fail_after(_WITHIN_S):
                exit_code, sandbox = await self._lives()
        except TimeoutError:
            raise self._failed(f"It took longer than {_WITHIN_S} s.") from None
        there = account.outside(self._folder)
        for number, amount in INVOICES.items():
            calls, times = account.calls_about(self._db, number), there[f"bank {number} {amount}"]
            ledger, how = calls[-1].status, account.how_known(calls)
            self._tell("payment", invoice=number, amount=amount, outside=times, ledger=ledger, how=how)
        counts = Counter(each["service"] for each in read_outside(self._folder) if each["what"] == "effect")
        wrong = list(account.problems(there, account.ledger(self._db), exit_code, examine(self._db).problems))
        self._tell(
            "summary",
            problems=wrong,
            payments=counts["bank"],
            rows=counts["sheets"],
            digests=counts["mail"],
            couriers=counts["courier"],
            took_ms=int((time.monotonic() - began) * 1000),
            question=account.calls_about(self._db, UNANSWERED)[-1].id,
            about=UNANSWERED,
            commands=[{"what": what, "line": line} for what, line in self._commands(keep, sandbox)],
        )
        return not wrong

    async def _lives(self) -> tuple[int, str]:
        """Kill a runtime in the middle of a payment; let the next one finish. Return the exit code and the sandbox."""
        async with self._runtime(1) as (first, _):
            await self._follow(first, lambda: self._booked() > 0)
            await anyio.sleep(self._pace_s)
            first.kill()
            code = await first.wait()
        status = account.calls_about(self._db, KILLED)[-1].status
        self._tell("killed", pid=first.pid, exit_code=code, payment=KILLED, outside=self._booked(), ledger=status)
        async with self._runtime(2) as (second, sandbox):
            await self._follow(second, lambda: account.is_done(self._db))
        if second.returncode != 0:
            raise self._failed(f"The runtime ended with {second.returncode}.")
        return code, sandbox

    @asynccontextmanager
    async def _runtime(self, life: int) -> AsyncIterator[tuple[anyio.abc.Process, str]]:
        """A runtime that has started, and its sandbox. It ends with its standard input, however the demo ends.

        It has a session of its own: a Ctrl-C in a terminal reaches the demo alone.
        """
        command = [sys.executable, "-P", "-m", "keep_actors.demo.life", str(self._folder), str(self._pace_s)]
        with (self._folder / "runtime.log").open("ab") as log:
            async with await anyio.open_process(
                command, stderr=log, start_new_session=True, creationflags=_NEW_GROUP
            ) as process:
                assert process.stdout is not None, "open_process makes a pipe"
                try:
                    sandbox = (await process.stdout.receive()).decode().strip()
                except anyio.EndOfStream:
                    raise self._failed("The runtime did not start.") from None
                self._tell("started", life=life, pid=process.pid, sandbox=sandbox)
                yield process, sandbox

    async def _follow(self, runtime: anyio.abc.Process, is_enough: Callable[[], bool]) -> None:
        """Tell the news of the ledger as it is written, each trick before what the ledger learned from it."""
        enough = False
        while not enough:
            enough = is_enough()
            for entry, line in account.news(self._db, self._seen):
                self._seen = entry.seq
                if line is not None:
                    if entry.operation != "create_mutation":
                        self._tell_tricks(line.about)
                    self._tell("seen", line=line)
            if runtime.returncode is not None:
                raise self._failed("The runtime ended by itself.")
            await anyio.sleep(_LOOK_S)
        self._tell_tricks(KILLED)

    def _tell_tricks(self, about: str) -> None:
        for line in account.tricks_about(self._folder, about) if about not in self._played else []:
            self._played.add(about)
            self._tell("seen", line=line)

    def _booked(self) -> int:
        return account.outside(self._folder)[f"bank {KILLED} {INVOICES[KILLED]}"]

    def _failed(self, words: str) -> DemoFailed:
        return DemoFailed(f"{words} See {self._folder / 'runtime.log'}.")

    def _commands(self, keep: list[str], sandbox: str) -> Iterator[tuple[str, str]]:
        """Yield commands for a person. They work as they stand, from where the demo was started."""
        db, resolve = ["--db", str(self._db)], [*keep, "resolve", "--workflow", "payments"]
        here = "" if str(self._folder) == "keep-demo" else f"KEEP_DEMO={shlex.quote(str(self._folder))} "
        weaker = [] if sandbox == "jailed" else ["--sandbox", sandbox]
        run = [*keep, "run", "--once", *db, "--connectors", "keep_actors.demo:connectors", *weaker]
        yield "look at it", shlex.join([*keep, "attention", *db])
        yield "", shlex.join([*keep, "explain", UNANSWERED, *db])
        yield "look outside", shlex.join(["grep", UNANSWERED, str(self._folder / "outside.jsonl")])
        yield "answer it", shlex.join([*resolve, "happened", *db])
        yield "or", shlex.join([*resolve, "did-not-happen", *db])
        yield "let it go on", here + shlex.join(run)
