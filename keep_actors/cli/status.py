"""`keep status`: every workflow with its state, what is due and what waits for a person; or one of them in detail."""

from typing import Final

import click
import msgspec

from keep_actors.api import views
from keep_actors.api.attention import Attention, attention_of
from keep_actors.api.overdue import Failing, Moment, failing_of
from keep_actors.api.standing import INTERRUPTED, RunView
from keep_actors.cli.options import looks, workflow_argument
from keep_actors.cli.reader import FileReader
from keep_actors.cli.terminal import age, brief, fields, json_line, plain, remark, show, show_each, style, table, when
from keep_actors.cli.typed import line as typed_line
from keep_actors.text.counted import counted
from keep_storage import attention_reads, item_reads, lookups, proposal_reads, reads
from keep_storage.ids import Millis
from keep_storage.model import Handler, ItemState, StoredGrant, Workflow, WorkflowStatus

COUNTED_MAX: Final = 1_000
"""Waiting events of a topic, and items of a workflow, are not counted any further."""
_RUNS_SHOWN: Final = 5

_ITEMS_FIRST: Final = (
    ItemState.NEEDS_ATTENTION,
    ItemState.FAILED,
    ItemState.PROCESSING,
    ItemState.SKIPPED,
    ItemState.DONE,
)
assert set(_ITEMS_FIRST) == set(ItemState), "every state has its place"

_FAILING: Final = "failing"
_COLOURS: Final = {
    "active": "green",
    "stopped": "red",
    "paused": "yellow",
    _FAILING: "yellow",
    "running": "green",
    INTERRUPTED: "red",
}


class StatusLine(msgspec.Struct, frozen=True):
    """A workflow in the list."""

    id: str
    name: str
    status: WorkflowStatus
    is_running: bool
    """A run of it is at work."""
    needs_a_person: bool
    error: str
    maintenance: bool
    due_at: Millis | None
    """The time when it may have something to do; 0 is at once."""
    pending: int
    """Events that wait, counted up to a limit for each topic."""
    pending_is_cut: bool
    unsettled: int
    """Calls whose outcome is not known, or that were not sent yet."""
    items: dict[ItemState, int]
    """Items of its jobs by state, of as many as are counted."""
    items_are_cut: bool
    is_interrupted: bool = False
    """A run of it was at work when its process died. The next start settles it."""
    failing: list[Failing] = []
    """Its handlers that fail and are tried again by themselves."""
    owner: str = ""
    """To whom it belongs, if that was said."""


class Detail(msgspec.Struct, frozen=True):
    """One workflow, and everything about it that is quick to find."""

    workflow: StatusLine
    version: str | None
    timezone: str
    handlers: list[Handler]
    pending: dict[str, int]
    grants: list[StoredGrant]
    attention: list[Attention]
    runs: list[RunView]


@click.command()
@workflow_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Archived ones too.")
@looks
def status(look: FileReader, workflow: str | None, everything: bool) -> None:
    """Show the workflows of a database, or one WORKFLOW in detail.

    Reads the file, and says whether a runtime is running. `interrupted`: a run was active when the last one died, and
    the next start settles it. `failing`: a handler fails and is tried again, with the times below; no person is needed
    yet.

    \b
    keep status --db keep.db
    keep status "mail to sheets" --db keep.db
    keep status --db keep.db --json | jq 'select(.needs_a_person).name'
    """
    remark(f"Runtime: {look.runtime}.")
    if workflow is None:
        _list(look, everything)
    else:
        found = look.workflow(workflow)
        [line] = [each for each in lines(look) if each.id == found.id]
        shown = detail(look, found, line)
        if look.as_json:
            show(json_line(shown))
        else:
            _show(shown, look)


def lines(look: FileReader) -> list[StatusLine]:
    """All workflows, oldest first. What it costs does not depend on how much they have done."""
    due = {each.workflow_id: each.at for each in reads.agenda(look.q)}
    waiting = {each.id for each in reads.workflows_needing_attention(look.q)}
    pending, unsettled = lookups.pending(look.q, most=COUNTED_MAX), lookups.unsettled(look.q)
    items = item_reads.counts(look.q, most=COUNTED_MAX)
    active = {each.workflow_id for each in lookups.under_way(look.q)}
    failing: dict[str, list[Handler]] = {}
    for handler in attention_reads.failing_handlers(look.q):
        failing.setdefault(handler.workflow_id, []).append(handler)
    return [
        StatusLine(
            id=each.id,
            name=each.name,
            status=each.status,
            is_running=look.is_owned and each.id in active,
            needs_a_person=each.id in waiting,
            error=each.error,
            maintenance=each.maintenance,
            due_at=due.get(each.id),
            pending=sum(pending.get(each.id, {}).values()),
            pending_is_cut=COUNTED_MAX in pending.get(each.id, {}).values(),
            unsettled=unsettled.get(each.id, 0),
            items=items.get(each.id, {}),
            items_are_cut=COUNTED_MAX in items.get(each.id, {}).values(),
            is_interrupted=not look.is_owned and each.id in active,
            failing=list(failing_of(each, failing.get(each.id, []), Moment(look.now))),
            owner=each.owner,
        )
        for each in reads.workflows(look.q)
    ]


def _list(look: FileReader, everything: bool) -> None:
    found = [each for each in lines(look) if everything or each.status is not WorkflowStatus.ARCHIVED]
    if look.as_json:
        show_each(found)
        return
    if not found:
        show("There is no workflow yet. Deploy one: keep run FILE.js --db FILE")
        _say_proposed(look)
        return
    # A column for what most files do not have, only where it says something.
    owned = any(each.owner for each in found)
    headings = ("STATE", "DUE", "PENDING", "UNSETTLED", "ITEMS", "WAITS FOR A PERSON")
    table(
        ("WORKFLOW", *(["OWNER"] if owned else []), *headings),
        [(each.name, *([each.owner or "-"] if owned else []), *_row(each, look.now)) for each in found],
    )
    for line in found:
        for failing in line.failing:
            show(style(plain(f"{line.name}: {failing.handler} {_fails(failing, look)}."), "yellow"))
    _say_proposed(look)
    if any(each.needs_a_person for each in found):
        show(style(f"What waits for a person: keep attention --db {plain(str(look.db))}", "red"))


def _say_proposed(look: FileReader) -> None:
    proposed = len(proposal_reads.open_proposals(look.q, look.now))
    if proposed:
        waits = f"{counted(proposed, 'proposed script')} wait{'s' if proposed == 1 else ''} for a person"
        show(style(f"{waits}: {plain(typed_line(look.db, 'proposals'))}", "yellow"))


def _row(line: StatusLine, now: Millis) -> tuple[str, ...]:
    why = line.error or ("its script failed" if line.maintenance else "a call needs an answer")
    return (
        _state(line),
        _due(line, now),
        f"{line.pending:,}{'+' if line.pending_is_cut else ''}",
        str(line.unsettled),
        _items(line) or "-",
        brief(why, 80) if line.needs_a_person else "",
    )


def _state(line: StatusLine) -> str:
    if (line.error or line.maintenance) and line.status is WorkflowStatus.ACTIVE:
        return "stopped"
    if line.is_interrupted:
        return INTERRUPTED
    if line.is_running:
        return "running"
    return _FAILING if line.failing else str(line.status)


def _fails(failing: Failing, look: FileReader) -> str:
    """Since when it fails, and what follows: without a runtime, nothing by itself."""
    again = f"tried again at {when(failing.retry_at, look.now)}" if look.is_owned else "tried again once a runtime runs"
    times = "once" if failing.times == 1 else f"{failing.times} times in a row"
    return f"fails since {when(failing.since, look.now)}, {times}, {again}"


def _items(line: StatusLine) -> str:
    """The number of items in each state: those that want to be looked at first."""
    states = [f"{line.items[state]:,} {state}" for state in _ITEMS_FIRST if state in line.items]
    return f"{', '.join(states)}{' and more' if line.items_are_cut else ''}"


def _due(line: StatusLine, now: Millis) -> str:
    if line.due_at is None:
        return "-"
    return "now" if line.due_at <= now else age(line.due_at, now)


def detail(look: FileReader, workflow: Workflow, line: StatusLine) -> Detail:
    version = reads.version(look.q, workflow.active_version_id) if workflow.active_version_id else None
    at = Moment(look.now, is_owned=look.is_owned)
    return Detail(
        workflow=line,
        version=f"{version.major}.{version.minor}" if version else None,
        timezone=workflow.timezone,
        handlers=[each for each in reads.handlers(look.q, workflow.id) if each.declared],
        pending=lookups.pending(look.q, most=COUNTED_MAX).get(workflow.id, {}),
        grants=reads.grants(look.q, workflow.id, version.major) if version else [],
        attention=list(attention_of(look.q, workflow, at)),
        runs=views.runs(look.q, workflow, _RUNS_SHOWN, None, is_owned=look.is_owned),
    )


def _show(detail: Detail, look: FileReader) -> None:
    line, now = detail.workflow, look.now
    state = _state(line)
    show(style(f"{plain(line.name)}  {state}", _COLOURS.get(state, "white"), bold=True))
    fields(
        [
            ("id", line.id),
            ("owner", line.owner),
            ("version", detail.version or "none yet"),
            ("time zone", detail.timezone),
            ("due", _due(line, now)),
            ("unsettled calls", str(line.unsettled)),
            ("items", _items(line)),
        ],
        "  ",
    )
    for each in detail.attention:
        show(style(f"  waits for a person ({each.kind})", "red"))
        fields([("", each.words), ("", each.can_do)], "    ")
    failing = {each.handler: each for each in line.failing}
    for handler in detail.handlers:
        show(f"  {handler.kind:<9} {plain(handler.name)}  {_times(handler, failing.get(handler.name), look)}".rstrip())
    for topic, count in detail.pending.items():
        show(f"  topic     {plain(topic)}  {count:,}{'+' if count >= COUNTED_MAX else ''} pending")
    for grant in detail.grants:
        who = grant.granted_by or "an unnamed person"
        show(plain(f"  may call  {grant.permission}  {grant.policy} {grant.limits}, by {who}"))
    for run in detail.runs:
        show(f"  run       {run.id}  {plain(run.handler)}  {run.standing}  {when(run.created_at, now)}")


def _times(handler: Handler, failing: Failing | None, look: FileReader) -> str:
    """The next times of a handler, and since when it fails."""
    held = None if failing is not None else handler.retry_at
    times = [("next", handler.next_run_at), ("wakes", handler.wake_at), ("not before", held)]
    said = [f"{name} {when(at, look.now)}" for name, at in times if at is not None]
    if failing is not None:
        said.append(_fails(failing, look))
    elif handler.failures:
        said.append(f"failed {handler.failures} times in a row")
    return ", ".join(said)
