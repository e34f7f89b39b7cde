"""Patterns of paths: `*` is any part of a name, `?` one character of it, `**` as a whole part any folders. Pure."""

import re
from collections.abc import Sequence
from typing import Final

_WILD: Final = re.compile(r"\*|\?")


def problem_with_pattern(pattern: str) -> str:
    """The reason why a pattern cannot be used, and what to write instead; empty if it can."""
    parts = pattern.split("/")
    if pattern.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "is not a path below the root; write it like `reports/*.txt`"
    if any("**" in part and part != "**" for part in parts):
        return "has ** inside a name; write `**/*.txt` for files in all folders"
    if "[" in pattern:
        return "has a bracket, which has no meaning here; write one pattern for each case"
    return ""


class PathPatterns:
    """Patterns of which one has to match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._expressions = [re.compile(_expression(pattern), re.DOTALL) for pattern in patterns]

    def match(self, path: str) -> bool:
        """True if one of them matches the whole path."""
        return any(each.fullmatch(path) for each in self._expressions)


def _expression(pattern: str) -> str:
    *folders, last = pattern.split("/")
    before = "".join("(?:[^/]+/)*" if part == "**" else f"{_part(part)}/" for part in folders)
    return before + ("(?:[^/]+/)*[^/]+" if last == "**" else _part(last))


def _part(part: str) -> str:
    wild = {"*": "[^/]*", "?": "[^/]"}
    spans = re.split(_WILD, part)
    marks = [wild[mark] for mark in _WILD.findall(part)]
    return "".join(re.escape(span) + mark for span, mark in zip(spans, [*marks, ""], strict=True))
