"""Patterns of paths: `*` is any part of a name, `?` one character of it, `**` as a whole part any folders. Pure.

A path is compared in a time that grows with its length and that of the pattern, not with their power: a script chooses
the path, and the event loop waits.
"""

import re
from collections.abc import Sequence
from typing import Final

_FOLDERS: Final = "**"


def problem_with_pattern(pattern: str) -> str:
    """The reason why a pattern cannot be used, and what to write instead; empty if it can."""
    parts = pattern.split("/")
    if pattern.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "is not a path below the root; write it like `reports/*.txt`"
    if any(_FOLDERS in part and part != _FOLDERS for part in parts):
        return "has ** inside a name; write `**/*.txt` for files in all folders"
    if "[" in pattern:
        return "has a bracket, which has no meaning here; write one pattern for each case"
    return ""


class PathPatterns:
    """Patterns of which one has to match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [_parts(pattern) for pattern in patterns]

    def match(self, path: str) -> bool:
        """True if one of them matches the whole path."""
        names = path.split("/")
        return any(_is_match(parts, names) for parts in self._patterns)


def _parts(pattern: str) -> list[re.Pattern[str] | None]:
    """An expression for each name; None for any folders."""
    parts = pattern.split("/")
    # At the end, it has to be a file in them.
    named = [*parts, "*"] if parts[-1] == _FOLDERS else parts
    return [None if part == _FOLDERS else re.compile(_expression(part), re.DOTALL) for part in named]


def _is_match(parts: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    # The places in the names that the parts so far can end at.
    ends = {0}
    for part in parts:
        if part is None:
            ends = set(range(min(ends), len(names) + 1))
        else:
            ends = {end + 1 for end in ends if end < len(names) and part.fullmatch(names[end])}
        if not ends:
            return False
    return len(names) in ends


def _expression(part: str) -> str:
    """An expression that never goes back: each star takes as little as the text behind it allows."""
    first, *others = re.split(r"\*+", part)
    *middle, last = others or [""]
    words = [_plain(first), *(f"(?>.*?{_plain(each)})" for each in middle)]
    return "".join([*words, f".*{_plain(last)}"] if others else words)


def _plain(text: str) -> str:
    return ".".join(re.escape(each) for each in text.split("?"))
