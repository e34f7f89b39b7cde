"""A terminal with a person in it: a real tmux, what is typed into it, and what can be seen."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.operating import KEEP

WITHIN_S = 90


def need_tmux() -> None:
    """Skip where there is no tmux; on a build machine that is a failure."""
    if shutil.which("tmux") is None:
        assert not os.environ.get("CI"), "tmux is missing; .ci/run installs it"
        pytest.skip("tmux is not installed")


class Terminal:
    """One window of 120 columns with a shell in it."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._typed = 0

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout

    def screen(self, *, colours: bool = False) -> str:
        """Everything that was shown, with what has scrolled away."""
        more = ["-e"] if colours else []
        return self.tmux("capture-pane", "-p", "-J", *more, "-S", "-")

    def type(self, line: str) -> tuple[str, int]:
        """Type a command; what it showed, and its exit code, once it has ended."""
        self._typed += 1
        end = f"END{self._typed}"
        self.tmux("clear-history")
        self.tmux("send-keys", "-l", f"clear; {line}; printf '%s:%s.\\n' {end[:3]}{end[3:]} $?")
        self.tmux("send-keys", "Enter")
        found = self.wait_for(rf"^{end}:(\d+)\.$")
        return self.screen(), int(found.group(1))

    def wait_for(self, pattern: str) -> re.Match[str]:
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            if found := re.search(pattern, self.screen(), re.MULTILINE):
                return found
            # The terminal has no way to say that it changed; a look costs a few milliseconds.
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} was not seen:\n{self.screen()}")


@contextmanager
def terminal(folder: Path, **environment: str) -> Iterator[Terminal]:
    """A shell in a folder, with the command in its path."""
    need_tmux()
    # The path of a socket is short; that of a test's folder may not be.
    socket = Path(f"/tmp/keep-tmux-{os.getpid()}-{time.monotonic_ns()}")
    known = {"PATH": f"{KEEP.parent}:{os.environ['PATH']}", "LOGNAME": "olga", "LANG": "C.UTF-8"}
    environment = {"TERM": "xterm-256color", "HOME": str(folder), **known, **environment}
    window = Terminal(socket)
    command = ["tmux", "-S", str(socket), "-f", os.devnull, "new-session", "-d", "-x", "120", "-y", "50", "sh"]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=30)
    try:
        window.wait_for(r"^[#$]")
        yield window
    finally:
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], check=False, capture_output=True, timeout=30)
        socket.unlink(missing_ok=True)
