"""`keep backup`: a copy of a database while its runtime works, checked before it gets its name."""

import sys
from pathlib import Path

import click
import msgspec

from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.options import db_option, json_option
from keep_actors.cli.terminal import json_line, plain, show
from keep_storage.backup import back_up
from keep_storage.errors import StorageError


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@db_option
@json_option
def backup(target: Path, db: Path, as_json: bool) -> None:
    """Copy a database to TARGET, as it is at this moment, while its runtime goes on.

    The copy is checked like `keep doctor` does it before it gets its name: TARGET is there whole, or not at all. It is
    one file, and is never written over another.

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
