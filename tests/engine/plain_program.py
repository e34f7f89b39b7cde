"""The native program around `plain.c` (`sandbox/engine/fuzz_plain.c`), built once for what it is made of.

It ends itself as soon as `plain_text` and its judge disagree, code of the script runs, or a sanitizer finds something.
"""

import fcntl
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from engine.build import DOWNLOADS, HERE, LOCK, archive, build_natively, sha256
from tests.fuzz.plain_expressions import Question

SOURCES: Final = (LOCK, *(HERE / name for name in ("plain.c", "plain.h", "fuzz_plain.c")))
JUDGE: Final = HERE / "judge.js"


class Harm(Exception):
    """The program has ended, with what it said."""


class NoValue(Exception):
    """The expression has no value: it throws."""


def built() -> Path:
    """The program. The first one to ask builds it; that takes a minute."""
    program = DOWNLOADS / f"fuzz_plain-{sha256(b''.join(each.read_bytes() for each in SOURCES))[:16]}"
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with (DOWNLOADS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            build_natively(archive(), program)
    return program


class PlainProgram:
    """The program while it is active, to be asked one question after another."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [self._program, JUDGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # The program counts blocks itself: where memory runs out, the engine forgets to release a string.
            env={"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"},
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _, said = self._process.communicate()
        if kind is None and self._process.returncode != 0:
            raise Harm(f"it ended with {self._process.returncode}: {said.decode(errors='replace')}")

    def text_of(self, asked: Question) -> str | None:
        """The text of a plain value; None, if it is not plain."""
        source = asked.source.encode("utf-8", "surrogatepass")
        to, answers = _pipe(self._process.stdin), _pipe(self._process.stdout)
        try:
            to.write(b"%d %d %d %d\n%b" % (asked.room, asked.depth, asked.failures, len(source), source))
            to.flush()
        except BrokenPipeError:
            pass  # the answer is why it has ended
        kind, _, length = answers.readline().decode().partition(" ")
        match kind:
            case "plain":
                return answers.read(int(length)).decode()
            case "other":
                return None
            case "threw":
                raise NoValue
            case _:
                self._process.wait()
                raise Harm(_pipe(self._process.stderr).read().decode(errors="replace"))


def _pipe(found: IO[bytes] | None) -> IO[bytes]:
    assert found is not None, "it was asked for"
    return found
