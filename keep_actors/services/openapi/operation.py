"""One operation of a document: its parameters, its one body, its answers. What we do not understand is refused.

The schemas in it are not read here; `method` makes types of them.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import msgspec

from keep_actors.connectors.params import misfit
from keep_actors.services.http.endpoint import OWN_HEADERS
from keep_actors.services.http.operation import ParameterPlace
from keep_actors.services.openapi.document import Document, shown
from keep_actors.services.service import SettingsError

S = TypeVar("S", bound=msgspec.Struct)

VERBS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SAFE_VERBS: Final = frozenset({"GET", "HEAD"})

_IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
"""OpenAPI says that a parameter of such a name means nothing."""
FRAMING_HEADERS: Final = OWN_HEADERS | {"cookie"}
"""These belong to the connection: whoever writes them writes another request."""

_STYLES: Final[Mapping[ParameterPlace, str]] = {
    ParameterPlace.PATH: "simple",
    ParameterPlace.QUERY: "form",
    ParameterPlace.HEADER: "simple",
}


class DocumentedParameter(msgspec.Struct, frozen=True):
    """A parameter that is not in the body."""

    wire: str
    place: ParameterPlace
    schema: Any
    is_required: bool
    description: str
    explodes: bool
    """A list is written as many parameters of one name, not with commas."""


class DocumentedBody(msgspec.Struct, frozen=True):
    """The JSON body."""

    schema: Any
    is_required: bool
    description: str
    media_type: str


class DocumentedAnswer(msgspec.Struct, frozen=True):
    """The answer to a request that succeeds."""

    schemas: tuple[Any, ...]
    """One for each different answer that is JSON."""
    may_be_empty: bool
    other_types: tuple[str, ...]
    """Media types that are not JSON."""


class DocumentedOperation(msgspec.Struct, frozen=True):
    """An operation."""

    where: str
    """For messages: the words by which it was chosen."""
    verb: str
    path: str
    operation_id: str
    description: str
    parameters: tuple[DocumentedParameter, ...]
    body: DocumentedBody | None
    answer: DocumentedAnswer
    security: Any
    """The security requirements that apply to it."""


class _Written(msgspec.Struct):
    """An operation as it stands in the document."""

    operation_id: str = msgspec.field(name="operationId", default="")
    summary: str = ""
    description: str = ""
    parameters: list[Any] = []
    request_body: Any = msgspec.field(name="requestBody", default=None)
    responses: dict[str, Any] = {}
    security: Any = None


class _WrittenParameter(msgspec.Struct):
    name: str
    place: str = msgspec.field(name="in")
    required: bool = False
    schema: Any = msgspec.UNSET
    style: str = ""
    explode: bool | None = None
    description: str = ""


class _WrittenBody(msgspec.Struct):
    content: dict[str, Any]
    required: bool = False
    description: str = ""


class _Media(msgspec.Struct):
    schema: Any = True


def read_operation(document: Document, chosen: str) -> DocumentedOperation:
    """Find an operation by its `operationId` or by `POST /orders`, and read it. Raises `SettingsError`."""
    where = f"operations.{shown(chosen)}"
    verb, path, item, raw = _found(document, chosen, where)
    written = _as(_Written, raw, where)
    parameters = _parameters(document, [*_listed(item.get("parameters"), where), *written.parameters], where)
    _check_path(path, parameters, where)
    return DocumentedOperation(
        where=where,
        verb=verb,
        path=path,
        operation_id=written.operation_id,
        description=written.description or written.summary,
        parameters=parameters,
        body=None if written.request_body is None else _body(document, written.request_body, verb, where),
        answer=_answer(document, written.responses, where),
        security=document.root.get("security") if written.security is None else written.security,
    )


def _found(document: Document, chosen: str, where: str) -> tuple[str, str, Mapping[str, Any], Mapping[str, Any]]:
    every = list(_operations(document, chosen))
    found = [each for each in every if chosen in (f"{each[0]} {each[1]}", each[3].get("operationId"))]
    if len(found) == 1:
        [[verb, path, item, raw]] = found
        if verb not in VERBS:
            raise SettingsError(where, f"has the method {verb}; only {', '.join(VERBS)} are called")
        return verb, path, item, raw
    if found:
        there = " and ".join(shown(f"{verb} {path}") for verb, path, *_ in found[:3])
        raise SettingsError(where, f"is the operationId of {there}; write one of these instead")
    names = [name for verb, path, _, raw in every for name in (f"{verb} {path}", str(raw.get("operationId", "")))]
    near = get_close_matches(chosen, names, n=3, cutoff=0.5) or names[:3]
    there = ", ".join(shown(each) for each in near if each)
    raise SettingsError(
        where, f"the document has no such operation; write an operationId or a method and path: {there}"
    )


def _operations(document: Document, chosen: str) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    paths, at = document.resolved(document.root.get("paths", {}), "paths")
    for path, value in paths.items():
        if not path.startswith("/"):
            continue  # an extension
        try:
            item, here = document.resolved(value, f"{at}.{shown(path)}")
        except SettingsError:
            if chosen.endswith(f" {path}"):
                raise
            continue  # another operation may be fine
        for name, raw in item.items():
            if name in _METHODS:
                yield name.upper(), path, item, document.resolved(raw, f"{here}.{name}")[0]


_METHODS: Final = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


def _listed(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SettingsError(where, "its parameters are no list; the document is not OpenAPI here")
    return value


def _parameters(document: Document, written: list[Any], where: str) -> tuple[DocumentedParameter, ...]:
    """All parameters; one of the operation replaces one of its path."""
    found: dict[tuple[str, str], DocumentedParameter] = {}
    for value in written:
        raw, _ = document.resolved(value, f"{where}: a parameter")
        if (parameter := _parameter(raw, where)) is not None:
            found[parameter.place, parameter.wire] = parameter
    return tuple(found.values())


def _parameter(raw: Mapping[str, Any], where: str) -> DocumentedParameter | None:
    """One parameter; None for an optional one that a request does without."""
    written = _as(_WrittenParameter, raw, f"{where}: a parameter")
    at = f"{where}: the {written.place} parameter {shown(written.name)}"
    if written.place not in _STYLES:
        if written.place == "cookie" and not written.required:
            return None
        raise SettingsError(at, f"is not understood there; only {', '.join(_STYLES)} are written")
    place = ParameterPlace(written.place)
    name = written.name.lower()
    if place is ParameterPlace.HEADER and name in _IGNORED_HEADERS:
        return None
    if place is ParameterPlace.HEADER and name in FRAMING_HEADERS:
        raise SettingsError(at, "is a header of the connection itself; it cannot be a parameter")
    if written.schema is msgspec.UNSET:
        raise SettingsError(at, "has no schema; a parameter with `content` is not understood")
    style = written.style or _STYLES[place]
    if style != _STYLES[place]:
        raise SettingsError(at, f"is written in the style {shown(style)}; only {_STYLES[place]!r} is understood here")
    if place is ParameterPlace.PATH and not written.required:
        raise SettingsError(at, "is not required; a path without it is another path")
    explodes = written.explode if written.explode is not None else style == "form"
    wire = name if place is ParameterPlace.HEADER else written.name
    return DocumentedParameter(wire, place, written.schema, written.required, written.description, explodes)


def _check_path(path: str, parameters: tuple[DocumentedParameter, ...], where: str) -> None:
    declared = {each.wire for each in parameters if each.place is ParameterPlace.PATH}
    named = set(segments_of(path)[1::2])
    if declared != named:
        what = f"the path has {_names(named)}, and its path parameters are {_names(declared)}; they must be the same"
        raise SettingsError(where, what)


def segments_of(path: str) -> list[str]:
    """The pieces of a path: text, parameter, text, parameter, text."""
    pieces: list[str] = []
    for each in path.split("{"):
        pieces += each.split("}", 1) if pieces else [each]
    return pieces


def _names(names: set[str]) -> str:
    return ", ".join(shown(each) for each in sorted(names)) or "none"


def _body(document: Document, value: object, verb: str, where: str) -> DocumentedBody:
    at = f"{where}: the body"
    raw, _ = document.resolved(value, at)
    written = _as(_WrittenBody, raw, at)
    if verb in SAFE_VERBS:
        raise SettingsError(at, f"a {verb} has no body; servers and proxies drop it")
    media = [name for name in written.content if is_json(name)]
    if not media:
        kinds = ", ".join(shown(each) for each in written.content) or "nothing"
        raise SettingsError(at, f"is {kinds}; only JSON is written")
    schema = _as(_Media, written.content[media[0]], at).schema
    return DocumentedBody(schema, written.required, written.description, media[0].partition(";")[0].strip())


def _answer(document: Document, responses: Mapping[str, Any], where: str) -> DocumentedAnswer:
    schemas: list[Any] = []
    others: list[str] = []
    may_be_empty = False
    good = [status for status in responses if status[:1] == "2"] or [each for each in responses if each == "default"]
    for status in good:
        at = f"{where}: the answer {shown(status)}"
        raw, _ = document.resolved(responses[status], at)
        content = raw.get("content") or {}
        if not isinstance(content, Mapping):
            raise SettingsError(at, "its content is no object; the document is not OpenAPI here")
        may_be_empty = may_be_empty or not content
        for name, media in content.items():
            if not is_json(name):
                others.append(name)
            elif (schema := _as(_Media, media, at).schema) not in schemas:
                schemas.append(schema)
    return DocumentedAnswer(tuple(schemas), may_be_empty, tuple(others))


def is_json(media_type: str) -> bool:
    """Return whether this media type is JSON."""
    name = media_type.partition(";")[0].strip().lower()
    return name == "application/json" or (name.startswith("application/") and name.endswith("+json"))


def _as(struct: type[S], raw: object, where: str) -> S:
    try:
        return msgspec.convert(raw, struct)
    except msgspec.ValidationError as error:
        path, what = misfit(str(error))
        raise SettingsError(where, ": ".join(part for part in (path, what) if part)) from None
