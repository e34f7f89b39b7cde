"""The credentials of a service: its document says how they are written, its operator says which there are.

A document never decides where a secret goes: with one the address of the service is the operator's.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from keep_actors.outbound.secret import Secret
from keep_actors.outbound.web import header_problem
from keep_actors.services.http.settings import HttpBasic
from keep_actors.services.openapi.document import Document, shown
from keep_actors.services.openapi.operation import FRAMING_HEADERS, DocumentedOperation
from keep_actors.services.openapi.settings import OpenApiSettings
from keep_actors.services.service import SettingsError, secrets_in

_BEARER_TYPES: Final = frozenset({"oauth2", "openIdConnect"})


def with_credentials(document: Document, settings: OpenApiSettings) -> OpenApiSettings:
    """The settings with each secret of `auth` where its scheme puts it. Raises `SettingsError`."""
    for name, secret in settings.auth.items():
        settings = _with_scheme(document, settings, name, secret)
    return settings


def _with_scheme(document: Document, settings: OpenApiSettings, name: str, secret: Secret) -> OpenApiSettings:
    where = f"auth.{name}"
    schemes, _ = document.resolved(document.root.get("components", {}), "components")
    schemes = schemes.get("securitySchemes", {})
    if not isinstance(schemes, Mapping) or name not in schemes:
        there = ", ".join(shown(each) for each in schemes) if isinstance(schemes, Mapping) else ""
        raise SettingsError(where, f"the document has no such security scheme; there are: {there or 'none'}")
    scheme, _ = document.resolved(schemes[name], where)
    match scheme:
        case {"type": "http", "scheme": str(kind)} if kind.lower() == "bearer":
            return _as_bearer(settings, where, secret)
        case {"type": "http", "scheme": str(kind)} if kind.lower() == "basic":
            return _as_basic(settings, where, secret)
        case {"type": str(kind)} if kind in _BEARER_TYPES:
            return _as_bearer(settings, where, secret)
        case {"type": "apiKey", "in": "header", "name": str(header)}:
            return _as_header(settings, where, header, secret)
        case {"type": "apiKey", "in": str(place)}:
            what = f"is a key in the {shown(place)}, where logs keep it; write secret_headers if a header will do"
            raise SettingsError(where, what)
    raise SettingsError(where, "is a security scheme that is not understood; write bearer, basic or secret_headers")


def _as_bearer(settings: OpenApiSettings, where: str, secret: Secret) -> OpenApiSettings:
    if settings.bearer is not None or settings.basic is not None:
        raise SettingsError(where, "is a second secret for the header Authorization; write one")
    return msgspec.structs.replace(settings, bearer=secret)


def _as_basic(settings: OpenApiSettings, where: str, secret: Secret) -> OpenApiSettings:
    if settings.bearer is not None or settings.basic is not None:
        raise SettingsError(where, "is a second secret for the header Authorization; write one")
    user, colon, password = secret.reveal().partition(":")
    if not (user and colon):
        raise SettingsError(where, "is for basic authentication: the secret is written user:password")
    return msgspec.structs.replace(settings, basic=HttpBasic(user=user, password=Secret(password)))


def _as_header(settings: OpenApiSettings, where: str, header: str, secret: Secret) -> OpenApiSettings:
    if header_problem(header, "") or header.lower() in FRAMING_HEADERS:
        raise SettingsError(where, f"is a key in the header {shown(header)}, which cannot be written")
    if header.lower() in {name.lower() for name in (*settings.secret_headers, *settings.headers)}:
        raise SettingsError(where, f"the header {shown(header)} has two values; write one")
    return msgspec.structs.replace(settings, secret_headers={**settings.secret_headers, header: secret})


def check_security(operation: DocumentedOperation, settings: OpenApiSettings) -> None:
    """Refuse an operation that needs credentials when there are none. Raises `SettingsError`."""
    required: Any = operation.security
    if not isinstance(required, list) or not required or settings.anonymous:
        return
    is_explicit = settings.bearer is not None or settings.basic is not None or bool(settings.secret_headers)
    alternatives = [each for each in required if isinstance(each, Mapping)]
    if is_explicit or any(set(each) <= set(settings.auth) for each in alternatives):
        return
    ways = " or ".join(" and ".join(shown(name) for name in each) for each in alternatives)
    what = (
        f"needs the credentials {ways}; write them in auth, or as bearer, basic or secret_headers, or anonymous = true"
    )
    raise SettingsError(operation.where, what)


def base_url_of(document: Document, settings: OpenApiSettings) -> str:
    """The address of the service. Raises `SettingsError`."""
    if settings.base_url:
        return settings.base_url
    servers = document.root.get("servers")
    server = servers[0] if isinstance(servers, list) and servers else None
    url = server.get("url") if isinstance(server, Mapping) else None
    if not isinstance(url, str) or not url.startswith("https://") or "{" in url or not urlsplit(url).hostname:
        raise SettingsError("base_url", "is missing, and the document names no server with https; write it")
    if settings.allow or any(secrets_in(settings)):
        what = f"is missing: a document does not choose where secrets go; if it is right, write {shown(url)}"
        raise SettingsError("base_url", what)
    return url
