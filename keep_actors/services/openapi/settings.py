"""Settings of the connector: the document, the place of the service, and for each operation what scripts may do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from keep_actors.outbound.secret import Secret
from keep_actors.services.http.settings import HttpEndpointSettings, HttpReconcile, HttpRules, Plain

OpenApiAnswer: TypeAlias = Literal["typed", "any", "text", "none"]


class OpenApiReconcile(HttpReconcile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GET that finds out an unknown outcome: an operation of the document, or a path of your own."""

    operation: str = ""
    """An `operationId`, or `GET /orders`."""
    parameters: Mapping[str, Plain] = {}
    """The values of its parameters, by their names in the document. `$key` is the key of the call."""


class OpenApiRules(HttpRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one operation. All have defaults: an empty section offers the operation."""

    name: str = ""
    """Its name in JavaScript. Empty: made of its `operationId`."""
    spread_body: bool = False
    """The properties of the body are parameters of the method, so that `identity` can name them."""
    untyped: tuple[str, ...] = ()
    """Parameters whose schema is not used: any JSON is sent, and the service checks it."""
    answer: OpenApiAnswer = "typed"
    """The result. `any`: whatever JSON comes. `text`: the body as it is. `none`: the body is not looked at."""
    reconcile: OpenApiReconcile | None = None


class OpenApiSettings(HttpEndpointSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the connector."""

    document: Path
    """JSON of OpenAPI 3.0 or 3.1."""
    seen: str = ""
    """SHA-256 of the document that a person has looked at. Another document is refused."""
    operations: Mapping[str, OpenApiRules]
    """By `operationId`, or as `POST /orders`. Others are not offered."""
    base_url: str = ""
    """Empty: the server that the document names, if nothing secret is sent there."""
    auth: Mapping[str, Secret] = {}
    """By the name of a security scheme of the document: a key, a token, or `user:password`."""
    anonymous: bool = False
    """Operations that say that they need credentials are called without."""
