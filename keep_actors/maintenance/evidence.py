"""Untrusted text, made fit to be shown to a person or a model: legible, bounded, and unable to end its own fence."""

from collections.abc import Sequence
from typing import Final

FENCE: Final = "````"


def legible(text: str, chars_max: int, *, keep: str = "\n\t") -> str:
    """What it says, with everything invisible spelled out (`\\x1b`, `\\u202e`), and no more than so much of it."""
    if text.isprintable() and len(text) <= chars_max:
        return text
    shown = "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text[:chars_max]
    )
    return shown if len(text) <= chars_max and len(shown) <= chars_max else f"{shown[: chars_max - 1]}…"


def last_lines(lines: Sequence[str], count_max: int, line_chars_max: int) -> str:
    """The last of them, each on a line of its own."""
    return "\n".join(legible(line, line_chars_max, keep="\t") for line in lines[-count_max:])


def fenced(label: str, text: str) -> str:
    """Between fences, each line with a mark before it: no line of the text can be taken for the end of its fence."""
    lines = "".join(f"| {line}\n" for line in text.split("\n"))
    return f"{FENCE}{label}\n{lines}{FENCE}"
