"""Commands about the file as a whole: `keep backup` and `keep doctor`."""

import sys
from pathlib import Path

import click
import msgspec

from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.options import db_option, json_object_option, json_option
from keep_actors.cli.terminal import json_line, plain, remark, show, style
from keep_actors.text.counted import counted
from keep_storage.backup import back_up
from keep_storage.doctor import DoctorReport, examine
from keep_storage.errors import StorageError


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@db_option
@json_option
def backup(target: Path, db: Path, as_json: bool) -> None:
    """Copy a database to TARGET, as it is at this moment, while its runtime keeps running.

    The copy is checked as by `keep doctor` before it gets its name: TARGET is complete, or absent. It is one file, and
    overwrites no other.

    \b
    keep backup /backups/keep-$(date +%F).db --db keep.db
    """
    try:
        with click.progressbar(
            length=1, label=plain(f"Copying {db}") if sys.stderr.isatty() else "", file=sys.stderr
        ) as bar:

            def told(done: int, pages: int) -> None:
                bar.length = max(pages, 1)
                bar.update(done - bar.pos)

            report = back_up(db, target, told)
    except StorageError as error:
        raise Stopped(Exit.WRONG, str(error)) from None
    if as_json:
        show(json_line({**msgspec.structs.asdict(report), "healthy": report.is_healthy}))
    else:
        show(plain(f"{target}: {report.size_bytes:,} bytes, {report.invariants_checked} invariants hold."))


@click.command()
@click.argument("file", type=click.Path(path_type=Path), envvar="KEEP_DB")
@json_object_option
def doctor(file: Path, as_json: bool) -> None:
    """Check a database FILE: schema, integrity, invariants. The file may be from an untrusted source.

    Reads only; a runtime may use the file meanwhile. Exits with 1 if there is a problem.

    \b
    keep doctor keep.db
    """
    if sys.stderr.isatty():
        remark(f"Checking {file} …")
    report = examine(file)
    show(_as_json(report) if as_json else _as_text(report))
    sys.exit(0 if report.is_healthy else 1)


def _as_json(report: DoctorReport) -> str:
    named = {**msgspec.structs.asdict(report), "path": click.format_filename(report.path)}
    return json_line({**named, "healthy": report.is_healthy})


def _as_text(report: DoctorReport) -> str:
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
        lines.append(style(f"{counted(len(report.problems), 'problem')}", "red"))
        lines += [f"  - {plain(problem)}" for problem in report.problems]
    return "\n".join(lines)
