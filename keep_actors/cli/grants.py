"""What a workflow may call: `keep grant` and `keep revoke`."""

import sys
from pathlib import Path

import click

from keep_actors.api.views import ApprovalQuestion
from keep_actors.cli.approvals import approve_each, show_unseen
from keep_actors.cli.calls import Names, is_whole
from keep_actors.cli.changing import Runtime, done
from keep_actors.cli.looking import looking
from keep_actors.cli.options import changes, workflow_argument
from keep_actors.cli.terminal import plain, remark
from keep_actors.cli.typed import line, workflow_word
from keep_actors.control import protocol
from keep_storage.model import Workflow


@click.command()
@workflow_argument()
@click.argument("permission")
@click.option("--ask", "asks", is_flag=True, help="Hold each call until a person has approved it.")
@click.option("--per-run", type=click.IntRange(1), help="Calls in a run at most.")
@click.option("--per-day", type=click.IntRange(1), help="Calls in a day (UTC) at most.")
@click.option(
    "--approve/--no-approve",
    "approves",
    default=None,
    help="Whether to approve the calls that wait for approval under it. Asked on a terminal unless it is said.",
)
@changes
def grant(
    workflow: str,
    permission: str,
    asks: bool,
    per_run: int | None,
    per_day: int | None,
    approves: bool | None,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Give a workflow a permission, or change one. An error about this permission is cleared.

    Calls that wait for approval stay open when a grant no longer asks, unless you approve them: on a terminal you are
    asked, and shown those that `keep attention` does not show whole; --approve and --no-approve say it at once. Exits
    with 1 if one of these approvals was refused.

    \b
    keep grant "mail to sheets" sheets.appendRow --per-day 100 --db keep.db
    keep grant "mail to sheets" gmail.send --ask --db keep.db
    keep grant "mail to sheets" gmail.send --approve --db keep.db
    """
    if asks and approves:
        raise click.UsageError("A grant that asks (--ask) approves nothing by itself; leave out --approve.")
    with looking(db) as look:
        found = look.living(workflow)
    runtime = Runtime(db, control)
    given = protocol.GrantOf(permission, "ask" if asks else "allow", per_run, per_day)
    answer = runtime.ask(protocol.Grant(workflow=found.id, grant=given, by=by), Workflow)
    done(answer, as_json, f"{answer.name} may call {permission}{', if a person approves each call' if asks else ''}.")
    covered = [] if asks else runtime.ask(_waiting(found, permission), list[ApprovalQuestion])
    if not covered:
        return
    calls = sorted({each.call for each in covered})
    names = Names(runtime.ask(protocol.ParameterNames(calls=calls), dict[str, list[str]]))
    if _wants(approves, covered, permission, as_json, names):
        why = f"{permission} was granted"
        approve_each(runtime, [each.approval_id for each in covered], by, why, as_json)
    else:
        _say_they_wait(db, answer, covered)


def _waiting(workflow: Workflow, permission: str) -> protocol.Approvals:
    return protocol.Approvals(workflow=workflow.id, permission=permission)


def _wants(
    approves: bool | None, covered: list[ApprovalQuestion], permission: str, as_json: bool, names: Names
) -> bool:
    if approves is not None or as_json or not sys.stdin.isatty():
        return bool(approves)
    show_unseen([each for each in covered if not is_whole(each.params)], names)
    return click.confirm(plain(f"{_count(covered)} for approval under {permission}. Approve?"), err=True)


def _say_they_wait(db: Path, workflow: Workflow, covered: list[ApprovalQuestion]) -> None:
    name = workflow_word(workflow.name, workflow.id)
    remark(f"{_count(covered)} for approval under it, as before. To approve:")
    for call in dict.fromkeys(each.call for each in covered):
        remark(f"  {line(db, 'approve', '--all', '--workflow', name, '--call', call)}")


def _count(covered: list[ApprovalQuestion]) -> str:
    return "1 call waits" if len(covered) == 1 else f"{len(covered):,} calls wait"


@click.command()
@workflow_argument()
@click.argument("permission")
@changes
def revoke(workflow: str, permission: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Take a permission back. What it covered is refused from the next call on, also in a run that is active.

    A call that waits for approval can still be approved; `keep reject` refuses it.

    \b
    keep revoke "mail to sheets" gmail.send --db keep.db
    """
    with looking(db) as look:
        found = look.workflow(workflow)
    answer = Runtime(db, control).ask(protocol.Revoke(workflow=found.id, permission=permission, by=by), Workflow)
    done(answer, as_json, f"{answer.name} may not call {permission} any more.")
