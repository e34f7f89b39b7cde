"""The command `keep`. Exit codes: 0 all is well, 1 something is wrong with what was asked about, 2 wrong usage."""

import sys
from pathlib import Path

import click
import msgspec

import keep_actors
from keep_actors.cli.run import run
from keep_storage import doctor as storage_doctor
from keep_storage.doctor import Report


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(keep_actors.__version__, prog_name="keep")
def main() -> None:
    """Runs automations that never lose, repeat or guess a side effect."""


main.add_command(run)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def doctor(file: Path, as_json: bool) -> None:
    """Check a database FILE: schema version, integrity, invariants.

    Looks and changes nothing; a runtime may be at work on the file. Exits with 1 when anything is wrong.
    """
    if sys.stderr.isatty():
        click.echo(f"Checking {file} …", err=True)
    report = storage_doctor.examine(file)
    click.echo(msgspec.json.encode(_as_object(report)).decode() if as_json else _as_text(report))
    sys.exit(0 if report.is_healthy else 1)


def _as_object(report: Report) -> dict[str, object]:
    return {**msgspec.structs.asdict(report), "healthy": report.is_healthy}


def _as_text(report: Report) -> str:
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
