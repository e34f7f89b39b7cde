"""Scripts of workflows: `keep deploy`, `keep rollback` and `keep repair`, as the running runtime takes them.

If events wait in topics that a script no longer declares, `--drop`, `--move` or an answer on the terminal settles them.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from keep_actors.api import commands, views
from keep_actors.api.commands import Deployed
from keep_actors.cli.actions import action
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.inputs import script_file, source_of
from keep_actors.cli.options import changes, grant_options, looks, workflow_argument
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.terminal import fields, json_line, plain, remark, show, show_lines
from keep_actors.cli.write_path import EventsWait, WritePath
from keep_actors.text.counted import counted

_Activation = commands.DeployScript | commands.Rollback | commands.AcceptProposal


@click.command()
@click.argument("files", nargs=-1, required=True, type=script_file(), metavar="FILE.js...")
@grant_options
@changes(commands.DeployScript, "source", "grants")
def deploy(path: WritePath, files: tuple[Path, ...], workflow: str | None, new: bool, **typed: Any) -> None:
    """Check scripts and make them the ones that run, each once the active run of its workflow has ended.

    A script with a new name is a new workflow. A changed script is the next minor version of the --workflow that is
    named: without it, a script with the name of a workflow that runs another one is refused. A refused script ends the
    command: the scripts before it are deployed, those after it are not. The name of an archived workflow is free: a
    script with it is a new workflow; --workflow with an archived one is refused.

    A script by another --author than the newest version's is a new major version: it begins without permissions.

    A handler with an interval runs at once if it is new or its interval has changed; one with cron runs at its next
    time, in the time zone of the workflow, and not because it is deployed.

    If events wait in a topic that the script no longer declares, it is refused until --drop or --move settles them; on
    a terminal you are asked.

    \b
    keep deploy mail_to_sheets.js --accept --db keep.db
    keep deploy orders.js --workflow orders --grant shop.orders --ask shop.ship --major --db keep.db
    keep deploy orders.js --workflow orders --move order.paid=order.open --drop order.seen --db keep.db
    """
    refuse_unclear_topics(files, typed["drop"], typed["move"])
    found = workflow
    if workflow is not None and not new:
        with reading(path.db) as look:
            found = look.living(workflow).id
    is_new = True if new else None if found is None else False
    for file in files:
        command = commands.DeployScript(source=source_of(file), workflow=found, new=is_new, by=path.by, **typed)
        try:
            answer = activated(path, command)
        except Stopped as stopped:
            raise Stopped(Exit(stopped.exit_code), f"{file}: {stopped.message}") from None
        path.done(answer, f"{file}: {answer.name} {answer.version} ({answer.workflow_id})")


def refuse_unclear_topics(files: tuple[Path, ...], drop: tuple[str, ...], move: dict[str, str]) -> None:
    """Refuse `--drop` and `--move` for several scripts: the topics could be those of any of them."""
    if len(files) > 1 and (drop or move):
        raise click.UsageError("--drop and --move apply to the topics of one script; deploy that script alone.")


def activated(path: WritePath, command: _Activation) -> Deployed:
    """Wait for as long as it takes: for the active run, and for a person who is asked about events."""
    while True:
        try:
            return path.ask(command, timeout_s=None)
        except EventsWait as waiting:
            if path.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            command = _settled(waiting, command)


def _settled(waiting: EventsWait, command: _Activation) -> _Activation:
    """Ask the person at the terminal what becomes of the events."""
    drop, move = list(command.drop), dict(command.move)
    for topic, count in waiting.topics.items():
        waiting_in_it = f"{counted(count, 'event')} wait{'s' if count == 1 else ''} in it"
        remark(f"{plain(topic)}: the script no longer declares this topic, and {waiting_in_it}.")
        choices = [f"move them to {plain(new)}" for new in waiting.declared]
        choices += ["drop them: they are skipped", "stop: nothing changes"]
        for number, choice in enumerate(choices, start=1):
            remark(f"  {number}  {choice}")
        kind: Any = click.IntRange(1, len(choices))
        chosen: int = click.prompt(f"Which (1 to {len(choices)})", type=kind, err=True) - 1
        if chosen < len(waiting.declared):
            move[topic] = waiting.declared[chosen]
        elif chosen == len(waiting.declared):
            drop.append(topic)
        else:
            raise Stopped(Exit.WRONG, "Stopped: nothing has changed.")
    return replace(command, drop=drop, move=move)


def _runs_now(answer: Deployed, _: object) -> str:
    return f"{answer.name} runs version {answer.version}."


rollback = action(
    commands.Rollback,
    _runs_now,
    'rollback "mail to sheets" 1.0',
    'rollback "mail to sheets" 1.0 --move mail.new=mail.seen',
    find=FileReader.living,
    ask=activated,
)
accept_repair = action(
    commands.AcceptRepair,
    _runs_now,
    'repair accept "mail to sheets" 1.3',
    ask=partial(WritePath.ask, timeout_s=None),
)
refuse_repair = action(
    commands.RefuseRepair,
    lambda answer, _: f"The repair of {answer.name} is refused.",
    'repair refuse "mail to sheets" --why "it drops the amount"',
    why="--why",
)


@click.group()
def repair() -> None:
    """Look at a proposed repair of a script, and accept or refuse it.

    \b
    keep repair show "mail to sheets" --db keep.db
    keep repair accept "mail to sheets" 1.3 --db keep.db
    keep repair refuse "mail to sheets" --why "it drops the amount" --db keep.db
    """


repair.add_command(accept_repair, "accept")
repair.add_command(refuse_repair, "refuse")


@repair.command("show")
@workflow_argument()
@looks
def show_repair(look: FileReader, workflow: str) -> None:
    """Show the proposal: why it waits, what would change, and what the failing version has touched."""
    found = look.workflow(workflow)
    proposed = views.proposal(look.q, found.id)
    if proposed is None:
        raise Stopped(Exit.WRONG, f"No repair of workflow {found.name!r} waits for a person.")
    if look.as_json:
        show(json_line(proposed))
        return
    radius = proposed.blast_radius
    touched = f"{len(radius.events)} events, {len(radius.mutations)} calls, {len(radius.items)} items"
    fields([("version", proposed.version), ("the maintainer says", proposed.note), ("the error", proposed.error)])
    fields([("touched by the failing version", touched)])
    # All of it: behind a long line, something unread could wait.
    show_lines(proposed.diff)
