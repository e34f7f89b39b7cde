"""A call as people are shown it: each parameter on a line of its own, in the order that its connector gives them.

Functions that show a call return whether all of it was shown: a call is approved only after that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from keep_actors.api.views import Output
from keep_actors.cli.reader import FileReader
from keep_actors.cli.terminal import columns, hung, plain, show, width
from keep_actors.text.call_text import CallText, call_text

if TYPE_CHECKING:
    from keep_actors.api.command import Command
    from keep_actors.cli.write_path import WritePath

T = TypeVar("T")

_WIDTH: Final = 100
"""Without a terminal: lines are broken all the same, so that none is broken where they are shown later."""
_NAMES_MAX: Final = 24
_DEPTH_MAX: Final = 20
_ASKED_S: Final = 10


class Names(NamedTuple):
    """The parameters of methods, in the order of their signatures: of those that a running runtime knows."""

    known: Mapping[str, Sequence[str]]

    def of(self, call: str) -> Sequence[str] | None:
        return self.known.get(call)

    def said(self, call: str) -> str:
        """In words, what the order is."""
        known = call in self.known
        return "in the order of the connector" if known else "by name: no running runtime knows their order"


NO_NAMES: Final = Names({})


def asked_names(asked: "WritePath | FileReader", calls: Iterable[str]) -> Names:
    """Ask the runtime that has the file, if one has it and answers."""
    from keep_actors.api.commands import ParameterNames

    if not (wanted := sorted(set(calls))):
        return NO_NAMES
    return Names(asked_of_runtime(asked, ParameterNames(calls=wanted)) or {})


def asked_of_runtime(
    asked: "WritePath | FileReader", command: "Command[T]", refused: Callable[[Exception], None] = lambda _: None
) -> T | None:
    """The answer to a question that only a running runtime can answer; None if it cannot be asked, or refuses."""
    # Here: a command that only looks loads nothing that talks.
    from keep_actors.cli.write_path import WritePath
    from keep_actors.control.client import CommandRefused, Lost

    try:
        if isinstance(asked, FileReader):
            if not asked.is_owned:
                return None
            asked = WritePath(asked.db, asked.control)
        client = asked.client()
        if client is None:
            return None
        with client:
            return client.ask(command, timeout_s=_ASKED_S)
    except (click.ClickException, CommandRefused, Lost) as error:
        refused(error)
        return None


def lines_of(text: CallText, indent: str) -> Iterator[str]:
    """The lines of a call. What is inside a parameter is set in under it, and a long text goes on under itself."""
    sizes: dict[int, int] = {}
    room = width() or _WIDTH
    for each in text.lines:
        sizes[each.depth] = min(max(sizes.get(each.depth, 0), len(each.name)), _NAMES_MAX)
    for depth, name, value, left in text.lines:
        start = f"{indent}{'  ' * min(depth, _DEPTH_MAX)}"
        if columns(name) > room // 2:
            # A name of the script's choice, which would push its value out of sight or reach the place of other names.
            yield from hung(start, name, room)
            name = ""
        head = f"{start}{name.ljust(sizes[depth])}"
        head = f"{head}  " if name else head
        if columns(f"{head}{value} {left}") <= room:
            yield f"{head}{value} {left}".rstrip()
        else:
            # What is left out is said on a line that no value can have: those go on behind a mark.
            yield from hung(head, value, room)
            yield from [f"{' ' * columns(head)}{left}"] if left else []
    if not text.lines:
        yield f"{indent}none"


def show_parameters(call: str, params: str, names: Names, indent: str, *, full: bool, err: bool = False) -> bool:
    """Show the parameters of a call. Returns whether all of it is shown."""
    text = call_text(params, names.of(call), full=full)
    for line in lines_of(text, indent):
        show(line, err=err)
    return text.is_whole


def show_attempt(each: Output, names: Names, indent: str, *, full: bool, is_shown: bool = False) -> None:
    """A call that was made, or was to be: what became of it, and its parameters unless they have been shown."""
    show(f"{indent}calls  {plain(f'{each.call} is {each.status} ({each.mutation_id})')}")
    if not is_shown:
        show_parameters(each.call, each.params, names, f"{indent}  ", full=full)


def is_whole(params: str) -> bool:
    """True if a call is shown whole without `--full`."""
    return call_text(params).is_whole


def show_whole(call: str, about: str, params: str, names: Names) -> None:
    """A call before a question about it: all of it, to the standard error, where the question is."""
    show(plain(f"{call} ({about}), parameters {names.said(call)}:"), err=True)
    show_parameters(call, params, names, "  ", full=True, err=True)
