"""An operation of the document, as an operation of a web service: its types, its name, its reconcile. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from keep_actors.connectors.names import camel_case
from keep_actors.services.http.answers import is_name, resolved
from keep_actors.services.http.operation import HttpOperation, ParameterPlace, Placed
from keep_actors.services.http.settings import Plain
from keep_actors.services.json_schema import Field, SchemaTypes, SchemaUnusable
from keep_actors.services.openapi.document import Document, shown
from keep_actors.services.openapi.operation import (
    SAFE_VERBS,
    DocumentedAnswer,
    DocumentedOperation,
    read_operation,
    segments_of,
)
from keep_actors.services.openapi.properties import without_marked, without_property
from keep_actors.services.openapi.settings import OpenApiAnswer, OpenApiReconcile, OpenApiRules
from keep_actors.services.service import SettingsError
from keep_actors.text.visible import quoted

DESCRIPTION_CHARS_MAX: Final = 400
PARAMETER_CHARS_MAX: Final = 160
PARAMETERS_SHOWN_MAX: Final = 30
_WORDS: Final = re.compile(r"[^A-Za-z0-9]+")
_BODY: Final = "body"


class Documents(msgspec.Struct, frozen=True):
    """One document, as requests and as answers see it."""

    whole: Document
    sent: Mapping[str, Any]
    received: Mapping[str, Any]

    @classmethod
    def of(cls, document: Document) -> "Documents":
        """Leave out of each what is not part of it. Raises `SettingsError`."""
        root = document.root
        try:
            return cls(document, without_marked(root, "readOnly"), without_marked(root, "writeOnly"))
        except RecursionError:
            raise SettingsError("document", "is nested too deep to be a document of a service") from None


def operation_of(
    documents: Documents, title: str, found: DocumentedOperation, rules: OpenApiRules, filled: Collection[str] = ()
) -> HttpOperation:
    """The operation with the rules of its section of the settings. Raises `SettingsError`.

    `title` is the name of the connector, and `filled` are headers that every request has.
    """
    name = _name(found, rules)
    try:
        placed = _placed(documents, found, rules, f"{title}.{name}", {rules.key_header.lower(), *filled})
        answer, result = _result(documents, found, rules, f"{title}.{name}.result")
    except SchemaUnusable as error:
        raise SettingsError(found.where, f"{error}; or write its name in `untyped`, or answer = 'any'") from None
    _check_untyped(found, rules, placed)
    return HttpOperation(
        name=name,
        method=found.verb,
        path=found.path,
        parameters=placed,
        answer=answer,
        result=result,
        description=_description(found, placed),
        rules=_with_reconcile(documents.whole, found, rules),
    )


def _name(found: DocumentedOperation, rules: OpenApiRules) -> str:
    if rules.name:
        return rules.name
    words = [word for word in _WORDS.split(found.operation_id) if word]
    name = camel_case("_".join(words))
    if not name or name[0].isdigit():
        raise SettingsError(found.where, 'has no operationId that could be a name; write name = "…"')
    return name[0].lower() + name[1:]


def _placed(
    documents: Documents, found: DocumentedOperation, rules: OpenApiRules, title: str, filled: Collection[str]
) -> list[Placed]:
    types = SchemaTypes(title, documents.sent)
    placed: list[Placed] = []
    for each in found.parameters:
        if each.place is ParameterPlace.HEADER and each.wire in filled:
            continue
        taken = [one.field for one in placed]
        schema = {} if each.wire in rules.untyped else without_marked(each.schema, "readOnly")
        field = types.field(each.wire, schema, each.is_required, each.description, taken)
        placed.append(Placed(field, each.place, is_exploded=each.explodes))
    return placed + _body(documents, types, found, rules, [each.field for each in placed])


def _body(
    documents: Documents, types: SchemaTypes, found: DocumentedOperation, rules: OpenApiRules, taken: list[Field]
) -> list[Placed]:
    if found.body is None:
        if rules.spread_body:
            raise SettingsError(f"{found.where}.spread_body", "the operation has no body; leave it out")
        return []
    schema: Any = {} if _BODY in rules.untyped else without_marked(found.body.schema, "readOnly")
    for path in (rules.key_path, rules.reference_path):
        if path:
            sent = Document(documents.sent, documents.whole.sha256)
            schema = without_property(sent, schema, path.split("."), f"{found.where}: the body")
    if not rules.spread_body:
        field = types.field(_BODY, schema, found.body.is_required, found.body.description, taken)
        return [Placed(field, ParameterPlace.WHOLE)]
    fields = types.fields(schema, _BODY)
    names = {each.spelled for each in taken} | {each.name for each in taken}
    if clash := [each.wire for each in fields if each.spelled in names or each.name in names]:
        what = f"the body and the parameters both have {shown(clash[0])}; leave it out, and pass `body`"
        raise SettingsError(f"{found.where}.spread_body", what)
    if not fields:
        raise SettingsError(f"{found.where}.spread_body", "the body has no named properties; leave it out")
    return [Placed(each, ParameterPlace.BODY) for each in fields]


def _check_untyped(found: DocumentedOperation, rules: OpenApiRules, placed: list[Placed]) -> None:
    there = [each.field.wire for each in placed if each.place is not ParameterPlace.BODY]
    for name in rules.untyped:
        if name not in there and not (name == _BODY and found.body is not None):
            names = ", ".join(shown(each) for each in there) or "none"
            raise SettingsError(f"{found.where}.untyped", f"{name!r} is no parameter; there are: {names}")


def _result(documents: Documents, found: DocumentedOperation, rules: OpenApiRules, title: str) -> tuple[Any, Any]:
    """How an answer is read, and the type of the result."""
    kind = _kind(found, rules)
    if kind == "none":
        return "none", None
    if kind == "text":
        return "text", str
    if kind == "any" or rules.result_path or len(found.answer.schemas) != 1:
        return "json", Any
    types = SchemaTypes(title, documents.received, is_given=False)
    result = types.type(without_marked(found.answer.schemas[0], "writeOnly"))
    return "json", result | None if found.answer.may_be_empty and result is not Any else result


def _kind(found: DocumentedOperation, rules: OpenApiRules) -> OpenApiAnswer:
    answer: DocumentedAnswer = found.answer
    if found.verb == "HEAD":
        return "none"
    if rules.answer != "typed":
        return rules.answer
    if not answer.other_types:
        return "typed" if answer.schemas else "none"
    if answer.schemas:
        return "typed"
    if all(each.lower().startswith("text/") for each in answer.other_types):
        return "text"
    kinds = ", ".join(shown(each) for each in answer.other_types)
    raise SettingsError(found.where, f"is answered with {kinds}; write answer = 'text' or answer = 'none'")


def _description(found: DocumentedOperation, placed: list[Placed]) -> str:
    """Its words for models and people: the words of the document are quoted, and so cannot pass for ours."""
    first = f"{found.verb} {shown(found.path)[1:-1]}."
    if found.description.strip():
        first += f" The service says: {_quoted(found.description, DESCRIPTION_CHARS_MAX)}"
    said = [each.field for each in placed if each.field.description.strip()]
    described = [
        f"{each.spelled}: {_quoted(each.description, PARAMETER_CHARS_MAX)}" for each in said[:PARAMETERS_SHOWN_MAX]
    ]
    return "\n".join([first, *([f"The service says of parameters: {', '.join(described)}"] if described else [])])


def _quoted(text: str, most: int) -> str:
    said, left = quoted(" ".join(text.split()), most)
    return f"{said} …" if left else said


def _with_reconcile(document: Document, found: DocumentedOperation, rules: OpenApiRules) -> OpenApiRules:
    reconcile = rules.reconcile
    if reconcile is None or not reconcile.operation:
        if reconcile is not None and reconcile.parameters:
            what = "`parameters` belong to an operation of the document; write operation, or query"
            raise SettingsError(f"{found.where}.reconcile", what)
        return rules
    return msgspec.structs.replace(rules, reconcile=_of_operation(document, found.where, reconcile))


def _of_operation(document: Document, where: str, reconcile: OpenApiReconcile) -> OpenApiReconcile:
    """A reconcile that names an operation, as path and query."""
    at = f"{where}.reconcile"
    if reconcile.path:
        raise SettingsError(at, "has an operation and a path; write one")
    found = read_operation(document, reconcile.operation)
    if found.verb not in SAFE_VERBS:
        raise SettingsError(at, f"{shown(reconcile.operation)} is a {found.verb}; only a GET finds out")
    left = dict(reconcile.parameters)
    pieces = segments_of(found.path)
    for index in range(1, len(pieces), 2):
        if pieces[index] not in left:
            raise SettingsError(at, f"the path needs {shown(pieces[index])}; write it in parameters")
        pieces[index] = _in_path(left.pop(pieces[index]))
    query = dict(reconcile.query)
    for each in found.parameters:
        if each.place is ParameterPlace.QUERY and each.wire in left:
            query[each.wire] = left.pop(each.wire)
        elif each.is_required and each.place is not ParameterPlace.PATH:
            raise SettingsError(at, f"{shown(reconcile.operation)} needs {shown(each.wire)}; write it in parameters")
    if left:
        raise SettingsError(
            at, f"{shown(reconcile.operation)} has no parameter {', '.join(map(repr, left))} in its URL"
        )
    return msgspec.structs.replace(reconcile, path="".join(pieces), query=query)


def _in_path(value: Plain) -> str:
    """A value in the path of a reconcile, where a name stands in braces."""
    if isinstance(value, str) and is_name(value):
        return f"{{{value[1:]}}}"
    text = resolved(value, {})
    return quote(text if isinstance(text, str) else msgspec.json.encode(text).decode(), safe="")
