"""What is written to a terminal. Texts of scripts, connectors and services are in it: none of them is obeyed by it.

`plain` is the one way in: one line, nothing that is not printable, not longer than told.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from keep_storage.ids import Millis

TEXT_MAX: Final = 2_000
"""Characters of one text. `--json` has all of it."""

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_NARROW: Final = 60


def plain(text: str, most: int = TEXT_MAX) -> str:
    """One line that a terminal only shows: what it would obey, or not show, is spelled out (`\\x1b`)."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut if cut.isprintable() else "".join(each if each.isprintable() else _spelled(each) for each in cut)


def plain_lines(text: str) -> str:
    """The same for words of our own that have several lines."""
    return "\n".join(plain(line) for line in text.split("\n"))


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def json_line(value: Any) -> str:
    """A value as one line of JSON that a terminal only shows: what is not printable is escaped, as JSON allows."""
    text = msgspec.json.encode(value).decode()
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def show(text: str = "") -> None:
    click.echo(text)


def remark(text: str) -> None:
    """Something about what is shown: to the standard error, so that what is shown can be used."""
    click.echo(plain_lines(text), err=True)


def style(text: str, colour: str, *, bold: bool = False) -> str:
    """In colour on a terminal, unless somebody has said that they do not want any (`NO_COLOR`)."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, fg=colour, bold=bold or None)


def width() -> int | None:
    """How many characters a line has; None if it goes to a file or a program."""
    return max(shutil.get_terminal_size().columns, _NARROW) if sys.stdout.isatty() else None


def when(at: Millis | None, now: Millis) -> str:
    """A time as people here read it, with how long ago it is or how long it takes."""
    if at is None:
        return "never"
    local = datetime.fromtimestamp(at / 1000, UTC).astimezone()
    return f"{local.isoformat(timespec='seconds')} ({age(at, now)})"


def age(at: Millis, now: Millis) -> str:
    """`3 min ago`, `in 2 h`, `now`."""
    apart = abs(now - at)
    for unit_ms, unit in _UNITS:
        if apart >= unit_ms:
            return f"{apart // unit_ms} {unit} ago" if at < now else f"in {apart // unit_ms} {unit}"
    return "now"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as what is in them, on a terminal cut to its width. The texts are untrusted."""
    lines = [[plain(cell, 200) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    for line in [list(headings), *lines]:
        text = "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
        most = width()
        show(text if most is None or len(text) <= most else f"{text[: most - 1]}…")


def fields(pairs: Iterable[tuple[str, str]], indent: str = "") -> None:
    """Lines of a name and a text. The texts are untrusted; empty ones are left out."""
    shown = [(name, text) for name, text in pairs if text]
    size = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        show(f"{indent}{name.ljust(size)}  {plain(text)}")
