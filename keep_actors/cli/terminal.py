"""The one door to the terminal. Texts of scripts, connectors and services go through it: none of them is obeyed.

`show` and `remark` print, and spell out whatever a terminal would obey or hide, wherever it came from; colours made by
`style` are all that passes. `plain` makes one line of a text, not longer than told; `json_line` one line of JSON.
"""

import logging
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final
from unicodedata import category, east_asian_width

import click
import msgspec

from keep_actors.text import visible
from keep_actors.text.visible import left_out
from keep_storage.ids import Millis

TEXT_MAX: Final = 2_000
"""Characters of one text. `--json` has all of it."""
CELL_MAX: Final = 200
TITLE: Final = "title (the script's words)"
"""The name of a title wherever one is shown: it proves nothing."""
TITLE_COLUMN: Final = TITLE.replace("title", "TITLE")

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_NARROW: Final = 60
_COLOURS: Final = re.compile(r"(\x1b\[(?:0|1|3[0-7])m)")
"""The sequences that `style` writes, and no others."""


def plain(text: str, most: int | None = TEXT_MAX) -> str:
    """One line that a terminal only shows: what it would obey, or not show, is spelled out (`\\x1b`, `\\u{202e}`).

    What is longer than `most` is cut, and says how much is left out.
    """
    shown, left = visible.cut(text, most)
    return f"{shown}{left_out(left)}" if left else shown


def brief(text: str, most: int) -> str:
    """The same for a cell of a table: a bare `…` for what is left out."""
    shown, left = visible.cut(text, most)
    if not left:
        return shown
    shown, _ = visible.cut(text, most - 1)
    return f"{shown}…"


def plain_lines(text: str, most: int | None = TEXT_MAX) -> str:
    """The same for words of our own that have several lines. `most` is for each of them."""
    return "\n".join(plain(line, most) for line in text.split("\n"))


def plain_block(text: str) -> str:
    """The same for words of which a stranger may have written a part: every line but the first is set in."""
    return plain_lines(text).replace("\n", "\n  ")


def json_line(value: Any) -> str:
    """A value as one line of JSON that a terminal only shows: what is not visible is escaped, as JSON allows."""
    text = msgspec.json.encode(value).decode()
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if visible.is_visible(each) else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def show(text: str = "", *, err: bool = False) -> None:
    """Print. Nothing but lines of visible characters, and our own colours on a terminal, gets out."""
    click.echo(_clean(text, err=err), err=err)


def remark(text: str) -> None:
    """A remark, to the standard error: the standard output has only what was asked for."""
    show(plain_block(text), err=True)


def _clean(text: str, *, err: bool) -> str:
    parts = _COLOURS.split(text) if "\x1b" in text and _is_coloured(err=err) else [text]
    return "".join(
        part if at % 2 else "\n".join(map(visible.spelled, part.split("\n"))) for at, part in enumerate(parts)
    )


def _is_coloured(*, err: bool) -> bool:
    """In colour on a terminal, unless `NO_COLOR` is set."""
    return not os.environ.get("NO_COLOR") and (sys.stderr if err else sys.stdout).isatty()


def style(text: str, colour: str, *, bold: bool = False, err: bool = False) -> str:
    """In colour where it is shown so. The text is as trusted as it was."""
    return click.style(text, fg=colour, bold=bold or None) if _is_coloured(err=err) else text


def width() -> int | None:
    """The width of a line in characters; None if it goes to a file or a program."""
    return max(shutil.get_terminal_size().columns, _NARROW) if sys.stdout.isatty() else None


def wrapped(text: str, room: int) -> Iterator[str]:
    """A line in parts that are not wider than this: left to a terminal, the rest of it would begin where names do."""
    part, used = "", 0
    for each in text:
        size = _columns(each)
        if used + size > room:
            yield part
            part, used = "", 0
        part += each
        used += size
    yield part


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def columns(text: str) -> int:
    """The columns of a terminal that it takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def hung(head: str, text: str, room: int | None) -> Iterator[str]:
    """A line, and what does not fit under its text, behind a mark: no text reaches the place where names are."""
    indent = " " * columns(head)
    if room is None or columns(text) + len(indent) <= room:
        yield f"{head}{text}".rstrip()
        return
    first, *rest = wrapped(text, max(room - len(indent) - 2, _NARROW // 2))
    yield f"{head}{first}"
    for each in rest:
        yield f"{indent}│ {each}"


def when(at: Millis | None, now: Millis) -> str:
    """A time as people here read it, with how long ago it is or how long it takes."""
    if at is None:
        return "never"
    try:
        local = datetime.fromtimestamp(at / 1000, UTC).astimezone()
    except (OverflowError, ValueError):
        return f"not a valid time ({at})"
    return f"{local.isoformat(timespec='seconds')} ({age(at, now)})"


def age(at: Millis, now: Millis) -> str:
    """`3 min ago`, `in 2 h`, `now`."""
    apart = abs(now - at)
    for unit_ms, unit in _UNITS:
        if apart >= unit_ms:
            return f"{apart // unit_ms} {unit} ago" if at < now else f"in {apart // unit_ms} {unit}"
    return "now"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], below: Sequence[Sequence[str]] | None = None) -> None:
    """Columns as wide as what is in them, on a terminal cut to its width. The texts are untrusted.

    `below` has more lines for each row, to be shown as they are.
    """
    lines = [[brief(cell, CELL_MAX) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(headings, *lines, strict=True)]
    for line, more in zip([list(headings), *lines], [(), *(below or [()] * len(lines))], strict=True):
        padded = (f"{cell}{' ' * (size - columns(cell))}" for cell, size in zip(line, widths, strict=True))
        text = "  ".join(padded).rstrip()
        most = width()
        show(text if most is None or columns(text) <= most else f"{next(wrapped(text, most - 1))}…")
        for each in more:
            show(each)


def fields(pairs: Iterable[tuple[str, str]], indent: str = "", size: int = 0, *, err: bool = False) -> None:
    """Lines of a name and a text. The texts are untrusted; empty ones are left out. Names take `size` at least."""
    shown = [(name, text) for name, text in pairs if text]
    size = max([size, *(len(name) for name, _ in shown)])
    for name, text in shown:
        for line in hung(f"{indent}{name.ljust(size)}  ", plain(text), width()):
            show(line, err=err)


def show_lines(text: str, *, err: bool = False) -> None:
    """Lines of a stranger's, such as those of a difference: nothing is cut, and what is broken goes on behind a mark,
    so that the rest of a long line never looks like the next one."""
    for each in text.split("\n"):
        for line in hung("", plain(each, None), width()):
            show(line, err=err)


def show_commands(commands: Iterable[str]) -> None:
    """Command lines that can be typed next, if there are any."""
    lines = [f"    {plain(each)}" for each in commands]
    for line in ["  type", *lines] if lines else []:
        show(line)


def show_each(found: Iterable[Any]) -> None:
    """A line of JSON for each."""
    for each in found:
        show(json_line(each))


# Words of Python itself on the standard error: log lines, warnings and tracebacks, which may quote a mail or a service.


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain_block(super().format(record))


def speak_plainly() -> None:
    """Spell out what a terminal would obey or hide. A connector that sets up logging of its own is not changed."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Plain())
    logging.captureWarnings(True)
    sys.excepthook = _show_error


def _show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    show(plain_block("".join(traceback.format_exception(kind, error, trace)).rstrip()), err=True)
