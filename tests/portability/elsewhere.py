"""A folder on a system that lacks what Windows or macOS lacks: Python and `keep` as they are started there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.cli.operating import KEEP, Shell

ROOT: Final = Path(__file__).parents[2]


class Elsewhere(Shell):
    """The shop of the tests of the command line, on such a system."""

    def __init__(self, folder: Path, system: str) -> None:
        super().__init__(folder)
        self._path = os.pathsep.join([str(Path(__file__).parent / system), str(ROOT)])

    def environment(self) -> dict[str, str]:
        return os.environ | {"KEEP_DB": "keep.db", "LOGNAME": "olga", "PYTHONPATH": self._path}

    def python(
        self, code: str, *words: str, timeout: float = 120, first: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Execute code in an interpreter of its own. `first` names libraries that choose by `sys.platform`."""
        command = [sys.executable, "-W", "error", "-c", code, *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment() | {"KEEP_LOADED_FIRST": first},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def says(self, code: str, *words: str, first: str = "") -> str:
        """The standard output of code that ends well."""
        done = self.python(code, *words, first=first)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def begin(self, code: str, *words: str) -> "subprocess.Popen[str]":
        """An interpreter that goes on until it is killed, or its standard input ends."""
        command = [sys.executable, "-c", code, *words]
        pipe: Any = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def call(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return super().call(*words, **({"PYTHONPATH": self._path} | environment))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        pipe: Any = subprocess.PIPE
        return subprocess.Popen(
            [KEEP, *words], cwd=self.folder, env=self.environment(), stdout=pipe, stderr=pipe, text=True
        )
