"""Who waits for the promise of a call: an `await`, a `return`, or nobody.

Followed from the call outwards: through parentheses, branches, `.then`, lists and `Promise.all`, out of the functions
that return it. Where it is kept in a variable or handed to a function that is not known, somebody may wait.
"""

import enum
from typing import Final, TypeAlias

from keep_sandbox.syntax import FUNCTIONS, Node

_LISTS: Final = ("array", "spread_element")
_THROUGH: Final = ("parenthesized_expression", "sequence_expression", "unary_expression", *_LISTS)
"""What is around the promise has it, or is dropped with it."""
_BRANCHES: Final = {"ternary_expression": ("consequence", "alternative"), "binary_expression": ("right",)}
_CHAINING: Final = ("then", "catch", "finally")
_GATHERING: Final = ("Promise.all", "Promise.allSettled", "Promise.resolve")
_FOR_ONE: Final = ("Promise.race", "Promise.any")
_LISTING: Final = ("map", "flatMap")
"""Methods that give back a list of what the function they are given returns."""


class Dropped(enum.StrEnum):
    """How a promise is lost."""

    BARE = "bare"
    FOR_EACH = "forEach"
    FOR_ONE = "race"
    LIST = "list"
    """Somebody waits for the list that it is in, and not for what is in the list."""


_At: TypeAlias = tuple[Node, bool]


def dropped(call: Node, handler: Node) -> Dropped | None:
    """How the promise of this call is lost; None if somebody waits for it, or may. `handler` is awaited by the host."""
    at: _At | Dropped | None = (call, False)
    while isinstance(at, tuple):
        at = _outwards(*at, handler)
    return at


def _outwards(node: Node, in_list: bool, handler: Node) -> _At | Dropped | None:
    """What has the promise next, and whether in a list; or how it is lost; or None."""
    around = node.parent
    if around is None:
        return None
    if around.kind in ("await_expression", "return_statement") or _is_body(node):
        if in_list:
            return Dropped.LIST if around.kind == "await_expression" else None
        # From here on it is for the function around it to be waited for.
        function = _function(around)
        return None if function is None or function is handler else _use(function)
    if around.kind == "expression_statement":
        function = _function(around)
        is_each = function is not None and _use(function) is Dropped.FOR_EACH
        return Dropped.FOR_EACH if is_each else Dropped.BARE
    if around.kind in ("arguments", "member_expression") and around.parent is not None:
        return _called(around, in_list)
    if around.kind in _THROUGH or node.field in _BRANCHES.get(around.kind, ()):
        return around, in_list or around.kind in _LISTS
    return None


def _called(part: Node, in_list: bool) -> _At | Dropped | None:
    """The promise is given to a call, or one of its methods is called."""
    call = part.parent
    assert call is not None, "whoever asks has looked"
    if part.kind == "member_expression":
        return (call, in_list) if _method(call) in _CHAINING else None
    callee = call.get("function")
    name = callee.text if callee is not None and callee.kind == "member_expression" else ""
    if name in _FOR_ONE:
        return Dropped.FOR_ONE
    return (call, False) if name in _GATHERING else None


def _is_body(node: Node) -> bool:
    """`() => promise`."""
    return node.field == "body" and node.parent is not None and node.parent.kind == "arrow_function"


def _function(node: Node) -> Node | None:
    """The function that this is in, or that it is."""
    return node if node.kind in FUNCTIONS else next((each for each in node.ancestors() if each.kind in FUNCTIONS), None)


def _use(function: Node) -> _At | Dropped | None:
    """The call that gives the promises of this function back, or how it drops them; None when nobody can say."""
    around = function.parent
    while around is not None and around.kind == "parenthesized_expression":
        function, around = around, around.parent
    if around is None or around.parent is None:
        return None
    if around.kind == "call_expression" and function.field == "function":
        return around, False  # `(async () => {...})()`
    method = _method(around.parent) if around.kind == "arguments" else ""
    if method == "forEach":
        return Dropped.FOR_EACH
    return (around.parent, method in _LISTING) if method in (*_LISTING, *_CHAINING) else None


def _method(call: Node) -> str:
    """The last name of what is called: `map` of `ids.map(...)`."""
    callee = call.get("function")
    name = callee.get("property") if callee is not None else None
    return name.text if name is not None else ""
