"""Commands for authors of scripts: `keep check`, `keep types` and `keep prompt`. They need no database."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from keep_actors.cli.inputs import (
    ChosenConnectors,
    connector_options,
    needs_sandbox,
    sandbox_option,
    script_file,
    source_of,
)
from keep_actors.cli.options import json_object_option
from keep_actors.cli.terminal import columns, json_line, plain, plain_lines, remark, show, style
from keep_actors.text.counted import counted
from keep_sandbox.declaration import Problem

if TYPE_CHECKING:
    from keep_actors.authoring.checking import Checked
    from keep_actors.connectors import Catalog
    from keep_actors.sandbox_pool.pool import PoolMode

_COLOURS: Final = {"error": "red", "warning": "yellow"}
_WIDTH: Final = 100
_BEFORE: Final = 60
"""Of a long line, so much is shown, and so much of that before the place."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=script_file(), metavar="FILE.js...")
@connector_options
@json_object_option
@sandbox_option
def check(files: tuple[Path, ...], chosen: ChosenConnectors, as_json: bool, sandbox: "PoolMode") -> None:
    """Check scripts as a deployment would, without one.

    Each problem has its place, the line, and what to do about it. Handlers are not called. A warning is shown in the
    same way, for code that looks wrong and may be right: it prevents no deployment.

    \b
    keep check mail_to_sheets.js --connectors examples.connectors:demo
    keep check *.js --discover --json

    Without connectors the methods are unknown: they are not checked, and their names decide which of them change
    something outside.

    Exits with 0 if every script could be deployed, warnings or not, with 1 if not, with 2 for a wrong use of this
    command.
    """
    import anyio

    from keep_actors.authoring.checking import check_scripts

    connectors = chosen.load() if chosen else None
    sources = [source_of(file) for file in files]
    with needs_sandbox():
        results = anyio.run(check_scripts, sources, connectors, sandbox)
    found = list(zip(files, sources, results, strict=True))
    show(_json(found) if as_json else _text(found))
    if connectors is None and any(result.uses for result in results):
        remark("note: no connectors were named, so their methods were not checked: --connectors MODULE:NAME")
    sys.exit(1 if any(result.problems for result in results) else 0)


def _text(found: "list[tuple[Path, str, Checked]]") -> str:
    parts: list[str] = []
    for file, source, result in found:
        parts += [problem_text(file, source, problem) for problem in result.problems]
        if result.count > len(result.problems):
            parts.append(f"{plain(str(file))}: … and {result.count - len(result.problems)} more")
        parts += [problem_text(file, source, warning, "warning") for warning in result.warnings]
        if not result.problems:
            parts.append(f"{plain(str(file))}: {style('ok', 'green')}: {plain(result.name)}")
    errors, bad = sum(result.count for *_, result in found), sum(bool(result.count) for *_, result in found)
    if len(found) > 1:
        warnings = sum(len(result.warnings) for *_, result in found)
        beside = f", {counted(warnings, 'warning')}" if warnings else ""
        parts.append(f"{len(found)} files, {counted(errors, 'error')} in {bad} of them{beside}")
    return "\n".join(parts)


def _json(found: "list[tuple[Path, str, Checked]]") -> str:
    files = [
        {
            "file": click.format_filename(file),
            "workflow": result.name or None,
            "errors": result.count,
            "problems": [_problem_json(problem) for problem in result.problems],
            "warnings": [_problem_json(warning) for warning in result.warnings],
        }
        for file, _, result in found
    ]
    return json_line({"errors": sum(result.count for *_, result in found), "files": files})


# Problems, as a compiler shows them: the place, the line, a caret, and what to do.


def problem_text(
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


def _problem_json(problem: Problem) -> dict[str, Any]:
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


# Texts for an editor and for a model.


@click.command()
@connector_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, such as keep.d.ts. Default: the standard output.",
)
@json_object_option
def types(chosen: ChosenConnectors, out: Path | None, as_json: bool) -> None:
    """Write TypeScript declarations for scripts.

    They describe `Keep`, events, results, what `ctx` offers phase by phase, and the methods of the connectors that are
    named. A script stays JavaScript; beside keep.d.ts an editor completes it, and tsc checks it.

    \b
    keep types --connectors examples.connectors:demo --out keep.d.ts
    npx tsc --noEmit --allowJs --checkJs --strict --target es2022 --module esnext \\
        --lib es2023 keep.d.ts script.js

    Exits with 0, and with 2 for a wrong use of this command.
    """
    from keep_actors.authoring.typescript import declarations

    # In a comment or a quoted name: what is spelled out means the same to `tsc`.
    text = plain_lines(_about_connectors(declarations, chosen), None)
    if out is None or as_json:
        show(json_line({"declarations": text}) if as_json else text.removesuffix("\n"))
    if out is None:
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written: {error.strerror}.") from None
    remark(f"{out}: {len(text.splitlines())} lines")


@click.command()
@connector_options
@click.option("--task", default="", metavar="TEXT", help="The task of the script, which comes last in the prompt.")
@json_object_option
def prompt(chosen: ChosenConnectors, task: str, as_json: bool) -> None:
    """Write the prompt for a model that is to write a script.

    It has the whole contract (structure, phases, what each may use, events, limits, common mistakes), a complete
    example, and the methods of the connectors that are named, with their types.

    \b
    keep prompt --connectors examples.connectors:demo --task "File every invoice in a sheet" | your-model > script.js
    keep check script.js --connectors examples.connectors:demo

    Exits with 0, and with 2 for a wrong use of this command.
    """
    from keep_actors.authoring.writing import writing_prompt

    text = _about_connectors(lambda catalog: writing_prompt(catalog, task=task), chosen)
    show(json_line({"prompt": text}) if as_json else text.removesuffix("\n"))


def _about_connectors(text_of: "Callable[[Catalog], str]", chosen: ChosenConnectors) -> str:
    """A text about the connectors that were named."""
    from keep_actors.connectors import Catalog, ConnectorDefinitionError

    try:
        return text_of(Catalog(chosen.load()))
    except ConnectorDefinitionError as error:
        raise click.UsageError(str(error)) from None
