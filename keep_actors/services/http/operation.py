"""A call of a web service as data: where each parameter goes, and what the operator declares about it.

The kinds `http` and `openapi` describe their calls so; `methods.py` makes methods of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from keep_actors.services.http.settings import AnswerKind, Encoding, HttpRules
from keep_actors.services.json_schema import Field

READING: Final = frozenset({"GET", "HEAD"})


class ParameterPlace(StrEnum):
    """The places of a request where a parameter can be."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"
    BODY = "body"
    """A field of the body."""
    WHOLE = "whole"
    """The body itself."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A parameter, and its place."""

    field: Field
    """Its `wire` is the name in the template of the path, in the query, in the body, or of the header."""
    place: ParameterPlace
    is_exploded: bool = True
    """A list in a query is `a=1&a=2`; otherwise it is `a=1,2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOperation:
    """One call of a service."""

    name: str
    """Its name in JavaScript."""
    method: str
    path: str
    """Below the address of the service, with parameters in braces."""
    parameters: Sequence[Placed] = ()
    body: Encoding = "json"
    answer: AnswerKind = "json"
    result: Any = Any
    """The type of the result."""
    description: str = ""
    rules: HttpRules

    @property
    def is_read(self) -> bool:
        """True if it changes nothing, by its method or by the operator's word."""
        return self.method in READING if self.rules.read is None else self.rules.read

    def has_body(self, *, with_key: bool) -> bool:
        """True if a request has a body even if all its parameters are left out."""
        has_fields = any(each.place is ParameterPlace.BODY for each in self.parameters)
        return has_fields or (with_key and bool(self.rules.key_path or self.rules.reference_path))
