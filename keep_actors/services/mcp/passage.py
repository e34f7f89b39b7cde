"""How far the requests of a session are, seen in the two streams between the session and its server.

The session writes in the task of the caller, so a call travels in a context variable. Of what a server sends unasked
only its requests pass, which the session refuses, and notices about its tools; a server that sends too much of it is
left.
"""

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from keep_actors.connectors import ConnectorError
from keep_actors.outbound.checked import WebError

UNASKED_MAX: Final = 10_000
"""So many messages that nobody asked for may come between two answers."""
CALL_METHOD: Final = "tools/call"
_CHANGED: Final = "notifications/tools/list_changed"
_LISTENING: Final = "notifications/subscriptions/acknowledged"

Incoming: TypeAlias = SessionMessage | Exception


class Passage:
    """One call of a tool on its way."""

    def __init__(self, sending: Callable[[], None] | None = None) -> None:
        self.is_sent = False
        self.answer: Any = None
        """The result as it came, before anything is read into it."""
        self.status: int | None = None
        """Of HTTP, if it is no success."""
        self.is_answered = False
        """The server answered this very request with an error of its protocol, whatever the status of HTTP is."""
        self.web_error: WebError | None = None
        self.refusal: ConnectorError | None = None
        """The host did not wait any more when it was to be sent."""
        self._sending = sending

    def send(self) -> None:
        """Say that the next step may have an effect. Raises `Transient`: then send nothing."""
        try:
            if self._sending is not None:
                self._sending()
        except ConnectorError as error:
            self.refusal = error
            raise
        self.is_sent = True


PASSAGE: Final[ContextVar[Passage | None]] = ContextVar("keep_actors.mcp.passage", default=None)
"""The call of this task."""


class Watch:
    """The facts about a session that are known outside of it."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        """The server is gone, or is to be left."""
        self.has_news = False
        """The server says that its tools have changed."""
        self.why = ""
        """The reason for the end, if it is known."""
        self.failure: WebError | None = None
        self.status: int | None = None
        """Of the last request over HTTP that failed."""
        self._asked: dict[str, Passage | None] = {}
        self._unasked = 0

    def end(self, why: str) -> None:
        """Leave the server."""
        self.why = self.why or why
        self.ended.set()

    def goes_out(self, message: Any, *, marks_sent: bool) -> None:
        """Look at a message before it is handed over. Raises `Transient` if it is not to be sent."""
        if isinstance(message, JSONRPCRequest):
            passage = PASSAGE.get() if message.method == CALL_METHOD else None
            if passage is not None and marks_sent:
                passage.send()
            self._asked[str(message.id)] = passage

    def comes_in(self, item: Incoming) -> bool:
        """Look at a message, and return True if it is for the session."""
        match item.message if isinstance(item, SessionMessage) else item:
            case JSONRPCResponse(id=number, result=result) if str(number) in self._asked:
                passage = self._asked.pop(str(number))
                if passage is not None:
                    passage.answer = result
                self._unasked = 0
                return True
            case JSONRPCError(id=number) if str(number) in self._asked:
                self._asked.pop(str(number))
                self._unasked = 0
                return True
            case JSONRPCNotification(method=method):
                self.has_news = self.has_news or method == _CHANGED
                return self._is_borne() and method in (_CHANGED, _LISTENING)
            case JSONRPCRequest():
                return self._is_borne()
            case _:
                return self._is_borne() and False

    def _is_borne(self) -> bool:
        self._unasked += 1
        if self._unasked > UNASKED_MAX:
            self.end(f"the server sent more than {UNASKED_MAX:,} messages that nobody asked for")
        return not self.ended.is_set()


class WatchedReads:
    """The messages of a server, to the session."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def last_context(self) -> Any:
        """The context of the sender, if the stream knows it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        """Return the next message for the session."""
        while True:
            try:
                item: Incoming = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._watch.end("")
                raise
            if self._watch.comes_in(item):
                return item
            if self._watch.ended.is_set():
                raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.aclose()


class WatchedWrites:
    """The messages of the session, to the server. `marks_sent`: a call counts as sent when it is handed over here."""

    def __init__(self, inner: Any, watch: Watch, *, marks_sent: bool) -> None:
        self._inner = inner
        self._watch = watch
        self._marks_sent = marks_sent

    async def send(self, item: SessionMessage, /) -> None:
        """Hand a message over."""
        self._watch.goes_out(item.message, marks_sent=self._marks_sent)
        await self._inner.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.aclose()
