"""What happened: `keep inputs`, `keep outputs`, `keep runs` and `keep log`. The newest is shown, a page at a time."""

from collections.abc import Callable
from pathlib import Path

import click

from keep_actors.api import views
from keep_actors.api.standing import RunView
from keep_actors.api.views import Input, Output
from keep_actors.cli import journal
from keep_actors.cli.calls import asked_names, full_option, lines_of
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import looking
from keep_actors.cli.options import control_option, limit_option, looks, workflow_argument
from keep_actors.cli.terminal import age, brief, json_line, remark, show, table
from keep_actors.policy import Policy
from keep_actors.text.call_text import call_text
from keep_storage import lookups, reads
from keep_storage.ids import Millis
from keep_storage.model import JournalEntry

_PAGE = 1_000


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--before", type=int, help="Only older ones: the SEQ of the last one shown.")
@looks
def inputs(workflow: str | None, limit: int, before: int | None, db: Path, as_json: bool) -> None:
    """Show what came in, newest first, each with what was done about it.

    WORKFLOW may be left out if there is only one.

    \b
    keep inputs "mail to sheets" --db keep.db
    keep inputs --db keep.db --limit 100 --json
    """
    with looking(db) as look:
        found = look.workflow(workflow)
        stale_before = look.now - Policy().stale_after_ms
        page = views.inputs(look.q, found.id, limit, before, stale_before)
        if as_json:
            for each in page:
                show(json_line(each))
            return
        headings = ("SEQ", "WHEN", "STATE", "TOPIC", "MESSAGE", "TITLE (the script's words)", "DONE ABOUT IT")
        table(headings, [_input(each, look.now) for each in page])


def _input(each: Input, now: Millis) -> tuple[str, ...]:
    more = [*(["stale"] if each.is_stale else []), *([f"attempt {each.attempt}"] if each.attempt > 1 else [])]
    state = f"{each.status} ({', '.join(more)})" if more else str(each.status)
    done = ", ".join(f"{output.call} {output.status}" for output in each.outputs)
    return str(each.seq), age(each.at, now), state, each.topic, each.message_id, brief(each.title, 60), done or "-"


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--before", help="Only older ones: the MUTATION of the last one shown.")
@full_option
@control_option
@looks
def outputs(
    workflow: str | None,
    limit: int,
    before: str | None,
    full: bool,
    control: Path | None,
    db: Path,
    as_json: bool,
) -> None:
    """Show what was done outside, or was to be, newest first: a line of the ledger each, and under it the parameters.

    \b
    keep outputs "mail to sheets" --db keep.db
    keep outputs --db keep.db --json | jq 'select(.status == "indeterminate")'
    """
    with looking(db) as look:
        page = views.outputs(look.q, look.workflow(workflow).id, limit, before)
        if as_json:
            for each in page:
                show(json_line(each))
            return
        names = asked_names(look, control, (each.call for each in page))
        headings = ("MUTATION", "WHEN", "STATE", "CALL", "TITLE (the script's words)", "ERROR")
        below = [list(lines_of(call_text(each.params, names.of(each.call), full=full), "    ")) for each in page]
        table(headings, [_output(each, look.now) for each in page], below)


def _output(each: Output, now: Millis) -> tuple[str, ...]:
    shown = brief(each.title, 40), brief(each.error, 60)
    return each.mutation_id, age(each.at, now), str(each.status), each.call, *shown


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--before", help="Only older ones: the RUN of the last one shown.")
@looks
def runs(workflow: str | None, limit: int, before: str | None, db: Path, as_json: bool) -> None:
    """Show the runs of a workflow, newest first: how far each came, and why it stopped.

    A run that was paused over a question is `resolved` once that is settled, and one that was active when its process
    died is `interrupted`: `standing` in --json, beside the `status` that it was left with.

    \b
    keep runs "mail to sheets" --db keep.db
    keep explain run_018f --db keep.db
    """
    with looking(db) as look:
        page = views.runs(look.q, look.workflow(workflow), limit, before, is_owned=look.owner is not None)
        if as_json:
            for each in page:
                show(json_line(each))
            return
        headings = ("RUN", "WHEN", "HANDLER", "PHASE", "STATE", "TITLE (the script's words)", "WHY")
        table(headings, [_run(each, look.now) for each in page])


def _run(each: RunView, now: Millis) -> tuple[str, ...]:
    words = brief(each.title, 40), brief(each.settled or each.error_message, 80)
    return each.id, age(each.created_at, now), each.handler, str(each.phase), each.standing, *words


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--after", type=int, help="Begin behind this sequence number, instead of at the newest.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written, until Ctrl-C or the runtime's end.")
@control_option
@looks
def log(
    workflow: str | None, limit: int, after: int | None, follow: bool, control: Path | None, db: Path, as_json: bool
) -> None:
    """Show the journal: one line for everything that was done, everywhere or in one WORKFLOW.

    With --follow it goes on with what is written from now on, as a running runtime tells it.

    \b
    keep log --db keep.db
    keep log "mail to sheets" --db keep.db --follow
    keep log --db keep.db --after 0 --limit 1000 --json
    """
    line = journal.as_json if as_json else journal.as_text
    with looking(db) as look:
        workflow_id = look.workflow(workflow).id if workflow is not None else None
        if after is None:
            entries = lookups.newest_journal(look.q, workflow_id=workflow_id, limit=limit)
        else:
            entries = reads.journal(look.q, workflow_id=workflow_id, after=after, limit=limit)
        seen = reads.journal_end(look.q) if after is None else after
    for entry in entries:
        seen = max(seen, entry.seq) if after is None else entry.seq
        show(line(entry))
    if follow:
        _follow(db, control, workflow_id, seen, line)


def _follow(
    db: Path, control: Path | None, workflow_id: str | None, seen: int, line: Callable[[JournalEntry], str]
) -> None:
    # Who only looks does not load what talks.
    from keep_actors.cli.changing import Runtime
    from keep_actors.control.client import Lost, Refused
    from keep_actors.control.protocol import Follow

    runtime = Runtime(db, control)
    client = runtime.client()
    if client is None:
        raise Stopped(Exit.NO_RUNTIME, runtime.nobody())
    with client:
        try:
            for entry in client.follow(Follow(after=seen, workflow=workflow_id)):
                show(line(entry))
                seen = entry.seq
        except Refused as refused:
            raise Stopped(Exit.WRONG, str(refused)) from None
        except Lost:
            # It ended while it was telling; the file has the rest.
            pass
        except KeyboardInterrupt:
            return
    with looking(db) as look:
        while entries := reads.journal(look.q, workflow_id=workflow_id, after=seen, limit=_PAGE):
            for entry in entries:
                show(line(entry))
                seen = entry.seq
    remark("The runtime has ended.")
