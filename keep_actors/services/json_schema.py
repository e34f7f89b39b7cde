"""Types that validate, from a JSON Schema that a service gives. Pure.

The type accepts every value that the schema accepts, but for unknown fields of an object that a script passes, which
are refused. A keyword that is not in the tables here makes the type only wider: the service checks it itself. Patterns
are among them on purpose: a foreign regular expression can block the event loop.
"""

import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, Final, Union
from urllib.parse import unquote

import msgspec

from keep_actors.connectors import Param
from keep_actors.connectors.names import camel_case, problem_with_parameter
from keep_actors.connectors.signature import CALL, SUBKEY
from keep_actors.services.json_types import fraction, length, literal, shown_literal, union, whole
from keep_actors.text.visible import is_plain, quoted

NODES_MAX: Final = 2_000
DEPTH_MAX: Final = 40
NAME_CHARS_MAX: Final = 100
DESCRIPTION_CHARS_MAX: Final = 2_000

_OBJECT_WORDS: Final = frozenset({"properties", "required", "additionalProperties"})
_UNNAMABLE: Final = frozenset('"\\')
"""Characters that no field of a struct can have in its name."""
_SILENT_WORDS: Final = frozenset({"title", "description", "default", "examples", "example", "$comment", "deprecated"})
"""Keywords that refuse no value."""


class SchemaUnusable(ValueError):
    """A schema cannot be read. The message says where in it, and why."""

    def __init__(self, at: str, why: str) -> None:
        super().__init__(f"{at or 'the schema'}: {why}")


class Field(msgspec.Struct, frozen=True):
    """One parameter of a service, with names that Python and JavaScript can have."""

    wire: str
    """The name that the service knows."""
    name: str
    """A Python identifier, for `Param.name`."""
    spelled: str
    """A JavaScript identifier: the name that the service knows, if it is one."""
    type: Any
    is_required: bool
    description: str = ""
    """Foreign text, as it came."""

    def param(self) -> Param:
        """The parameter of an offered method."""
        default = msgspec.NODEFAULT if self.is_required else msgspec.UNSET
        return Param(name=self.name, type=self.type, default=default, spelled=self.spelled)


def to_wire(fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the service gets, given by Python name. Those left out are left out."""
    given = {
        each.wire: values[each.name] for each in fields if values.get(each.name, msgspec.UNSET) is not msgspec.UNSET
    }
    plain: dict[str, Any] = msgspec.to_builtins(given)
    return plain


class SchemaTypes:
    """The types of one method's parameters, or of its result.

    `title` is unique among all methods: `github.createIssue`, `github.createIssue-result`. It begins the names of the
    structs. `root` is the document in which references are looked up; without it, each schema that is given.
    `is_given`: a script passes the values. Results are read with less: bounds are not checked after an effect.
    """

    def __init__(self, title: str, root: Mapping[str, Any] | None = None, *, is_given: bool = True) -> None:
        self._title = title
        self._fixed_root = root
        self._root: Mapping[str, Any] = root or {}
        self._is_given = is_given
        self._nodes = 0
        self._depth = 0
        self._names: set[str] = set()
        self._by_reference: dict[str, Any] = {}
        self._open_references: list[str] = []

    def type(self, schema: object, at: str = "") -> Any:
        """The type of a value. Raises `SchemaUnusable`."""
        self._begin(schema)
        return self._type(schema, at)

    def fields(self, schema: object, at: str = "") -> list[Field]:
        """The parameters that are the properties of an object. Raises `SchemaUnusable`."""
        self._begin(schema)
        whole = self._object(self._mapping(schema, at), at)
        if whole is None or whole.get("type", "object") != "object":
            raise SchemaUnusable(at, "is not the schema of an object")
        required = _required(whole)
        found: list[Field] = []
        for wire, each in _named(whole, at).items():
            description = each.get("description", "") if isinstance(each, Mapping) else ""
            inner = self._type(each, _joined(at, wire))
            found.append(_field(wire, inner, wire in required, description, found))
        return found

    def field(
        self, wire: str, schema: object, is_required: bool, description: str = "", taken: Collection[Field] = ()
    ) -> Field:
        """One parameter that stands by itself. Raises `SchemaUnusable`."""
        _check_name(wire, wire)
        return _field(wire, self.type(schema, wire), is_required, description, taken)

    def _begin(self, schema: object) -> None:
        if self._fixed_root is None and isinstance(schema, Mapping) and schema is not self._root:
            self._root = schema
            self._by_reference.clear()

    def _mapping(self, schema: object, at: str) -> Mapping[str, Any]:
        if schema is True or schema is False:
            return {}  # false accepts nothing, so the service will refuse every value
        if not isinstance(schema, Mapping):
            raise SchemaUnusable(at, "is not a schema")
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise SchemaUnusable(at, f"has more than {NODES_MAX:,} parts")
        return schema

    def _type(self, schema: object, at: str) -> Any:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SchemaUnusable(at, f"is nested more than {DEPTH_MAX} deep")
        try:
            return self._described(self._mapping(schema, at), at)
        finally:
            self._depth -= 1

    def _described(self, schema: Mapping[str, Any], at: str) -> Any:
        if "$ref" in schema:
            return self._referred(schema["$ref"], at)
        if schema.get("nullable") is True:  # OpenAPI 3.0
            return union([self._described({**schema, "nullable": False}, at), None])
        if "allOf" in schema:
            merged = self._object(schema, at)
            return Any if merged is None else self._described(merged, at)
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            if not isinstance(values, list):
                return Any
            return literal(values) if self._is_given else shown_literal(values)
        kind = schema.get("type")
        if isinstance(kind, list):
            return union([self._described({**schema, "type": each}, at) for each in kind])
        if isinstance(kind, str):
            return self._of_kind(kind, schema, at)
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                return union([self._type(each, at) for each in schema[word]])
        return self._struct(schema, at) if "properties" in schema else Any

    def _of_kind(self, kind: str, schema: Mapping[str, Any], at: str) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return bool
            case "string":
                return self._bounded(str, schema, "minLength", "maxLength")
            case "integer":
                return whole(schema) if self._is_given else int | float
            case "number":
                return union([whole(schema), fraction(schema)]) if self._is_given else int | float
            case "array":
                items: Any = self._type(schema.get("items", True), f"{at}[]")
                return self._bounded(list.__class_getitem__(items), schema, "minItems", "maxItems")
            case "object":
                return self._struct(schema, at)
            case _:
                return Any

    def _bounded(self, plain: Any, schema: Mapping[str, Any], least: str, most: str) -> Any:
        low, high = (length(schema.get(word)) for word in (least, most))
        if not self._is_given or (low is None and high is None):
            return plain
        return Annotated[plain, msgspec.Meta(min_length=low, max_length=high)]

    def _struct(self, schema: Mapping[str, Any], at: str) -> Any:
        properties = _named(schema, at)
        more = schema.get("additionalProperties", not self._is_given)
        if not properties:
            return dict[str, self._type(more, at) if isinstance(more, Mapping) else Any]  # type: ignore[misc]
        if any(set(name) & _UNNAMABLE for name in properties):
            return dict[str, Any]
        required = _required(schema)
        wire = {f"f{number}": name for number, name in enumerate(properties)}
        fields: list[Any] = []
        for name, spelled in wire.items():
            inner = self._type(properties[spelled], _joined(at, spelled))
            fields.append((name, inner) if spelled in required else (name, _or_unset(inner), msgspec.UNSET))
        if more is not False and "additionalProperties" in schema:
            return dict[str, Any]  # a struct would drop the fields that it does not name
        return msgspec.defstruct(
            self._name(at), fields, rename=wire, kw_only=True, frozen=True, forbid_unknown_fields=self._is_given
        )

    def _name(self, at: str) -> str:
        """A name for a struct that no other has: of the method, and of the last property on the way."""
        last = re.sub(r"[^A-Za-z0-9]+", "_", at.rpartition(".")[2]).strip("_")
        base = f"{self._title}.{last}" if last else self._title
        names = (base if number == 1 else f"{base}{number}" for number in count(1))
        name = next(each for each in names if each not in self._names)
        self._names.add(name)
        return name

    def _referred(self, reference: object, at: str) -> Any:
        if not isinstance(reference, str):
            raise SchemaUnusable(at, "has a $ref that is no text")
        if reference in self._open_references:
            return Any  # it has itself inside
        if reference not in self._by_reference:
            self._open_references.append(reference)
            found = self._type(self._at_pointer(reference, at), reference.rpartition("/")[2])
            self._open_references.pop()
            self._by_reference[reference] = found
        return self._by_reference[reference]

    def _at_pointer(self, reference: str, at: str) -> object:
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaUnusable(at, f"refers to {_shown(reference)}, which is in another document")
        found: object = self._root
        for part in reference.split("/")[1:]:
            step = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                raise SchemaUnusable(at, f"refers to {_shown(reference)}, which is not there")
        return found

    def _object(self, schema: Mapping[str, Any], at: str) -> Mapping[str, Any] | None:
        """One schema with the properties of all parts of `allOf`. None: they are not objects."""
        parts = [each for each in self._parts(schema, at, set()) if set(each) - _SILENT_WORDS]
        if len(parts) < 2:
            return parts[0] if parts else {}
        if not all(each.get("type") == "object" or set(each) & _OBJECT_WORDS for each in parts):
            return None
        properties: dict[str, Any] = {}
        for each in parts:
            properties = {**_properties(each, at), **properties}
        required = [name for each in parts for name in _required(each)]
        return {"type": "object", "properties": properties, "required": required}

    def _parts(self, schema: object, at: str, seen: set[str]) -> Iterator[Mapping[str, Any]]:
        given = self._mapping(schema, at)
        reference = given.get("$ref")
        if isinstance(reference, str):
            if reference not in seen:
                yield from self._parts(self._at_pointer(reference, at), at, seen | {reference})
            return
        inner = given.get("allOf", [])
        if not isinstance(inner, list):
            raise SchemaUnusable(at, "has an allOf that is no list")
        for each in inner:
            yield from self._parts(each, at, seen)
        yield {word: value for word, value in given.items() if word != "allOf"}


def _or_unset(inner: Any) -> Any:
    return Union[inner, msgspec.UnsetType]  # noqa: UP007  # of a type known only now


def _field(wire: str, inner: Any, is_required: bool, description: object, taken: Collection[Field]) -> Field:
    name = re.sub(r"[^A-Za-z0-9_]", "_", wire).strip("_") or "value"
    name = f"n{name}" if name[0].isdigit() else name
    name = f"{name}_" if keyword.iskeyword(name) or name in (CALL, SUBKEY) else name
    name = _unlike(name, {each.name for each in taken})
    fits = wire not in (SUBKEY, "__proto__") and not problem_with_parameter(wire, name)
    other = camel_case(name)
    spelled = wire if fits else name if other in (SUBKEY, "") else other
    spelled = _unlike(spelled, {each.spelled for each in taken})
    text = description[:DESCRIPTION_CHARS_MAX] if isinstance(description, str) else ""
    return Field(wire, name, spelled, inner if is_required else _or_unset(inner), is_required, text)


def _unlike(name: str, taken: Collection[str]) -> str:
    return next(each for each in (name, *(f"{name}{number}" for number in range(2, NODES_MAX))) if each not in taken)


def _properties(schema: Mapping[str, Any], at: str) -> Mapping[str, Any]:
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise SchemaUnusable(at, "has properties that are no object")
    for name in properties:
        _check_name(name, at)
    return properties


def _named(schema: Mapping[str, Any], at: str) -> Mapping[str, Any]:
    """The properties, with those that are only said to be required."""
    properties = _properties(schema, at)
    for name in _required(schema):
        _check_name(name, at)
    return {**properties, **{name: True for name in _required(schema) if name not in properties}}


def _required(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required", [])
    return [each for each in required if isinstance(each, str)] if isinstance(required, list) else []


def _check_name(name: object, at: str) -> None:
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX or not is_plain(name):
        raise SchemaUnusable(at, f"has a property {_shown(str(name))}: too long a name, or one that cannot be seen")


def _joined(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _shown(text: str) -> str:
    return quoted(text, NAME_CHARS_MAX)[0]
