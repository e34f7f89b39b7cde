"""One session with a server, in a task of its own: connected, asked for its tools, called, left.

It never raises into its task, so a session that breaks hurts no other. Its scopes enclose no caller.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol, cast

import anyio
import msgspec
from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
)
from pydantic import TypeAdapter, ValidationError

from keep_actors.connectors import PreconditionFailed
from keep_actors.kernel.foreign_code import attempt
from keep_actors.services.mcp.answers import ToolAnswer, answer_of
from keep_actors.services.mcp.granted import GrantedTool
from keep_actors.services.mcp.outcomes import CallFailed, ToolProblem, problem_of_code
from keep_actors.services.mcp.passage import PASSAGE, Passage, Watch, WatchedReads, WatchedWrites

PAGES_MAX: Final = 100
TOOLS_MAX: Final = 1_000
LIST_BYTES_MAX: Final = 10_000_000
_NOT_FOUND: Final = 404
_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(CallToolResult | InputRequiredResult)
_US: Final = Implementation(name="keep-actors", version="1")


class Reachable(Protocol):
    """A way to a server."""

    @property
    def last_words(self) -> str:
        """The last that it wrote beside its messages, quoted; empty if there is nothing."""
        ...

    def running(self, watch: Watch) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        """The two streams, for as long as it is entered."""
        ...


class ToolReply(NamedTuple):
    """The result of a tool."""

    answer: ToolAnswer
    is_error: bool


class ToolSession:
    """A session. `run` is a task; the others are awaited by callers."""

    def __init__(self, server: Reachable, *, marks_sent: bool, timeout_s: float) -> None:
        self.watch = Watch()
        self.ready = anyio.Event()
        """It is connected, or has failed."""
        self.over = anyio.Event()
        self.error: Exception | None = None
        """The reason why it was not connected, or ended."""
        self.looked_at: float | None = None
        self._server = server
        self._marks_sent = marks_sent
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._calls = 0

    @property
    def is_idle(self) -> bool:
        """True while no call waits for its result."""
        return not self._calls

    @property
    def is_alive(self) -> bool:
        """True while calls can be made."""
        return self._client is not None and not self.watch.ended.is_set()

    async def run(self) -> None:
        """Connect, and stay until the server is gone or left."""
        with attempt() as tried:
            async with self._connected() as client:
                self._client = client
                self.ready.set()
                await self.watch.ended.wait()
        self._client = None
        self.error = tried.error
        self.watch.end("")
        self.ready.set()
        self.over.set()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        client = Client(self._streams(), read_timeout_seconds=self._timeout_s, client_info=_US, cache=None)
        async with client:
            yield client

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        async with self._server.running(self.watch) as (reads, writes):
            yield (
                WatchedReads(reads, self.watch),
                WatchedWrites(writes, self.watch, marks_sent=self._marks_sent),
            )

    async def tools(self) -> list[GrantedTool]:
        """All tools that the server has now. Raises `CallFailed`, or `PreconditionFailed` for a list without end."""
        found: list[GrantedTool] = []
        size, cursor = 0, None
        for _ in range(PAGES_MAX):
            page = await self._page(cursor)
            read = [_granted(each) for each in page.tools]
            found += read
            size += len(msgspec.json.encode(read))
            if len(found) > TOOLS_MAX or size > LIST_BYTES_MAX:
                break
            cursor = page.next_cursor
            if not cursor:
                return found
        raise PreconditionFailed(
            f"the server lists more than {TOOLS_MAX:,} tools, {PAGES_MAX} pages or {LIST_BYTES_MAX:,} bytes"
        )

    async def _page(self, cursor: str | None) -> Any:
        client = self._client
        if client is None:
            raise CallFailed(ToolProblem.CLOSED, self.watch.why)
        try:
            params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
            return await client.session.list_tools(params=params)
        except MCPError as error:
            raise self._failed(error, Passage()) from error
        except ValidationError as error:
            raise CallFailed(ToolProblem.PROTOCOL_ERROR, "its list of tools cannot be read") from error

    async def call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], passage: Passage, timeout_s: float
    ) -> ToolReply:
        """Call a tool. Raises `CallFailed`, or what `call.sending` raised."""
        client = self._client
        if client is None:
            raise CallFailed(ToolProblem.CLOSED, self.watch.why)
        # Not `call_tool`: it validates with the server's own regular expressions, and lists tools after the effect.
        params = CallToolRequestParams(name=name, arguments=dict(arguments), _meta=cast("Any", dict(meta) or None))
        mark = PASSAGE.set(passage)
        self._calls += 1
        try:
            result = await client.session.send_request(
                CallToolRequest(params=params), _RESULT, request_read_timeout_seconds=timeout_s
            )
        except MCPError as error:
            raise self._failed(error, passage) from error
        except ValidationError as error:
            raise _unreadable(passage) from error
        finally:
            self._calls -= 1
            PASSAGE.reset(mark)
        if not isinstance(result, CallToolResult):
            raise CallFailed(ToolProblem.NEEDS_INPUT)
        # Here and not by the caller: there may be many parts, and this is not the host's loop.
        content = [each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in result.content]
        return ToolReply(answer_of(content, result.structured_content), bool(result.is_error))

    def _failed(self, error: MCPError, passage: Passage) -> CallFailed:
        """The reason for an error. What was seen below counts more than a code, which anybody may send."""
        if passage.refusal is not None:
            raise passage.refusal
        if passage.web_error is not None:
            return CallFailed(None, str(passage.web_error), web_error=passage.web_error)
        if passage.status is not None and not passage.is_answered:
            if passage.status == _NOT_FOUND and error.code != METHOD_NOT_FOUND:
                self.watch.end("the server does not know the session any more")
                return CallFailed(ToolProblem.SESSION_GONE)
            return CallFailed(None, error.message, status=passage.status)
        if self.watch.ended.is_set() and error.code == CONNECTION_CLOSED:
            return CallFailed(ToolProblem.CLOSED, self.watch.why or self._server.last_words)
        if error.code == REQUEST_TIMEOUT:
            return CallFailed(ToolProblem.LATE)
        return CallFailed(problem_of_code(error.code), error.message)


def _unreadable(passage: Passage) -> CallFailed:
    match passage.answer:
        case {"task": {"taskId": str(task)}} | {"taskId": str(task)}:
            return CallFailed(ToolProblem.TASK, task_id=task)
    return CallFailed(ToolProblem.MISFIT, "it is no result of a tool")


def _granted(tool: Tool) -> GrantedTool:
    said = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
    return msgspec.convert(said, GrantedTool)
