"""How a Python name is spelled in JavaScript, and which spellings cannot be had."""

import re
from typing import Final

RESERVED_NAMESPACES: Final = frozenset({"peek", "getByIds", "publish", "withItem", "item"})
"""What `ctx` has of its own."""

_MEANINGFUL: Final = frozenset({"then", "toJSON", "toString", "valueOf", "constructor", "__proto__"})
"""JavaScript looks for these by itself: `await ctx.sheets` would call `then`."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def camel_case(name: str) -> str:
    """`append_row` is `appendRow`; `from_`, which Python needs for its keyword, is `from`."""
    first, *rest = [part for part in name.split("_") if part] or [""]
    return first + "".join(part[0].upper() + part[1:] for part in rest)


def problem_with_method(name: str) -> str:
    """Why no method can be called this in JavaScript, or nothing."""
    if not _IDENTIFIER.fullmatch(name):
        return f"{name!r} is not a JavaScript identifier"
    if name in _MEANINGFUL:
        return f"{name!r} means something to JavaScript itself"
    return ""


def problem_with_namespace(name: str) -> str:
    """Why no connector can be called this, or nothing."""
    if name in RESERVED_NAMESPACES:
        return f"{name!r} is a part of ctx itself"
    return problem_with_method(name)


def problem_with_parameter(name: str, python_name: str) -> str:
    """Why no parameter can be called this, or nothing."""
    if python_name.startswith("_"):
        return f"{python_name!r} starts with an underscore"
    return "" if _IDENTIFIER.fullmatch(name) else f"{name!r} is not a JavaScript identifier"
