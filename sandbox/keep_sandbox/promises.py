"""Find promises that are not awaited.

A promise is followed from its call outwards: through parentheses, branches, `.then`, lists and `Promise.all`, out of
functions that return it, and to the uses of the variable that holds it or of the function's name. A promise that is
passed to an unknown function counts as awaited.
"""

import enum
from typing import Final, NamedTuple, TypeAlias

from keep_sandbox.syntax import FUNCTIONS, Node

_LISTS: Final = ("array", "spread_element")
_THROUGH: Final = ("parenthesized_expression", "sequence_expression", "unary_expression", *_LISTS)
"""Nodes whose value is, or contains, the promise inside them."""
_BRANCHES: Final = {"ternary_expression": ("consequence", "alternative"), "binary_expression": ("right",)}
_CHAINING: Final = ("then", "catch", "finally")
_GATHERING: Final = ("Promise.all", "Promise.allSettled", "Promise.resolve")
_FOR_ONE: Final = ("Promise.race", "Promise.any")
_LISTING: Final = ("map", "flatMap")
"""Methods that return a list of the results of their argument."""
_TESTING: Final = ("filter", "some", "every", "find", "findIndex")
"""Methods that take a promise as true, and drop it."""
_NAMES: Final = ("identifier", "shorthand_property_identifier")


class Dropped(enum.StrEnum):
    """The way in which a promise is lost."""

    BARE = "bare"
    FOR_EACH = "forEach"
    FOR_ONE = "race"
    LIST = "list"
    """The list is awaited instead of the promises in it."""


class _At(NamedTuple):
    """The expression that has the promise now; `in_list` if its value is a list of promises."""

    node: Node
    in_list: bool = False


class _Kept(NamedTuple):
    """The name of a variable that holds the promise, or of a function that returns it."""

    name: Node
    in_list: bool = False
    is_function: bool = False


_Next: TypeAlias = _At | _Kept | Dropped | None


def dropped(call: Node, handler: Node) -> Dropped | None:
    """The way in which the promise of this call is lost; None if it is or may be awaited. The host awaits `handler`."""
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
        # Each call of the function makes another promise.
        return next((each for each in lost if each is not None), None)
    return None if None in lost else next(iter(lost), Dropped.BARE)


def _uses(name: Node, handler: Node) -> list[Node]:
    """The uses of a name inside the function that declares it."""
    declaration = name.parent
    assert declaration is not None, "a name is declared by something"
    scope = next((each for each in declaration.ancestors() if each.kind in FUNCTIONS), handler)
    return [each for each in scope.within() if each.kind in _NAMES and each.text == name.text and each is not name]


def _outwards(node: Node, in_list: bool, handler: Node) -> _Next:
    """The next holder of the promise; or the way it is lost; or None if it is or may be awaited."""
    around = node.parent
    if around is None:
        return None
    if around.kind in ("await_expression", "return_statement") or _is_body(node):
        function = _function(around)
        if in_list:
            return Dropped.LIST if around.kind == "await_expression" or function is handler else None
        # The function's own promise has to be awaited now.
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
    """The variable that is declared with it; None if it is held in another way."""
    name = around.get("name") if around.kind == "variable_declarator" else None
    return _Kept(name, in_list, is_function) if name is not None and name.kind == "identifier" else None


def _called(part: Node, in_list: bool) -> _Next:
    """Follow a promise that is an argument of a call, or whose method is called."""
    call = part.parent
    assert call is not None, "checked by the caller"
    if part.kind == "member_expression":
        return _At(call, in_list) if _method(call) in _CHAINING else None
    callee = call.get("function")
    name = callee.text if callee is not None and callee.kind == "member_expression" else ""
    if name in _FOR_ONE:
        return Dropped.FOR_ONE
    return _At(call) if name in _GATHERING else None


def _is_body(node: Node) -> bool:
    """Return True for the body of `() => promise`."""
    return node.field == "body" and node.parent is not None and node.parent.kind == "arrow_function"


def _function(node: Node) -> Node | None:
    """The function around this node, or the node itself."""
    return node if node.kind in FUNCTIONS else next((each for each in node.ancestors() if each.kind in FUNCTIONS), None)


def _use(function: Node) -> _Next:
    """The call that returns the promises of this function, or the way it drops them; None if unknown.

    `function` is the function itself, or a use of its name.
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
    """The name of the called method: `map` of `ids.map(...)`."""
    callee = call.get("function")
    name = callee.get("property") if callee is not None else None
    return name.text if name is not None else ""
