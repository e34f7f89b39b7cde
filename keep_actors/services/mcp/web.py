"""A server that is reached over HTTP: a transport below the one of the package, which tears a session down at an error.

Here every error becomes an answer, so one lost request hurts no other; what it was is kept in its passage. Addresses
are checked, answers are bounded, and streams that nobody asked for are not opened.
"""

import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import msgspec
from anyio.to_thread import run_sync
from mcp.client.streamable_http import streamable_http_client

from keep_actors.connectors import ConnectorError
from keep_actors.outbound.addresses import Address
from keep_actors.outbound.checked import SENDING, CheckedTransport, Connect, ResolveHost, WebError, WebProblem
from keep_actors.services.mcp.passage import CALL_METHOD, PASSAGE, Passage, Watch

REFUSED_BEFORE: Final = frozenset({401, 403, 429})
"""Statuses that are given before a request reaches a tool. Others a server derives from the error of a tool."""
LOST: Final = -32098
"""The code of the answer that stands for a request without one."""


class _Asked(msgspec.Struct):
    """The part of a message that is looked at."""

    method: str = ""
    id: Any = None


class _Error(msgspec.Struct):
    """The part of an answer that says if it is one to a request."""

    id: Any = None
    error: Any = msgspec.UNSET


class WebServer:
    """Where it is."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        allow: Collection[Address],
        ca_file: Path | None,
        timeout_s: float,
        bytes_max: int,
        resolve: ResolveHost | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._url = url
        self._headers = {**headers, "accept-encoding": "identity", "user-agent": "keep-actors"}
        self._allow = allow
        self._ca_file = ca_file
        self._timeout_s = timeout_s
        self._bytes_max = bytes_max
        self._resolve = resolve
        self._connect = connect

    @property
    def last_words(self) -> str:
        """An empty text: it writes only messages."""
        return ""

    @asynccontextmanager
    async def running(self, watch: Watch) -> AsyncIterator[tuple[Any, Any]]:
        """Have a client for it. Nothing is connected before the first message. Raises `OSError`."""
        context = await run_sync(_ssl_context, self._ca_file)
        inner = CheckedTransport(allow=self._allow, ssl_context=context, resolve=self._resolve, connect=self._connect)
        client = httpx2.AsyncClient(
            transport=_PatientTransport(inner, watch, self._bytes_max),
            headers=self._headers,
            timeout=self._timeout_s,
            trust_env=False,
            max_redirects=0,
        )
        async with client, streamable_http_client(self._url, http_client=client) as streams:
            yield streams


class _PatientTransport(httpx2.AsyncBaseTransport):
    """Raises nothing."""

    def __init__(self, inner: CheckedTransport, watch: Watch, bytes_max: int) -> None:
        self._inner = inner
        self._watch = watch
        self._bytes_max = bytes_max

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx2.Response(405)  # a stream for messages that nobody asked for
        asked = _asked(request)
        passage = PASSAGE.get() if asked.method == CALL_METHOD else None
        if passage is not None:
            request.extensions[SENDING] = passage.send
        try:
            reply = await self._inner.handle_async_request(request)
        except WebError as error:
            return self._lost(asked, error, passage)
        except ConnectorError:  # the host did not wait any more, and the passage knows
            return _answer(asked, "not sent")
        except (OSError, ExceptionGroup, ValueError, httpx2.HTTPError) as error:
            is_sent = passage is not None and passage.is_sent
            return self._lost(asked, WebError(WebProblem.BROKEN, f"{type(error).__name__}", is_sent=is_sent), passage)
        return await self._judged(asked, reply, passage)

    async def _judged(self, asked: _Asked, reply: httpx2.Response, passage: Passage | None) -> httpx2.Response:
        """The answer for the session: the one that came, with its body bounded, or one in its place."""
        if reply.status_code >= 300:
            self._watch.status = reply.status_code
            if passage is not None:
                passage.status = reply.status_code
        if 300 <= reply.status_code < 400:
            await reply.aclose()
            return _answer(asked, "redirected")
        if reply.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await reply.aclose()
            words = "the answer is compressed although it was not to be"
            return self._lost(asked, WebError(WebProblem.ENCODED, words, is_sent=True), passage)
        reply.stream = _PatientBody(reply.stream, self, passage, self._bytes_max)
        is_json = reply.headers.get("content-type", "").lower().startswith("application/json")
        if passage is not None and passage.status is not None and passage.status not in REFUSED_BEFORE and is_json:
            passage.is_answered = _answers(await reply.aread(), asked)
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()

    def keep(self, error: WebError, passage: Passage | None) -> None:
        """Remember an error for the one who asked."""
        self._watch.failure = error
        if passage is not None:
            passage.web_error = error

    def _lost(self, asked: _Asked, error: WebError, passage: Passage | None) -> httpx2.Response:
        self.keep(error, passage)
        return _answer(asked, error.problem.value)


class _PatientBody(httpx2.AsyncByteStream):
    """A bounded body that ends where it breaks."""

    def __init__(self, inner: Any, transport: _PatientTransport, passage: Passage | None, bytes_max: int) -> None:
        self._inner = inner
        self._transport = transport
        self._passage = passage
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        try:
            async for chunk in self._inner:
                count += len(chunk)
                if count > self._bytes_max:
                    words = f"the answer has more than {self._bytes_max:,} bytes"
                    self._transport.keep(WebError(WebProblem.TOO_LARGE, words, is_sent=True), self._passage)
                    return
                yield chunk
        except WebError as error:
            self._transport.keep(error, self._passage)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._inner.aclose()


def _asked(request: httpx2.Request) -> _Asked:
    try:
        return msgspec.json.decode(request.content, type=_Asked)
    except (msgspec.MsgspecError, httpx2.RequestNotRead):
        return _Asked()


def _answers(body: bytes, asked: _Asked) -> bool:
    """True for an error with the id of the request. A request that was not read is refused with no id, or another."""
    try:
        found = msgspec.json.decode(body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return found.error is not msgspec.UNSET and asked.id is not None and found.id == asked.id


def _answer(asked: _Asked, words: str) -> httpx2.Response:
    error = {"code": LOST, "message": words}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": asked.id, "error": error})


def _ssl_context(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx2.create_ssl_context(trust_env=False)
