"""What people answer: `keep resolve`, `keep approve`, `keep reject`. The first answer wins; a later one is told so."""

from pathlib import Path
from typing import Any

import click

from keep_actors import views
from keep_actors.cli.changing import Runtime, done
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import Look, looking
from keep_actors.cli.options import changes, json_value, why_option, workflow_option
from keep_actors.control import protocol
from keep_actors.verdicts import WHAT_IT_DOES, Verdict, operation_for
from keep_storage import reads
from keep_storage.ids import wall_clock
from keep_storage.model import Mutation
from keep_storage.operations import Operation, RejectMutation
from keep_storage.transitions import UNCERTAIN

_VERDICTS: dict[str, Verdict] = {each.replace("_", "-"): each for each in WHAT_IT_DOES}
"""As they are typed."""


@click.command()
@click.argument("answer", nargs=-1, required=True, metavar="[MUTATION] happened|did-not-happen|skip|try-again")
@workflow_option
@why_option
@click.option("--result", metavar="JSON|@FILE", help="What `next` is given after `happened`; null unless it is said.")
@click.option("--version", type=int, metavar="N", help="That of the mutation you looked at: refused if it has changed.")
@changes
def resolve(
    answer: tuple[str, ...],
    workflow: str | None,
    why: str,
    result: str | None,
    version: int | None,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Say what became of a call whose outcome nobody knows.

    `happened`: the workflow goes on with the result you give. `did-not-happen`: the events are released, and a fresh
    run makes the call. `skip`: the events are skipped. `try-again`: the connector is asked anew.

    MUTATION is an id or the beginning of one, as `keep attention` shows it; with --workflow it may be left out if only
    one call of that workflow is open. The first verdict counts; a later one is refused and told who was first.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep resolve mut_018f happened --result '{"rowId": "r7"}' --why "it is in the sheet" --db keep.db
    keep resolve did-not-happen --workflow "mail to sheets" --db keep.db
    """
    mutation, said = _read(answer)
    if result is not None and said != "happened":
        raise click.UsageError("Only what happened has a result.")
    value: Any = json_value(result, "--result") if result is not None else None
    with looking(db) as look:
        mutation_id = _open_mutation(look, workflow) if mutation is None else look.one_id("mutation", mutation, "mut")

    def operation() -> Operation[Mutation]:
        return operation_for(mutation_id, said, by, why, value, version, wall_clock())

    request = protocol.Resolve(mutation_id=mutation_id, verdict=said, by=by, why=why, result=value, version=version)
    settled = Runtime(db, control).ask_or_write(request, Mutation, operation)
    done(settled, as_json, f"{settled.connector}.{settled.method} ({settled.id}) is {settled.status}, says {by}.")


def _read(answer: tuple[str, ...]) -> tuple[str | None, Verdict]:
    *mutation, verdict = answer
    if verdict not in _VERDICTS or len(mutation) > 1:
        raise click.UsageError(f"Say [MUTATION] and one of {', '.join(_VERDICTS)}; not {' '.join(answer)!r}.")
    return (mutation[0] if mutation else None), _VERDICTS[verdict]


def _open_mutation(look: Look, workflow: str | None) -> str:
    if workflow is None:
        raise click.UsageError("Which call? Name the mutation, or the workflow with --workflow.")
    found = look.workflow(workflow)
    ids = [each.id for each in reads.unsettled_mutations(look.q, found.id) if each.status in UNCERTAIN]
    return _only_one(ids, f"call of {found.name!r} whose outcome is not known")


def _open_approval(look: Look, approval: str | None, workflow: str | None) -> str:
    if approval is not None:
        return look.one_id("approval", approval, "apr")
    if workflow is None:
        raise click.UsageError("Which call? Name the approval, or the workflow with --workflow.")
    found = look.workflow(workflow)
    ids = [each.approval_id for each in views.approvals(look.q, found.id)]
    return _only_one(ids, f"call of {found.name!r} that waits for approval")


def _only_one(ids: list[str], what: str) -> str:
    if not ids:
        raise Stopped(Exit.WRONG, f"There is no {what}.")
    if len(ids) > 1:
        raise click.UsageError(f"There is more than one {what}. Name it: {', '.join(ids)}")
    return ids[0]


@click.command()
@click.argument("approval", required=False)
@workflow_option
@why_option
@changes
def approve(
    approval: str | None, workflow: str | None, why: str, db: Path, control: Path | None, by: str, as_json: bool
) -> None:
    """Allow a recorded call: exactly it is made, by the running runtime.

    APPROVAL is an id or the beginning of one, as `keep attention` shows it; with --workflow it may be left out if only
    one call of that workflow waits.

    \b
    keep approve apr_018f --db keep.db
    keep approve --workflow "mail to sheets" --why "the amount is right" --db keep.db
    """
    with looking(db) as look:
        approval_id = _open_approval(look, approval, workflow)
    allowed = Runtime(db, control).ask(protocol.Approve(approval_id=approval_id, by=by, why=why), Mutation)
    done(
        allowed, as_json, f"{allowed.connector}.{allowed.method} ({allowed.id}) is approved by {by}, and is being made."
    )


@click.command()
@click.argument("approval", required=False)
@workflow_option
@why_option
@click.option("--skip", is_flag=True, help="Skip its events too, instead of having a fresh run take them.")
@changes
def reject(
    approval: str | None,
    workflow: str | None,
    why: str,
    skip: bool,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Refuse a recorded call: it is not made. Its events are pending again, or with --skip skipped.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep reject apr_018f --why "wrong amount" --db keep.db
    keep reject --workflow "mail to sheets" --skip --db keep.db
    """
    with looking(db) as look:
        approval_id = _open_approval(look, approval, workflow)
    request = protocol.Reject(approval_id=approval_id, by=by, why=why, skip=skip)
    refused = Runtime(db, control).ask_or_write(
        request, Mutation, lambda: RejectMutation(approval_id, by, why, skip=skip)
    )
    done(refused, as_json, f"{refused.connector}.{refused.method} ({refused.id}) is refused by {by}.")
