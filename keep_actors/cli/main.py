"""The command `keep`. Its exit codes are in `exits.py`.

A command imports what it needs when it is called: `keep --version` loads no runtime and no database.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from keep_storage.doctor import Report

_ELSEWHERE = {
    "approve": "keep_actors.cli.answers",
    "archive": "keep_actors.cli.workflows",
    "attention": "keep_actors.cli.attention",
    "backup": "keep_actors.cli.backup",
    "check": "keep_actors.cli.check",
    "clear-error": "keep_actors.cli.workflows",
    "demo": "keep_actors.cli.demo",
    "deploy": "keep_actors.cli.scripts",
    "dry-run": "keep_actors.cli.dry_run",
    "explain": "keep_actors.cli.explain",
    "grant": "keep_actors.cli.workflows",
    "inputs": "keep_actors.cli.history",
    "log": "keep_actors.cli.history",
    "outputs": "keep_actors.cli.history",
    "pause": "keep_actors.cli.workflows",
    "prompt": "keep_actors.cli.prompt",
    "publish": "keep_actors.cli.workflows",
    "reject": "keep_actors.cli.answers",
    "repair": "keep_actors.cli.scripts",
    "reprocess-item": "keep_actors.cli.workflows",
    "resolve": "keep_actors.cli.answers",
    "resume": "keep_actors.cli.workflows",
    "revoke": "keep_actors.cli.workflows",
    "rollback": "keep_actors.cli.scripts",
    "run": "keep_actors.cli.run",
    "run-now": "keep_actors.cli.workflows",
    "runs": "keep_actors.cli.history",
    "skip-event": "keep_actors.cli.workflows",
    "skip-item": "keep_actors.cli.workflows",
    "status": "keep_actors.cli.status",
    "types": "keep_actors.cli.types",
}
"""Commands that live in modules of their own, each under its own name, with _ for -."""


class _Commands(click.Group):
    """Those of this module, and those that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _ELSEWHERE:
            return super().get_command(ctx, name)
        command: click.Command = getattr(import_module(_ELSEWHERE[name]), name.replace("-", "_"))
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="keep-actors", prog_name="keep")
def main() -> None:
    """Runs automations that never lose, repeat or guess a side effect.

    \b
    keep run FILE.js --db keep.db --connectors MODULE:NAME --accept
    keep status --db keep.db
    keep attention --db keep.db

    The database can also be named by the environment: export KEEP_DB=keep.db

    \b
    Exit codes: 0 done, 1 refused or something is wrong, 2 wrong usage, 3 no runtime
    can be talked to, 4 something waits for a person (attention), 5 nobody knows.
    """


@main.command()
@click.argument("file", type=click.Path(path_type=Path), envvar="KEEP_DB")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def doctor(file: Path, as_json: bool) -> None:
    """Check a database FILE: schema version, integrity, invariants.

    Looks and changes nothing; a runtime may be at work on the file. Exits with 1 when anything is wrong.

    \b
    keep doctor keep.db
    """
    if sys.stderr.isatty():
        click.echo(f"Checking {file} …", err=True)
    from keep_storage.doctor import examine

    report = examine(file)
    click.echo(_as_json(report) if as_json else _as_text(report))
    sys.exit(0 if report.is_healthy else 1)


def _as_json(report: "Report") -> str:
    import msgspec

    return msgspec.json.encode({**msgspec.structs.asdict(report), "healthy": report.is_healthy}).decode()


def _as_text(report: "Report") -> str:
    known = "unknown" if report.schema_version is None else str(report.schema_version)
    behind = report.schema_version is not None and 0 < report.schema_version < report.newest_schema_version
    older = f" (this library writes {report.newest_schema_version}; the next start migrates it)" if behind else ""
    lines = [
        f"file             {report.path}",
        f"size             {report.size_bytes:,} bytes",
        f"schema version   {known}{older}",
        f"invariants       {report.invariants_checked} checked",
    ]
    if report.is_healthy:
        lines.append(click.style("healthy", fg="green"))
    else:
        lines.append(click.style(f"{len(report.problems)} problem(s)", fg="red"))
        lines += [f"  - {problem}" for problem in report.problems]
    return "\n".join(lines)
