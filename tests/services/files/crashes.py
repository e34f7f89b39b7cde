"""A process that is killed at any step of a call, and what is then told about the call."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from keep_actors.connectors import Connector, MutationCall, Verdict
from tests.services.files.calls import Caller

_STEPS = ("open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.truncate")
"""Before each of these a process may be killed."""


class Crashes:
    """Makes one call in a process of its own; its note survives in a file, as in the ledger."""

    def __init__(self, make: Callable[[], Connector], name: str, params: dict[str, Any], notes: Path) -> None:
        self._make = make
        self._name = name
        self._params = params
        self._notes = notes

    def make(self, key: str, attempt: int, kill_at: int | None) -> bool:
        """Make the call, and return whether it came to its end."""
        self._notes.write_text("", "utf-8")
        process = os.fork()
        if process == 0:
            self._in_child(key, attempt, kill_at)
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, -signal.SIGKILL), "the call failed in the other process"
        return code == 0

    def told(self, key: str, attempt: int, backend: str) -> Verdict:
        """Ask what became of the call."""

        async def ask() -> Verdict:
            caller = Caller(self._make())
            noted = self._notes.read_text("utf-8")
            call = caller.call(self._name, self._params, idempotency_key=key, attempt=attempt, earlier_note=noted)
            return await caller.reconcile(self._name, call)

        return anyio.run(ask, backend=backend)

    def _in_child(self, key: str, attempt: int, kill_at: int | None) -> None:
        try:
            caller = Caller(self._make())
            call = caller.call(self._name, self._params, idempotency_key=key, attempt=attempt, keep_note=self._keep)
            _kill_at(kill_at)
            anyio.run(self._made, caller, call)
            os._exit(0)
        except BaseException:  # a child must not come back into pytest
            traceback.print_exc()
            os._exit(1)

    async def _made(self, caller: Caller, call: MutationCall) -> None:
        outcome = await caller.mutate(self._name, self._params, call)
        assert hasattr(outcome, "json_text"), outcome

    async def _keep(self, text: str) -> None:
        """Durable before it returns, as the ledger is, and whole or not there."""
        fresh = self._notes.with_suffix(".new")
        fresh.write_text(text, "utf-8")
        fresh.replace(self._notes)


def _kill_at(step: int | None) -> None:
    count = 0

    def hook(event: str, _: tuple[object, ...]) -> None:
        nonlocal count
        if event in _STEPS:
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
