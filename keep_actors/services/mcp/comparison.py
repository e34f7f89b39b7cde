"""The difference between the tools that are granted and those that a server has now, as lines for a person. Pure.

Everything that comes from the server is quoted, with invisible characters spelled out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from keep_actors.services.mcp.granted import GrantedTool, folded, shown
from keep_actors.text.visible import cut, left_out, quoted

VALUE_CHARS_MAX: Final = 20_000
_PARTS: Final = ("title", "description", "annotations", "input_schema", "output_schema", "execution")


def differences(granted: Mapping[str, GrantedTool], listed: Mapping[str, GrantedTool]) -> list[str]:
    """A diff: `+` new, `-` gone, `~` changed. Empty if nothing has changed."""
    lines: list[str] = []
    for name in sorted({*granted, *listed}):
        before, after = granted.get(name), listed.get(name)
        if before is None and after is not None:
            lines += [f"+ {shown(name)}", *_looks_like(after, granted), *_whole(after)]
        elif after is None:
            lines.append(f"- {shown(name)}")
        elif before is not None and before.digest != after.digest:
            lines += [f"~ {shown(name)}", *_changed(before, after)]
    return lines


def _looks_like(tool: GrantedTool, granted: Mapping[str, GrantedTool]) -> Iterator[str]:
    for name in granted:
        if folded(name) == folded(tool.name):
            yield f"    ! looks like {shown(name)}"


def _whole(tool: GrantedTool) -> Iterator[str]:
    for part in _PARTS:
        value = getattr(tool, part)
        if value is not None:
            yield f"  + {part}: {_said(value)}"


def _changed(before: GrantedTool, after: GrantedTool) -> Iterator[str]:
    for part in _PARTS:
        old, new = getattr(before, part), getattr(after, part)
        if _canonical(old) != _canonical(new):
            for place, was, now in _places(part, old, new):
                if was is not None:
                    yield f"  - {place}: {_said(was)}"
                if now is not None:
                    yield f"  + {place}: {_said(now)}"


def _places(place: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            if _canonical(old.get(name)) != _canonical(new.get(name)):
                yield from _places(f"{place}.{shown(name)[1:-1]}", old.get(name), new.get(name))
    else:
        yield place, old, new


def _said(value: Any) -> str:
    most = VALUE_CHARS_MAX
    words, more = quoted(value, most) if isinstance(value, str) else cut(_canonical(value), most)
    return f"{words}{left_out(more)}" if more else words


def _canonical(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
