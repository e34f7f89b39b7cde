"""A process that is killed before any line of a change of a sheet, and the verdict about its call afterwards."""

import multiprocessing
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import anyio

from keep_actors.connectors import Verdict
from keep_actors.services.files import notes, replacement
from keep_actors.services.sheet import connector
from tests.services.sheet.sheets import caller

_TRACED: Final = frozenset(str(module.__file__) for module in (connector, notes, replacement))
"""The modules that change something: a process may be killed before each of their lines."""
_WAIT_S: Final = 30


@dataclass(frozen=True)
class SheetCrash:
    """One call of a process of its own. Its note survives in a file, as in the ledger."""

    file: Path
    notes: Path
    name: str
    params: dict[str, Any]
    kill_at: int
    """The number of the line. One that the call does not have: it comes to its end."""

    @property
    def backend(self) -> str:
        """Both take turns."""
        return ("asyncio", "trio")[self.kill_at % 2]

    def is_killed(self) -> bool:
        """Make the call, and return whether it was killed. Raises if it came to its end and did not happen."""
        self.notes.write_text("", "utf-8")
        process = _FORKS.Process(target=_live, args=(self,))
        process.start()
        process.join(_WAIT_S)
        assert process.exitcode in (0, -signal.SIGKILL), "the call failed in the other process"
        return process.exitcode != 0

    def told(self) -> Verdict:
        """Ask about the call as a later process would."""

        async def ask() -> Verdict:
            sheet = caller(self.file, create=True)
            call = sheet.call(self.name, self.params, idempotency_key="k", earlier_note=self.notes.read_text("utf-8"))
            return await sheet.reconcile(self.name, call)

        return anyio.run(ask, backend=self.backend)

    def make_again(self) -> None:
        """Make the second attempt, to its end."""

        async def make() -> None:
            sheet = caller(self.file, create=True)
            call = sheet.call(self.name, self.params, idempotency_key="k", attempt=2)
            outcome = await sheet.mutate(self.name, self.params, call)
            assert hasattr(outcome, "json_text"), outcome

        anyio.run(make, backend=self.backend)


def _live(crash: SheetCrash) -> None:
    async def keep(text: str) -> None:
        """Durable before it returns, as the ledger is, and whole or not there."""
        fresh = crash.notes.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.replace(crash.notes)

    async def make() -> None:
        sheet = caller(crash.file, create=True)
        call = sheet.call(crash.name, crash.params, idempotency_key="k", keep_note=keep)
        tracer = _Tracer(crash.kill_at)
        threading.settrace(tracer.called)
        sys.settrace(tracer.called)
        outcome = await sheet.mutate(crash.name, crash.params, call)
        assert hasattr(outcome, "json_text"), outcome

    anyio.run(make, backend=crash.backend)


class _Tracer:
    """Counts lines, and ends the process before the one that is wanted."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def called(self, frame: FrameType, event: str, _: object) -> Any:
        return self.stepped if event == "call" and frame.f_code.co_filename in _TRACED else None

    def stepped(self, _: FrameType, event: str, __: object) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.stepped


# With all that a call imports: each process is a fork of that.
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["__main__", __name__, "anyio._backends._asyncio", "anyio._backends._trio", "openpyxl"])
