"""Static checks of the handlers: what a phase must not do, what follows a mutation, what is shared that must not be.

They read a syntax tree and know no types: they miss what is hidden (an alias of `ctx`, a computed name) and are never
the law. Which methods change the world is said by the host; without that, a method's verb is taken at its word.
"""

import re
from collections.abc import Mapping
from typing import Final

from keep_sandbox.declaration import Code, Declaration, Problem, Use
from keep_sandbox.handlers import Handler, find_handlers
from keep_sandbox.invocation import MethodKind
from keep_sandbox.syntax import FUNCTIONS, Node, Tree, string_of

_READING: Final = re.compile(
    r"(get|list|search|find|fetch|read|query|lookup|count|exists|check|describe|show|view|load|download|scan|preview"
    r"|export|history|status|is|has)(?![a-z])"
)
_CHANGING: Final = re.compile(
    r"(send|create|update|delete|remove|append|add|insert|post|put|patch|set|write|move|archive|mark|reply|forward"
    r"|upload|cancel|upsert|label|star|trash|invite|share|save|submit|pay|refund|book|close|assign|comment|merge"
    r"|publish|push|replace|rename|restore|schedule|start|stop|sync|transfer|clear|draft|edit|execute|enable|disable)"
    r"(?![a-z])"
)
_TOPIC_CALLS: Final = {"peek", "getByIds", "publish", "withItem"}
_ALLOWED: Final = {
    "producers": {"read", "publish"},
    "prepare": {"read", "peek", "getByIds"},
    "mutate": {"read", "mutation"},
    "next": {"publish"},
    "jobs": {"read", "publish", "withItem", "mutation"},
}
_WHERE: Final = {
    "read": "producers, `prepare` and jobs",
    "mutation": "`mutate`, or inside `ctx.withItem` in a job",
    "publish": "producers, `next` and jobs",
    "peek": "`prepare`",
    "getByIds": "`prepare`",
    "withItem": "jobs",
}
_ABSENT_GLOBALS: Final = {
    "require", "process", "fetch", "setTimeout", "setInterval", "setImmediate", "XMLHttpRequest", "WebSocket",
    "Buffer", "window", "document", "localStorage", "performance", "SharedArrayBuffer", "Atomics", "WeakRef",
    "FinalizationRegistry",
}  # fmt: skip
_CHANGING_METHODS: Final = {
    "push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "set", "add", "delete", "clear",
}  # fmt: skip
_SEQUENCES: Final = ("statement_block", "switch_case", "switch_default", "array", "arguments")
_LOOPS: Final = ("for_statement", "for_in_statement", "while_statement", "do_statement")


def used_methods(tree: Tree) -> list[Use]:
    """The connector methods that the handlers name, each where it is named first."""
    found: dict[str, Use] = {}
    for handler in find_handlers(tree):
        for node, names in handler.uses():
            if len(names) >= 2 and names[0] not in _TOPIC_CALLS and names[0] != "item":
                name = ".".join(names[:2])
                found.setdefault(name, Use(name=name, place=node.place, handler=handler.address))
    return [found[name] for name in sorted(found)]


def check(tree: Tree, declaration: Declaration | None, methods: Mapping[str, MethodKind] | None) -> list[Problem]:
    """Everything that can be seen without running the script."""
    problems: list[Problem] = []
    for handler in find_handlers(tree):
        _check_calls(handler, declaration, methods, problems)
    _check_top_level(tree, problems)
    _check_names(tree, problems)
    return problems


def kind_of_call(names: list[str], phase: str, methods: Mapping[str, MethodKind] | None) -> str | None:
    """What a call on `ctx` is: one of the topic calls, `read`, `mutation`, or None when nobody can say."""
    if len(names) == 1 or names[0] == "item":
        return names[0] if names[0] in _TOPIC_CALLS else None
    full = ".".join(names[:2])
    if methods is not None and full in methods:
        return methods[full]
    if _READING.match(names[1]):
        return "read"
    # In `mutate` there is nothing else to call a connector for.
    if phase == "mutate" or _CHANGING.match(names[1]):
        return "mutation"
    return None


def _check_calls(
    handler: Handler,
    declaration: Declaration | None,
    methods: Mapping[str, MethodKind] | None,
    problems: list[Problem],
) -> None:
    mutations: list[Node] = []
    for call, names in handler.uses():
        kind = kind_of_call(names, handler.phase, methods)
        # A mutation is not even to be named where it may not be called; to name anything else does nothing.
        if kind is None or (call.kind != "call_expression" and kind != "mutation"):
            continue
        shown = f"ctx.{'.'.join(names)}"
        if kind not in _ALLOWED[handler.phase] or (kind == "mutation" and not _may_mutate_here(handler, call)):
            code = Code.MUTATION_MISPLACED if kind == "mutation" else Code.CALL_MISPLACED
            what = "changes something outside" if kind == "mutation" else f"is a {kind} call"
            message = f"`{shown}` {what}, which {handler.address} may not do here"
            hint = f"move it: this belongs into {_WHERE[kind]}"
            problems.append(_problem(code, message, hint, call, handler))
        elif kind == "mutation" and handler.phase == "mutate" and call.kind == "call_expression":
            mutations.append(call)
        elif kind in ("publish", "peek", "getByIds") and declaration is not None:
            _check_topic(handler, kind, call, declaration, problems)
    reported: set[int] = set()
    for call in mutations:
        after = _code_after(call)
        if after is not None and id(after) not in reported:
            reported.add(id(after))
            message = "code after the mutation: the mutation ends the script, so this never runs"
            hint = "the mutation is the last thing `mutate` does; what follows from it belongs into `next`"
            problems.append(_problem(Code.CODE_AFTER_MUTATION, message, hint, after, handler))


def _may_mutate_here(handler: Handler, call: Node) -> bool:
    if handler.phase != "jobs":
        return True
    for node in call.ancestors():
        if node.kind == "call_expression":
            callee = node.get("function")
            if callee is not None and callee.text.endswith("withItem"):
                return True
    return False


def _check_topic(handler: Handler, kind: str, call: Node, declaration: Declaration, problems: list[Problem]) -> None:
    arguments = call.get("arguments")
    literal = arguments.children[0] if arguments is not None and arguments.children else None
    topic = string_of(literal)
    if literal is None or topic is None:
        return
    group, name = handler.group, handler.name
    entry = declaration.consumers.get(name) if group == "consumers" else getattr(declaration, group).get(name)
    if topic not in declaration.topics:
        message = f"the topic {topic!r} is not declared"
        problems.append(_problem(Code.TOPIC_UNKNOWN, message, "add it to `topics`", literal, handler))
    elif kind == "publish" and entry is not None and entry.publishes is not None and topic not in entry.publishes:
        hint = "add it there, or publish elsewhere"
        message = f"the topic {topic!r} is not in the `publishes` of {group}.{name}"
        problems.append(_problem(Code.TOPIC_NOT_PUBLISHED, message, hint, literal, handler))
    elif kind != "publish" and group == "consumers" and entry is not None and topic not in entry.subscribe:
        message = f"{group}.{name} does not subscribe to {topic!r}"
        problems.append(_problem(Code.TOPIC_NOT_SUBSCRIBED, message, "add it to `subscribe`", literal, handler))


def _code_after(call: Node) -> Node | None:
    """The first code that would run after this call, inside its function."""
    node = call
    for around in call.ancestors():
        if around.kind in FUNCTIONS:
            return None
        # `.then(...)` on the mutation, or a loop that would come round to it again.
        if around.kind == "member_expression" or around.kind in _LOOPS:
            return around
        if around.kind == "try_statement" and node.field == "body":
            return next((child for child in around.children if child.kind in ("catch_clause", "finally_clause")), None)
        after = node.following() if around.kind in _SEQUENCES else None
        if after is not None and after.kind == "return_statement" and not after.children:
            return None
        if after is not None and after.kind != "break_statement":
            return after
        node = around
    return None


def _check_top_level(tree: Tree, problems: list[Problem]) -> None:
    constants: set[str] = set()
    hint = "handlers share nothing: keep it in the returned state, or pass it through a topic"
    for statement in tree.root.children:
        if statement.kind == "export_statement":
            statement = statement.get("declaration") or statement
        if statement.kind not in ("lexical_declaration", "variable_declaration"):
            continue
        fixed = statement.text.startswith("const")
        for declarator in statement.children:
            name = declarator.get("name")
            if declarator.kind != "variable_declarator" or name is None:
                continue
            if fixed:
                constants.add(name.text)
            else:
                message = f"`{name.text[:80]}` is a variable at the top level: it does not survive a handler"
                problems.append(_problem(Code.TOP_LEVEL_STATE, message, hint, declarator))
    for node in tree.root.within():
        name_node = _changed(node)
        if name_node is None or name_node.text not in constants:
            continue
        if any(around.kind in FUNCTIONS for around in node.ancestors()):
            message = f"`{name_node.text[:80]}` is changed by a handler: the change does not survive it"
            problems.append(_problem(Code.TOP_LEVEL_STATE, message, hint, node))


def _changed(node: Node) -> Node | None:
    """The variable whose content an expression changes: `x.y = 1`, `x[0]++`, `x.push(1)`."""
    if node.kind in ("assignment_expression", "augmented_assignment_expression"):
        target = node.get("left")
    elif node.kind == "update_expression":
        target = node.get("argument")
    elif node.kind == "call_expression":
        target = node.get("function")
        last = target.get("property") if target is not None else None
        if last is None or last.text not in _CHANGING_METHODS:
            return None
    else:
        return None
    if target is None or target.kind not in ("member_expression", "subscript_expression"):
        return None
    while target.kind in ("member_expression", "subscript_expression"):
        inner = target.get("object")
        if inner is None:
            return None
        target = inner
    return target if target.kind == "identifier" else None


def _check_names(tree: Tree, problems: list[Problem]) -> None:
    own = {
        node.text
        for node in tree.root.within()
        if node.kind == "identifier" and node.field == "name" and node.parent is not None
    }
    for node in tree.root.within():
        if node.kind in ("call_expression", "new_expression"):
            callee = node.get("function") or node.get("constructor")
            if callee is not None and callee.kind == "import":
                hint = "a script is one file: write what is needed into it"
                problems.append(_problem(Code.DYNAMIC_CODE, "`import` finds nothing here", hint, node))
            elif callee is not None and callee.text in ("eval", "Function"):
                hint = "write the code itself"
                problems.append(_problem(Code.DYNAMIC_CODE, f"`{callee.text}` does not exist here", hint, node))
        if node.kind == "import_statement":
            hint = "a script is one file: write what is needed into it"
            problems.append(_problem(Code.DYNAMIC_CODE, "there is nothing to import here", hint, node))
        if node.kind == "identifier" and node.text in _ABSENT_GLOBALS and node.text not in own:
            hint = "the world is reached through `ctx` alone"
            problems.append(_problem(Code.GLOBAL_UNKNOWN, f"`{node.text}` does not exist here", hint, node))


def _problem(code: Code, message: str, hint: str, node: Node, handler: Handler | None = None) -> Problem:
    address = handler.address if handler is not None else None
    return Problem(code=code, message=message[:500], hint=hint, place=node.place, handler=address)
