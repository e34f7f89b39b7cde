"""The command `keep`. Its exit codes are in `exits.py`.

A command imports what it needs when it is called: `keep --version` loads no runtime and no database.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from keep_storage.doctor import DoctorReport

_ELSEWHERE = {
    "amend": "keep_actors.cli.answers",
    "approve": "keep_actors.cli.approvals",
    "archive": "keep_actors.cli.workflows",
    "attention": "keep_actors.cli.attention",
    "backup": "keep_actors.cli.backup",
    "check": "keep_actors.cli.check",
    "clear-error": "keep_actors.cli.workflows",
    "demo": "keep_actors.cli.demo",
    "deploy": "keep_actors.cli.scripts",
    "dry-run": "keep_actors.cli.dry_run",
    "explain": "keep_actors.cli.explain",
    "grant": "keep_actors.cli.grants",
    "inputs": "keep_actors.cli.history",
    "items": "keep_actors.cli.items",
    "log": "keep_actors.cli.history",
    "outputs": "keep_actors.cli.history",
    "pause": "keep_actors.cli.workflows",
    "prompt": "keep_actors.cli.prompt",
    "publish": "keep_actors.cli.workflows",
    "reject": "keep_actors.cli.approvals",
    "repair": "keep_actors.cli.scripts",
    "reprocess-item": "keep_actors.cli.items",
    "resolve": "keep_actors.cli.answers",
    "resume": "keep_actors.cli.workflows",
    "revoke": "keep_actors.cli.grants",
    "rollback": "keep_actors.cli.scripts",
    "run": "keep_actors.cli.run",
    "run-now": "keep_actors.cli.workflows",
    "runs": "keep_actors.cli.history",
    "skip-event": "keep_actors.cli.workflows",
    "skip-item": "keep_actors.cli.items",
    "status": "keep_actors.cli.status",
    "stop": "keep_actors.cli.workflows",
    "types": "keep_actors.cli.types",
    "unarchive": "keep_actors.cli.workflows",
}
"""Commands that live in modules of their own, each under its own name, with _ for -."""


class _Commands(click.Group):
    """Those of this module, and those that are imported when they are asked for.

    What goes wrong in any of them is told in plain text: names of files and words of strangers are in it.
    """

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        if args is None:
            # As a program, and not by a test: what Python itself would write goes through the one door too.
            from keep_actors.cli.program import speak_plainly

            speak_plainly()
        return super().main(args, *more, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _plain_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _plain_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _ELSEWHERE:
            return super().get_command(ctx, name)
        command: click.Command = getattr(import_module(_ELSEWHERE[name]), name.replace("-", "_"))
        return command


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Have click say what a command raises, with everything in it spelled out that a terminal would obey or hide."""
    try:
        yield
    except click.ClickException as error:
        from keep_actors.cli.terminal import plain_block

        words = plain_block(error.format_message())
        if words == error.format_message():
            raise
        said = click.ClickException(words)
        if isinstance(error, click.UsageError):
            said = click.UsageError(words, error.ctx)
        said.exit_code = error.exit_code  # type: ignore[misc]  # click reads it from the instance
        raise said from None


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
    """Check a database FILE: schema, integrity, invariants. It may be one of somebody else's.

    Looks and changes nothing; a runtime may be at work on the file. Exits with 1 when anything is wrong.

    \b
    keep doctor keep.db
    """
    from keep_actors.cli.terminal import remark, show

    if sys.stderr.isatty():
        remark(f"Checking {file} …")
    from keep_storage.doctor import examine

    report = examine(file)
    show(_as_json(report) if as_json else _as_text(report))
    sys.exit(0 if report.is_healthy else 1)


def _as_json(report: "DoctorReport") -> str:
    import msgspec

    from keep_actors.cli.terminal import json_line

    named = {**msgspec.structs.asdict(report), "path": click.format_filename(report.path)}
    return json_line({**named, "healthy": report.is_healthy})


def _as_text(report: "DoctorReport") -> str:
    from keep_actors.cli.terminal import plain, style

    known = "unknown" if report.schema_version is None else str(report.schema_version)
    behind = report.schema_version is not None and 0 < report.schema_version < report.newest_schema_version
    older = f" (this library writes {report.newest_schema_version}; the next start migrates it)" if behind else ""
    lines = [
        f"file             {plain(report.path)}",
        f"size             {report.size_bytes:,} bytes",
        f"schema version   {known}{older}",
        f"invariants       {report.invariants_checked} checked",
    ]
    if report.is_healthy:
        lines.append(style("healthy", "green"))
    else:
        lines.append(style(f"{len(report.problems)} problem(s)", "red"))
        lines += [f"  - {plain(problem)}" for problem in report.problems]
    return "\n".join(lines)
