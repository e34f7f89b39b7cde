"""The request of a call, built from its parameters alone: the same parameters always give the same bytes. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from keep_actors.connectors import InvalidCall
from keep_actors.outbound.web import header_problem
from keep_actors.services.http.address import pairs_of, path_of, query_of, text_of
from keep_actors.services.http.operation import HttpOperation, ParameterPlace
from keep_actors.services.json_schema import to_wire

_CONTENT_TYPES = {"json": "application/json", "form": "application/x-www-form-urlencoded"}


class Built(NamedTuple):
    """A request, without the address of the service and its headers."""

    target: str
    headers: dict[str, str]
    body: bytes


def built(operation: HttpOperation, values: Mapping[str, Any], key: str = "") -> Built:
    """Build the request. `values` are by Python name; `key` is empty for a read. Raises `InvalidCall`."""
    by_place = {place: _wire(operation, place, values) for place in ParameterPlace}
    exploded = {
        each.field.wire: each.is_exploded for each in operation.parameters if each.place is ParameterPlace.QUERY
    }
    pairs = [
        pair
        for name, value in by_place[ParameterPlace.QUERY].items()
        for pair in pairs_of(name, value, is_exploded=exploded[name])
    ]
    headers = {"accept": "application/json" if operation.answer == "json" else "*/*"}
    headers |= {
        name: text_of(name, value) for name, value in by_place[ParameterPlace.HEADER].items() if value is not None
    }
    for name, value in headers.items():
        if problem := header_problem(name, value):
            raise InvalidCall(problem)
    body = _body(operation, by_place[ParameterPlace.BODY], by_place[ParameterPlace.WHOLE], key)
    if body:
        headers["content-type"] = _CONTENT_TYPES[operation.body]
    if key and operation.rules.key_header:
        headers[operation.rules.key_header] = f'"{key}"' if operation.rules.key_quotes else key
    return Built(path_of(operation.path, by_place[ParameterPlace.PATH]) + query_of(pairs), headers, body)


def _wire(operation: HttpOperation, place: ParameterPlace, values: Mapping[str, Any]) -> dict[str, Any]:
    return to_wire([each.field for each in operation.parameters if each.place is place], values)


def _body(operation: HttpOperation, fields: Mapping[str, Any], whole: Mapping[str, Any], key: str) -> bytes:
    content: Any = {**fields}
    if whole:
        [content] = whole.values()
    elif not operation.has_body(with_key=bool(key)):
        return b""
    for path in (operation.rules.key_path, operation.rules.reference_path) if key else ():
        if path:
            content = _with_key(content, [path] if operation.body == "form" else path.split("."), key)
    if operation.body == "json":
        return msgspec.json.encode(content)
    if not isinstance(content, dict):
        raise InvalidCall("a form is an object of texts, numbers, true and false")
    return urlencode([pair for name, value in content.items() for pair in pairs_of(name, value)]).encode()


def _with_key(content: Any, path: list[str], key: str) -> Any:
    name, *rest = path
    if not isinstance(content, dict) or (not rest and name in content):
        raise InvalidCall(f"the connector sets {name!r} in the body; leave it out, and give objects around it")
    return {**content, name: _with_key(content.get(name, {}), rest, key) if rest else key}
