"""JavaScript names of Python names, and names that are not possible."""

import re
from typing import Final

RESERVED_NAMESPACES: Final = frozenset({"peek", "getByIds", "publish", "withItem", "item"})
"""Members of `ctx` itself."""

_MEANINGFUL: Final = frozenset({"then", "toJSON", "toString", "valueOf", "constructor", "__proto__"})
"""Names that JavaScript itself looks up: `await ctx.sheets` would call `then`."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def camel_case(name: str) -> str:
    """Return `appendRow` for `append_row`, and `from` for `from_`, whose underscore avoids a keyword."""
    first, *rest = [part for part in name.split("_") if part] or [""]
    return first + "".join(part[0].upper() + part[1:] for part in rest)


def problem_with_method(name: str) -> str:
    """The reason why a method cannot have this name in JavaScript; empty if it can."""
    if not _IDENTIFIER.fullmatch(name):
        return f"{name!r} is not a JavaScript identifier"
    if name in _MEANINGFUL:
        return f"{name!r} has a special meaning in JavaScript"
    return ""


def problem_with_namespace(name: str) -> str:
    """The reason why a connector cannot have this name; empty if it can."""
    if name in RESERVED_NAMESPACES:
        return f"{name!r} is a member of ctx itself"
    return problem_with_method(name)


def problem_with_parameter(name: str, python_name: str) -> str:
    """The reason why a parameter cannot have this name; empty if it can."""
    if python_name.startswith("_"):
        return f"{python_name!r} starts with an underscore"
    return "" if _IDENTIFIER.fullmatch(name) else f"{name!r} is not a JavaScript identifier"
