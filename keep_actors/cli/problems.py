"""Problems of a script, as a compiler shows them: the place, the line, a caret, and what to do."""

from pathlib import Path
from typing import Any, Final
from unicodedata import east_asian_width

import click

from keep_actors.cli.given import plain
from keep_sandbox.declaration import Problem

_WIDTH: Final = 100
_BEFORE: Final = 60
"""Of a long line, so much is shown, and so much of that before the place."""


def as_text(file: Path, source: str, problem: Problem) -> str:
    """`file:line:column: error[code]: message`, the line with a caret under the place, and the hint."""
    line, column = (problem.place.line, problem.place.column) if problem.place is not None else (1, 1)
    error = click.style(f"error[{problem.code}]", fg="red", bold=True)
    head = f"{plain(str(file))}:{line}:{column}: {error}: {plain(problem.message)}"
    hint = f"  {click.style('hint', fg='cyan')}: {plain(problem.hint)}"
    return "\n".join([head, *_excerpt(source, line, column), hint])


def as_json(problem: Problem) -> dict[str, Any]:
    """The same for a program."""
    place = problem.place
    return {
        "code": str(problem.code),
        "line": place.line if place is not None else 1,
        "column": place.column if place is not None else 1,
        "message": problem.message,
        "hint": problem.hint,
        "handler": problem.handler,
    }


def _excerpt(source: str, line: int, column: int) -> list[str]:
    lines = source.split("\n")
    if line > len(lines):
        return []
    text = lines[line - 1].removesuffix("\r").replace("\t", " ")
    first = max(column - 1 - _BEFORE, 0) if len(text) > _WIDTH else 0
    shown = plain(text[first : first + _WIDTH])
    before = shown[: max(column - 1 - first, 0)]
    gap = sum(2 if east_asian_width(each) in "WF" else 1 for each in before)
    number = f"{line:>5} | "
    return [f"{number}{shown}", f"{'':>5} | {' ' * gap}{click.style('^', fg='red', bold=True)}"]
