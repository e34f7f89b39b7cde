"""Problems of a script, as a compiler shows them: the place, the line, a caret, and what to do."""

from pathlib import Path
from typing import Any, Final, Literal

from keep_actors.cli.terminal import columns, plain, style
from keep_sandbox.declaration import Problem

_COLOURS: Final = {"error": "red", "warning": "yellow"}
_WIDTH: Final = 100
_BEFORE: Final = 60
"""Of a long line, so much is shown, and so much of that before the place."""


def as_text(
    file: Path, source: str, problem: Problem, kind: Literal["error", "warning"] = "error", *, err: bool = False
) -> str:
    """`file:line:column: error[code]: message`, the line with a caret under the place, and the hint.

    `err`: it is for the standard error, and in colour if that is a terminal.
    """
    line, column = (problem.place.line, problem.place.column) if problem.place is not None else (1, 1)
    said = style(f"{kind}[{problem.code}]", _COLOURS[kind], bold=True, err=err)
    head = f"{plain(str(file))}:{line}:{column}: {said}: {plain(problem.message)}"
    hint = f"  {style('hint', 'cyan', err=err)}: {plain(problem.hint)}"
    caret = style("^", _COLOURS[kind], bold=True, err=err)
    return "\n".join([head, *_excerpt(source, line, column, caret), hint])


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


def _excerpt(source: str, line: int, column: int, caret: str) -> list[str]:
    lines = source.split("\n")
    if line > len(lines):
        return []
    text = lines[line - 1].removesuffix("\r").replace("\t", " ")
    first = max(column - 1 - _BEFORE, 0) if len(text) > _WIDTH else 0
    place = max(column - 1, first)
    # What is before the place and the rest by themselves: a run that is folded does not carry the place with it.
    before, behind = plain(text[first:place]), plain(text[place : first + _WIDTH])
    return [f"{line:>5} | {before}{behind}", f"{'':>5} | {' ' * columns(before)}{caret}"]
