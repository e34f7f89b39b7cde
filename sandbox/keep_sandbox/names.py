"""Names that people are shown: of workflows, handlers, topics and items. Pure.

A name is short, and shows all that it is: without characters that a terminal obeys, that change the direction of what
follows, or that cannot be seen, so that no two names look alike and none looks like something else.
"""

import re
import unicodedata
from typing import Final

NAME_CHARS_MAX: Final = 100
HANDLERS_MAX: Final = 200
TOPICS_MAX: Final = 200

_JOINERS: Final = "\u200c\u200d"
"""Part of words in Persian and in Indian scripts, and of emoji: seen between two such characters, and nowhere else."""
_PRESENTATIONS: Final = "\ufe0e\ufe0f"
"""Whether a symbol is an emoji: seen behind one, or in a keycap."""
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
    """The same where it stands: a joiner between letters that nothing joins makes a second name that looks like one."""
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
    """The first such character, spelled out (`U+202E`); empty if there is none."""
    # Most texts are ASCII, and then it is looked at without a loop of ours.
    if text.isascii() and text.isprintable():
        return ""
    return next((f"U+{ord(each):04X}" for at, each in enumerate(text) if _hides(text, at)), "")


def shown(text: str) -> str:
    """A title as it may be shown: what is hidden in it is replaced, and white space of any kind is a space."""
    if not hidden_in(text):
        return text
    return "".join((" " if each.isspace() else "�") if _hides(text, at) else each for at, each in enumerate(text))


def unfit_name(name: str) -> str:
    """Why this cannot be a name; empty if it can."""
    if not name.strip():
        return "is empty"
    if len(name) > NAME_CHARS_MAX:
        return f"has {len(name)} characters; {NAME_CHARS_MAX} are the most"
    if found := hidden_in(name):
        return f"has a character that cannot be seen ({found})"
    return "begins or ends with a space" if name != name.strip() else ""
