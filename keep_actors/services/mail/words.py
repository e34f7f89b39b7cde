"""Texts that become part of a header or a command: one line, without a character that a protocol would obey."""

import unicodedata
from typing import Final

_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters (NUL, CR, LF, NEL among them), lone surrogates, and the separators of lines and paragraphs."""

_ENCODED: Final = "=?"
"""It begins an encoded word (RFC 2047), which may have anything in it: also a line break that becomes a header."""


def problem_with_line(text: str, chars_max: int) -> str:
    """The reason why a text cannot stand in a command; empty if it can."""
    if len(text) > chars_max:
        return f"has {len(text):,} characters; at most {chars_max:,} are sent"
    for place, character in enumerate(text):
        if unicodedata.category(character) in _REFUSED_CATEGORIES:
            return f"has the control character U+{ord(character):04X} at position {place}; remove it"
    return ""


def problem_with_header(text: str, chars_max: int) -> str:
    """The reason why a text cannot be the value of a header; empty if it can."""
    if problem := problem_with_line(text, chars_max):
        return problem
    return f"has {_ENCODED!r} in it, which begins an encoded word; remove it" if _ENCODED in text else ""


def shown(text: str, chars_max: int) -> str:
    """A text from outside for a result: bounded, with neither lone surrogates nor control characters but LF and tab."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = [each for each in text[:chars_max] if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cs")]
    return "".join(kept)


def on_one_line(text: str, chars_max: int) -> str:
    """The same for the value of a header, which was one line before it was folded."""
    return " ".join(shown(text, chars_max).split())
