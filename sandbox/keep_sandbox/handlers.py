"""Where a script's handlers are written, and what each of them calls its `ctx`.

Reads the syntax tree of a declaration in its usual forms; a handler that is written in another way is not found, and
then not checked.
"""

from collections.abc import Iterator

from keep_sandbox.syntax import FUNCTIONS, Node, Tree, key_of, string_of


class Handler:
    """A handler's function, where it was found, and what it calls its `ctx`."""

    def __init__(self, address: str, phase: str, function: Node) -> None:
        self.address = address
        self.phase = phase
        self.function = function
        self.context, self.unpacked = _first_parameter(function)

    def calls(self) -> "Iterator[tuple[Node, list[str]]]":
        """The calls on `ctx`, as the call and the names: `ctx.gmail.send(...)` gives `["gmail", "send"]`."""
        for node in self.function.within():
            if node.kind == "call_expression":
                callee = node.get("function")
                names = self._names(callee) if callee is not None else None
                if names:
                    yield node, names

    def _names(self, node: Node) -> list[str] | None:
        names: list[str] = []
        while node.kind in ("member_expression", "subscript_expression"):
            last = node.get("property") or node.get("index")
            name = string_of(last) if last is not None and last.kind == "string" else (last.text if last else None)
            target = node.get("object")
            if name is None or target is None or len(names) > 2:
                return None
            names.insert(0, name)
            node = target
        if node.kind != "identifier":
            return None
        if node.text == self.context:
            return names or None
        return [self.unpacked[node.text], *names] if node.text in self.unpacked else None


def places_of_declaration(tree: Tree) -> dict[str, Node]:
    """Where each handler is declared, by address; `""` is the workflow itself."""
    found: dict[str, Node] = {}
    workflow = _workflow(tree)
    if workflow is None:
        return found
    found[""] = workflow
    for group in ("producers", "consumers", "jobs"):
        for name, node in _members(_member(workflow, group)):
            found[f"{group}.{name}"] = node
    return found


def find_handlers(tree: Tree) -> list[Handler]:
    """The handlers that are written where they are declared, or as a function at the top level."""
    workflow = _workflow(tree)
    handlers: list[Handler] = []
    if workflow is None:
        return handlers
    for group in ("producers", "jobs"):
        for name, node in _members(_member(workflow, group)):
            function = _function(tree, node) or _function(tree, _member(_value(node), "handler"))
            if function is not None:
                handlers.append(Handler(f"{group}.{name}", group, function))
    for name, node in _members(_member(workflow, "consumers")):
        for phase in ("prepare", "mutate", "next"):
            function = _function(tree, _member(_value(node), phase))
            if function is not None:
                handlers.append(Handler(f"consumers.{name}.{phase}", phase, function))
    return handlers


def _workflow(tree: Tree) -> Node | None:
    for node in tree.root.within():
        if node.kind == "call_expression":
            callee = node.get("function")
            if callee is not None and callee.text == "Keep.workflow":
                return _value(node)
    return None


def _value(node: Node | None) -> Node | None:
    """The object literal that a node stands for: itself, a member's value, or what `Keep.consumer` is given."""
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


def _first_parameter(function: Node) -> tuple[str | None, dict[str, str]]:
    """The name of the first parameter; or, when it is taken apart, its parts by their local names."""
    parameters = function.get("parameters")
    first = function.get("parameter") or (parameters.children[0] if parameters and parameters.children else None)
    if first is None:
        return None, {}
    if first.kind == "identifier":
        return first.text, {}
    unpacked: dict[str, str] = {}
    for part in first.children if first.kind == "object_pattern" else []:
        if part.kind == "shorthand_property_identifier_pattern":
            unpacked[part.text] = part.text
        elif part.kind == "pair_pattern":
            name, local = key_of(part), part.get("value")
            if name is not None and local is not None:
                unpacked[local.text] = name
    return None, unpacked
