"""Find a script's handlers in its syntax tree, and the calls that each of them makes on `ctx`.

Knows the usual forms of a declaration; a handler that is written in another way is not found, and not checked.
"""

from collections.abc import Iterator

from keep_sandbox.declaration import Path
from keep_sandbox.syntax import FUNCTIONS, Node, Tree, key_of, string_of

_MEMBERS = ("member_expression", "subscript_expression")


class HandlerCode:
    """A handler's function, its place in the declaration, and the local names of its `ctx`."""

    def __init__(self, group: str, name: str, phase: str, function: Node) -> None:
        self.group = group
        self.name = name
        self.phase = phase
        self.function = function
        # Local name → its path from ctx; the path of `ctx` itself is empty.
        self._locals = _parts(_first_parameter(function), [])
        self._aliases: set[int] = set()
        self._find_aliases()

    @property
    def address(self) -> str:
        """`producers.poll`, `consumers.file.prepare`."""
        return f"{self.group}.{self.name}.{self.phase}" if self.group == "consumers" else f"{self.group}.{self.name}"

    def uses(self) -> "Iterator[tuple[Node, list[str]]]":
        """Places where members of `ctx` are called or named, with their paths: `["gmail", "send"]`."""
        for node in self.function.within():
            if node.kind == "call_expression":
                callee = node.get("function")
                path = self._path(callee) if callee is not None else None
                if path:
                    yield node, path
            elif node.kind in _MEMBERS and node.parent is not None and id(node) not in self._aliases:
                is_part = node.parent.kind in _MEMBERS and node.field == "object"
                is_called = node.parent.kind == "call_expression" and node.field == "function"
                path = None if is_part or is_called else self._path(node)
                if path and len(path) == 2:
                    yield node, path

    def _find_aliases(self) -> None:
        """Note other names of members: `const { gmail } = ctx`, `const mail = ctx.gmail`."""
        for node in self.function.within():
            if node.kind == "variable_declarator":
                name, value = node.get("name"), node.get("value")
                path = self._path(value) if value is not None else None
                if name is not None and value is not None and path is not None:
                    self._aliases.add(id(value))
                    self._locals.update(_parts(name, path))

    def _path(self, node: Node) -> list[str] | None:
        names: list[str] = []
        while node.kind in _MEMBERS:
            last, target = node.get("property") or node.get("index"), node.get("object")
            name = string_of(last) if node.kind == "subscript_expression" else (last.text if last is not None else None)
            if name is None or target is None or len(names) > 2:
                return None
            names.insert(0, name)
            node = target
        if node.kind != "identifier" or node.text not in self._locals:
            return None
        return [*self._locals[node.text], *names]


def _parts(pattern: Node | None, path: list[str]) -> dict[str, list[str]]:
    """The local names that a pattern binds, with their paths."""
    if pattern is None or len(path) > 2:
        return {}
    if pattern.kind == "identifier":
        return {pattern.text: path}
    found: dict[str, list[str]] = {}
    for part in pattern.children if pattern.kind == "object_pattern" else []:
        if part.kind == "shorthand_property_identifier_pattern":
            found[part.text] = [*path, part.text]
        elif part.kind == "pair_pattern":
            key = key_of(part)
            if key is not None:
                found.update(_parts(part.get("value"), [*path, key]))
    return found


def places_of_declaration(tree: Tree) -> dict[Path, Node]:
    """The node of each part of the declaration; `()` is the workflow itself."""
    found: dict[Path, Node] = {}
    workflow = _workflow(tree)
    if workflow is None:
        return found
    found[()] = workflow
    for field, member in _members(workflow):
        found[field,] = member
        if field not in ("producers", "consumers", "jobs"):
            continue
        for name, handler in _members(member):
            found[field, name] = handler
            for part, node in _members(handler):
                found[field, name, part] = _schedule_text(node) if part == "schedule" else node
                found.update({(field, name, part, topic): entry for topic, entry in _topics(node)})
    return found


def _schedule_text(node: Node) -> Node:
    """The value of `cron` or `interval`, if there is exactly one."""
    said = [member.get("value") for key, member in _members(node) if key in ("cron", "interval")]
    return (said[0] if len(said) == 1 else None) or node.get("value") or node


def _topics(node: Node) -> Iterator[tuple[str, Node]]:
    value = node.get("value")
    for entry in value.children if value is not None and value.kind == "array" else []:
        topic = string_of(entry)
        if topic is not None:
            yield topic, entry


def find_handlers(tree: Tree) -> list[HandlerCode]:
    """The handlers that are written where they are declared, or as a function at the top level."""
    workflow = _workflow(tree)
    handlers: list[HandlerCode] = []
    if workflow is None:
        return handlers
    for group in ("producers", "jobs"):
        for name, node in _members(_member(workflow, group)):
            function = _function(tree, node) or _function(tree, _member(_value(node), "handler"))
            if function is not None:
                handlers.append(HandlerCode(group, name, group, function))
    for name, node in _members(_member(workflow, "consumers")):
        for phase in ("prepare", "mutate", "next"):
            function = _function(tree, _member(_value(node), phase))
            if function is not None:
                handlers.append(HandlerCode("consumers", name, phase, function))
    return handlers


def _workflow(tree: Tree) -> Node | None:
    for node in tree.root.within():
        if node.kind == "call_expression":
            callee = node.get("function")
            if callee is not None and callee.text == "Keep.workflow":
                return _value(node)
    return None


def _value(node: Node | None) -> Node | None:
    """The object literal that a node stands for: itself, a member's value, or the argument of `Keep.consumer`."""
    if node is not None and node.kind == "pair":
        node = node.get("value")
    if node is not None and node.kind == "call_expression":
        arguments = node.get("arguments")
        node = arguments.children[0] if arguments is not None and arguments.children else None
    return node if node is not None and node.kind == "object" else None


def _members(node: Node | None) -> Iterator[tuple[str, Node]]:
    value = _value(node)
    for member in value.children if value is not None else []:
        name = key_of(member)
        if name is not None:
            yield name, member


def _member(node: Node | None, name: str) -> Node | None:
    return next((member for key, member in _members(node) if key == name), None)


def _function(tree: Tree, node: Node | None) -> Node | None:
    if node is None or node.kind in FUNCTIONS:
        return node
    value = node.get("value") if node.kind == "pair" else node
    if value is None or value.kind in FUNCTIONS:
        return value
    if value.kind in ("identifier", "shorthand_property_identifier"):
        return _top_level_function(tree, value.text)
    return None


def _top_level_function(tree: Tree, wanted: str) -> Node | None:
    for statement in tree.root.children:
        for node in (statement, *statement.children):
            name = node.get("name")
            if name is not None and name.text == wanted:
                value = node if node.kind in FUNCTIONS else node.get("value")
                return value if value is not None and value.kind in FUNCTIONS else None
    return None


def _first_parameter(function: Node) -> Node | None:
    parameters = function.get("parameters")
    return function.get("parameter") or (parameters.children[0] if parameters and parameters.children else None)
