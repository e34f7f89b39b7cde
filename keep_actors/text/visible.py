"""Show untrusted text with all that a terminal would obey, or an eye would miss, spelled out. Pure.

Spelled out are control and direction characters, spaces other than the ordinary one, characters without a glyph
(fillers, variation selectors, tags), and marks piled up on one letter. A run of one character is folded to its length.
"""

import re
from collections.abc import Iterator
from typing import Final
from unicodedata import category

from keep_sandbox.names import is_blank

FOLDED_FROM: Final = 5
"""A run of this many equal spelled-out characters is written once, with its length."""
_SPACES_MAX: Final = 16
"""Inside quotes, more ordinary spaces in a row are spelled out: they may push text out of sight."""
_MARKS_MAX: Final = 4
"""More combining marks on one letter are spelled out: they may cover the lines above and below."""

_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_SPANS: Final = re.compile(r"[ -~]+|(.)\1*", re.DOTALL)
_QUOTED_SPANS: Final = re.compile(rf"(?:[!#-\[\]-~]| (?! {{{_SPACES_MAX}}}))+|(.)\1*", re.DOTALL)


def is_visible(character: str) -> bool:
    """Return True if this character has a glyph and no effect on the terminal."""
    return character.isprintable() and not is_blank(character)


def is_plain(text: str) -> bool:
    """Return True if no character of the text has to be spelled out."""
    return text.isprintable() and (text.isascii() or not any(is_spelled for *_, is_spelled in _pieces(text, _SPANS)))


def spelled(text: str) -> str:
    """The whole text on one line, with invisible characters spelled out: `\\x1b`, `\\u{202e}`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(shown for shown, _, _ in _pieces(text, _SPANS))


def cut(text: str, most: int | None) -> tuple[str, int]:
    """`spelled`, cut to `most` characters (None: not cut), and the number of characters left out."""
    return _cut(text, most, _SPANS)


def quoted(text: str, most: int | None) -> tuple[str, int]:
    """`cut` between quotes, as in JSON: quotes and backslashes are escaped, so that spelling cannot be faked."""
    shown, left = _cut(text, most, _QUOTED_SPANS)
    return f'"{shown}"', left


def left_out(count: int) -> str:
    """The words after a cut."""
    return f"… {count:,} character{'' if count == 1 else 's'} left out"


def head(text: str, most: int) -> str:
    """The beginning of a text, not spelled out, with the number of characters left out."""
    return text if len(text) <= most else f"{text[:most]}{left_out(len(text) - most)}"


def _cut(text: str, most: int | None, spans: re.Pattern[str]) -> tuple[str, int]:
    if most is None:
        return "".join(shown for shown, _, _ in _pieces(text, spans)), 0
    parts: list[str] = []
    room, read = most, 0
    for shown, stands_for, is_spelled in _pieces(text, spans):
        if len(shown) > room:
            if not is_spelled:
                parts.append(shown[:room])
                read += room
            return "".join(parts), len(text) - read
        parts.append(shown)
        room -= len(shown)
        read += stands_for
    return "".join(parts), 0


def _pieces(text: str, spans: re.Pattern[str]) -> Iterator[tuple[str, int, bool]]:
    """The pieces of a text: the shown text, its number of original characters, and True if it is spelled out."""
    marks = 0
    for found in spans.finditer(text):
        run = found[0]
        first = run[0]
        if found[1] is None:
            marks = 0
            yield run, len(run), False
            continue
        marks = marks + len(run) if category(first) in ("Mn", "Me") else 0
        if not is_visible(first) or marks > _MARKS_MAX or first in ' "\\':
            # `spans` matches other ASCII characters above, so only those to be spelled out get here.
            yield from _spelled_run(first, len(run))
        else:
            yield run, len(run), False


def _spelled_run(character: str, count: int) -> Iterator[tuple[str, int, bool]]:
    one = _spelled(character)
    if count < FOLDED_FROM:
        yield from ((one, 1, True) for _ in range(count))
    else:
        yield f"({one} {_TIMES} {count:,})", count, True


def _spelled(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == " ":
        return "\\x20"
    if ord(character) < 0x100:
        return character.encode("unicode_escape").decode("ascii")
    return f"\\u{{{ord(character):x}}}"
