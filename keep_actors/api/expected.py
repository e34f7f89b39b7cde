"""The result of a call: its type in words, an example, and a check of the result that a person gives. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from keep_actors.api.verdicts import ResultRefused
from keep_actors.connectors import Method
from keep_actors.connectors.signature import ResultMismatch, Signature
from keep_actors.text.schema_text import Schema, type_of
from keep_storage.model import Json

_TEXTS: Final[Mapping[str, str]] = {
    "date-time": "2026-01-31T09:00:00Z",
    "date": "2026-01-31",
    "time": "09:00:00",
    "duration": "PT1H",
    "uuid": "01234567-89ab-4def-8123-456789abcdef",
    "decimal": "1.50",
}
"""An example of a text that has to look like something."""
_PLAIN_TEXTS: Final = ("text", "2026-01-31T09:00:00Z", "09:00:00")
"""Plain texts for an example, the first that fits: msgspec gives no format for times without a zone."""
_FAR: Final = 1_000_000


class Expected(msgspec.Struct, frozen=True):
    """The result of a call."""

    type: str
    """As in TypeScript: `{ rowId: string }`."""
    example: Json
    """JSON that fits; empty if none can be made up."""


def expected_of(signature: Signature) -> Expected:
    """The result of a method with this signature."""
    [schema], structs = msgspec.json.schema_components([signature.result_type], ref_template="{name}")
    tried = (_fitting(signature, _Examples(structs, text).of(schema)) for text in _PLAIN_TEXTS)
    return Expected(_written_out(schema, structs), next((each for each in tried if each), ""))


def checked_result(method: Method | None, call: str, value: object) -> Json:
    """The result that a person gives, as the connector's own answer would be kept. Raises `ResultRefused`."""
    if method is None:
        raise ResultRefused(
            call,
            "",
            f"cannot be checked: this runtime has no {call}. Open it with that connector; or end it, and write the "
            "verdict into the file with `keep resolve`",
        )
    try:
        return method.signature.result_text(value)
    except ResultMismatch as error:
        expected = expected_of(method.signature)
        raise ResultRefused(call, error.path, error.message, expected.type, expected.example) from None


def _fitting(signature: Signature, example: object) -> Json:
    try:
        return signature.result_text(example)
    except ResultMismatch:
        # A pattern, or a condition that only the connector's own code knows.
        return ""


def _written_out(schema: Schema, structs: Mapping[str, Schema], inside: tuple[str, ...] = ()) -> str:
    """The type on one line. Only a struct that contains itself is named there."""

    def named(name: str) -> str:
        return name if name in inside else _written_out(structs[name], structs, (*inside, name))

    return type_of(schema, named)


class _Examples:
    """Values that fit a schema, as long as no pattern is asked for. The author's own, if the type has one."""

    def __init__(self, structs: Mapping[str, Schema], text: str) -> None:
        self._structs = structs
        self._plain_text = text

    def of(self, schema: Schema, inside: tuple[str, ...] = ()) -> Any:
        """`UNSET` for a struct inside itself: there it has to end."""
        name = str(schema.get("$ref", ""))
        if name:
            return msgspec.UNSET if name in inside else self.of(self._structs[name], (*inside, name))
        for given in ("examples", "enum"):
            if schema.get(given):
                return schema[given][0]
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if alternatives:
            tried = [self.of(each, inside) for each in sorted(alternatives, key=_is_null)]
            return next((each for each in tried if each is not msgspec.UNSET), msgspec.UNSET)
        return self._plain(schema, inside)

    def _plain(self, schema: Schema, inside: tuple[str, ...]) -> Any:
        match schema.get("type"):
            case "string":
                return self._text(schema)
            case "integer" | "number":
                return _number(schema)
            case "boolean":
                return True
            case "array":
                return self._array(schema, inside)
            case "object":
                return self._object(schema, inside)
        return schema.get("const")

    def _text(self, schema: Schema) -> str:
        if "contentEncoding" in schema:
            return "AAECAw=="
        text = _TEXTS.get(str(schema.get("format", "")), self._plain_text)
        return text.ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]

    def _array(self, schema: Schema, inside: tuple[str, ...]) -> Any:
        if "prefixItems" in schema:
            return [self.of(each, inside) for each in schema["prefixItems"]]
        items, least = schema.get("items"), int(schema.get("minItems", 0))
        item = self.of(items, inside) if isinstance(items, Mapping) else None
        if item is msgspec.UNSET:
            return msgspec.UNSET if least else []
        return [item] * min(max(least, 1), schema.get("maxItems", _FAR))

    def _object(self, schema: Schema, inside: tuple[str, ...]) -> Any:
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        if not properties and isinstance(more, Mapping):
            properties = {"key": more}
        found = {name: self.of(each, inside) for name, each in properties.items()}
        missing = {name for name, each in found.items() if each is msgspec.UNSET}
        if missing & set(schema.get("required", ())):
            return msgspec.UNSET
        return {name: each for name, each in found.items() if name not in missing}


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def _number(schema: Schema) -> Any:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum", schema.get("exclusiveMinimum", -_FAR))
    high = schema.get("maximum", schema.get("exclusiveMaximum", _FAR))
    tried = (step, low, high, (low // step + 1) * step, (high // step - 1) * step, (low + high) / 2)
    return next((each for each in tried if _is_within(each, schema)), step)


def _is_within(number: Any, schema: Schema) -> bool:
    return bool(
        number >= schema.get("minimum", number)
        and number <= schema.get("maximum", number)
        and number > schema.get("exclusiveMinimum", number - 1)
        and number < schema.get("exclusiveMaximum", number + 1)
        and number % schema.get("multipleOf", number or 1) == 0
    )
