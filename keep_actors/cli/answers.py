"""Verdicts on calls whose outcome is unknown: `keep resolve`, `keep amend`. The first answer wins."""

import shlex
import sys
from collections.abc import Mapping
from typing import Any, Final

import click
import msgspec
from msgspec.structs import replace

from keep_actors.api import commands
from keep_actors.api.commands import MutationChange
from keep_actors.api.verdicts import PersonVerdict, ResultRefused
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.inputs import ChosenConnectors, connector_options
from keep_actors.cli.options import changes, json_value, workflow_option
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.terminal import plain, remark
from keep_actors.cli.typed import TYPED_VERDICTS
from keep_actors.cli.write_path import Unfit, WritePath
from keep_storage import reads
from keep_storage.model import Mutation
from keep_storage.transitions import UNCERTAIN

_VERDICTS: Final[Mapping[str, PersonVerdict]] = {typed: each for each, typed in TYPED_VERDICTS.items()}


@click.command()
@click.argument("answer", nargs=-1, required=True, metavar="[MUTATION] happened|did-not-happen|skip|try-again")
@workflow_option
@connector_options
@changes(commands.Resolve, "mutation_id", "verdict")
def resolve(
    path: WritePath,
    answer: tuple[str, ...],
    workflow: str | None,
    result: str | None,
    chosen: ChosenConnectors,
    **fields: Any,
) -> None:
    """Say whether a call with an unknown outcome happened.

    `happened`: the workflow continues with the result that you give (--result; without it null, or a question on the
    terminal if the call does not return null). `did-not-happen`: the events are released, and a fresh run makes the
    call. `skip`: the events are skipped. `try-again`: the connector is asked again.

    MUTATION is an id or the beginning of one, as `keep attention` shows it; with --workflow it may be left out if only
    one call of that workflow is open. The first verdict counts; a later one is refused, and names the first.

    The result of what happened is checked against the type that the call returns: `keep attention` shows it, with an
    example. A result that does not fit is refused; until `next` has used it, `keep amend` corrects it.

    Works without a runtime: the change is then written into the file, and the next start continues from there. The
    result is checked then only if you name the connectors with --connectors; otherwise a remark says so.

    \b
    keep resolve mut_1k7o9 happened --result '{"rowId": "r7"}' --why "it is in the sheet" --db keep.db
    keep resolve did-not-happen --workflow "mail to sheets" --db keep.db
    """
    mutation, verdict = _read(answer)
    if result is not None and verdict != "happened":
        raise click.UsageError("--result is only valid with `happened`.")
    with reading(path.db) as look:
        named = _open_mutation(look, workflow) if mutation is None else look.one_id("mutation", mutation, "mut")
        found = _found(look, named)
    command = commands.Resolve(mutation_id=found.id, verdict=verdict, by=path.by, **fields)
    settled = _Result(path, found, result, chosen).write(command) if verdict == "happened" else path.ask(command)
    returned = f" It returned {settled.result}." if settled.result is not None else ""
    words = f"{settled.connector}.{settled.method} ({settled.id}) is {settled.status}, says {path.by}.{returned}"
    path.done(settled, words)


@click.command()
@click.argument("mutation")
@connector_options
@changes(commands.Amend, "mutation_id", result="--result")
def amend(path: WritePath, mutation: str, result: str, chosen: ChosenConnectors, **fields: Any) -> None:
    """Correct the result that a person gave with `keep resolve … happened`.

    Refused once `next` has used it, or for a call inside an item once a run has entered that item again; a result that
    a connector gave stays. Checked as in `keep resolve`. The journal keeps both results, who amended and why.

    MUTATION is an id or the beginning of one, as `keep outputs` shows it. Works without a runtime: then it is written
    into the file.

    \b
    keep amend mut_1k7o9 --result '{"rowId": "r8"}' --why "I misread the sheet" --db keep.db
    """
    with reading(path.db) as look:
        found = _found(look, look.one_id("mutation", mutation, "mut"))
    command = commands.Amend(mutation_id=found.id, result=None, by=path.by, **fields)
    amended = _Result(path, found, result, chosen).write(command)
    words = f"{amended.connector}.{amended.method} ({amended.id}) returned {amended.result}, says {path.by}."
    path.done(amended, words)


def _found(look: FileReader, mutation_id: str) -> Mutation:
    found = reads.mutation(look.q, mutation_id)
    assert found is not None, "its id was just found"
    return found


def _read(answer: tuple[str, ...]) -> tuple[str | None, PersonVerdict]:
    *mutation, verdict = answer
    if verdict not in _VERDICTS or len(mutation) > 1:
        raise click.UsageError(f"Give [MUTATION] and one of {', '.join(_VERDICTS)}; not {' '.join(answer)!r}.")
    return (mutation[0] if mutation else None), _VERDICTS[verdict]


def _open_mutation(look: FileReader, workflow: str | None) -> str:
    if workflow is None:
        raise click.UsageError("Which call? Name the mutation, or the workflow with --workflow.")
    found = look.workflow(workflow)
    ids = [each.id for each in reads.unsettled_mutations(look.q, found.id) if each.status in UNCERTAIN]
    return only_one(ids, f"call of {found.name!r} whose outcome is unknown")


def only_one(ids: list[str], what: str, otherwise: str = "") -> str:
    """The question that is meant where none is named. Raises `Stopped` or `click.UsageError`."""
    if not ids:
        raise Stopped(Exit.WRONG, f"There is no {what}.")
    if len(ids) > 1:
        raise click.UsageError(
            f"There is more than one {what}. Name it{f', {otherwise}' if otherwise else ''}: {', '.join(ids)}"
        )
    return ids[0]


class _Result:
    """The result of a call as it was typed, or not yet. Checked by the runtime, or by connectors that are named."""

    def __init__(self, path: WritePath, mutation: Mutation, typed: str | None, chosen: ChosenConnectors) -> None:
        self._path = path
        self._call = f"{mutation.connector}.{mutation.method}"
        self._is_missing = typed is None
        self._value: Any = json_value(typed, "--result") if typed is not None else None
        self._chosen = chosen
        self._is_unchecked = False

    def write(self, command: MutationChange[Mutation]) -> Mutation:
        """Have it written. A missing result is asked for on a terminal until it fits."""
        while True:
            try:
                settled = self._path.ask(replace(command, result=self._value), prepared=self._checked)
            except Unfit as unfit:
                if not self._is_missing:
                    raise
                if not sys.stdin.isatty():
                    option = f"--result {shlex.quote(unfit.example) if unfit.example else 'JSON'}"
                    raise Unfit(f"{unfit.message} Add it: {option}", unfit.example) from None
                self._ask(unfit)
            else:
                if self._is_unchecked:
                    self._say_unchecked(settled)
                return settled

    def _checked(self, command: MutationChange[Mutation]) -> MutationChange[Mutation]:
        """The command as it is written without a runtime."""
        self._is_unchecked = not self._chosen
        if self._is_unchecked:
            return command
        # Here: only this needs the connectors.
        from keep_actors.api.expected import checked_result
        from keep_actors.connectors import Catalog

        method = Catalog(self._chosen.load()).get(self._call)
        if method is None:
            raise click.UsageError(f"None of these connectors has {self._call}.")
        try:
            return replace(command, result=msgspec.Raw(checked_result(method, self._call, self._value).encode()))
        except ResultRefused as refused:
            raise Unfit(str(refused), refused.example) from None

    def _ask(self, unfit: Unfit) -> None:
        remark(unfit.message)
        while True:
            try:
                self._value = json_value(click.prompt("Result, as JSON", err=True), "--result")
            except click.UsageError as error:
                remark(error.message)
            else:
                return

    def _say_unchecked(self, settled: Mutation) -> None:
        remark(
            f"The result {plain(settled.result or 'null', 200)} was not checked: without a runtime or --connectors "
            f"it is unknown what {self._call} returns. Until `next` has used it, you can correct it:\n"
            f"  keep amend {settled.id} --result JSON --db {self._path.db}"
        )
