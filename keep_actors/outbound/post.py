"""One HTTP request and its bounded answer. The only module that knows httpx, which is an extra: import it late.

Never follows a redirect, since the key would go with it, and never decompresses an answer.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack

import anyio
import httpx
import msgspec


class HttpReply(msgspec.Struct, frozen=True):
    """The answer of the server."""

    status: int
    body: bytes
    is_whole: bool
    """False if it was longer than allowed; the rest was not read."""
    is_encoded: bool
    """True if it was compressed, against the request."""
    retry_after: str


class Sender:
    """Post with the given client, which its owner closes, or with a client of its own for each request."""

    def __init__(self, client: httpx.AsyncClient | None) -> None:
        self._client = client
        # Reading the certificates takes a tenth of a second, too long for the event loop.
        self._ssl = httpx.create_ssl_context() if client is None else None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, bytes_max: int) -> HttpReply:
        """Post and read the answer. Raises as httpx does. Has no timeout: the caller has the deadline."""
        async with AsyncExitStack() as stack:
            client = self._client
            if client is None:
                assert self._ssl is not None, "made when no client was given"
                client = await stack.enter_async_context(httpx.AsyncClient(verify=self._ssl))
            reply = await stack.enter_async_context(
                client.stream(
                    "POST",
                    url,
                    content=body,
                    headers={**headers, "content-type": "application/json", "accept-encoding": "identity"},
                    timeout=None,
                    follow_redirects=False,
                )
            )
            read, is_whole = await _bounded(reply, bytes_max)
            return HttpReply(
                status=reply.status_code,
                body=read,
                is_whole=is_whole,
                is_encoded=reply.headers.get("content-encoding", "identity").strip().lower() != "identity",
                retry_after=reply.headers.get("retry-after", ""),
            )


async def _bounded(reply: httpx.Response, bytes_max: int) -> tuple[bytes, bool]:
    read = bytearray()
    # Not left by `break`: httpx reads through a chain of generators, and only a cancellation ends them all at once.
    with anyio.CancelScope() as scope:
        async for chunk in reply.aiter_raw():
            if len(read) + len(chunk) > bytes_max:
                scope.cancel()
            if not scope.cancel_called:
                read += chunk
    return bytes(read), not scope.cancel_called
