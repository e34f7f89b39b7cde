"""What people want of a workflow: pause, resume, run it now, end it, put it right, and what it may call."""

from pathlib import Path

import click

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
from keep_actors.control import protocol
from keep_storage.model import Event, Item, Workflow
from keep_storage.operations import ClearWorkflowError, PauseWorkflow, ResumeWorkflow


def _id(db: Path, workflow: str) -> str:
    with looking(db) as look:
        return look.workflow(workflow).id


@click.command()
@workflow_argument()
@changes
def pause(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Start no more runs of a workflow. A run under way comes to its end; events are kept.

    Works without a runtime: then it is written into the file, and the next start goes on from there.

    \b
    keep pause "mail to sheets" --db keep.db
    """
    found = _id(db, workflow)
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
    found = _id(db, workflow)
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
@click.confirmation_option(prompt="End this workflow for good?", help="Do not ask.")
@changes
def archive(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """End a workflow for good. Its history stays readable, and its name is free again.

    \b
    keep archive "mail to sheets" --yes --db keep.db
    """
    answer = Runtime(db, control).ask(protocol.Archive(workflow=_id(db, workflow), by=by), Workflow)
    done(answer, as_json, f"{answer.name} is {answer.status}.")


@click.command()
@workflow_argument()
@changes
def run_now(workflow: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Run every producer of a workflow now, whatever its schedule. Refused while a run is active.

    \b
    keep run-now "mail to sheets" --db keep.db
    """
    answer = Runtime(db, control).ask(protocol.RunNow(workflow=_id(db, workflow), by=by), Workflow)
    done(answer, as_json, f"The producers of {answer.name} are due now.")


@click.command()
@workflow_argument()
@click.argument("permission")
@click.option("--ask", "asks", is_flag=True, help="Hold each call until a person has approved it.")
@click.option("--per-run", type=click.IntRange(1), help="Calls in a run at most.")
@click.option("--per-day", type=click.IntRange(1), help="Calls in a day (UTC) at most.")
@changes
def grant(
    workflow: str,
    permission: str,
    asks: bool,
    per_run: int | None,
    per_day: int | None,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Give a workflow a permission, or change one. An error about a permission is cleared.

    \b
    keep grant "mail to sheets" sheets.appendRow --per-day 100 --db keep.db
    keep grant "mail to sheets" gmail.send --ask --db keep.db
    """
    given = protocol.GrantOf(permission, "ask" if asks else "allow", per_run, per_day)
    request = protocol.Grant(workflow=_id(db, workflow), grant=given, by=by)
    answer = Runtime(db, control).ask(request, Workflow)
    done(answer, as_json, f"{answer.name} may call {permission}{', if a person approves each call' if asks else ''}.")


@click.command()
@workflow_argument()
@click.argument("permission")
@changes
def revoke(workflow: str, permission: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Take a permission back. What it covered is refused from the next run on.

    \b
    keep revoke "mail to sheets" gmail.send --db keep.db
    """
    request = protocol.Revoke(workflow=_id(db, workflow), permission=permission, by=by)
    answer = Runtime(db, control).ask(request, Workflow)
    done(answer, as_json, f"{answer.name} may not call {permission} any more.")


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
        workflow=_id(db, workflow), topic=topic, message_id=message_id, title=title or message_id, payload=value
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


@click.command()
@workflow_argument()
@click.argument("item")
@why_option
@changes
def skip_item(workflow: str, item: str, why: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Skip a logical item of a job: like one that is done, it changes nothing outside any more.

    \b
    keep skip-item digest customer-7 --why "has left" --db keep.db
    """
    request = protocol.SkipItem(workflow=_id(db, workflow), item_id=item, by=by, why=why)
    answer = Runtime(db, control).ask(request, Item)
    done(answer, as_json, f"Item {answer.item_id} is {answer.state}.")


@click.command()
@workflow_argument()
@click.argument("item")
@why_option
@changes
def reprocess_item(workflow: str, item: str, why: str, db: Path, control: Path | None, by: str, as_json: bool) -> None:
    """Have a logical item of a job processed anew: the next attempt shares nothing with those before.

    \b
    keep reprocess-item digest customer-7 --why "the address was wrong" --db keep.db
    """
    request = protocol.ReprocessItem(workflow=_id(db, workflow), item_id=item, by=by, why=why)
    answer = Runtime(db, control).ask(request, Item)
    done(answer, as_json, f"Item {answer.item_id} is {answer.state}, attempt {answer.attempt}.")
