"""The processes of a demo: the services and the runtime's lives. However the demo ends, none of them is left.

Each has its own session, so that a Ctrl-C in a terminal reaches the demo alone, and ends when its standard input does:
also if the demo itself is killed.
"""

import subprocess
import sys
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Final, Self

from keep_actors.demo.folder import Folder

_GRACE_S: Final = 10


class Broken(Exception):
    """The demo could not go on. The text is for people."""


class Child:
    """A module of the demo in a process of its own."""

    def __init__(self, module: str, *words: str, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
            [sys.executable, "-P", "-m", f"keep_actors.demo.{module}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def first_line(self) -> str:
        """What it says when it is ready. Empty if it ended instead."""
        assert self._process.stdout is not None, "it was asked for"
        return self._process.stdout.readline().decode().strip()

    def kill(self) -> int:
        """SIGKILL. Returns its exit code."""
        self._process.kill()
        code = self._process.wait()
        self._close()
        return code

    def end(self) -> int:
        """In order; with SIGKILL if that takes too long. Returns its exit code."""
        self._close()
        try:
            return self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


class Processes:
    """All of them, and a time after which they are killed."""

    def __init__(self, folder: Folder, within_s: float) -> None:
        self._folder = folder
        self._log: IO[bytes] = folder.log.open("ab")
        self._children: list[Child] = []
        self._open = ExitStack()
        self._timer = threading.Timer(within_s, self._too_late)
        self._timer.daemon = True
        self.is_late = False

    def __enter__(self) -> Self:
        self._open.enter_context(self._log)
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        for child in reversed(self._children):
            if not child.has_ended:
                child.end() if kind is None else child.kill()
        self._open.close()

    def start(self, module: str, *words: str) -> tuple[Child, str]:
        """A child that is ready, and what it said. Raises `Broken`."""
        child = Child(module, str(self._folder.path), *words, log=self._log)
        self._children.append(child)
        said = child.first_line()
        if not said:
            raise Broken(f"A process did not start ({module}). Its words are in {self._folder.log}.")
        return child, said

    def _too_late(self) -> None:
        self.is_late = True
        for child in self._children:
            if not child.has_ended:
                child.kill()
