"""`keep approve`, `keep reject` and `keep grant`: may calls be made? One is answered, or several at once.

Each is answered by itself: the first answer to a question wins, and one that comes too late does not stop the rest.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import click

from keep_actors.api import commands, views
from keep_actors.api.commands import Answered
from keep_actors.api.views import ApprovalQuestion
from keep_actors.cli.answers import only_one
from keep_actors.cli.calls import Names, asked_names, is_whole, show_whole
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.options import Decorated, changes, confirm, workflow_argument, workflow_option, yes_option
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.terminal import json_line, plain, remark, show
from keep_actors.cli.typed import line, workflow_word
from keep_actors.cli.write_path import WritePath
from keep_actors.policy import Grant
from keep_actors.text.counted import counted
from keep_storage import reads
from keep_storage.model import Mutation, Workflow

_KINDS_SHOWN: Final = 5


def _which(command: Decorated) -> Decorated:
    """The options that say which calls are meant."""
    command = yes_option(command)
    said = "With --all: only calls of this method, as in gmail.send."
    command = click.option("--call", metavar="CONNECTOR.METHOD", help=said)(command)
    said = "All waiting calls, or those of --workflow and --call. Asks first, with their number."
    command = click.option("--all", "everything", is_flag=True, help=said)(command)
    return click.argument("approval", nargs=-1)(workflow_option(command))


@click.command()
@_which
@changes(commands.ApproveCall, "approval_id")
def approve(path: WritePath, yes: bool, why: str, **which: Any) -> None:
    """Allow recorded calls: the running runtime makes exactly these.

    APPROVAL is an id or the beginning of one, as `keep attention` shows it; there may be several. With --workflow it
    may be left out if only one call of that workflow waits. --all means every call that waits now: it asks first, with
    their number, and needs --yes where there is no terminal.

    A call that `keep attention` does not show whole is shown whole on a terminal, and you are asked to confirm, unless
    you add --yes. Where there is no terminal, naming the id is enough.

    Each answer is reported. Exits with 1 if one was refused: another person was first, it has expired, or a limit is
    reached.

    \b
    keep approve apr_1k7o9 --db keep.db
    keep approve --workflow "mail to sheets" --why "the amount is right" --db keep.db
    keep approve --all --workflow "mail to sheets" --call sheets.appendRow --db keep.db
    """
    with reading(path.db) as look:
        ids, calls = _wanted(look, **which)
        unseen = [] if yes else _unseen_calls(look, ids)
    names = asked_names(path, (each.call for each in unseen))
    _show_unseen(unseen, names)
    if calls:
        confirm(f"Approve {calls}?", yes)
    elif unseen:
        confirm("Approve this call?" if len(ids) == 1 else f"Approve these {len(ids):,} calls?", yes)
    _approve_each(path, ids, why)


@click.command()
@_which
@changes(commands.RejectCall, "approval_id")
def reject(path: WritePath, yes: bool, why: str, retry: bool, **which: Any) -> None:
    """Refuse recorded calls: they are not made.

    The events or the item that a call is about are skipped, and `next` receives the reason (--why). With --retry the
    events are pending again, and a fresh run prepares again: it may ask again.

    Choose the calls as for `keep approve`: by ids, with --workflow, or with --all.

    Works without a runtime: the change is then written into the file, and the next start continues from there.

    \b
    keep reject apr_1k7o9 --why "wrong amount" --db keep.db
    keep reject --workflow "mail to sheets" --retry --db keep.db
    keep reject --all --call gmail.send --why "not today" --yes --db keep.db
    """
    then = "A fresh run prepares again." if retry else "Their events or items are skipped."
    with reading(path.db) as look:
        ids, calls = _wanted(look, **which)
    if calls:
        confirm(f"Reject {calls}? {then}", yes)

    def refuse(approval_id: str) -> Mutation:
        return path.ask(commands.RejectCall(approval_id=approval_id, by=path.by, why=why, retry=retry))

    _answer(path, ids, refuse, f"is refused by {path.by}")


@click.command()
@workflow_argument()
@click.argument("permission")
@click.option("--ask", "asks", is_flag=True, help="Hold each call until a person has approved it.")
@click.option("--per-run", type=click.IntRange(1), help="At most this many calls in a run.")
@click.option("--per-day", type=click.IntRange(1), help="At most this many calls in a day (UTC).")
@click.option(
    "--approve/--no-approve",
    "approves",
    default=None,
    help="Approve the calls that wait for this permission, or let them wait. Default: ask on a terminal.",
)
@changes(commands.GivePermission, "workflow", "grant")
def grant(
    path: WritePath,
    workflow: str,
    permission: str,
    asks: bool,
    per_run: int | None,
    per_day: int | None,
    approves: bool | None,
) -> None:
    """Give a workflow a permission, or change one. An error about this permission is cleared.

    Calls that wait for approval stay open when a grant no longer asks, unless you approve them: on a terminal you are
    asked, and shown those that `keep attention` does not show whole; --approve and --no-approve answer in advance.
    Exits with 1 if one of these approvals was refused.

    \b
    keep grant "mail to sheets" sheets.appendRow --per-day 100 --db keep.db
    keep grant "mail to sheets" gmail.send --ask --db keep.db
    keep grant "mail to sheets" gmail.send --approve --db keep.db
    """
    if asks and approves:
        raise click.UsageError("A grant that asks (--ask) approves nothing by itself; leave out --approve.")
    with reading(path.db) as look:
        found = look.living(workflow)
    given = Grant(permission, "ask" if asks else "allow", per_run, per_day)
    answer = path.ask(commands.GivePermission(workflow=found.id, grant=given, by=path.by))
    path.done(answer, f"{answer.name} may call {permission}{', if a person approves each call' if asks else ''}.")
    covered = [] if asks else path.ask(commands.Approvals(workflow=found.id, permission=permission))
    if not covered:
        return
    if approves is None and not path.as_json and sys.stdin.isatty():
        names = asked_names(path, (each.call for each in covered))
        _show_unseen([each for each in covered if not is_whole(each.params)], names)
        approves = click.confirm(plain(f"{_count(covered)} for approval under {permission}. Approve?"), err=True)
    if approves:
        _approve_each(path, [each.approval_id for each in covered], f"{permission} was granted")
    else:
        _say_they_wait(path, answer, covered)


def _say_they_wait(path: WritePath, workflow: Workflow, covered: list[ApprovalQuestion]) -> None:
    name = workflow_word(workflow.name, workflow.id)
    remark(f"{_count(covered)} for approval under it, as before. To approve:")
    for call in dict.fromkeys(each.call for each in covered):
        remark(f"  {line(path.db, 'approve', '--all', '--workflow', name, '--call', call)}")


def _count(covered: list[ApprovalQuestion]) -> str:
    return f"{counted(len(covered), 'call')} wait{'s' if len(covered) == 1 else ''}"


def _unseen_calls(look: FileReader, ids: Iterable[str]) -> list[ApprovalQuestion]:
    """Those of these calls that are shown whole only with `--full`; none where there is no terminal."""
    if not sys.stdin.isatty():
        return []
    wanted = set(ids)
    return [each for each in views.approvals(look.q, None) if each.approval_id in wanted and not is_whole(each.params)]


def _show_unseen(unseen: Iterable[ApprovalQuestion], names: Names) -> None:
    for each in unseen:
        show_whole(each.call, each.approval_id, each.params, names)


def _wanted(
    look: FileReader, approval: tuple[str, ...], workflow: str | None, everything: bool, call: str | None
) -> tuple[list[str], str]:
    """The approvals that are meant; for `--all` those that wait now, and how many calls that are, to be agreed to."""
    if everything and approval:
        raise click.UsageError("Name the approvals or use --all, not both.")
    if call is not None and not everything:
        raise click.UsageError("--call needs --all.")
    if approval:
        return list(dict.fromkeys(look.one_id("approval", each, "apr") for each in approval)), ""
    if not everything and workflow is None:
        raise click.UsageError("Which call? Name the approval, or the workflow with --workflow; or use --all.")
    found = look.workflow(workflow) if workflow is not None else None
    asked = [each for each in views.approvals(look.q, found.id if found else None) if call in (None, each.call)]
    ids = [each.approval_id for each in asked]
    if found is not None and not everything:
        return [only_one(ids, f"call of {found.name!r} that waits for approval", "or use --all")], ""
    return ids, _counted(asked, look) if asked else ""


def _counted(asked: Iterable[ApprovalQuestion], look: FileReader) -> str:
    """The number of calls, by method and workflow: `3 calls (2 of gmail.send in digest, …)`."""
    kinds = Counter((each.call, each.workflow_id) for each in asked)
    count = sum(kinds.values())
    shown = []
    for (call, workflow_id), number in kinds.most_common(_KINDS_SHOWN):
        workflow = reads.workflow(look.q, workflow_id)
        assert workflow is not None, "a question is of a workflow"
        shown.append(f"{number:,} of {plain(call, 100)} in {plain(workflow.name, 100)}")
    more = ", …" if len(kinds) > _KINDS_SHOWN else ""
    return f"{counted(count, 'call')} ({', '.join(shown)}{more})"


def _approve_each(path: WritePath, ids: list[str], why: str) -> None:
    """Have these calls made, one after another. Exits with 1 if one is refused."""

    def allow(approval_id: str) -> Mutation:
        return path.ask(commands.ApproveCall(approval_id=approval_id, by=path.by, why=why))

    _answer(path, ids, allow, f"is approved by {path.by}, and is being made")


def _answer(path: WritePath, ids: list[str], answer: Callable[[str], Mutation], became: str) -> None:
    """Answer each question by itself, and report it. A runtime that goes away ends it: what was done is reported."""
    said = Answered([], {})
    try:
        for each in ids:
            words = _answered(each, answer, became, said)
            if not path.as_json:
                words()
    finally:
        if path.as_json and (said.done or said.refused or not ids):
            show(json_line(said))
    if not ids:
        remark("No such call waits for approval.")
    elif len(ids) > 1 and not path.as_json:
        remark(f"{len(said.done):,} answered, {len(said.refused):,} refused.")
    if said.refused:
        sys.exit(Exit.WRONG)


def _answered(approval_id: str, answer: Callable[[str], Mutation], became: str, said: Answered) -> Callable[[], None]:
    """Answer one question. Returns how to say what became of it."""
    try:
        settled = answer(approval_id)
    except Stopped as stopped:
        if stopped.exit_code != Exit.WRONG:
            raise
        said.refused[approval_id] = stopped.message
        return partial(remark, f"{approval_id}: {stopped.message}")
    said.done.append(settled)
    return partial(show, plain(f"{settled.connector}.{settled.method} ({settled.id}) {became}."))
