"""The service behind the calls of one connector: its address, what every request to it has, and the client for it.

Requests go to the address in the settings and to no other: credentials are added here, and nowhere else.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from keep_actors.connectors import MutationCall
from keep_actors.outbound.addresses import Address, parse_address
from keep_actors.outbound.checked import WebError, WebProblem
from keep_actors.outbound.secret import Secret
from keep_actors.outbound.web import Web, WebReply, WebRequest, header_problem
from keep_actors.services.http.settings import BYTES_MAX, HttpEndpointSettings
from keep_actors.services.service import SettingsError
from keep_storage.ids import Millis, Now, wall_clock

OWN_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that neither settings nor scripts set: they decide where a request begins and ends, and where it goes."""
CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that scripts do not set."""
_PORTS: Final = {"http": 80, "https": 443}
TIMEOUT_S_MAX: Final = 600


class HttpEndpoint:
    """One service. `name` is that of the connector; it is a part of every key."""

    def __init__(
        self,
        settings: HttpEndpointSettings,
        *,
        name: str,
        base_url: str | None = None,
        web: Web | None = None,
        now: Now = wall_clock,
    ) -> None:
        """`base_url` stands in for that of the settings, `web` for the client. Raises `SettingsError`."""
        allow = _allowed(settings)
        self.base_url = (settings.base_url if base_url is None else base_url).rstrip("/")
        self.origin = _origin(self.base_url, allow)
        _check_bounds(settings)
        self.headers, self.hidden = _headers(settings)
        """Every request has these headers. `hidden` are spellings of secrets that a connector has to hide, too."""
        self.web = web or Web(
            allow=allow, bytes_max=settings.bytes_max, timeout_s=settings.timeout_s, ca_file=settings.ca_file
        )
        self._name = name
        self._now = now

    async def open(self) -> None:
        """Prepare the client. Connects to nothing."""
        await self.web.open()

    async def close(self) -> None:
        """Close all connections."""
        await self.web.close()

    def now(self) -> Millis:
        """The time of the host."""
        return self._now()

    def key_of(self, call: MutationCall, chars: int) -> str:
        """The idempotency key as the service gets it: the same for every attempt, and it says nothing."""
        return hashlib.sha256(f"{self._name}\0{call.idempotency_key}".encode()).hexdigest()[:chars]

    def url(self, target: str) -> str:
        """The address of a path below the service's."""
        return self.base_url + target if target.startswith("/") else target

    async def send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        sending: Callable[[], None] | None = None,
        redirects_max: int = 0,
    ) -> WebReply:
        """Send a request to a path, or to a whole address of the same origin. Raises `WebError`."""
        url = self.url(target)
        if _origin_of(url) != self.origin:
            words = f"{url} is not an address of {self.base_url}"
            raise WebError(WebProblem.ADDRESS_REFUSED, words, is_sent=False)
        # Names in lower case, so that those of the operator stand over any other.
        given = {name.lower(): value for name, value in (headers or {}).items()}
        request = WebRequest(method, url, {**given, **self.headers}, body)
        return await self.web.send(request, sending=sending, redirects_max=redirects_max)


def _allowed(settings: HttpEndpointSettings) -> frozenset[Address]:
    try:
        return frozenset(parse_address(each) for each in settings.allow)
    except ValueError as error:
        raise SettingsError("allow", str(error)) from None


def _origin_of(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return parts.scheme, parts.hostname.lower(), _PORTS[parts.scheme] if port is None else port


def _origin(base_url: str, allow: frozenset[Address]) -> tuple[str, str, int]:
    origin = _origin_of(base_url)
    is_plain = base_url.isascii() and base_url.isprintable() and not set(base_url) & set(" \\?#@")
    if origin is None or not is_plain:
        what = "is no address of a service; write https://host, or https://host/path, without a user or a query"
        raise SettingsError("base_url", what)
    scheme, host, port = origin
    if scheme == "http" and (host, port) not in allow:
        what = f'is not encrypted; write https://, or allow = ["{host}:{port}"] if the network is your own'
        raise SettingsError("base_url", what)
    return origin


def _headers(settings: HttpEndpointSettings) -> tuple[dict[str, str], tuple[Secret, ...]]:
    """The headers of every request, and what of them is secret besides the settings themselves."""
    for name in settings.headers:
        if name.lower() in CREDENTIAL_HEADERS:
            what = 'is a secret; write it in secret_headers, as { env = "NAME" }, or use bearer or basic'
            raise SettingsError(f"headers.{name}", what)
    secret = {name: value.reveal() for name, value in settings.secret_headers.items()}
    hidden: tuple[Secret, ...] = ()
    if settings.bearer is not None:
        secret["authorization"] = f"Bearer {settings.bearer.reveal()}"
    if settings.basic is not None:
        if ":" in settings.basic.user:
            raise SettingsError("basic.user", "has a colon, which ends the name of a user; write it without")
        pair = f"{settings.basic.user}:{settings.basic.password.reveal()}"
        encoded = base64.b64encode(pair.encode()).decode()
        secret["authorization"] = f"Basic {encoded}"
        hidden = (Secret(encoded),)
    given = [*settings.headers.items(), *secret.items()]
    headers = {name.lower(): value for name, value in given}
    if len(headers) < len(given) or (settings.bearer is not None and settings.basic is not None):
        raise SettingsError("headers", "has a header twice, or two ways to sign in; keep one of each")
    for name, value in headers.items():
        if name in OWN_HEADERS:
            raise SettingsError(f"headers.{name}", "is set by the connector; leave it out")
        if problem := header_problem(name, value):
            raise SettingsError(f"headers.{name}", f"{problem}; write visible ASCII characters")
    return headers, hidden


def _check_bounds(settings: HttpEndpointSettings) -> None:
    if not 0 < settings.bytes_max <= BYTES_MAX:
        raise SettingsError("bytes_max", f"is {settings.bytes_max}; write 1 to {BYTES_MAX}")
    if not 0 < settings.timeout_s <= TIMEOUT_S_MAX:
        raise SettingsError("timeout_s", f"is {settings.timeout_s}; write more than 0, and at most {TIMEOUT_S_MAX}")
