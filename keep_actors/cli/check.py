"""`keep check`: everything that a deployment would find wrong with a script, as a compiler shows it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keep_actors.cli.given import connector_options, connectors_from, sandbox_option, script_file, source_of
from keep_actors.cli.terminal import json_line, plain, remark, show, style

if TYPE_CHECKING:
    from keep_actors.authoring.checking import Checked
    from keep_actors.sandbox_pool.pool import PoolMode


@click.command()
@click.argument("files", nargs=-1, required=True, type=script_file(), metavar="FILE.js...")
@connector_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@sandbox_option
def check(
    files: tuple[Path, ...], specs: tuple[str, ...], discovered: bool, as_json: bool, sandbox: "PoolMode"
) -> None:
    """Check scripts as a deployment would, without one.

    Each problem has its place, the line, and what to do about it. Handlers are not called. A warning is shown alike,
    for what looks wrong and may be right: no deployment is refused for it.

    \b
    keep check mail_to_sheets.js --connectors examples.connectors:demo
    keep check *.js --discover --json

    Without connectors nobody can say which methods there are: those are then not checked, and what changes something
    outside is judged by its name.

    Exits with 0 if every script could be deployed, warnings or not, with 1 if not, with 2 for a wrong use of this
    command.
    """
    import anyio

    from keep_actors.authoring.checking import check_scripts
    from keep_actors.sandbox_pool import SandboxUnavailable
    from keep_sandbox import EngineUnsuitable, JailUnavailable

    connectors = connectors_from(specs, discovered) if specs or discovered else None
    sources = [source_of(file) for file in files]
    try:
        results = anyio.run(check_scripts, sources, connectors, sandbox)
    except (SandboxUnavailable, JailUnavailable, EngineUnsuitable) as error:
        raise click.ClickException(str(error)) from None
    found = list(zip(files, sources, results, strict=True))
    show(_json(found) if as_json else _text(found))
    if connectors is None and any(result.uses for result in results):
        remark("note: no connectors were named, so their methods were not checked: --connectors MODULE:NAME")
    sys.exit(1 if any(result.problems for result in results) else 0)


def _text(found: "list[tuple[Path, str, Checked]]") -> str:
    from keep_actors.cli.problems import as_text

    parts: list[str] = []
    for file, source, result in found:
        parts += [as_text(file, source, problem) for problem in result.problems]
        if result.count > len(result.problems):
            parts.append(f"{plain(str(file))}: … and {result.count - len(result.problems)} more")
        parts += [as_text(file, source, warning, "warning") for warning in result.warnings]
        if not result.problems:
            parts.append(f"{plain(str(file))}: {style('ok', 'green')}: {plain(result.name)}")
    errors, bad = sum(result.count for *_, result in found), sum(bool(result.count) for *_, result in found)
    if len(found) > 1:
        warnings = sum(len(result.warnings) for *_, result in found)
        beside = f", {warnings} warning(s)" if warnings else ""
        parts.append(f"{len(found)} files, {errors} error(s) in {bad} of them{beside}")
    return "\n".join(parts)


def _json(found: "list[tuple[Path, str, Checked]]") -> str:
    from keep_actors.cli.problems import as_json

    files = [
        {
            "file": click.format_filename(file),
            "workflow": result.name or None,
            "errors": result.count,
            "problems": [as_json(problem) for problem in result.problems],
            "warnings": [as_json(warning) for warning in result.warnings],
        }
        for file, _, result in found
    ]
    return json_line({"errors": sum(result.count for *_, result in found), "files": files})
