"""A transport for httpx2 that connects only to addresses that may be reached, and tells when a request is sent.

A name is looked up once for each connection, all its addresses are checked, and one that was checked is connected to:
a name that changes its address between the check and the connection changes nothing. TLS still expects the name of the
URL. There are no proxies, Unix sockets or repetitions. Every error is a `WebError`. httpx2 is an extra: import late.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from socket import SOCK_STREAM, gaierror
from typing import Any, Final, TypeAlias

import anyio
import httpcore2
import httpx2

from keep_actors.outbound.addresses import PORT_MAX, Address, is_public

ResolveHost: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up the IP addresses of a host. Raises `OSError`."""
Connect: TypeAlias = Callable[[str, int, float | None], Awaitable[httpcore2.AsyncNetworkStream]]
"""Connects to an IP address and a port, within seconds. Raises as httpcore2 does."""

SENDING: Final = "keep_actors.sending"
"""The extension of a request with a function that is called before its first byte leaves; if it raises, none does."""
CONNECTIONS_MAX: Final = 100
_SENT: Final = "send_request_headers.started"


class WebProblem(StrEnum):
    """The reasons why there is no answer to a request."""

    ADDRESS_REFUSED = "address-refused"
    INVALID_REQUEST = "invalid-request"
    UNREACHABLE = "unreachable"
    CERTIFICATE = "certificate"
    TIMEOUT = "timeout"
    BROKEN = "broken"
    TOO_LARGE = "too-large"
    ENCODED = "encoded"
    REDIRECTED = "redirected"


class WebError(httpx2.TransportError):
    """There is no answer that can be used. `is_sent` is False if no byte of the request has left."""

    def __init__(self, problem: WebProblem, message: str, *, is_sent: bool) -> None:
        super().__init__(message)
        self.problem = problem
        self.is_sent = is_sent


_PROBLEMS: Final[Mapping[type[Exception], WebProblem]] = {
    httpcore2.UnsupportedProtocol: WebProblem.INVALID_REQUEST,
    httpcore2.ConnectError: WebProblem.UNREACHABLE,
    httpcore2.ConnectTimeout: WebProblem.UNREACHABLE,
    httpcore2.PoolTimeout: WebProblem.UNREACHABLE,
    httpcore2.TimeoutException: WebProblem.TIMEOUT,
    httpcore2.NetworkError: WebProblem.BROKEN,
    httpcore2.ProtocolError: WebProblem.BROKEN,
}
"""The first row that fits counts: the base classes stand below."""


class _Passage:
    """How far one request is."""

    def __init__(self, origin: str, sending: Callable[[], None] | None) -> None:
        self.origin = origin
        self.is_sent = False
        self._sending = sending

    async def trace(self, event: str, _: Mapping[str, Any]) -> None:
        if event.endswith(_SENT):
            if self._sending is not None:
                self._sending()
            self.is_sent = True

    def error(self, error: Exception) -> WebError:
        problem = next(problem for kind, problem in _PROBLEMS.items() if isinstance(error, kind))
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in _causes(error)):
            problem = WebProblem.CERTIFICATE
        return WebError(problem, f"{self.origin}: {_words(error)}", is_sent=self.is_sent)


class CheckedTransport(httpx2.AsyncBaseTransport):
    """The transport. `allow` names hosts and ports that may be reached although their addresses are not public.

    Without `keep_alive` every request has a connection of its own: one that was idle may be closed by the server in
    the moment of sending, and then nobody knows.
    """

    def __init__(
        self,
        *,
        allow: Collection[Address] = (),
        keep_alive: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        resolve: ResolveHost | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=None if keep_alive else 0,
            keepalive_expiry=5,
            network_backend=_CheckedBackend(frozenset(allow), resolve or _looked_up, connect or _connected),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request. Its answer is read by the caller, who closes it."""
        passage = _Passage(f"{request.url.scheme}://{request.url.netloc.decode()}", request.extensions.get(SENDING))
        assert isinstance(request.stream, httpx2.AsyncByteStream), "a request of an asynchronous client"
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            # Only these: others could name another host for TLS, or a socket of this machine.
            extensions={"timeout": request.extensions.get("timeout", {}), "trace": passage.trace},
        )
        try:
            reply = await self._pool.handle_async_request(asked)
        except tuple(_PROBLEMS) as error:
            raise passage.error(error) from error
        return httpx2.Response(
            status_code=reply.status,
            headers=reply.headers,
            stream=_Answer(reply, passage),
            extensions=reply.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Answer(httpx2.AsyncByteStream):
    """The body of an answer, with our errors."""

    def __init__(self, reply: httpcore2.Response, passage: _Passage) -> None:
        self._reply = reply
        self._passage = passage

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.aiter_stream():
                yield chunk
        except tuple(_PROBLEMS) as error:
            raise self._passage.error(error) from error

    async def aclose(self) -> None:
        await self._reply.aclose()


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connections to addresses that may be reached."""

    def __init__(self, allow: frozenset[Address], resolve: ResolveHost, connect: Connect) -> None:
        self._allow = allow
        self._resolve = resolve
        self._connect = connect

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature is httpcore2's
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Any = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        if not 0 < port <= PORT_MAX:
            raise WebError(WebProblem.INVALID_REQUEST, f"{host}: there is no port {port}", is_sent=False)
        try:
            with anyio.fail_after(timeout):
                return await self._first(await self._checked(host, port), port, timeout)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection within {timeout} s") from None

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002
        timeout: float | None = None,  # noqa: ARG002, ASYNC109
        socket_options: Any = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        raise WebError(WebProblem.ADDRESS_REFUSED, "a socket of this machine is never reached", is_sent=False)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _checked(self, host: str, port: int) -> Sequence[str]:
        """Look up a host. All its addresses must be fit, since any of them may be chosen."""
        try:
            found = list(dict.fromkeys(await self._resolve(host, port)))
        except gaierror as error:
            raise httpcore2.ConnectError(f"the name is not known: {error.strerror}") from error
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name cannot be looked up: {error}") from error
        if not found:
            raise httpcore2.ConnectError("the name has no address")
        refused = [each for each in found if not is_public(each)]
        if refused and (host.strip("[]").lower(), port) not in self._allow:
            spelled = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            words = f'{host} is {refused[0]}, which is not a public address; to allow it write allow = ["{spelled}"]'
            raise WebError(WebProblem.ADDRESS_REFUSED, words, is_sent=False)
        return found

    async def _first(
        self, addresses: Sequence[str], port: int, timeout_s: float | None
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers, with an equal share of the time for each."""
        share_s = None if timeout_s is None else timeout_s / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._connect(address, port, share_s)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connect(addresses[-1], port, share_s)


async def _looked_up(host: str, port: int) -> Sequence[str]:
    return [str(each[4][0]) for each in await anyio.getaddrinfo(host, port, type=SOCK_STREAM)]


async def _connected(address: str, port: int, timeout_s: float | None) -> httpcore2.AsyncNetworkStream:
    return await httpcore2.AnyIOBackend().connect_tcp(address, port, timeout=timeout_s)


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        following = following.__cause__ or following.__context__
    return found


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
