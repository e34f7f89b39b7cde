"""A process that is killed before any line of a call, and the verdict about the call afterwards."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import anyio

from keep_actors.connectors import Verdict
from tests.services.files.calls import Caller

_WAIT_S: Final = 30


@dataclass(frozen=True, kw_only=True)
class CrashPlan:
    """One call of a process of its own. Its note survives in a file, as in the ledger."""

    opened: Callable[[], Caller]
    """Makes the connector, in each process anew. Must be picklable."""
    traced: frozenset[str]
    """The files of the modules that change something: a process may be killed before each of their lines."""
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
            caller = self.opened()
            call = caller.call(self.name, self.params, idempotency_key="k", earlier_note=self.notes.read_text("utf-8"))
            return await caller.reconcile(self.name, call)

        return anyio.run(ask, backend=self.backend)

    def make_again(self) -> None:
        """Make the second attempt, to its end."""

        async def make() -> None:
            caller = self.opened()
            call = caller.call(self.name, self.params, idempotency_key="k", attempt=2)
            outcome = await caller.mutate(self.name, self.params, call)
            assert hasattr(outcome, "json_text"), outcome

        anyio.run(make, backend=self.backend)


def files_of_modules(modules: Iterable[ModuleType]) -> frozenset[str]:
    """The files in which lines are counted."""
    return frozenset(str(module.__file__) for module in modules)


def _live(plan: CrashPlan) -> None:
    async def keep(text: str) -> None:
        """Durable before it returns, as the ledger is, and whole or not there."""
        fresh = plan.notes.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.replace(plan.notes)

    async def make() -> None:
        caller = plan.opened()
        call = caller.call(plan.name, plan.params, idempotency_key="k", keep_note=keep)
        tracer = _Tracer(plan.kill_at, plan.traced)
        threading.settrace(tracer.called)
        sys.settrace(tracer.called)
        outcome = await caller.mutate(plan.name, plan.params, call)
        assert hasattr(outcome, "json_text"), outcome

    anyio.run(make, backend=plan.backend)


class _Tracer:
    """Counts lines, each once, and ends the process before the one that is wanted."""

    def __init__(self, kill_at: int, traced: frozenset[str]) -> None:
        self._kill_at = kill_at
        self._traced = traced
        self._seen: set[tuple[str, int]] = set()

    def called(self, frame: FrameType, event: str, _: object) -> Any:
        return self.stepped if event == "call" and frame.f_code.co_filename in self._traced else None

    def stepped(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(self._seen) == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.stepped


# With all that a call imports: each process is a fork of that.
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *("__main__", __name__, "anyio._backends._asyncio", "anyio._backends._trio", "openpyxl"),
        *("keep_actors.services.files", "keep_actors.services.sheet"),
    ]
)
