"""Names that people are shown: of workflows, handlers, topics and items. Pure.

A name is short, and shows all that it is: without characters that a terminal obeys, that change the direction of what
follows, or that cannot be seen, so that no two names look alike and none looks like something else.
"""

import unicodedata
from typing import Final

NAME_CHARS_MAX: Final = 100
HANDLERS_MAX: Final = 200
TOPICS_MAX: Final = 200

_JOINERS: Final = "\u200c\u200d"
"""Part of words in Persian and in Indian scripts, and of emoji."""
_BLANK: Final = "\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5"
"""Letters, by their category, that show nothing."""
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def is_hidden(character: str) -> bool:
    """Whether a person would not see it, or see something else because of it."""
    if character in _BLANK or "\u180b" <= character <= "\u180f" or "\U000e0100" <= character <= "\U000e01ef":
        return True
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def hidden_in(text: str) -> str:
    """The first such character, spelled out (`U+202E`); empty if there is none."""
    # Most texts are ASCII, and then it is looked at without a loop of ours.
    if text.isascii() and text.isprintable():
        return ""
    return next((f"U+{ord(each):04X}" for each in text if is_hidden(each)), "")


def shown(text: str) -> str:
    """A title as it may be shown: what is hidden in it is replaced, and white space of any kind is a space."""
    if not hidden_in(text):
        return text
    return "".join(
        " " if each in "\t\n\r\x0b\x0c\x85\u2028\u2029" else "�" if is_hidden(each) else each for each in text
    )


def unfit_name(name: str) -> str:
    """Why this cannot be a name; empty if it can."""
    if not name.strip():
        return "is empty"
    if len(name) > NAME_CHARS_MAX:
        return f"has {len(name)} characters; {NAME_CHARS_MAX} are the most"
    if found := hidden_in(name):
        return f"has a character that cannot be seen ({found})"
    return "begins or ends with a space" if name != name.strip() else ""
