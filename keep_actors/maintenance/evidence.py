"""Make untrusted text fit for a person or a model: legible, bounded, and unable to end its own fence."""

from collections.abc import Sequence
from typing import Final

FENCE: Final = "````"


def legible(text: str, chars_max: int, *, keep: str = "\n\t") -> str:
    """The text with invisible characters spelled out (`\\x1b`, `\\u202e`), cut to `chars_max`."""
    if text.isprintable() and len(text) <= chars_max:
        return text
    shown = "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text[:chars_max]
    )
    return shown if len(text) <= chars_max and len(shown) <= chars_max else f"{shown[: chars_max - 1]}…"


def last_lines(lines: Sequence[str], count_max: int, line_chars_max: int) -> str:
    """The last lines, each made legible."""
    return "\n".join(legible(line, line_chars_max, keep="\t") for line in lines[-count_max:])


def fenced(label: str, text: str) -> str:
    """The text between fences, with a bar before each line: no line can be mistaken for the end of the fence."""
    lines = "".join(f"| {line}\n" for line in text.split("\n"))
    return f"{FENCE}{label}\n{lines}{FENCE}"
