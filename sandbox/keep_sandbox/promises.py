"""Who waits for the promise of a call: an `await`, a `return`, or nobody.

Followed from the call outwards: through parentheses, branches, `.then`, lists and `Promise.all`, out of the functions
that return it, and to wherever the variable that it is kept in, or the function's name, is used. Where it is handed to
a function that is not known, somebody may wait.
"""

import enum
from typing import Final, NamedTuple, TypeAlias

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
_TESTING: Final = ("filter", "some", "every", "find", "findIndex")
"""Methods that take a promise for a yes, and drop it."""
_NAMES: Final = ("identifier", "shorthand_property_identifier")


class Dropped(enum.StrEnum):
    """How a promise is lost."""

    BARE = "bare"
    FOR_EACH = "forEach"
    FOR_ONE = "race"
    LIST = "list"
    """Somebody waits for the list that it is in, and not for what is in the list."""


class _At(NamedTuple):
    """What has the promise now, and whether in a list."""

    node: Node
    in_list: bool = False


class _Kept(NamedTuple):
    """The name by which it goes on: of a variable that has it, or of a function that gives it back."""

    name: Node
    in_list: bool = False
    is_function: bool = False


_Next: TypeAlias = _At | _Kept | Dropped | None


def dropped(call: Node, handler: Node) -> Dropped | None:
    """How the promise of this call is lost; None if somebody waits for it, or may. `handler` is awaited by the host."""
    return _lost(_At(call), handler, set())


def _lost(at: _Next, handler: Node, seen: set[int]) -> Dropped | None:
    while isinstance(at, _At):
        at = _outwards(*at, handler)
    if not isinstance(at, _Kept):
        return at
    if id(at.name) in seen:
        return None
    seen.add(id(at.name))
    uses = [_At(each, at.in_list) if not at.is_function else _use(each) for each in _uses(at.name, handler)]
    lost = [_lost(each, handler, seen) for each in uses]
    if at.is_function:
        # Each call of it makes a promise of its own.
        return next((each for each in lost if each is not None), None)
    return None if None in lost else next(iter(lost), Dropped.BARE)


def _uses(name: Node, handler: Node) -> list[Node]:
    """Where a name is used, inside the function that it is declared in."""
    declaration = name.parent
    assert declaration is not None, "a name is declared by something"
    scope = next((each for each in declaration.ancestors() if each.kind in FUNCTIONS), handler)
    return [each for each in scope.within() if each.kind in _NAMES and each.text == name.text and each is not name]


def _outwards(node: Node, in_list: bool, handler: Node) -> _Next:
    """What has the promise next; or how it is lost; or None."""
    around = node.parent
    if around is None:
        return None
    if around.kind in ("await_expression", "return_statement") or _is_body(node):
        function = _function(around)
        if in_list:
            return Dropped.LIST if around.kind == "await_expression" or function is handler else None
        # From here on it is for the function around it to be waited for.
        return None if function is None or function is handler else _use(function)
    if around.kind == "expression_statement":
        function = _function(around)
        is_each = function is not None and _use(function) is Dropped.FOR_EACH
        return Dropped.FOR_EACH if is_each else Dropped.BARE
    if around.kind in ("arguments", "member_expression") and around.parent is not None:
        return _called(around, in_list)
    if around.kind in _THROUGH or node.field in _BRANCHES.get(around.kind, ()):
        return _At(around, in_list or around.kind in _LISTS)
    return _kept(around, in_list=in_list)


def _kept(around: Node, *, in_list: bool = False, is_function: bool = False) -> _Kept | None:
    """The variable that is declared with it; None if it is kept in another way."""
    name = around.get("name") if around.kind == "variable_declarator" else None
    return _Kept(name, in_list, is_function) if name is not None and name.kind == "identifier" else None


def _called(part: Node, in_list: bool) -> _Next:
    """The promise is given to a call, or one of its methods is called."""
    call = part.parent
    assert call is not None, "whoever asks has looked"
    if part.kind == "member_expression":
        return _At(call, in_list) if _method(call) in _CHAINING else None
    callee = call.get("function")
    name = callee.text if callee is not None and callee.kind == "member_expression" else ""
    if name in _FOR_ONE:
        return Dropped.FOR_ONE
    return _At(call) if name in _GATHERING else None


def _is_body(node: Node) -> bool:
    """`() => promise`."""
    return node.field == "body" and node.parent is not None and node.parent.kind == "arrow_function"


def _function(node: Node) -> Node | None:
    """The function that this is in, or that it is."""
    return node if node.kind in FUNCTIONS else next((each for each in node.ancestors() if each.kind in FUNCTIONS), None)


def _use(function: Node) -> _Next:
    """The call that gives the promises of this function back, or how it drops them; None when nobody can say.

    `function` is the function itself, or its name where that is used.
    """
    around = function.parent
    while around is not None and around.kind == "parenthesized_expression":
        function, around = around, around.parent
    if around is None or around.parent is None:
        return None
    if around.kind == "call_expression" and function.field == "function":
        return _At(around)  # `(async () => {...})()`
    method = _method(around.parent) if around.kind == "arguments" else ""
    if method == "forEach":
        return Dropped.FOR_EACH
    if method in _TESTING:
        return Dropped.BARE
    if method in (*_LISTING, *_CHAINING):
        return _At(around.parent, method in _LISTING)
    name = function.get("name") if function.kind == "function_declaration" else None
    return _Kept(name, is_function=True) if name is not None else _kept(around, is_function=True)


def _method(call: Node) -> str:
    """The last name of what is called: `map` of `ids.map(...)`."""
    callee = call.get("function")
    name = callee.get("property") if callee is not None else None
    return name.text if name is not None else ""
