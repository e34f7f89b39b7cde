"""What people want of a workflow: pause, resume, stop or start a run, end it or bring it back, put it right."""

from pathlib import Path

import click
import msgspec

from keep_actors.cli.changing import Runtime, done
from keep_actors.cli.looking import looking
from keep_actors.cli.options import (
    changes,
    control_option,
    db_option,
    json_option,
    json_value,
    why_option,
    workflow_argument,
)
from keep_actors.cli.terminal import json_line, plain, show
from keep_actors.cli.typed import line
from keep_actors.control import protocol
from keep_storage.model import Event, Workflow
from keep_storage.operations import ClearWorkflowError, PauseWorkflow, ResumeWorkflow, UnarchiveWorkflow


def _id(db: Path, workflow: str) -> str:
    with looking(db) as look:
        return look.workflow(workflow).id


def _living(db: Path, workflow: str) -> str:
    with looking(db) as look:
        return look.living(workflow).id


@click.command()
@workflow_argument()
@changes
def pause(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Start no more runs of a workflow, and make no more calls. Events are kept.

    A call that is on its way comes to its end, and its run stops before the next one.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep pause "mail to sheets" --db keep.db
    """
    found = _living(db, workflow)
    answer = Runtime(db, control).ask_or_write(
        protocol.Pause(workflow=found, by=by), Workflow, lambda: PauseWorkflow(found, by)
    )
    done(answer, as_json, f"{answer.name} is {answer.status}.")


@click.command()
@workflow_argument()
@changes
def resume(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Run a paused workflow again. An error that waits for a person is not cleared by this.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep resume "mail to sheets" --db keep.db
    """
    found = _living(db, workflow)
    answer = Runtime(db, control).ask_or_write(
        protocol.Resume(workflow=found, by=by), Workflow, lambda: ResumeWorkflow(found, by)
    )
    done(answer, as_json, f"{answer.name} is {answer.status}.")


@click.command()
@workflow_argument()
@why_option
@changes
def clear_error(workflow: str, why: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Say "I fixed it": the workflow goes on. Refused while the error is a question about a recorded call.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep clear-error "mail to sheets" --why "signed in again" --db keep.db
    """
    found = _id(db, workflow)
    request = protocol.ClearError(workflow=found, by=by, why=why)
    answer = Runtime(db, control).ask_or_write(request, Workflow, lambda: ClearWorkflowError(found, by, why))
    done(answer, as_json, f"{answer.name} goes on: its error is cleared.")


@click.command()
@workflow_argument()
@click.confirmation_option(prompt="End this workflow?", help="Do not ask.")
@changes
def archive(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """End a workflow. Its history stays readable, its name is free again, and nothing is added to it.

    It makes no further call, and the calls that wait for approval are rejected. A call that is in flight, or whose
    outcome nobody knows, is still looked into, shown by `keep attention`, and can be answered. `keep unarchive` brings
    the workflow back.

    \b
    keep archive "mail to sheets" --yes --db keep.db
    """
    answer = Runtime(db, control).ask(protocol.Archive(workflow=_id(db, workflow), by=by), Workflow)
    done(answer, as_json, f"{answer.name} is {answer.status}.")


@click.command()
@workflow_argument(archived=True)
@changes
def unarchive(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Bring an archived workflow back, paused: `keep resume` has it run again.

    By its name the newest archived one is meant. Refused while another workflow has its name: archive that one first.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep unarchive "mail to sheets" --db keep.db
    """
    with looking(db) as look:
        found = look.archived(workflow).id
    answer = Runtime(db, control).ask_or_write(
        protocol.Unarchive(workflow=found, by=by), Workflow, lambda: UnarchiveWorkflow(found, by)
    )
    done(answer, as_json, f"{answer.name} is {answer.status}. To have it run: {line(db, 'resume', answer.id)}")


class RunEnding(msgspec.Struct, frozen=True):
    """A run that ends at its next call."""

    workflow_id: str
    run_id: str


@click.command()
@workflow_argument()
@click.option(
    "--run", "run_id", metavar="ID", help="The run that is meant, by id or its beginning: refused if another is active."
)
@why_option
@changes
def stop(workflow: str, run_id: str | None, why: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """End the active run of a workflow at its next call. What it did stays done.

    Its handler runs again at its next time; a consumer when something new comes, or after the longest wait between two
    tries. `keep pause` stops the run too, and starts no other. Refused if no run is active.

    \b
    keep stop digest --why "the wrong list" --db keep.db
    keep stop digest --run run_018f --db keep.db
    """
    with looking(db) as look:
        found = look.workflow(workflow)
        wanted = look.one_id("run", run_id, "run") if run_id is not None else None
    request = protocol.Stop(workflow=found.id, run_id=wanted, by=by, why=why)
    ending = RunEnding(found.id, Runtime(db, control).ask(request, str))
    done(ending, as_json, f"Run {ending.run_id} of {found.name} ends at its next call. What it did stays done.")


@click.command()
@workflow_argument()
@changes
def run_now(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Run every producer and every job of a workflow now, whatever its schedule. Refused while a run is active.

    \b
    keep run-now "mail to sheets" --db keep.db
    """
    answer = Runtime(db, control).ask(protocol.RunNow(workflow=_living(db, workflow), by=by), Workflow)
    done(answer, as_json, f"The producers and jobs of {answer.name} are due now.")


@click.command()
@workflow_argument()
@click.argument("topic")
@click.argument("message_id")
@click.option("--title", help="What people see; the message id unless it is said.")
@click.option("--payload", default="null", metavar="JSON|@FILE", help="What the script is given; null unless said.")
@db_option
@control_option
@json_option
def publish(
    workflow: str,
    topic: str,
    message_id: str,
    title: str | None,
    payload: str,
    db: Path,
    control: Path | None,
    as_json: bool,
) -> None:
    """Put an event into a topic, as a webhook would. A message id that is there already is the same event.

    \b
    keep publish orders order.paid o-1 --title "Order o-1" --payload '{"total": 12}' --db keep.db
    keep publish orders order.paid o-2 --payload @order.json --db keep.db
    """
    value = json_value(payload, "--payload")
    request = protocol.Publish(
        workflow=_living(db, workflow), topic=topic, message_id=message_id, title=title or message_id, payload=value
    )
    events: list[Event] = Runtime(db, control).ask(request, list[Event])
    for event in events:
        show(json_line(event) if as_json else plain(f"{event.message_id} is {event.status} in {topic}."))
    if not events and not as_json:
        show(plain(f"{message_id} was in {topic} already, as it is."))


@click.command()
@workflow_argument()
@click.argument("topic")
@click.argument("message_id")
@why_option
@changes
def skip_event(
    workflow: str, topic: str, message_id: str, why: str, db: Path, control: Path | None, by: str, as_json: bool
) -> None:
    """Skip a pending event: no run will take it. One that a run holds is refused.

    \b
    keep skip-event "mail to sheets" email.received m-17 --why spam --db keep.db
    """
    request = protocol.SkipEvent(workflow=_id(db, workflow), topic=topic, message_id=message_id, by=by, why=why)
    answer = Runtime(db, control).ask(request, Event)
    done(answer, as_json, f"{answer.message_id} is {answer.status}.")
