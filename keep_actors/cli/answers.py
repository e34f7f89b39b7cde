"""What people say of calls whose outcome nobody knows: `keep resolve`, `keep amend`. The first answer wins; a later one
is told so."""

from pathlib import Path

import click

from keep_actors.api.verdicts import WHAT_IT_DOES, PersonVerdict, operation_for
from keep_actors.cli.changing import Runtime, done
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.given import connector_options
from keep_actors.cli.looking import Look, looking
from keep_actors.cli.options import changes, why_option, workflow_option
from keep_actors.cli.results import Given
from keep_actors.control import protocol
from keep_storage import reads
from keep_storage.ids import wall_clock
from keep_storage.model import Mutation
from keep_storage.operations import AmendResult
from keep_storage.transitions import UNCERTAIN

_VERDICTS: dict[str, PersonVerdict] = {each.replace("_", "-"): each for each in WHAT_IT_DOES}
"""As they are typed."""

_version_option = click.option(
    "--version", type=int, metavar="N", help="That of the mutation you looked at: refused if it has changed."
)


@click.command()
@click.argument("answer", nargs=-1, required=True, metavar="[MUTATION] happened|did-not-happen|skip|try-again")
@workflow_option
@why_option
@click.option(
    "--result",
    metavar="JSON|@FILE",
    help="What the call returned, for `happened`: null unless it is said. Asked for on a terminal if that cannot be.",
)
@_version_option
@connector_options
@changes
def resolve(
    answer: tuple[str, ...],
    workflow: str | None,
    why: str,
    result: str | None,
    version: int | None,
    specs: tuple[str, ...],
    discovered: bool,
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

    The result of what happened is checked against the type that the call returns: `keep attention` shows it, with an
    example. What does not fit is refused; until `next` has used it, `keep amend` puts it right.

    Works without a runtime: then it is written into the file, and the next start goes on from there. Nobody knows the
    type then, unless you name the connectors with --connectors: the result is not checked, and you are told so.

    \b
    keep resolve mut_018f happened --result '{"rowId": "r7"}' --why "it is in the sheet" --db keep.db
    keep resolve did-not-happen --workflow "mail to sheets" --db keep.db
    """
    mutation, said = _read(answer)
    if result is not None and said != "happened":
        raise click.UsageError("Only what happened has a result.")
    with looking(db) as look:
        mutation_id = _open_mutation(look, workflow) if mutation is None else look.one_id("mutation", mutation, "mut")
        found = _found(look, mutation_id)
    runtime = Runtime(db, control)
    if said == "happened":
        settled = Given(found, result, specs, discovered).say(
            runtime,
            lambda value: protocol.Resolve(
                mutation_id=mutation_id, verdict=said, by=by, why=why, result=value, version=version
            ),
            lambda text: operation_for(mutation_id, said, by, why, text, version, wall_clock()),
        )
    else:
        settled = runtime.ask_or_write(
            protocol.Resolve(mutation_id=mutation_id, verdict=said, by=by, why=why, version=version),
            Mutation,
            lambda: operation_for(mutation_id, said, by, why, "", version, wall_clock()),
        )
    returned = f" It returned {settled.result}." if settled.result is not None else ""
    words = f"{settled.connector}.{settled.method} ({settled.id}) is {settled.status}, says {by}.{returned}"
    done(settled, as_json, words)


@click.command()
@click.argument("mutation")
@why_option
@click.option("--result", required=True, metavar="JSON|@FILE", help="What the call returned.")
@_version_option
@connector_options
@changes
def amend(
    mutation: str,
    why: str,
    result: str,
    version: int | None,
    specs: tuple[str, ...],
    discovered: bool,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Put right the result that somebody gave with `keep resolve … happened`.

    Refused once `next` has used it, or for a call inside an item once a run has entered that item again; a result that
    a connector gave stays. Checked as in `keep resolve`. The journal keeps both results, who amended and why.

    MUTATION is an id or the beginning of one, as `keep outputs` shows it. Works without a runtime: then it is written
    into the file.

    \b
    keep amend mut_018f --result '{"rowId": "r8"}' --why "I misread the sheet" --db keep.db
    """
    with looking(db) as look:
        mutation_id = look.one_id("mutation", mutation, "mut")
        found = _found(look, mutation_id)
    amended = Given(found, result, specs, discovered).say(
        Runtime(db, control),
        lambda value: protocol.Amend(mutation_id=mutation_id, result=value, by=by, why=why, version=version),
        lambda text: AmendResult(mutation_id, text, by, why, version),
    )
    words = f"{amended.connector}.{amended.method} ({amended.id}) returned {amended.result}, says {by}."
    done(amended, as_json, words)


def _found(look: Look, mutation_id: str) -> Mutation:
    found = reads.mutation(look.q, mutation_id)
    assert found is not None, "its id was just found"
    return found


def _read(answer: tuple[str, ...]) -> tuple[str | None, PersonVerdict]:
    *mutation, verdict = answer
    if verdict not in _VERDICTS or len(mutation) > 1:
        raise click.UsageError(f"Say [MUTATION] and one of {', '.join(_VERDICTS)}; not {' '.join(answer)!r}.")
    return (mutation[0] if mutation else None), _VERDICTS[verdict]


def _open_mutation(look: Look, workflow: str | None) -> str:
    if workflow is None:
        raise click.UsageError("Which call? Name the mutation, or the workflow with --workflow.")
    found = look.workflow(workflow)
    ids = [each.id for each in reads.unsettled_mutations(look.q, found.id) if each.status in UNCERTAIN]
    return only_one(ids, f"call of {found.name!r} whose outcome is not known")


def only_one(ids: list[str], what: str, otherwise: str = "") -> str:
    """The question that is meant where none is named. Raises `Stopped` or `click.UsageError`."""
    if not ids:
        raise Stopped(Exit.WRONG, f"There is no {what}.")
    if len(ids) > 1:
        raise click.UsageError(
            f"There is more than one {what}. Name it{f', {otherwise}' if otherwise else ''}: {', '.join(ids)}"
        )
    return ids[0]
