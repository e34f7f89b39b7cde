"""What becomes of events in topics that a script no longer declares: `--drop`, `--move`, or a question."""

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import click

from keep_actors.cli.changing import EventsWait
from keep_actors.cli.exits import Exit, Stopped
from keep_actors.cli.options import Command
from keep_actors.cli.terminal import plain, remark

T = TypeVar("T")

OPTIONS: Final = (
    "Say what becomes of them: --drop TOPIC skips them, --move OLD=NEW moves them to a topic of the script."
)


class Fate(NamedTuple):
    """Topics whose events are skipped, and topics whose events go to another one."""

    drop: list[str]
    move: dict[str, str]


def topic_options(command: Command) -> Command:
    """`--drop` and `--move`, for `fate_of`."""
    drop = "Skip the events that wait in a topic that the script no longer declares. Several times."
    move = "Move them to a topic that it declares. Several times."
    command = click.option("--move", multiple=True, metavar="OLD=NEW", callback=_pairs, help=move)(command)
    return click.option("--drop", multiple=True, metavar="TOPIC", help=drop)(command)


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{each!r} is not OLD=NEW.")
        if old in pairs:
            raise click.BadParameter(f"the events of {old!r} cannot go to two topics.")
        pairs[old] = new
    return pairs


def fate_of(drop: tuple[str, ...], move: dict[str, str], scripts: int = 1) -> Fate:
    """What was said on the command line. Raises `click.UsageError` where it is not clear of which script."""
    if scripts > 1 and (drop or move):
        raise click.UsageError("--drop and --move are about the topics of one script; deploy that one by itself.")
    return Fate(list(drop), dict(move))


def with_events_settled(ask: Callable[[Fate], T], fate: Fate, *, as_json: bool) -> T:
    """Ask for a script to be activated. If events would be left behind, ask the person at the terminal, then again."""
    while True:
        try:
            return ask(fate)
        except EventsWait as waiting:
            if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise Stopped(Exit.WRONG, f"{waiting.message}\n{OPTIONS}") from None
            fate = _asked(waiting, fate)


def _asked(waiting: EventsWait, fate: Fate) -> Fate:
    drop, move = list(fate.drop), dict(fate.move)
    for topic, count in waiting.topics.items():
        remark(f"{plain(topic)}: the script no longer declares this topic, and {count} event(s) wait in it.")
        choices = [f"move them to {plain(new)}" for new in waiting.declared]
        choices += ["drop them: they are skipped", "stop: nothing changes"]
        for number, choice in enumerate(choices, start=1):
            remark(f"  {number}  {choice}")
        kind: Any = click.IntRange(1, len(choices))
        chosen: int = click.prompt(f"Which (1 to {len(choices)})", type=kind, err=True) - 1
        if chosen < len(waiting.declared):
            move[topic] = waiting.declared[chosen]
        elif chosen == len(waiting.declared):
            drop.append(topic)
        else:
            raise Stopped(Exit.WRONG, "Stopped: nothing has changed.")
    return Fate(drop, move)
