"""Schemas of a document without some of their properties: what is only read, or filled in by the host. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from keep_actors.services.openapi.document import Document


def without_marked(value: Any, mark: str) -> Any:
    """A part of a document without properties that are marked `readOnly`, or `writeOnly`.

    What is only read is not sent, and what is only written does not come back.
    """
    match value:
        case list():
            return [without_marked(each, mark) for each in value]
        case dict():
            left = {name: _member(name, each, mark) for name, each in value.items()}
            return _required_of_what_is_left(value, left)
        case _:
            return value


def _member(name: str, value: Any, mark: str) -> Any:
    if name in ("enum", "const", "default", "example", "examples"):
        return value  # values, not schemas
    if name == "properties" and isinstance(value, dict):
        return {each: without_marked(schema, mark) for each, schema in value.items() if not _is_marked(schema, mark)}
    return without_marked(value, mark)


def _is_marked(schema: object, mark: str) -> bool:
    return isinstance(schema, Mapping) and schema.get(mark) is True


def _required_of_what_is_left(before: Mapping[str, Any], left: dict[str, Any]) -> dict[str, Any]:
    old, new, required = before.get("properties"), left.get("properties"), before.get("required")
    if isinstance(old, dict) and isinstance(new, dict) and isinstance(required, list):
        gone = old.keys() - new.keys()
        left["required"] = [each for each in required if not isinstance(each, str) or each not in gone]
    return left


def without_property(document: Document, schema: Any, path: Sequence[str], where: str) -> Any:
    """A schema of an object without the property at this path: the host sets it, so a script does not."""
    if not isinstance(schema, Mapping):
        return schema
    found, _ = document.resolved(schema, where)
    left = dict(found)
    if isinstance(left.get("allOf"), list):
        left["allOf"] = [without_property(document, each, path, where) for each in left["allOf"]]
    properties, name = left.get("properties"), path[0]
    if not isinstance(properties, Mapping) or name not in properties:
        return left
    if len(path) > 1:
        inner = without_property(document, properties[name], path[1:], where)
        left["properties"] = {**properties, name: inner}
        return left
    left["properties"] = {each: value for each, value in properties.items() if each != name}
    return _required_of_what_is_left(found, left)
