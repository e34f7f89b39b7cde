"""Find the code that would run after a call, inside its function: control flow in a syntax tree.

Branches exclude each other, and code below a `return`, `throw` or `break` is not reached. Conditions are not evaluated:
two that cannot both be true count as independent.
"""

import itertools
from collections.abc import Iterable, Iterator, Set
from typing import Final

from keep_sandbox.syntax import FUNCTIONS, Node

LOOPS: Final = ("for_statement", "for_in_statement", "while_statement", "do_statement")
_REPEATING: Final = ("every", "filter", "find", "findIndex", "flatMap", "forEach", "map", "reduce", "some")
"""Methods that call their argument for each element of a list."""
_BLOCKS: Final = ("statement_block", "switch_case", "switch_default", "switch_body")
_LISTS: Final = ("array", "arguments")
_IN_ORDER: Final = (
    "binary_expression", "lexical_declaration", "object", "pair", "sequence_expression", "template_string",
    "variable_declaration",
)  # fmt: skip
"""Nodes whose parts are evaluated in order. Only calls in the later parts are reported."""
_BRANCHING: Final = {"if_statement": "condition", "ternary_expression": "condition", "switch_statement": "value"}
"""The part that is evaluated before the branches."""
_CHOICES: Final = ("binary_expression", "ternary_expression")
_INERT: Final = ("function_declaration", "generator_function_declaration")
_RETURN: Final = ("return", "")


def holding(calls: Iterable[Node]) -> Set[int]:
    """The ids of these calls and of all nodes around them."""
    found: set[int] = set()
    for call in calls:
        found.add(id(call))
        for around in call.ancestors():
            if id(around) in found:
                break
            found.add(id(around))
    return found


def is_loop(node: Node) -> bool:
    """Return True for a loop, or a call that repeats its argument, such as `all.map(...)`."""
    callee = node.get("function") if node.kind == "call_expression" else None
    method = callee.get("property") if callee is not None else None
    return node.kind in LOOPS or (method is not None and method.text in _REPEATING)


def code_after(call: Node, calls: Set[int], made: Set[int]) -> Node | None:
    """The first code that would run after this call, inside its function, or that would make the call again.

    `made` are the ids of all such calls, `calls` those of the calls and of the nodes around them.
    """
    node = call
    # How control leaves the statements around the call: `return`, or `break` or `continue` with a label, or not at all.
    leaving: tuple[str, str] | None = None
    for around in call.ancestors():
        after: Node | None = None
        if around.kind in FUNCTIONS or id(around) in made:
            # The end of the function, or another call that has this one in its arguments.
            return around if id(around) in made else _repeats(around)
        if around.kind in ("return_statement", "throw_statement"):
            leaving = _RETURN
        elif around.kind == "try_statement":
            after = _after_try(around, node)
        elif around.kind in LOOPS:
            if leaving is None or leaving in (("continue", ""), ("continue", _label(around))):
                return around
            leaving = None if leaving == ("break", "") else leaving
        elif leaving is not None:
            ends_here = around.kind == "labeled_statement" and leaving == ("break", _label(node))
            ends_here = ends_here or (around.kind == "switch_statement" and leaving == ("break", ""))
            leaving = None if ends_here else leaving
        elif around.kind in _BLOCKS:
            after, leaving = _after_statement(around, node)
        else:
            after = _after_part(around, node, calls, call)
        if after is not None:
            return after
        node = around
    return None


def _repeats(function: Node) -> Node | None:
    """The call that has this function as its argument, if it repeats it."""
    call = function.parent.parent if function.parent is not None and function.parent.kind == "arguments" else None
    return call if call is not None and is_loop(call) else None


def _after_part(around: Node, node: Node, calls: Set[int], call: Node) -> Node | None:
    """The code after a part of an expression, or of the head of a statement. The call is in that part."""
    if around.kind == "member_expression":
        # `.then(...)` on the call.
        return around
    if around.kind in _LISTS:
        return next(node.later(), None)
    if around.kind in _IN_ORDER or (around.kind in _BRANCHING and _BRANCHING[around.kind] == node.field):
        is_maybe = around.kind == "binary_expression" and _operator(around, node).startswith(("||", "??"))
        # `(yes && a()) || b()`: the second call is for the case that the first was not made.
        is_maybe = is_maybe and _is_conditional(call, node)
        return None if is_maybe else next((each for each in node.later() if id(each) in calls), None)
    return None


def _after_statement(around: Node, node: Node) -> tuple[Node | None, tuple[str, str] | None]:
    """The next statement; or, if that is only a jump, the way it leaves."""
    for statement in _statements(around, node):
        if statement.kind in ("break_statement", "continue_statement"):
            label = statement.get("label")
            return None, (statement.kind.partition("_")[0], label.text if label is not None else "")
        if statement.kind == "return_statement" and not statement.children:
            return None, _RETURN
        if statement.kind not in _INERT:
            return statement, None
    return None, None


def _statements(around: Node, node: Node) -> Iterator[Node]:
    """The statements after this one; for a `case`, those of the cases that it falls through to."""
    if around.kind != "switch_body":
        return node.later()
    return (part for case in node.later() for part in case.children if part.field == "body")


def _after_try(around: Node, node: Node) -> Node | None:
    """The clause that runs next: `catch` or `finally` after the body of a `try`, `finally` after its `catch`."""
    sought = {"body": ("handler", "finalizer"), "handler": ("finalizer",)}.get(node.field or "", ())
    return next((child for child in around.children if child.field in sought and not _is_empty(child)), None)


def _is_empty(clause: Node) -> bool:
    """Return True for an empty `finally`. An empty `catch` does count: control goes on below the `try`."""
    inside = (each for part in clause.children for each in part.children)
    return clause.field == "finalizer" and all(each.kind in ("comment", "empty_statement") for each in inside)


def _is_conditional(call: Node, part: Node) -> bool:
    """Return True if this part of an expression can be evaluated without making the call in it."""
    inside = itertools.takewhile(lambda each: each is not part, call.ancestors())
    return any(each.kind in _CHOICES for each in (*inside, part) if each is not call)


def _operator(around: Node, left: Node) -> str:
    return around.text[len(left.text) :].lstrip()


def _label(statement: Node) -> str:
    """The label of a statement; empty if it has none."""
    around = statement.parent
    label = around.get("label") if around is not None and around.kind == "labeled_statement" else None
    return label.text if label is not None else ""
