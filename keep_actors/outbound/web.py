"""One HTTP request and its bounded answer, over the checked transport. httpx2 is an extra: import this late.

No cookies, no decompression, no repetition, nothing from the environment. A redirect is followed only if it is asked
for, only by a request that reads, and without credentials to another origin.
"""

import ssl
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import anyio
import httpx2
import msgspec
from anyio.to_thread import run_sync

from keep_actors.outbound.addresses import Address
from keep_actors.outbound.checked import SENDING, CheckedTransport, WebError, WebProblem

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_READS: Final = frozenset({"GET", "HEAD"})
_HARMLESS: Final = frozenset({"accept", "accept-language", "user-agent"})
"""The headers that another origin may see."""
_OWN: Final = {"accept-encoding": "identity", "user-agent": "keep-actors"}
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class WebRequest(msgspec.Struct, frozen=True):
    """A request."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class WebReply(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """Their names are in lower case."""
    body: bytes
    url: str
    """The address that answered."""


class Web:
    """A client for one connector."""

    def __init__(
        self,
        *,
        allow: Collection[Address] = (),
        bytes_max: int = 1_000_000,
        timeout_s: float = 30,
        ca_file: Path | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`bytes_max` bounds the body of an answer, `timeout_s` each wait of a request; the host bounds the whole.

        `ca_file` has the certificates that are trusted instead of the usual ones. `transport` takes the place of the
        checked one.
        """
        self._allow = frozenset(allow)
        self._bytes_max = bytes_max
        self._timeout = httpx2.Timeout(timeout_s)
        self._ca_file = ca_file
        self._transport = transport

    async def open(self) -> None:
        """Read the certificates, which takes a tenth of a second: in a thread. Raises `OSError`."""
        if self._transport is None:
            context = await run_sync(_ssl_context, self._ca_file)
            self._transport = CheckedTransport(allow=self._allow, ssl_context=context)

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()

    async def send(
        self, request: WebRequest, *, sending: Callable[[], None] | None = None, redirects_max: int = 0
    ) -> WebReply:
        """Make a request and read the answer, whatever its status. Raises `WebError`.

        `sending` is called before the first byte leaves; if it raises, none does, and its error passes.
        """
        for _ in range(redirects_max + 1):
            reply = await self._exchange(request, sending)
            if reply.status not in REDIRECTS or request.method not in _READS or redirects_max == 0:
                return reply
            request = _following(request, reply)
        raise WebError(WebProblem.REDIRECTED, f"more than {redirects_max} redirects", is_sent=True)

    async def _exchange(self, request: WebRequest, sending: Callable[[], None] | None) -> WebReply:
        assert self._transport is not None, "`open` is awaited before the first request"
        asked = _made(request)
        asked.extensions = {"timeout": self._timeout.as_dict(), SENDING: sending}
        reply = await self._transport.handle_async_request(asked)
        try:
            if reply.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise WebError(WebProblem.ENCODED, "the answer is compressed although it was not to be", is_sent=True)
            body = await self._body(reply)
        finally:
            with anyio.CancelScope(shield=True):
                await reply.aclose()
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return WebReply(reply.status_code, headers, body, request.url)

    async def _body(self, reply: httpx2.Response) -> bytes:
        body = bytearray()
        # Not left by `break`: the bytes come through a chain of generators, and only a cancellation ends them at once.
        with anyio.CancelScope() as scope:
            async for chunk in reply.aiter_raw():
                if len(body) + len(chunk) > self._bytes_max:
                    scope.cancel()
                if not scope.cancel_called:
                    body += chunk
        if scope.cancel_called:
            raise WebError(WebProblem.TOO_LARGE, f"the answer has more than {self._bytes_max:,} bytes", is_sent=True)
        return bytes(body)


def header_problem(name: str, value: str) -> str:
    """Return what is wrong with a header, or an empty text."""
    if not name or not set(name) <= _TOKEN:
        return f"{name!r} is not the name of a header"
    if not value.isascii() or any((char < " " and char != "\t") or char == "\x7f" for char in value):
        return f"the value of the header {name} has characters that a header cannot have"
    return ""


def _made(request: WebRequest) -> httpx2.Request:
    """Make the request of httpx2 and check what it does not. Raises `WebError`."""
    headers = {**_OWN, **{name.lower(): value for name, value in request.headers.items()}}
    for name, value in headers.items():
        if problem := header_problem(name, value):
            raise WebError(WebProblem.INVALID_REQUEST, problem, is_sent=False)
    try:
        url = httpx2.URL(request.url)
    except (httpx2.InvalidURL, ValueError, TypeError) as error:
        raise WebError(WebProblem.INVALID_REQUEST, f"the address is not a URL: {error}", is_sent=False) from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        words = "the address needs http:// or https://, a host, and no user in it"
        raise WebError(WebProblem.INVALID_REQUEST, words, is_sent=False)
    return httpx2.Request(request.method, url, headers=headers, content=request.body)


def _following(request: WebRequest, reply: WebReply) -> WebRequest:
    """The request to the address that an answer names. Raises `WebError`."""
    target = reply.headers.get("location", "")
    before = httpx2.URL(request.url)
    try:
        after = httpx2.URL(urljoin(request.url, target))
    except (httpx2.InvalidURL, ValueError) as error:
        raise WebError(WebProblem.REDIRECTED, "the answer redirects to no address", is_sent=True) from error
    if not target or (after.scheme != before.scheme and after.scheme != "https"):
        words = "the answer redirects to no address, or away from https"
        raise WebError(WebProblem.REDIRECTED, words, is_sent=True)
    is_same = (after.scheme, after.host, after.port) == (before.scheme, before.host, before.port)
    headers = {name: value for name, value in request.headers.items() if is_same or name.lower() in _HARMLESS}
    return WebRequest(request.method, str(after), headers)


def _ssl_context(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx2.create_ssl_context(trust_env=False)
