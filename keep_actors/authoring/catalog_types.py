"""TypeScript types of a catalog's methods: parameters written out, each struct of the connectors once, by name."""

from collections.abc import Iterator
from typing import Any

import msgspec

from keep_actors.connectors import Catalog, Method
from keep_actors.text.schema_text import identifiers, type_of


class CatalogTypes:
    """The types of one catalog. `prefix` is written before the name of a struct, except inside other structs."""

    def __init__(self, catalog: Catalog, prefix: str = "") -> None:
        methods = list(catalog.methods.values())
        wanted = [each for method in methods for each in (method.signature.params_type, method.signature.result_type)]
        schemas, components = msgspec.json.schema_components(wanted, ref_template="{name}")
        self._schemas = {method.full_name: schemas[2 * n : 2 * n + 2] for n, method in enumerate(methods)}
        self._components = components
        self._names = identifiers(components)
        self._prefix = prefix

    def structs(self) -> Iterator[tuple[str, str, str]]:
        """Name, type and description of each struct that the methods use."""
        params = {schema["$ref"] for schema, _ in self._schemas.values()}
        for name, schema in self._components.items():
            if name not in params:
                yield self._names[name], type_of(schema, self._names.__getitem__), str(schema.get("description", ""))

    def is_needed(self, method: Method) -> bool:
        """Return True if a call must pass parameters."""
        return bool(self._params(method).get("required"))

    def params(self, method: Method, *, with_subkey: bool = False) -> str:
        """The type of the object that a script passes."""
        schema = self._params(method)
        more = {"subkey": {"type": "string"}} if with_subkey else {}
        return type_of({**schema, "properties": {**schema.get("properties", {}), **more}}, self._global)

    def result(self, method: Method) -> str:
        """The type of the result."""
        return type_of(self._schemas[method.full_name][1], self._global)

    def _params(self, method: Method) -> dict[str, Any]:
        schema: dict[str, Any] = self._components[self._schemas[method.full_name][0]["$ref"]]
        return schema

    def _global(self, name: str) -> str:
        return f"{self._prefix}{self._names[name]}"
