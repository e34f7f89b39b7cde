"""Explain why a script did not load: the place, and a hint for an author who may have written another dialect."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from keep_sandbox.declaration import Code, Path, Problem
from keep_sandbox.outcomes import InvocationEnd, Place, ScriptError
from keep_sandbox.syntax import Node, Tree

_TYPE: Final = r"(?:string|number|boolean|any|unknown|void|never|object|Promise|Record|Array|[A-Z]\w*)"
_TYPESCRIPT: Final = re.compile(
    rf"^\s*(?:export\s+)?(?:interface|type|enum|declare|namespace|abstract)\s+\w"
    rf"|[\w)\]}}]\??\s*:\s*{_TYPE}\b(?:\[\]|<[^>]*>)*\s*(?:[,)=;{{|&]|=>|$)"
    rf"|\b(?:as|satisfies)\s+(?:const\b|{_TYPE})"
    rf"|\b(?:private|public|protected|readonly)\s+\w"
    rf"|<{_TYPE}>|\w!\s*[.;,)]"
)
_LINE_CHARS_MAX: Final = 2_000
"""Only the beginning of a longer line is searched: the patterns are for hand-written code."""

_NODE_EXPORTS: Final = ("module is not defined", "exports is not defined")
_TOP: Final = Place(1, 1)
_EXPORT: Final = "write `export default Keep.workflow({name, topics, producers, consumers, jobs})`"


def load_problem(
    ending: InvocationEnd, tree: Tree, parts: Mapping[Path, Node], others: Sequence[Problem]
) -> list[Problem]:
    """The problem that kept the script from loading; none if one of the others explains it better."""
    place: Place | None = getattr(ending, "place", None)
    if not isinstance(ending, ScriptError):
        message = f"loading the script ended with {type(ending).__name__}"
        hint = "at the top level a script only declares: move work into handlers"
        return [Problem(code=Code.LOAD_ERROR, message=message, hint=hint, place=place or _TOP)]
    if any(each.place == place or (place is None and each.code is Code.DYNAMIC_CODE) for each in others):
        return []
    place = place or (parts[()].place if () in parts else _TOP)
    message = f"{ending.name}: {ending.message}"
    return [Problem(code=Code.LOAD_ERROR, message=message, hint=_hint(ending, tree, place), place=place)]


def _hint(error: ScriptError, tree: Tree, place: Place) -> str:
    lines = tree.source.decode("utf-8", "replace").split("\n")
    line = lines[place.line - 1][:_LINE_CHARS_MAX] if place.line <= len(lines) else ""
    if (
        error.name == "LoadError"
        or "module is not defined" in error.message
        or "exports is not defined" in error.message
    ):
        return _EXPORT
    if error.name != "SyntaxError" or not tree.is_broken:
        return "at the top level a script only declares: move code that can fail into handlers"
    if _TYPESCRIPT.search(line):
        return "a script is JavaScript: leave out types, interfaces, enums and casts, and write JSDoc if you want types"
    return "this is not valid JavaScript: look for a missing bracket, comma or quote just before this place"
