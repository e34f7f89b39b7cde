"""Static checks of the handlers: calls that a phase must not make, code after a mutation, shared state.

The checks read a syntax tree without types. They miss what is hidden (an alias of `ctx`, a computed name), so the
runtime enforces every rule again. The host says which methods are mutations; otherwise the verb in the name decides.
"""

import re
from collections.abc import Mapping, Set
from typing import Final

from keep_sandbox.declaration import Code, Consumer, Declaration, Problem, Use, near
from keep_sandbox.handlers import HandlerCode, find_handlers
from keep_sandbox.invocation import MethodKind
from keep_sandbox.paths import code_after, holding, is_loop
from keep_sandbox.promises import Dropped, dropped
from keep_sandbox.syntax import FUNCTIONS, Node, Tree, key_of, string_of

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
_WHAT: Final = {
    "read": "reads",
    "publish": "publishes",
    "peek": "looks at events",
    "getByIds": "looks at events",
    "withItem": "opens an item",
}
_INSTEAD: Final = {
    "read": "read in `prepare`, in a producer or in a job, and pass on what is needed in `data`",
    "mutation": "mutations belong in `mutate` of a consumer, or in `ctx.withItem` of a job: move it there",
    "publish": "publish in a producer, in `next` or in a job",
    "peek": "look at events in `prepare`, and pass on what is needed in `data`",
    "getByIds": "look at events in `prepare`, and pass on what is needed in `data`",
    "withItem": "items are for jobs; a consumer reserves events and makes one call in `mutate`",
}
_INSTEAD_HERE: Final = {
    ("mutation", "producers"): "publish an event, and make the call in `mutate` of a consumer that subscribes to it",
    ("mutation", "jobs"): "put it into an item: `await ctx.withItem(id, title, async () => {...})`",
    ("mutation", "prepare"): "return what the call needs as `data`, and make the call in `mutate`",
    ("mutation", "next"): "publish an event here, and make the call in `mutate` of another consumer",
    ("publish", "prepare"): "return it as `data`, and publish in `next`",
    ("publish", "mutate"): "publish in `next`, which runs after the call",
}
"""Advice for the author, by kind of call and phase; it comes before `_INSTEAD`."""
_WAITING: Final = {
    Dropped.BARE: "write `await ctx.withItem(...)`, and `await` the call around it, if there is one",
    Dropped.FOR_EACH: "`forEach` does not wait: write `for (const each of all) { await ctx.withItem(...); }`",
    Dropped.FOR_ONE: "`Promise.race` and `Promise.any` wait for one item only: `await` each, or use `Promise.all`",
    Dropped.LIST: "to wait for a list of promises, write `await Promise.all(...)`",
}
assert set(_WAITING) == set(Dropped), "every way to lose a promise has its advice"
_NO_CTX: Final = "only `ctx` reaches anything outside the script"
_NO_NETWORK: Final = (
    "there is no network: call a connector, `ctx.<connector>.<method>({...})`, in a producer or `prepare`"
)
_NO_TIMERS: Final = "there are no timers: return `wakeAt` from `prepare`, or give a producer or job a `schedule`"
_ONE_FILE: Final = "a script is one file without modules: write what you need into it, and use `ctx` for the rest"
_ABSENT_GLOBALS: Final = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket"), _NO_NETWORK),
    **dict.fromkeys(("setTimeout", "setInterval", "setImmediate"), _NO_TIMERS),
    **dict.fromkeys(("window", "document", "performance"), _NO_CTX),
    **dict.fromkeys(("SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry"), "use plain values"),
    "require": _ONE_FILE,
    "process": "there is no environment: write settings as constants, or read them with a connector",
    "localStorage": "return what must be kept as the handler's state",
    "Buffer": "values are JSON: use strings",
}
_EVENT_FIELDS: Final = ("messageId", "title", "payload")
_RESULT_FIELDS: Final = ("reservations", "data", "ui", "wakeAt")
_CHANGING_METHODS: Final = {
    "push", "pop", "shift", "unshift", "splice", "sort", "reverse", "fill", "set", "add", "delete", "clear",
}  # fmt: skip


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
    """Find the problems that can be seen without running the script."""
    problems: list[Problem] = []
    for handler in find_handlers(tree):
        _check_calls(handler, declaration, methods, problems)
    _check_top_level(tree, problems)
    _check_names(tree, problems)
    return problems


def warnings(tree: Tree) -> list[Problem]:
    """Find code in the handlers that is probably wrong, but may be right."""
    found: list[Problem] = []
    for handler in find_handlers(tree):
        for call, names in handler.uses():
            if names == ["withItem"] and handler.phase == "jobs" and call.kind == "call_expression":
                lost = dropped(call, handler.function)
                if lost is not None:
                    message = "this item is not awaited: a handler that returns before it is finished fails"
                    found.append(_problem(Code.ITEM_NOT_AWAITED, message, _WAITING[lost], call, handler))
    return found


def kind_of_call(names: list[str], phase: str, methods: Mapping[str, MethodKind] | None) -> str | None:
    """The kind of a call on `ctx`: one of the topic calls, `read`, `mutation`, or None if unknown."""
    if len(names) == 1 or names[0] == "item":
        return names[0] if names[0] in _TOPIC_CALLS else None
    full = ".".join(names[:2])
    if methods is not None and full in methods:
        return methods[full]
    if _READING.match(names[1]):
        return "read"
    # A call in `mutate` is a mutation unless its name says that it reads.
    if phase == "mutate" or _CHANGING.match(names[1]):
        return "mutation"
    return None


def _check_calls(
    handler: HandlerCode,
    declaration: Declaration | None,
    methods: Mapping[str, MethodKind] | None,
    problems: list[Problem],
) -> None:
    mutations: list[Node] = []
    for call, names in handler.uses():
        kind = kind_of_call(names, handler.phase, methods)
        # A mutation must not even be named where it may not be called; naming anything else is harmless.
        if kind is None or (call.kind != "call_expression" and kind != "mutation"):
            continue
        shown = f"ctx.{'.'.join(names)}"
        if kind not in _ALLOWED[handler.phase] or (kind == "mutation" and not _may_mutate_here(handler, call)):
            code = Code.MUTATION_MISPLACED if kind == "mutation" else Code.CALL_MISPLACED
            what = "changes something outside" if kind == "mutation" else _WHAT[kind]
            message = f"`{shown}` {what}, which {handler.address} must not do here"
            hint = _INSTEAD_HERE.get((kind, handler.phase), _INSTEAD[kind])
            problems.append(_problem(code, message, hint, call, handler))
        elif kind == "mutation" and handler.phase == "mutate" and call.kind == "call_expression":
            mutations.append(call)
        elif kind in ("publish", "peek", "getByIds") and declaration is not None:
            _check_topic(handler, kind, call, declaration, problems)
            if kind == "publish":
                _check_event(handler, call, problems)
    if handler.phase == "prepare":
        _check_results(handler, problems)
    reported: set[int] = set()
    calls, made = holding(mutations), {id(call) for call in mutations}
    for call in mutations:
        after = code_after(call, calls, made)
        if after is not None and id(after) not in reported:
            reported.add(id(after))
            message, hint = _words_after(after, calls, made)
            problems.append(_problem(Code.CODE_AFTER_MUTATION, message, hint, after, handler))


def _words_after(after: Node, calls: Set[int], made: Set[int]) -> tuple[str, str]:
    """The message and the hint for code that would run after a mutation."""
    if is_loop(after) and id(after) not in made:
        return (
            "a mutation in a loop: the first one ends the script, so the loop never repeats",
            "reserve one event per run, and the next run takes the next event; or use a job with `ctx.withItem`",
        )
    if after.kind in ("catch_clause", "finally_clause"):
        return (
            "code after the mutation: the mutation ends the script, so this never runs",
            "leave it out: the host handles a failed call, and `next` is given the outcome",
        )
    if id(after) in calls and after.kind != "member_expression":
        return (
            "a second mutation: the first one ends the script, so this never runs",
            "make one call per run: publish an event in `next`, and make the second call in another consumer",
        )
    return (
        "code after the mutation: the mutation ends the script, so this never runs",
        "make the mutation the last thing in `mutate`, and move what follows to `next`",
    )


def _may_mutate_here(handler: HandlerCode, call: Node) -> bool:
    if handler.phase != "jobs":
        return True
    for node in call.ancestors():
        if node.kind == "call_expression":
            callee = node.get("function")
            if callee is not None and callee.text.endswith("withItem"):
                return True
    return False


def _check_topic(
    handler: HandlerCode, kind: str, call: Node, declaration: Declaration, problems: list[Problem]
) -> None:
    arguments = call.get("arguments")
    literal = arguments.children[0] if arguments is not None and arguments.children else None
    topic = string_of(literal)
    if literal is None or topic is None:
        return
    group, name = handler.group, handler.name
    entry = declaration.consumers.get(name) if group == "consumers" else getattr(declaration, group).get(name)
    if topic not in declaration.topics:
        message = f"the topic {topic!r} is not declared"
        hint = f"{near(topic, declaration.topics, problems)}add it to `topics`, or use a declared one"
        problems.append(_problem(Code.TOPIC_UNKNOWN, message, hint, literal, handler))
    elif kind == "publish" and entry is not None and entry.publishes is not None and topic not in entry.publishes:
        hint = "add it there, or publish elsewhere"
        message = f"the topic {topic!r} is not in the `publishes` of {group}.{name}"
        problems.append(_problem(Code.TOPIC_NOT_PUBLISHED, message, hint, literal, handler))
    elif kind != "publish" and isinstance(entry, Consumer) and entry.subscribe and topic not in entry.subscribe:
        message = f"{group}.{name} does not subscribe to {topic!r}"
        problems.append(_problem(Code.TOPIC_NOT_SUBSCRIBED, message, "add it to `subscribe`", literal, handler))


def _check_event(handler: HandlerCode, call: Node, problems: list[Problem]) -> None:
    arguments = call.get("arguments")
    event = arguments.children[1] if arguments is not None and len(arguments.children) > 1 else None
    if event is None or event.kind != "object":
        return
    missing = "an event needs a `title` that a person can read"
    hint = "write `{ messageId, title, payload }`: the id in the outside system, a title for people, JSON"
    shape = (_EVENT_FIELDS, "title", missing, hint)
    _check_literal(Code.EVENT_INVALID, "event", event, shape, handler, problems)


def _check_results(handler: HandlerCode, problems: list[Problem]) -> None:
    """Check object literals that `prepare` returns."""
    missing = "`prepare` returns no `reservations`"
    hint = "return `{ reservations: [{ topic, ids }], data, ui: { title }, wakeAt }`; `reservations: []` for nothing"
    waiting = list(handler.function.children)
    while waiting:
        node = waiting.pop()
        if node.kind == "return_statement" and node.children and node.children[0].kind == "object":
            what, result = "result of `prepare`", node.children[0]
            shape = (_RESULT_FIELDS, "reservations", missing, hint)
            _check_literal(Code.RESULT_INVALID, what, result, shape, handler, problems)
        elif node.kind not in FUNCTIONS:
            waiting.extend(node.children)


def _check_literal(
    code: Code,
    what: str,
    literal: Node,
    shape: tuple[tuple[str, ...], str, str, str],
    handler: HandlerCode,
    problems: list[Problem],
) -> None:
    """Check the fields of an object literal. With `...rest` in it, a missing field cannot be told.

    `shape`: the known fields, the required one, and the message and the hint if that one is missing.
    """
    known, required, missing, advice = shape
    keys = [(_plain_key(member), member) for member in literal.children if member.kind != "comment"]
    for key, member in keys:
        if key is not None and key not in known:
            message = f"the {what} has no field `{key[:80]}`"
            hint = f"{near(key, known, problems)}the fields are {', '.join(f'`{each}`' for each in known)}"
            problems.append(_problem(code, message, hint, member, handler))
    if required not in {key for key, _ in keys} and all(key is not None for key, _ in keys):
        problems.append(_problem(code, missing, advice, literal, handler))


def _plain_key(member: Node) -> str | None:
    key = key_of(member)
    return None if key is None or key.startswith("[") else key


def _check_top_level(tree: Tree, problems: list[Problem]) -> None:
    constants: set[str] = set()
    hint = "handlers share no variables: keep it in the returned state, or pass it through a topic"
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
                message = f"`{name.text[:80]}` is a variable at the top level: its value is lost after each run"
                problems.append(_problem(Code.TOP_LEVEL_STATE, message, hint, declarator))
    for node in tree.root.within():
        name_node = _changed(node)
        if name_node is None or name_node.text not in constants:
            continue
        if any(around.kind in FUNCTIONS for around in node.ancestors()):
            message = f"`{name_node.text[:80]}` is changed by a handler: the change is lost after the run"
            problems.append(_problem(Code.TOP_LEVEL_STATE, message, hint, node))


def _changed(node: Node) -> Node | None:
    """The variable whose contents an expression changes: `x.y = 1`, `x[0]++`, `x.push(1)`."""
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
                problems.append(_problem(Code.DYNAMIC_CODE, "`import` is not available here", _ONE_FILE, node))
            elif callee is not None and callee.text in ("eval", "Function"):
                hint = "write the code itself"
                problems.append(_problem(Code.DYNAMIC_CODE, f"`{callee.text}` does not exist here", hint, node))
        if node.kind == "import_statement":
            problems.append(_problem(Code.DYNAMIC_CODE, "`import` is not available here", _ONE_FILE, node))
        if node.kind == "identifier" and node.text in _ABSENT_GLOBALS and node.text not in own:
            hint = _ABSENT_GLOBALS[node.text]
            problems.append(_problem(Code.GLOBAL_UNKNOWN, f"`{node.text}` does not exist here", hint, node))


def _problem(code: Code, message: str, hint: str, node: Node, handler: HandlerCode | None = None) -> Problem:
    address = handler.address if handler is not None else None
    return Problem(code=code, message=message[:500], hint=hint, place=node.place, handler=address)
