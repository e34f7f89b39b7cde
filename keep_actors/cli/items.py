"""The items of jobs: `keep items` shows them, `keep skip-item` and `keep reprocess-item` change one or many."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from keep_actors.api import item_views
from keep_actors.api.item_views import ITEMS_AT_ONCE_MAX, REPROCESSABLE, SKIPPABLE, ItemAttempt, ItemHistory, ItemView
from keep_actors.api.standing import INTERRUPTED
from keep_actors.cli.asking import confirm, yes_option
from keep_actors.cli.calls import Names, asked_names, full_option, show_attempt
from keep_actors.cli.changing import Runtime
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.looking import Look, looking
from keep_actors.cli.options import changes, control_option, limit_option, looks, why_option, workflow_argument
from keep_actors.cli.terminal import age, brief, fields, json_line, plain, remark, show, style, table, when
from keep_actors.cli.typed import answers_to_item, workflow_word
from keep_actors.control import protocol
from keep_storage import item_reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.model import Item, ItemState, Workflow

Command = TypeVar("Command", bound=Callable[..., Any])

_NO_LIMIT: Final = 2**31 - 1


def _state_option(states: frozenset[ItemState]) -> Callable[[Command], Command]:
    kind = click.Choice([str(each) for each in ItemState if each in states])
    return click.option("--state", type=kind, help="Those that are in this state.")


# Looking.


@click.command()
@workflow_argument(required=False)
@click.argument("item", required=False)
@_state_option(frozenset(ItemState))
@limit_option
@click.option("--after", help="Only those that follow: the ITEM of the last one shown.")
@full_option
@control_option
@looks
def items(
    workflow: str | None,
    item: str | None,
    state: str | None,
    limit: int,
    after: str | None,
    full: bool,
    control: Path | None,
    db: Path,
    as_json: bool,
) -> None:
    """Show the items of a workflow's jobs, by id; or one ITEM with every attempt at it and the calls of each.

    WORKFLOW may be left out if there is only one.

    \b
    keep items digest --db keep.db
    keep items digest --state failed --db keep.db
    keep items digest customer-7 --db keep.db
    """
    with looking(db) as look:
        found = look.workflow(workflow)
        if item is not None:
            _one(look, found, item, as_json, full=full, control=control)
            return
        page = item_views.items(look.q, found.id, ItemState(state) if state else None, limit, after)
        if as_json:
            for each in page:
                show(json_line(each))
            return
        headings = ("ITEM", "WHEN", "STATE", "ATTEMPT", "TITLE (the script's words)", "ERROR")
        table(headings, [_row(each, look) for each in page])


def _row(each: ItemView, look: Look) -> tuple[str, ...]:
    now = look.now
    state = f"{each.state} ({_inside(look)})" if each.is_open else str(each.state)
    return each.item_id, age(each.at, now), state, str(each.attempt), brief(each.title, 60), brief(each.error, 80)


def _inside(look: Look) -> str:
    """Of an item that a run has entered and not left: where that run is now."""
    return INTERRUPTED if look.owner is None else "a run is at it"


def _one(look: Look, workflow: Workflow, item_id: str, as_json: bool, *, full: bool, control: Path | None) -> None:
    try:
        found = item_views.history(look.q, workflow.id, item_id)
    except Rejected as rejected:
        raise Stopped(Exit.WRONG, str(rejected)) from None
    if as_json:
        show(json_line(found))
        return
    names = asked_names(look, control, (call.call for each in found.attempts for call in each.calls))
    _show(found, look, names, full)
    show("  type")
    for command in answers_to_item(look.db, workflow_word(workflow.name, workflow.id), item_id, found.item.state):
        show(f"    {plain(command)}")


def _show(found: ItemHistory, look: Look, names: Names, full: bool) -> None:
    item = found.item
    inside = f"{INTERRUPTED} run" if look.owner is None else "a run is inside"
    show(style(plain(f"item {item.item_id}"), "cyan", bold=True))
    fields(
        [
            ("title (the script's words)", item.title),
            ("state", f"{item.state}, attempt {item.attempt}"),
            (inside, item.run_id if item.is_open else ""),
            ("error", item.error),
            ("can be done", found.can_do),
        ],
        "  ",
    )
    for attempt in found.attempts:
        _show_attempt(attempt, look.now, names, full)


def _show_attempt(attempt: ItemAttempt, now: Millis, names: Names, full: bool) -> None:
    show(f"  attempt {attempt.attempt}: {attempt.state}")
    fields(
        [
            ("began", when(attempt.began_at, now)),
            ("changed", when(attempt.at, now)),
            ("error", attempt.error),
            *(("run", each) for each in attempt.runs),
        ],
        "    ",
    )
    for each in attempt.calls:
        show_attempt(each, names, "    ", full=full)


# Changing.


@click.command()
@workflow_argument()
@click.argument("item", nargs=-1)
@_state_option(SKIPPABLE)
@yes_option
@why_option
@changes
def skip_item(
    workflow: str,
    item: tuple[str, ...],
    state: str | None,
    yes: bool,
    why: str,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Skip logical items of a job: like those that are done, they change nothing outside any more.

    All that are named, or none: the first that cannot be skipped is named. With --state all items in that state, after
    a question that says how many; more than 1,000 of them are skipped a thousand at a time.

    \b
    keep skip-item digest customer-7 customer-9 --why "have left" --db keep.db
    keep skip-item digest --state failed --yes --db keep.db
    """
    with looking(db) as look:
        found, parts = _wanted(look, workflow, item, state)
    if state is not None and not _confirmed(f"Skip {_count(parts)} of {found.name} that are {state}?", parts, yes):
        return
    for part in parts:
        request = protocol.SkipItems(workflow=found.id, item_ids=part, state=_seen(state), by=by, why=why)
        for each in Runtime(db, control).ask(request, list[Item]):
            show(json_line(each) if as_json else plain(f"Item {each.item_id} is {each.state}."))


@click.command()
@workflow_argument()
@click.argument("item", nargs=-1)
@_state_option(REPROCESSABLE)
@yes_option
@why_option
@changes
def reprocess_item(
    workflow: str,
    item: tuple[str, ...],
    state: str | None,
    yes: bool,
    why: str,
    db: Path,
    control: Path | None,
    by: str,
    as_json: bool,
) -> None:
    """Have logical items of a job processed anew: the next attempt shares nothing with those before.

    The next run of the job does it, everything in them once more; `keep run-now` has it run at once.

    All that are named, or none: the first that cannot be reprocessed is named. With --state all items in that state,
    after a question that says how many; more than 1,000 of them are reprocessed a thousand at a time.

    \b
    keep reprocess-item digest customer-7 --why "the address was wrong" --db keep.db
    keep reprocess-item digest --state failed --yes --db keep.db
    """
    with looking(db) as look:
        found, parts = _wanted(look, workflow, item, state)
    words = f"Reprocess {_count(parts)} of {found.name} that are {state}? Everything in them is done once more."
    if state is not None and not _confirmed(words, parts, yes):
        return
    for part in parts:
        request = protocol.ReprocessItems(workflow=found.id, item_ids=part, state=_seen(state), by=by, why=why)
        for each in Runtime(db, control).ask(request, list[Item]):
            words = f"Item {each.item_id} is {each.state}, attempt {each.attempt}."
            show(json_line(each) if as_json else plain(words))


def _wanted(look: Look, workflow: str, named: tuple[str, ...], state: str | None) -> tuple[Workflow, list[list[str]]]:
    """The items that were named, or those that are in a state now, in parts that can be changed at once."""
    if bool(named) is (state is not None):
        raise click.UsageError("Name the items, or the state of those that are meant with --state.")
    found = look.workflow(workflow)
    if state is None:
        return found, [list(named)]
    there = item_reads.items(look.q, found.id, state=ItemState(state), limit=_NO_LIMIT)
    return found, list(_parts([each.item_id for each in there]))


def _parts(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), ITEMS_AT_ONCE_MAX):
        yield ids[first : first + ITEMS_AT_ONCE_MAX]


def _count(parts: list[list[str]]) -> str:
    count = sum(map(len, parts))
    return "1 item" if count == 1 else f"{count:,} items"


def _seen(state: str | None) -> ItemState | None:
    """What a person has seen and agreed to: an item that is something else by now is refused."""
    return None if state is None else ItemState(state)


def _confirmed(question: str, parts: list[list[str]], yes: bool) -> bool:
    """Whether there is something to do, and a person wants it done."""
    if not parts:
        remark("There is no such item.")
        return False
    confirm(question, yes)
    return True
