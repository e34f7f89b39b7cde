"""Which script runs: `keep deploy`, `keep rollback` and `keep repair`, as the running runtime takes them."""

from pathlib import Path
from typing import Literal

import click
from msgspec.structs import replace

from keep_actors.api import views
from keep_actors.api.keep_answers import Deployed
from keep_actors.cli.changing import Runtime, done
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import looking
from keep_actors.cli.options import changes, looks, why_option, workflow_argument, workflow_names
from keep_actors.cli.terminal import fields, json_line, plain_lines, show
from keep_actors.cli.topics import Fate, fate_of, topic_options, with_events_settled
from keep_actors.control import protocol
from keep_actors.control.protocol import GrantOf
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
@click.option(
    "--workflow", shell_complete=workflow_names, help="As a version of this one, by name or id; never as a new one."
)
@click.option("--new", is_flag=True, help="As a new workflow: refused if one has its name. With --workflow: this name.")
@click.option("--author", default="", help="Whose script it is. By another than before: a new major version.")
@topic_options
@changes
def deploy(
    files: tuple[Path, ...],
    accept: bool,
    granted: tuple[str, ...],
    asked: tuple[str, ...],
    timezone: str | None,
    major: bool,
    workflow: str | None,
    new: bool,
    author: str,
    drop: tuple[str, ...],
    move: dict[str, str],
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Check scripts and make them the ones that run, each once what is under way in its workflow has ended.

    A script with a new name is a new workflow. A changed script is the next minor version of the --workflow that is
    named: without it, a script with the name of a workflow that runs another one is refused. One that is refused ends
    the command: those before it are deployed, those behind it are not. The name of an archived workflow is free: a
    script with it is a new workflow, unless --workflow says which one is meant, and an archived one is refused.

    A script by another --author than the newest version's is a new major version: it begins without permissions.

    A handler with an interval runs at once if it is new or its interval has changed; one with cron runs at its next
    time, in the time zone of the workflow, and not because it is deployed.

    If events wait in a topic that the script no longer declares, it is refused until you say what becomes of them; on a
    terminal you are asked.

    \b
    keep deploy mail_to_sheets.js --accept --db keep.db
    keep deploy orders.js --workflow orders --grant shop.orders --ask shop.ship --major --db keep.db
    keep deploy orders.js --workflow orders --move order.paid=order.open --drop order.seen --db keep.db
    """
    if accept and (granted or asked):
        raise click.UsageError("--accept grants everything that is named; leave it out to grant one by one.")
    one_by_one = [GrantOf(each) for each in granted] + [GrantOf(each, "ask") for each in asked]
    grants: list[GrantOf] | Literal["declared"] = "declared" if accept else one_by_one
    fate = fate_of(drop, move, len(files))
    found = _living(db, workflow) if workflow is not None and not new else workflow
    for file in files:
        request = protocol.Deploy(
            source=_source(file),
            workflow=found,
            new=True if new else None if found is None else False,
            author=author,
            grants=grants,
            timezone=timezone,
            major=major,
            by=by,
        )
        try:
            answer = _activated(Runtime(db, control), request, fate, as_json)
        except Stopped as stopped:
            hint = "\nAccept them all with --accept, or one by one with --grant NAME."
            needs = "permission(s) that it has not been granted" in stopped.message
            raise Stopped(Exit(stopped.exit_code), f"{file}: {stopped.message}{hint if needs else ''}") from None
        done(answer, as_json, f"{file}: {answer.name} {answer.version} ({answer.workflow_id})")


def _living(db: Path, workflow: str) -> str:
    with looking(db) as look:
        return look.living(workflow).id


def _activated(runtime: Runtime, request: protocol.Deploy | protocol.Rollback, fate: Fate, as_json: bool) -> Deployed:
    """Waits for as long as it takes: for a run that is under way, and for a person who is asked about events."""

    def ask(said: Fate) -> Deployed:
        asked: protocol.Deploy | protocol.Rollback = replace(request, drop=said.drop, move=said.move)
        return runtime.ask(asked, Deployed, timeout_s=None)

    return with_events_settled(ask, fate, as_json=as_json)


def _source(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} is not a script that can be read: {error}.") from None


@click.command()
@workflow_argument()
@click.argument("version")
@topic_options
@changes
def rollback(
    workflow: str,
    version: str,
    drop: tuple[str, ...],
    move: dict[str, str],
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Make an earlier VERSION of the script run again. Events and states stay.

    If events wait in a topic that it does not declare, say what becomes of them; on a terminal you are asked.

    \b
    keep rollback "mail to sheets" 1.0 --db keep.db
    keep rollback "mail to sheets" 1.0 --move mail.new=mail.seen --db keep.db
    """
    request = protocol.Rollback(workflow=_living(db, workflow), version=version, by=by)
    answer = _activated(Runtime(db, control), request, fate_of(drop, move), as_json)
    done(answer, as_json, f"{answer.name} runs version {answer.version}.")


@click.group()
def repair() -> None:
    """Look at a proposed repair of a script, and accept or refuse it.

    \b
    keep repair show "mail to sheets" --db keep.db
    keep repair accept "mail to sheets" 1.3 --db keep.db
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
    # All of it: behind a long line, something could wait that nobody has read.
    show(plain_lines(proposed.diff, None))


@repair.command("accept")
@workflow_argument()
@click.argument("version")
@changes
def accept_repair(workflow: str, version: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Let the proposed repair run: VERSION is the one that `keep repair show` has shown; another one is refused."""
    with looking(db) as look:
        found = look.workflow(workflow).id
    request = protocol.AcceptRepair(workflow=found, version=version, by=by)
    answer = Runtime(db, control).ask(request, Deployed, timeout_s=None)
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
