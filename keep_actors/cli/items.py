"""The items of jobs: `keep items` shows them, `keep skip-item` and `keep reprocess-item` change one or many."""

from collections.abc import Callable
from typing import Any, Final

import click

from keep_actors.api import commands, item_views
from keep_actors.api.item_views import ITEMS_AT_ONCE_MAX, REPROCESSABLE, SKIPPABLE, ItemAttempt, ItemHistory, ItemView
from keep_actors.api.standing import INTERRUPTED
from keep_actors.cli.calls import Names, asked_names, show_attempt
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.options import (
    Decorated,
    changes,
    confirm,
    control_option,
    full_option,
    help_of,
    limit_option,
    looks,
    workflow_argument,
    yes_option,
)
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.terminal import (
    TITLE,
    TITLE_COLUMN,
    age,
    brief,
    fields,
    json_line,
    plain,
    remark,
    show,
    show_commands,
    show_each,
    style,
    table,
    when,
)
from keep_actors.cli.typed import answers_to_item, workflow_word
from keep_actors.cli.write_path import WritePath
from keep_actors.text.counted import counted
from keep_storage import item_reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.model import Item, ItemState, Workflow

_NO_LIMIT: Final = 2**31 - 1


def _state_option(states: frozenset[ItemState]) -> Callable[[Decorated], Decorated]:
    kind = click.Choice([str(each) for each in ItemState if each in states])
    return click.option("--state", type=kind, help="Only items in this state.")


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
    look: FileReader,
    workflow: str | None,
    item: str | None,
    state: str | None,
    limit: int,
    after: str | None,
    full: bool,
) -> None:
    """Show the items of a workflow's jobs, by id; or one ITEM with every attempt at it and the calls of each.

    WORKFLOW may be left out if there is only one.

    \b
    keep items digest --db keep.db
    keep items digest --state failed --db keep.db
    keep items digest customer-7 --db keep.db
    """
    found = look.workflow(workflow)
    if item is not None:
        _one(look, found, item, full=full)
        return
    page = item_views.items(look.q, found.id, ItemState(state) if state else None, limit, after)
    if look.as_json:
        show_each(page)
    else:
        headings = ("ITEM", "WHEN", "STATE", "ATTEMPT", TITLE_COLUMN, "ERROR")
        table(headings, [_row(each, look) for each in page])


def _row(each: ItemView, look: FileReader) -> tuple[str, ...]:
    now = look.now
    state = f"{each.state} ({_inside(look)})" if each.is_open else str(each.state)
    return each.item_id, age(each.at, now), state, str(each.attempt), brief(each.title, 60), brief(each.error, 80)


def _inside(look: FileReader) -> str:
    """The state of the run that has entered an item and not left it."""
    return INTERRUPTED if not look.is_owned else "a run is active"


def _one(look: FileReader, workflow: Workflow, item_id: str, *, full: bool) -> None:
    try:
        found = item_views.history(look.q, workflow.id, item_id)
    except Rejected as rejected:
        raise Stopped(Exit.WRONG, str(rejected)) from None
    if look.as_json:
        show(json_line(found))
        return
    names = asked_names(look, (call.call for each in found.attempts for call in each.calls))
    _show(found, look, names, full)
    name = workflow_word(workflow.name, workflow.id)
    show_commands(answers_to_item(look.db, name, item_id, found.item.state))


def _show(found: ItemHistory, look: FileReader, names: Names, full: bool) -> None:
    item = found.item
    inside = f"{INTERRUPTED} run" if not look.is_owned else "a run is inside"
    show(style(plain(f"item {item.item_id}"), "cyan", bold=True))
    fields(
        [
            (TITLE, item.title),
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

_MANY: Final = """All the items that are named are changed, or none: the first that cannot be is named. With --state all
items in that state, after a question that says how many; if there are more than 1,000, a thousand at a time."""


def _items_action(
    declared: type[commands.SkipItems] | type[commands.ReprocessItems],
    states: frozenset[ItemState],
    question: str,
    said: Callable[[Item], str],
    *examples: str,
) -> click.Command:
    """A command that changes the items that are named, or those in a state, as many at a time as can be at once.

    `question` is asked about those in a state.
    """

    @workflow_argument()
    @click.argument("item", nargs=-1)
    @_state_option(states)
    @yes_option
    @changes(declared, "workflow", "item_ids", "state")
    def change(
        path: WritePath, workflow: str, item: tuple[str, ...], state: str | None, yes: bool, **typed: Any
    ) -> None:
        if bool(item) is (state is not None):
            raise click.UsageError("Name the items, or say which state they are in with --state; not both.")
        # An item that has left the state that the person agreed to is refused.
        seen = ItemState(state) if state is not None else None
        with reading(path.db) as look:
            found = look.workflow(workflow)
            there = item_reads.items(look.q, found.id, state=seen, limit=_NO_LIMIT) if seen is not None else []
        ids = list(item) or [each.item_id for each in there]
        if not ids:
            remark("There is no such item.")
            return
        if seen is not None:
            confirm(question.format(f"{counted(len(ids), 'item')} of {found.name} that are {seen}"), yes)
        size = ITEMS_AT_ONCE_MAX if seen is not None else len(ids)
        for first in range(0, len(ids), size):
            part = ids[first : first + size]
            for each in path.ask(declared(workflow=found.id, item_ids=part, state=seen, by=path.by, **typed)):
                path.done(each, said(each))

    return click.command(help=help_of(declared, *examples, more=_MANY))(change)


skip_item = _items_action(
    commands.SkipItems,
    SKIPPABLE,
    "Skip {}?",
    lambda item: f"Item {item.item_id} is {item.state}.",
    'skip-item digest customer-7 customer-9 --why "have left"',
    "skip-item digest --state failed --yes",
)
reprocess_item = _items_action(
    commands.ReprocessItems,
    REPROCESSABLE,
    "Reprocess {}? Everything in them is done again.",
    lambda item: f"Item {item.item_id} is {item.state}, attempt {item.attempt}.",
    'reprocess-item digest customer-7 --why "the address was wrong"',
    "reprocess-item digest --state failed --yes",
)
