"""The past: `keep inputs`, `keep outputs`, `keep runs` and `keep log`. The newest is shown, a page at a time."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from keep_actors.api import views
from keep_actors.api.standing import RunView
from keep_actors.api.views import Input, Output
from keep_actors.cli.calls import asked_names, lines_of
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.options import (
    control_option,
    db_option,
    full_option,
    json_option,
    limit_option,
    looks,
    workflow_argument,
)
from keep_actors.cli.reader import FileReader, readable, reading
from keep_actors.cli.terminal import TITLE_COLUMN, age, brief, json_line, plain, remark, show, show_each, table
from keep_actors.policy import Policy
from keep_actors.text.call_text import call_text
from keep_storage import lookups, reads
from keep_storage.ids import Millis
from keep_storage.model import JournalEntry
from keep_storage.transaction import Queries

T = TypeVar("T")

_PAGE = 1_000


def _show_page(
    look: FileReader,
    page: list[T],
    headings: Sequence[str],
    row: Callable[[T, Millis], Sequence[str]],
    below: Sequence[Sequence[str]] | None = None,
) -> None:
    if look.as_json:
        show_each(page)
    else:
        table(headings, [row(each, look.now) for each in page], below)


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--before", type=int, help="Only older ones: the SEQ of the last one shown.")
@looks
def inputs(look: FileReader, workflow: str | None, limit: int, before: int | None) -> None:
    """Show the events that came in, newest first, each with the calls that it led to.

    WORKFLOW may be left out if there is only one.

    \b
    keep inputs "mail to sheets" --db keep.db
    keep inputs --db keep.db --limit 100 --json
    """
    stale_before = look.now - Policy().stale_after_ms
    page = views.inputs(look.q, look.workflow(workflow).id, limit, before, stale_before)
    headings = ("SEQ", "WHEN", "STATE", "TOPIC", "MESSAGE", TITLE_COLUMN, "DONE ABOUT IT")
    _show_page(look, page, headings, _input)


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
def outputs(look: FileReader, workflow: str | None, limit: int, before: str | None, full: bool) -> None:
    """Show the calls to the outside, newest first: a line of the ledger for each, made or not, with its parameters
    below.

    \b
    keep outputs "mail to sheets" --db keep.db
    keep outputs --db keep.db --json | jq 'select(.status == "indeterminate")'
    """
    page = views.outputs(look.q, look.workflow(workflow).id, limit, before)
    headings = ("MUTATION", "WHEN", "STATE", "CALL", TITLE_COLUMN, "ERROR")
    below: list[list[str]] = []
    if not look.as_json:
        names = asked_names(look, (each.call for each in page))
        below = [list(lines_of(call_text(each.params, names.of(each.call), full=full), "    ")) for each in page]
    _show_page(look, page, headings, _output, below)


def _output(each: Output, now: Millis) -> tuple[str, ...]:
    shown = brief(each.title, 40), brief(each.error, 60)
    return each.mutation_id, age(each.at, now), str(each.status), each.call, *shown


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--before", help="Only older ones: the RUN of the last one shown.")
@looks
def runs(look: FileReader, workflow: str | None, limit: int, before: str | None) -> None:
    """Show the runs of a workflow, newest first: how far each came, and why it stopped.

    A run that was paused over a question is `resolved` once that is settled, and one that was active when its process
    died is `interrupted`: `standing` in --json, beside the `status` that it was left with.

    \b
    keep runs "mail to sheets" --db keep.db
    keep explain run_1k7o9 --db keep.db
    """
    page = views.runs(look.q, look.workflow(workflow), limit, before, is_owned=look.is_owned)
    headings = ("RUN", "WHEN", "HANDLER", "PHASE", "STATE", TITLE_COLUMN, "WHY")
    _show_page(look, page, headings, _run)


def _run(each: RunView, now: Millis) -> tuple[str, ...]:
    words = brief(each.title, 40), brief(each.settled or each.error_message, 80)
    return each.id, age(each.created_at, now), each.handler, str(each.phase), each.standing, *words


# The journal.


@click.command()
@workflow_argument(required=False)
@limit_option
@click.option("--after", type=int, help="Start after this sequence number, instead of at the newest entries.")
@click.option("--follow", "-f", is_flag=True, help="Keep showing new entries, until Ctrl-C or the end of the runtime.")
@control_option
@db_option
@json_option
def log(
    workflow: str | None, limit: int, after: int | None, follow: bool, control: Path | None, db: Path, as_json: bool
) -> None:
    """Show the journal: one line for each change, of all workflows or of one WORKFLOW.

    With --follow, new entries are shown as the running runtime writes them.

    \b
    keep log --db keep.db
    keep log "mail to sheets" --db keep.db --follow
    keep log --db keep.db --after 0 --limit 1000 --json
    """
    line = journal_json if as_json else journal_text
    with readable(db):
        with reading(db) as look:
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
    # Here: a command that only looks loads nothing that talks.
    from keep_actors.cli.write_path import WritePath
    from keep_actors.control.client import CommandRefused, Lost
    from keep_actors.control.protocol import Follow

    path = WritePath(db, control)
    client = path.client()
    if client is None:
        raise Stopped(Exit.NO_RUNTIME, path.no_runtime())
    with client:
        try:
            for entry in client.follow(Follow(after=seen, workflow=workflow_id)):
                show(line(entry))
                seen = entry.seq
        except CommandRefused as refused:
            raise Stopped(Exit.WRONG, str(refused)) from None
        except Lost:
            # It ended while it was telling; the file has the rest.
            pass
        except KeyboardInterrupt:
            return
    with reading(db) as look:
        for entry in journal_after(look.q, seen, workflow_id):
            show(line(entry))
    remark("The runtime has ended.")


def journal_after(q: Queries, seen: int, workflow_id: str | None = None) -> Iterator[JournalEntry]:
    """The whole journal after a sequence number, read a page at a time."""
    while entries := reads.journal(q, workflow_id=workflow_id, after=seen, limit=_PAGE):
        yield from entries
        seen = entries[-1].seq


def journal_text(entry: JournalEntry) -> str:
    changed = msgspec.json.decode(entry.changed)
    words = ", ".join(f"{name} {_word(name, value)}" for name, value in changed.items() if value not in (None, ""))
    why = f": {entry.why}" if entry.why else ""
    whom = entry.run_id or entry.workflow_id or ""
    return plain(f"{_clock(entry.at)} {entry.seq:>6}  {entry.operation:<26} {whom:<32} {words}{why}")


def journal_json(entry: JournalEntry) -> str:
    return json_line(msgspec.structs.asdict(entry) | {"changed": msgspec.Raw(entry.changed.encode())})


def _word(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{each} {_word(each, what)}" for each, what in value.items())
    if isinstance(value, list):
        return " → ".join(str(each) if each != "" else "none" for each in value)
    return _clock(value) if name in ("due", "wake_at") else str(value)


def _clock(at: Millis) -> str:
    # UTC: lines of several machines are compared.
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
