"""Commands that are one declared action on a workflow: their options and their help come from the declaration."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from keep_actors.api import commands
from keep_actors.api.command import Command
from keep_actors.cli.options import changes, confirm, help_of, json_value, workflow_argument, yes_option
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.terminal import plain, show
from keep_actors.cli.typed import line
from keep_actors.cli.write_path import WritePath
from keep_storage.model import Workflow

T = TypeVar("T", bound=msgspec.Struct)


def action(
    declared: Callable[..., Command[T]],
    said: Callable[[T, dict[str, Any]], str],
    *examples: str,
    find: Callable[[FileReader, str], Workflow] = FileReader.workflow,
    ask: Callable[[WritePath, Any], T] = WritePath.ask,
    question: str = "",
    **spelled: str,
) -> click.Command:
    """A command that finds its workflow, carries out the action, and shows the outcome.

    `said` is given the answer, and the values that were typed. A `question` is asked before anything changes.
    """

    @workflow_argument(archived=find is FileReader.archived)
    @changes(declared, "workflow", **spelled)
    def carry_out(path: WritePath, workflow: str, yes: bool = True, **typed: Any) -> None:
        confirm(question, yes)
        with reading(path.db) as look:
            found = find(look, workflow).id
        answer = ask(path, declared(workflow=found, by=path.by, **typed))
        path.done(answer, said(answer, {"db": path.db, **typed}))

    command = click.command(help=help_of(declared, *examples))(carry_out)
    return yes_option(command) if question else command


def _is_now(answer: Workflow, _: object) -> str:
    return f"{answer.name} is {answer.status}."


pause = action(commands.Pause, _is_now, 'pause "mail to sheets"', find=FileReader.living)
resume = action(commands.Resume, _is_now, 'resume "mail to sheets"', find=FileReader.living)
archive = action(commands.Archive, _is_now, 'archive "mail to sheets" --yes', question="End this workflow?")
unarchive = action(
    commands.Unarchive,
    lambda answer, typed: f"{_is_now(answer, typed)} To run it: {line(typed['db'], 'resume', answer.id)}",
    'unarchive "mail to sheets"',
    find=FileReader.archived,
)
clear_error = action(
    commands.ClearError,
    lambda answer, _: f"{answer.name} continues: its error is cleared.",
    'clear-error "mail to sheets" --why "signed in again"',
)
run_now = action(
    commands.RunAtOnce,
    lambda answer, _: f"The producers and jobs of {answer.name} are due now.",
    'run-now "mail to sheets"',
    find=FileReader.living,
)
revoke = action(
    commands.TakePermission,
    lambda answer, typed: f"{answer.name} may no longer call {typed['permission']}.",
    'revoke "mail to sheets" gmail.send',
)
skip_event = action(
    commands.SkipPendingEvent,
    lambda answer, _: f"{answer.message_id} is {answer.status}.",
    'skip-event "mail to sheets" email.received m-17 --why spam',
)


class RunEnding(msgspec.Struct, frozen=True):
    """A run that ends at its next call."""

    workflow_id: str
    run_id: str


@click.command(
    help=help_of(commands.StopActiveRun, 'stop digest --why "the wrong list"', "stop digest --run run_1k7o9"),
)
@changes(commands.StopActiveRun, run_id="--run")
def stop(path: WritePath, workflow: str, run_id: str | None, why: str) -> None:
    with reading(path.db) as look:
        found = look.workflow(workflow)
        wanted = look.one_id("run", run_id, "run") if run_id is not None else None
    command = commands.StopActiveRun(workflow=found.id, run_id=wanted, by=path.by, why=why)
    ending = RunEnding(found.id, path.ask(command))
    path.done(ending, f"Run {ending.run_id} of {found.name} ends at its next call. What it did stays done.")


@click.command(
    help=help_of(
        commands.PublishMessage,
        """publish orders order.paid o-1 --title "Order o-1" --payload '{"total": 12}'""",
        "publish orders order.paid o-2 --payload @order.json",
    )
)
@click.option("--title", help="The title that people see. Default: the message id.")
@changes(commands.PublishMessage, "title")
def publish(
    path: WritePath, workflow: str, topic: str, message_id: str, title: str | None, payload: str | None
) -> None:
    value = json_value(payload or "null", "--payload")
    with reading(path.db) as look:
        found = look.living(workflow).id
    events = path.ask(
        commands.PublishMessage(
            workflow=found, topic=topic, message_id=message_id, title=title or message_id, payload=value
        )
    )
    for event in events:
        path.done(event, f"{event.message_id} is {event.status} in {topic}.")
    if not events and not path.as_json:
        show(plain(f"{message_id} is already in {topic}, unchanged."))
