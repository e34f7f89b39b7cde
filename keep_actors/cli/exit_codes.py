"""The exit codes of all commands, in one table. `docs/cli.md` shows it; a test compares."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import click


class Exit(IntEnum):
    OK = 0
    WRONG = 1
    USAGE = 2
    NO_RUNTIME = 3
    WAITING = 4
    UNKNOWN = 5


MEANING: Final[Mapping[Exit, str]] = {
    Exit.OK: "success",
    Exit.WRONG: "refused, and nothing changed (of several answers, at least one was); or a check found a problem",
    Exit.USAGE: "wrong usage: an option, an argument, or a file to read that does not exist",
    Exit.NO_RUNTIME: "a running runtime is needed, and none can be reached; nothing changed",
    Exit.WAITING: "`keep attention` or `keep run --once` found something that waits for a person",
    Exit.UNKNOWN: "the runtime ended before it answered: the change may have been made. Check before you try again",
}

assert set(MEANING) == set(Exit), "every code has its meaning"


class Stopped(click.ClickException):
    """A command cannot continue. The text is for people, and says what to do."""

    def __init__(self, code: Exit, words: str) -> None:
        from keep_actors.cli.terminal import plain_lines

        super().__init__(plain_lines(words))
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance
