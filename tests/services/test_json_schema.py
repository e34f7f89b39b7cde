"""Types of JSON Schemas: they accept what the schema accepts, and say what they cannot read."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no types
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_actors.services.json_schema import NODES_MAX, SchemaTypes, SchemaUnusable, to_wire

NAMES = st.sampled_from(["id", "x-trace", "class", "_hidden", "1st", "naïve", "subkey", "call"])


def numbers(draw: Any, kind: str) -> tuple[dict[str, Any], Any]:
    value = draw(st.integers(-(10**6), 10**6) if kind == "integer" else st.floats(-1e6, 1e6))
    near = st.floats(-10, 10)
    schema = {"type": kind}
    for word, sign in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", -1), ("exclusiveMaximum", 1)):
        if draw(st.booleans()):
            schema[word] = value + sign * abs(draw(near))
    return schema, value


@st.composite
def leaves(draw: Any) -> tuple[dict[str, Any], Any]:
    kind = draw(st.sampled_from(["string", "integer", "number", "boolean", "null", "enum", "any"]))
    if kind in ("integer", "number"):
        return numbers(draw, kind)
    if kind == "string":
        text = draw(st.text(max_size=5))
        return draw(st.sampled_from([{"type": "string"}, {"type": "string", "minLength": len(text)}])), text
    if kind == "enum":
        values = draw(st.lists(st.text(max_size=3) | st.integers(-5, 5) | st.none() | st.booleans(), min_size=1))
        return {"enum": values}, draw(st.sampled_from(values))
    if kind == "any":
        return draw(st.sampled_from([{}, {"not": {"type": "string"}}, {"pattern": "^a"}])), draw(st.integers())
    return {"type": kind}, None if kind == "null" else draw(st.booleans())


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.tuples(inner, st.integers(0, 2)).map(
        lambda each: ({"type": "array", "items": each[0][0], "maxItems": 2}, [each[0][1]] * each[1])
    )
    objects = st.dictionaries(NAMES, st.tuples(inner, st.booleans()), max_size=4).map(
        lambda fields: (
            {
                "type": "object",
                "properties": {name: each[0] for name, (each, _) in fields.items()},
                "required": [name for name, (_, required) in fields.items() if required],
            },
            {name: each[1] for name, (each, _) in fields.items()},
        )
    )
    unions = st.tuples(inner, inner).map(lambda two: ({"anyOf": [two[0][0], two[1][0]]}, two[1][1]))
    parts = objects.map(lambda each: ({"allOf": [each[0], {"required": each[0]["required"]}]}, each[1]))
    return lists | objects | unions | parts


@settings(max_examples=150, deadline=None)
@given(st.recursive(leaves(), branches, max_leaves=8), st.booleans())
def test_the_type_accepts_what_the_schema_accepts(made: tuple[dict[str, Any], Any], is_given: bool) -> None:
    schema, value = made
    if not jsonschema.Draft202012Validator(schema).is_valid(value):
        return
    found = SchemaTypes("a.b", is_given=is_given).type(schema)
    msgspec.json.decode(msgspec.json.encode(value), type=found)


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "integer", "exclusiveMaximum": 0}]}, [0, -1]),
        ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "number", "maximum": 2}]}, [7, 1, 1.5, 7.0]),
        ({"anyOf": [{"type": "string"}, {"type": "string", "minLength": 3}]}, ["a", "abc"]),
        ({"anyOf": [{"const": "auto"}, {"type": "string", "minLength": 10}]}, ["auto", "0123456789"]),
        ({"anyOf": [{"enum": [0, "none"]}, {"type": "integer", "minimum": 5}]}, [0, 5, "none"]),
        ({"anyOf": [{"anyOf": [{"const": 1}, {"type": "null"}]}, {"type": ["integer", "null"], "minimum": 5}]}, [1, 5]),
    ],
)
def test_the_bounds_of_one_alternative_do_not_bind_another(schema: dict[str, Any], values: list[Any]) -> None:
    found = SchemaTypes("a.b").type(schema)
    for value in values:
        assert msgspec.json.decode(msgspec.json.encode(value), type=found) == value


TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "owner": {"type": "string", "minLength": 1, "description": "Its owner."},
        "x-trace": {"type": ["integer", "null"], "minimum": 1},
        "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
        "to": {"oneOf": [{"type": "object", "properties": {"mail": {"type": "string"}}}, {"$ref": "#/$defs/Label"}]},
        "subkey": {"const": "a"},
    },
    "required": ["owner", "unsaid"],
    "$defs": {
        "Label": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inner": {"$ref": "#/$defs/Label"}},
            "required": ["name"],
        }
    },
}


def test_properties_become_parameters_with_names_for_both_languages() -> None:
    fields = SchemaTypes("crm.add").fields(TOOL)
    assert [(each.wire, each.name, each.spelled, each.is_required) for each in fields] == [
        ("owner", "owner", "owner", True),
        ("x-trace", "x_trace", "xTrace", False),
        ("labels", "labels", "labels", False),
        ("to", "to", "to", False),
        ("subkey", "subkey_", "subkey_", False),
        ("unsaid", "unsaid", "unsaid", True),
    ]
    assert fields[0].description == "Its owner."


def test_the_service_gets_its_own_names_and_nothing_that_was_left_out() -> None:
    fields = SchemaTypes("crm.add").fields(TOOL)
    label = msgspec.json.decode(b'[{"name": "red"}]', type=fields[2].type)
    values = {"owner": "ann", "x_trace": 7, "labels": label, "to": msgspec.UNSET, "unsaid": None}
    assert to_wire(fields, values) == {"owner": "ann", "x-trace": 7, "labels": [{"name": "red"}], "unsaid": None}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string", "maxLength": 2}, '"abc"'),
        ({"type": "integer", "exclusiveMinimum": 3}, "3"),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "3"),
        ({"type": "number", "minimum": 0.5}, "0.25"),
        ({"enum": ["a", "b"]}, '"c"'),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, "[]"),
        ({"type": "object", "properties": {"a": {}}}, '{"b": 1}'),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, "{}"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, '{"b": 1}'),
        ({"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}, '{"a": 1}'),
        ({"nullable": True, "type": "string"}, "1"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_before_it_is_sent(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=SchemaTypes("a.b").type(schema))


def test_results_are_read_generously() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "maximum": 1},
            "s": {"type": "string", "maxLength": 1},
            "e": {"enum": ["open", "paid", None]},
        },
    }
    found = SchemaTypes("a.b-result", is_given=False).type(schema)
    msgspec.json.decode(b'{"n": 7.0, "s": "long", "e": "refunded", "new": true}', type=found)
    assert '"open"' in str(msgspec.json.schema(found)).replace("'", '"')
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"e": 7}', type=found)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "https://example.com/a.json"}, "which is in another document"),
        ({"$ref": "#/$defs/gone"}, "which is not there"),
        ({"$ref": 7}, "has a $ref that is no text"),
        ({"type": "array", "items": 7}, "[]: is not a schema"),
        ({"properties": []}, "has properties that are no object"),
        ({"properties": {"a\u200b": {}}}, r'has a property "a\u{200b}"'),
        ({"properties": {"a" * 101: {}}}, "too long a name"),
        ({"allOf": {}}, "has an allOf that is no list"),
        ({"properties": {str(number): {} for number in range(NODES_MAX)}}, "has more than 2,000 parts"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_its_place(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaUnusable) as raised:
        SchemaTypes("a.b").type(schema)
    assert message in str(raised.value)


def test_a_schema_nested_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaUnusable, match="is nested more than 40 deep"):
        SchemaTypes("a.b").type(deep)


WORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "const",
        "$ref",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "minLength",
        "maxLength",
        "minItems",
        "nullable",
        "description",
        "pattern",
        "$defs",
        "a",
        "b",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KINDS = st.sampled_from(["string", "integer", "number", "object", "array", "null", "#", "#/$defs/a", "#/properties/a"])
ANYTHING = st.recursive(
    SCALARS | KINDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5)
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(WORDS, ANYTHING, max_size=6), st.booleans())
def test_whatever_a_service_sends_as_a_schema_is_a_type_or_refused(schema: dict[str, Any], is_given: bool) -> None:
    try:
        found = SchemaTypes("a.b", is_given=is_given).type(schema)
        SchemaTypes("a.c", is_given=is_given).fields(schema)
    except SchemaUnusable:
        return
    msgspec.json.Decoder(found)
    msgspec.json.schema(found)


@pytest.mark.parametrize("name", ['a"b', "a\\b"])
def test_a_property_that_no_field_can_be_named_after_is_accepted_as_it_is(name: str) -> None:
    found = SchemaTypes("a.b").type({"type": "object", "properties": {name: {"type": "string"}}})
    assert msgspec.json.decode(msgspec.json.encode({name: "x"}), type=found) == {name: "x"}


@pytest.mark.parametrize("reference", ["#", "#/allOf/0", "#/$defs/a"])
def test_a_schema_with_itself_inside_ends(reference: str) -> None:
    schema = {"allOf": [{"$ref": reference}], "$defs": {"a": {"$ref": "#/$defs/a"}}, "type": "object"}
    assert SchemaTypes("a.b").type(schema) is not None


def test_only_an_object_has_parameters() -> None:
    with pytest.raises(SchemaUnusable, match="is not the schema of an object"):
        SchemaTypes("a.b").fields({"type": "array"})
    assert SchemaTypes("a.b").fields({"type": "object"}) == []
    assert SchemaTypes("a.b").fields({}) == []
