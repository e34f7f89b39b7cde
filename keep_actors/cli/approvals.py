"""`keep approve` and `keep reject`: may a recorded call be made? One is answered, or several at once.

Each is answered by itself: the first answer to a question wins, and one that comes too late does not stop the rest.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import click
import msgspec

from keep_actors.api import views
from keep_actors.api.views import ApprovalQuestion
from keep_actors.cli.answers import only_one
from keep_actors.cli.asking import confirm, yes_option
from keep_actors.cli.calls import Names, asked_names, is_whole, show_whole
from keep_actors.cli.changing import Runtime
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import Look, looking
from keep_actors.cli.options import Command, changes, why_option, workflow_option
from keep_actors.cli.terminal import json_line, plain, remark, show
from keep_actors.control import protocol
from keep_storage import reads
from keep_storage.model import Mutation
from keep_storage.operations import RejectMutation

_KINDS_SHOWN: Final = 5


class Answers(msgspec.Struct, frozen=True):
    """What became of each answer."""

    done: list[Mutation]
    refused: dict[str, str]
    """By approval, why its answer did not count."""


def _which(command: Command) -> Command:
    """The options that say which calls are meant."""
    command = yes_option(command)
    said = "With --all: only calls of this method, as in gmail.send."
    command = click.option("--call", metavar="CONNECTOR.METHOD", help=said)(command)
    said = "Every call that waits, or those of --workflow and --call. Asks first, and says how many."
    command = click.option("--all", "everything", is_flag=True, help=said)(command)
    return click.argument("approval", nargs=-1)(workflow_option(command))


@click.command()
@_which
@why_option
@changes
def approve(
    approval: tuple[str, ...],
    workflow: str | None,
    everything: bool,
    call: str | None,
    yes: bool,
    why: str,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Allow recorded calls: exactly they are made, by the running runtime.

    APPROVAL is an id or the beginning of one, as `keep attention` shows it; there may be several. With --workflow it
    may be left out if only one call of that workflow waits. --all is every call that waits at this moment: it says how
    many and asks, and needs --yes where there is no terminal.

    A call that `keep attention` does not show whole is shown whole on a terminal, and you are asked, unless you say
    --yes. Where there is no terminal, an id is your word.

    Each answer is reported. Exits with 1 if one was refused: somebody was first, it has expired, or a limit is reached.

    \b
    keep approve apr_018f --db keep.db
    keep approve --workflow "mail to sheets" --why "the amount is right" --db keep.db
    keep approve --all --workflow "mail to sheets" --call sheets.appendRow --db keep.db
    """
    with looking(db) as look:
        ids, calls = _wanted(look, approval, workflow, everything, call)
        unseen = [] if yes else unseen_calls(look, ids)
        names = asked_names(look, control, (each.call for each in unseen))
    show_unseen(unseen, names)
    if calls:
        confirm(f"Approve {calls}?", yes)
    elif unseen:
        confirm(f"Approve {'this call' if len(ids) == 1 else f'these {len(ids):,} calls'}?", yes)
    approve_each(Runtime(db, control), ids, by, why, as_json)


@click.command()
@_which
@why_option
@click.option("--retry", is_flag=True, help="Have a fresh run prepare anew, instead of skipping what it is about.")
@changes
def reject(
    approval: tuple[str, ...],
    workflow: str | None,
    everything: bool,
    call: str | None,
    yes: bool,
    why: str,
    retry: bool,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Refuse recorded calls: they are not made.

    What a call is about, its events or its item, is skipped, and `next` is told so with the reason (--why). With
    --retry the events are pending again, and a fresh run prepares anew: it may ask again.

    Which calls are meant is said as for `keep approve`: by ids, with --workflow, or with --all.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep reject apr_018f --why "wrong amount" --db keep.db
    keep reject --workflow "mail to sheets" --retry --db keep.db
    keep reject --all --call gmail.send --why "not today" --yes --db keep.db
    """
    then = "A fresh run prepares anew." if retry else "What they are about is skipped."
    with looking(db) as look:
        ids, calls = _wanted(look, approval, workflow, everything, call)
    if calls:
        confirm(f"Reject {calls}? {then}", yes)
    runtime = Runtime(db, control)

    def refuse(approval_id: str) -> Mutation:
        request = protocol.Reject(approval_id=approval_id, by=by, why=why, retry=retry)
        return runtime.ask_or_write(request, Mutation, lambda: RejectMutation(approval_id, by, why, retry=retry))

    _answer(ids, refuse, f"is refused by {by}", as_json)


def unseen_calls(look: Look, ids: Iterable[str]) -> list[ApprovalQuestion]:
    """Those of these calls that are not shown whole unless somebody asks for it: none where nobody could see them."""
    if not sys.stdin.isatty():
        return []
    wanted = set(ids)
    return [each for each in views.approvals(look.q, None) if each.approval_id in wanted and not is_whole(each.params)]


def show_unseen(unseen: Iterable[ApprovalQuestion], names: Names) -> None:
    """Show them whole, before a question about them."""
    for each in unseen:
        show_whole(each.call, each.approval_id, each.params, names)


def approve_each(runtime: Runtime, ids: list[str], by: str, why: str, as_json: bool) -> None:
    """Have these calls made, one after another. Exits with 1 if one is refused."""

    def allow(approval_id: str) -> Mutation:
        return runtime.ask(protocol.Approve(approval_id=approval_id, by=by, why=why), Mutation)

    _answer(ids, allow, f"is approved by {by}, and is being made", as_json)


def _counted(asked: Iterable[ApprovalQuestion], look: Look) -> str:
    """How many calls, of which methods and workflows: `3 calls (2 of gmail.send in digest, …)`."""
    kinds = Counter((each.call, each.workflow_id) for each in asked)
    count = sum(kinds.values())
    shown = []
    for (call, workflow_id), number in kinds.most_common(_KINDS_SHOWN):
        workflow = reads.workflow(look.q, workflow_id)
        assert workflow is not None, "a question is of a workflow"
        shown.append(f"{number:,} of {plain(call, 100)} in {plain(workflow.name, 100)}")
    more = ", …" if len(kinds) > _KINDS_SHOWN else ""
    return f"{'1 call' if count == 1 else f'{count:,} calls'} ({', '.join(shown)}{more})"


def _wanted(
    look: Look, named: tuple[str, ...], workflow: str | None, everything: bool, call: str | None
) -> tuple[list[str], str]:
    """The approvals that are meant; for `--all` those that wait now, and how many calls that are, to be agreed to."""
    if everything and named:
        raise click.UsageError("Name the approvals, or say --all; not both.")
    if call is not None and not everything:
        raise click.UsageError("--call goes with --all.")
    if named:
        return list(dict.fromkeys(look.one_id("approval", each, "apr") for each in named)), ""
    if not everything and workflow is None:
        raise click.UsageError("Which call? Name the approval, or the workflow with --workflow; or say --all.")
    found = look.workflow(workflow) if workflow is not None else None
    asked = [each for each in views.approvals(look.q, found.id if found else None) if call in (None, each.call)]
    ids = [each.approval_id for each in asked]
    if found is not None and not everything:
        return [only_one(ids, f"call of {found.name!r} that waits for approval", "or say --all")], ""
    return ids, _counted(asked, look) if asked else ""


def _answer(ids: list[str], answer: Callable[[str], Mutation], became: str, as_json: bool) -> None:
    """Answer each question by itself, and report it. A runtime that goes away ends it: what was done is reported."""
    said = Answers([], {})
    try:
        for each in ids:
            _answer_one(each, answer, became, said, as_json)
    finally:
        if as_json and (said.done or said.refused or not ids):
            show(json_line(said))
    if not ids:
        remark("No such call waits for approval.")
    elif len(ids) > 1 and not as_json:
        remark(f"{len(said.done):,} answered, {len(said.refused):,} refused.")
    if said.refused:
        sys.exit(Exit.WRONG)


def _answer_one(approval_id: str, answer: Callable[[str], Mutation], became: str, said: Answers, as_json: bool) -> None:
    try:
        settled = answer(approval_id)
    except Stopped as stopped:
        if stopped.exit_code != Exit.WRONG:
            raise
        said.refused[approval_id] = stopped.message
        if not as_json:
            remark(f"{approval_id}: {stopped.message}")
        return
    said.done.append(settled)
    if not as_json:
        show(plain(f"{settled.connector}.{settled.method} ({settled.id}) {became}."))
