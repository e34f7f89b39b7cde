"""The syntax tree of a script: tree-sitter, wrapped so that even a hostile script takes only linear time.

Built in one pass without recursion. Nodes know their parents: the library would search from the root each time.
"""

import bisect
import re
from collections.abc import Iterator

import tree_sitter
import tree_sitter_javascript

from keep_sandbox.outcomes import Place

_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))

FUNCTIONS = frozenset(
    {"function_expression", "function_declaration", "arrow_function", "method_definition", "generator_function"}
)


class Node:
    """A named node, with its place in the tree. It holds no parser objects, which do not outlive their tree."""

    __slots__ = ("_end", "_index", "_start", "_tree", "children", "field", "kind", "parent")

    def __init__(self, raw: tree_sitter.Node, parent: "Node | None", field: str | None, tree: "Tree") -> None:
        self._start = raw.start_byte
        self._end = raw.end_byte
        self._tree = tree
        self._index = len(parent.children) if parent is not None else 0
        self.kind = raw.type
        self.parent = parent
        self.field = field
        self.children: list[Node] = []

    @property
    def text(self) -> str:
        """Its source text."""
        return self._tree.source[self._start : self._end].decode("utf-8", "replace")

    @property
    def place(self) -> Place:
        """The place where it begins."""
        return self._tree.place(self._start)

    def get(self, field: str) -> "Node | None":
        """The child in this field."""
        return next((child for child in self.children if child.field == field), None)

    def within(self) -> "Iterator[Node]":
        """This node and all nodes below it, in the order of the source."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def ancestors(self) -> "Iterator[Node]":
        """The nodes around this one, innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def later(self) -> "Iterator[Node]":
        """The siblings after this one, without comments."""
        siblings = self.parent.children if self.parent is not None else []
        for index in range(self._index + 1, len(siblings)):
            if siblings[index].kind not in ("comment", "empty_statement"):
                yield siblings[index]


class Tree:
    """A parsed script."""

    def __init__(self, source: str) -> None:
        self.source = source.encode("utf-8", "replace")
        self._line_starts = [0, *(match.end() for match in re.finditer(b"\n", self.source))]
        self._is_ascii = self.source.isascii()
        parsed = _PARSER.parse(self.source)
        self.is_broken = parsed.root_node.has_error
        """True if part of it is not valid JavaScript."""
        self.root = self._build(parsed.root_node)

    def place(self, offset: int) -> Place:
        """The place of a byte of the source."""
        line = bisect.bisect_right(self._line_starts, offset)
        start = self._line_starts[line - 1]
        if self._is_ascii:
            return Place(line, offset - start + 1)
        return Place(line, len(self.source[start:offset].decode("utf-8", "replace")) + 1)

    def _build(self, raw: tree_sitter.Node) -> Node:
        root = Node(raw, None, None, self)
        cursor = raw.walk()
        current = root
        # The cursor goes down, then right, then up: it visits each node once and keeps the named ones.
        depth: list[Node | None] = []
        if not cursor.goto_first_child():
            return root
        while True:
            node = cursor.node
            assert node is not None, "a cursor stands on a node"
            kept: Node | None = None
            if node.is_named:
                kept = Node(node, current, cursor.field_name, self)
                current.children.append(kept)
            if cursor.goto_first_child():
                depth.append(kept)
                current = kept or current
                continue
            while not cursor.goto_next_sibling():
                if not depth:
                    return root
                cursor.goto_parent()
                left = depth.pop()
                if left is not None and left.parent is not None:
                    current = left.parent


def string_of(node: Node | None) -> str | None:
    """The value of a plain string literal; None for anything else, including one with escapes."""
    if node is None or node.kind not in ("string", "template_string"):
        return None
    if any(child.kind != "string_fragment" for child in node.children):
        return None
    return node.text[1:-1]


def key_of(node: Node) -> str | None:
    """The name of a member of an object literal."""
    key = node.get("key") or node.get("name")
    if key is None:
        return node.text if node.kind == "shorthand_property_identifier" else None
    return string_of(key) if key.kind == "string" else key.text
