"""Check names that are shown to people: of workflows, handlers, topics and items. Pure.

A name is short and has only visible characters: no control characters of terminals, no changes of direction, no blanks.
So no two names look alike.
"""

import re
import unicodedata
from typing import Final

NAME_CHARS_MAX: Final = 100
HANDLERS_MAX: Final = 200
TOPICS_MAX: Final = 200

_JOINERS: Final = "\u200c\u200d"
"""Part of words in Persian and Indian scripts, and of emoji: visible only between two such characters."""
_PRESENTATIONS: Final = "\ufe0e\ufe0f"
"""Present a symbol as text or as an emoji: visible only after a symbol, or in a keycap."""
_KEYCAP: Final = "\u20e3"
_BLANK: Final = re.compile(
    # The rest of Unicode's Default_Ignorable_Code_Point, with the ranges reserved for more; the blank braille pattern,
    # the null notehead and the Khitan filler.
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    r"\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"})


def is_blank(character: str) -> bool:
    """Return True for letters, marks and symbols, by their category, that show nothing on a screen."""
    return _BLANK.match(character) is not None


def is_hidden(character: str) -> bool:
    """Return True if this character is invisible in any context, or changes how others are shown."""
    # The wide space of Chinese and Japanese is as wide as a letter.
    if character in " \u3000" or character in _JOINERS or character in _PRESENTATIONS:
        return False
    return is_blank(character) or unicodedata.category(character) in _HIDDEN


def _hides(text: str, at: int) -> bool:
    """Return True if the character at this index is hidden: a joiner is, between letters that are never joined."""
    character = text[at]
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if character in _JOINERS:
        return not (_is_joined(before) and _is_joined(after))
    if character in _PRESENTATIONS:
        return after != _KEYCAP and not _is_symbol(before)
    return is_hidden(character)


def _is_joined(character: str) -> bool:
    return not (character.isascii() or character == "\u3000" or character in _JOINERS or is_hidden(character))


def _is_symbol(character: str) -> bool:
    return not character.isascii() and (unicodedata.category(character)[0] in "SP" or character == "\u2139")


def hidden_in(text: str) -> str:
    """The code point of the first hidden character (`U+202E`); empty if there is none."""
    # Fast path without a Python loop: most texts are ASCII.
    if text.isascii() and text.isprintable():
        return ""
    return next((f"U+{ord(each):04X}" for at, each in enumerate(text) if _hides(text, at)), "")


def shown(text: str) -> str:
    """A title with hidden characters replaced, and any hidden white space as a space."""
    if not hidden_in(text):
        return text
    return "".join((" " if each.isspace() else "�") if _hides(text, at) else each for at, each in enumerate(text))


def unfit_name(name: str) -> str:
    """The reason why this cannot be a name; empty if it can."""
    if not name.strip():
        return "is empty"
    if len(name) > NAME_CHARS_MAX:
        return f"has {len(name)} characters; at most {NAME_CHARS_MAX} are allowed"
    if found := hidden_in(name):
        return f"has an invisible character ({found})"
    return "begins or ends with a space" if name != name.strip() else ""
