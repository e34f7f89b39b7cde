"""Write a JSON Schema as a TypeScript type, for editors and language models. Pure.

Knows the schemas that msgspec writes; anything else is `any`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

Schema: TypeAlias = Mapping[str, Any]
Named: TypeAlias = Callable[[str], str]
"""Returns the name to write for a reference."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def type_of(schema: Schema, named: Named) -> str:
    """The type, on one line."""
    if "$ref" in schema:
        return named(str(schema["$ref"]))
    if "enum" in schema or "const" in schema:
        return _union(_literal(value) for value in schema.get("enum", [schema.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return _union(type_of(each, named) for each in schema[several])
    match schema.get("type"):
        case list(kinds):
            return _union(type_of({**schema, "type": kind}, named) for kind in kinds)
        case "array":
            return _array(schema, named)
        case "object":
            return _object(schema, named)
        case str(kind) if kind in _PLAIN:
            return _PLAIN[kind]
    return "any"


def key(name: str) -> str:
    """A member's name, quoted if it has to be."""
    return name if _IDENTIFIER.fullmatch(name) else _literal(name)


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """A unique type name for each of these."""
    found: dict[str, str] = {}
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_$]+", "_", name).strip("_") or "Type"
        base = f"_{base}" if base[0].isdigit() else base
        spelled, number = base, 2
        while spelled in found.values():
            spelled, number = f"{base}{number}", number + 1
        found[name] = spelled
    return found


def _union(parts: Iterable[str]) -> str:
    known = list(dict.fromkeys(parts))
    return "any" if "any" in known or not known else " | ".join(known)


def _array(schema: Schema, named: Named) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(type_of(each, named) for each in schema['prefixItems'])}]"
    items = schema.get("items")
    inner = type_of(items, named) if isinstance(items, Mapping) else "any"
    return f"({inner})[]" if " | " in inner and not inner.startswith("{") else f"{inner}[]"


def _object(schema: Schema, named: Named) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"{key(name)}{'' if name in required else '?'}: {type_of(each, named)}"
        for name, each in schema.get("properties", {}).items()
    ]
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping) and not fields:
        return f"{{ [key: string]: {type_of(more, named)} }}"
    if not fields:
        return "{}" if more is False else "{ [key: string]: any }"
    return f"{{ {'; '.join(fields)} }}"


def _literal(value: object) -> str:
    return msgspec.json.encode(value).decode()
