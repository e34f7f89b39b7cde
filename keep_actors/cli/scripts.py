"""Which script runs: `keep deploy`, `keep rollback` and `keep repair`, as the running runtime takes them."""

from pathlib import Path
from typing import Literal

import click

from keep_actors import views
from keep_actors.cli.changing import Runtime, done
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import looking
from keep_actors.cli.options import changes, looks, why_option, workflow_argument
from keep_actors.cli.terminal import fields, json_line, plain_lines, show
from keep_actors.control import protocol
from keep_actors.control.protocol import GrantOf
from keep_actors.keep import Deployed
from keep_storage.model import Workflow


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.js..."
)
@click.option("--accept", is_flag=True, help="Grant every permission that the scripts name.")
@click.option("--grant", "granted", multiple=True, metavar="PERMISSION", help="Grant this one. Several times.")
@click.option(
    "--ask", "asked", multiple=True, metavar="PERMISSION", help="Grant this one; a person approves each call."
)
@click.option("--timezone", help="The time zone of cron schedules: UTC at first, then what it was.")
@click.option("--major", is_flag=True, help="A new major version: it begins without permissions.")
@changes
def deploy(
    files: tuple[Path, ...],
    accept: bool,
    granted: tuple[str, ...],
    asked: tuple[str, ...],
    timezone: str | None,
    major: bool,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Check scripts and make them the ones that run, each once what is under way in its workflow has ended.

    A changed script is the next minor version of the workflow that it names. One that is refused ends the command:
    those before it are deployed, those behind it are not.

    \b
    keep deploy mail_to_sheets.js --accept --db keep.db
    keep deploy orders.js --grant shop.orders --ask shop.ship --major --db keep.db
    """
    if accept and (granted or asked):
        raise click.UsageError("--accept grants everything that is named; leave it out to grant one by one.")
    one_by_one = [GrantOf(each) for each in granted] + [GrantOf(each, "ask") for each in asked]
    grants: list[GrantOf] | Literal["declared"] = "declared" if accept else one_by_one
    for file in files:
        request = protocol.Deploy(source=_source(file), grants=grants, timezone=timezone, major=major, by=by)
        try:
            answer = Runtime(db, control).ask(request, Deployed, timeout_s=None)
        except Stopped as stopped:
            hint = "\nAccept them all with --accept, or one by one with --grant NAME."
            needs = "permission(s) that it has not been granted" in stopped.message
            raise Stopped(Exit(stopped.exit_code), f"{file}: {stopped.message}{hint if needs else ''}") from None
        done(answer, as_json, f"{file}: {answer.name} {answer.version} ({answer.workflow_id})")


def _source(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} is not a script that can be read: {error}.") from None


@click.command()
@workflow_argument()
@click.argument("version")
@changes
def rollback(workflow: str, version: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Make an earlier VERSION of the script run again. Events and states stay.

    \b
    keep rollback "mail to sheets" 1.0 --db keep.db
    """
    with looking(db) as look:
        found = look.workflow(workflow).id
    request = protocol.Rollback(workflow=found, version=version, by=by)
    answer = Runtime(db, control).ask(request, Deployed, timeout_s=None)
    done(answer, as_json, f"{answer.name} runs version {answer.version}.")


@click.group()
def repair() -> None:
    """Look at a proposed repair of a script, and accept or refuse it.

    \b
    keep repair show "mail to sheets" --db keep.db
    keep repair accept "mail to sheets" --db keep.db
    keep repair refuse "mail to sheets" --why "it drops the amount" --db keep.db
    """


@repair.command("show")
@workflow_argument()
@looks
def show_repair(workflow: str, db: Path, as_json: bool) -> None:
    """Show the proposal: why it waits, what would change, and what the failing version has touched."""
    with looking(db) as look:
        found = look.workflow(workflow)
        proposed = views.proposal(look.q, found.id)
    if proposed is None:
        raise Stopped(Exit.WRONG, f"No repair of workflow {found.name!r} waits for a person.")
    if as_json:
        show(json_line(proposed))
        return
    radius = proposed.blast_radius
    touched = f"{len(radius.events)} events, {len(radius.mutations)} calls, {len(radius.items)} items"
    fields([("version", proposed.version), ("the maintainer says", proposed.note), ("the error", proposed.error)])
    fields([("touched by the failing version", touched)])
    show(plain_lines(proposed.diff))


@repair.command("accept")
@workflow_argument()
@changes
def accept_repair(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Let the proposed repair run."""
    with looking(db) as look:
        found = look.workflow(workflow).id
    answer = Runtime(db, control).ask(protocol.AcceptRepair(workflow=found, by=by), Deployed, timeout_s=None)
    done(answer, as_json, f"{answer.name} runs version {answer.version}.")


@repair.command("refuse")
@workflow_argument()
@why_option
@changes
def refuse_repair(workflow: str, why: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Send the proposed repair back, with the reason (--why). It counts as an attempt."""
    if not why:
        raise click.UsageError("Say why: the maintainer is told, and the journal keeps it (--why TEXT).")
    with looking(db) as look:
        found = look.workflow(workflow).id
    answer = Runtime(db, control).ask(protocol.RefuseRepair(workflow=found, by=by, why=why), Workflow)
    done(answer, as_json, f"The repair of {answer.name} is refused.")
