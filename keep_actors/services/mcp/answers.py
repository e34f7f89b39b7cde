"""Values in the answer of a tool, found by a path, and arguments made of a call. Pure.

A path is `items[*].id`: names with dots between them, `[*]` for each value of a list. An answer without structure has
its text as `text`; if that is JSON, it is also read as such.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

_STEP: Final = re.compile(r"\.?(?P<name>[^.\[\]{}]+)|(?P<each>\[\*\])")
_PLACE: Final = re.compile(r"\{(key|params\.[^{}]+)\}")
EACH: Final = "[*]"


class Nowhere(Enum):
    """In the place of a value: the answer has no such place, and says nothing about what would be there."""

    NOWHERE = "nowhere"


NOWHERE: Final = Nowhere.NOWHERE


class ToolAnswer(msgspec.Struct, frozen=True):
    """The result of a tool that declares no schema."""

    text: str
    """All its texts, with line feeds between them."""
    data: Any = None
    """Its structured content, if it has one."""
    others: list[Any] = []
    """Content that is no text: images, links."""


class ParamLeftOut(ValueError):
    """A template needs a parameter that the call does not have."""


class PathUnusable(ValueError):
    """A path or a template cannot be read. The message says why."""


def steps(path: str) -> list[str]:
    """The steps of a path. Raises `PathUnusable`."""
    found: list[str] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or (at == 0 and path.startswith(".")):
            raise PathUnusable(f"{path!r} is no path; write names with dots, and [*] for each value of a list")
        found.append(step["name"] or EACH)
        at = step.end()
    return found


def values_at(value: Any, path: list[str]) -> Iterator[Any]:
    """All values at a path. None from a list that is empty, or below null; `NOWHERE` where a step cannot be taken."""
    if not path:
        yield value
        return
    first, *rest = path
    if first == EACH and isinstance(value, list):
        for each in value:
            yield from values_at(each, rest)
    elif isinstance(value, Mapping) and first in value:
        yield from values_at(value[first], rest)
    elif value is not None:
        yield NOWHERE


def places_in(template: Any) -> Iterator[str]:
    """The names in braces that a template has: `key`, `params.title`."""
    match template:
        case str():
            yield from _PLACE.findall(template)
        case Mapping():
            for each in template.values():
                yield from places_in(each)
        case list():
            for each in template:
                yield from places_in(each)


def filled(template: Any, key: str, params: Mapping[str, Any]) -> Any:
    """The template with the values of a call. A text that is only one place keeps the type of its value.

    Raises `ParamLeftOut`: null in its place would be found where others have left it out too.
    """
    match template:
        case str():
            if whole := _PLACE.fullmatch(template):
                return _value(whole[1], key, params)
            return _PLACE.sub(lambda place: _text(_value(place[1], key, params)), template)
        case Mapping():
            return {name: filled(each, key, params) for name, each in template.items()}
        case list():
            return [filled(each, key, params) for each in template]
    return template


def _value(place: str, key: str, params: Mapping[str, Any]) -> Any:
    value = key if place == "key" else params.get(place.removeprefix("params."))
    if value is None:
        raise ParamLeftOut(f"the call has no {place}")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def answer_of(content: list[Any], data: Any) -> ToolAnswer:
    """An answer, from the parts that a server sent, as plain JSON."""
    texts = [each["text"] for each in content if _is_text(each)]
    return ToolAnswer("\n".join(texts), data, [each for each in content if not _is_text(each)])


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def searchable(answer: ToolAnswer) -> Any:
    """The value in which a path is looked up."""
    if answer.data is not None:
        return answer.data
    try:
        found = msgspec.json.decode(answer.text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {"text": answer.text}
    return found if isinstance(found, (dict, list)) else {"text": answer.text}
