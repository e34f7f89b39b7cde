"""A server that is connected when it is needed, in a thread with an event loop of its own.

What a server sends is read there, so a flood of it does not hold up the host; and the host may run on asyncio or trio.
A caller that is cancelled leaves at once.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.to_thread import run_sync

from keep_actors.backoff import doubled_ms
from keep_actors.connectors import ConnectorBug, ConnectorError, PreconditionFailed, Transient
from keep_actors.kernel.waiter import Waiter, wake_up_caller
from keep_actors.services.mcp.granted import GrantedTool, problem_with_names, refusals, shown
from keep_actors.services.mcp.outcomes import CallFailed, ToolProblem, connecting_outcome, read_outcome
from keep_actors.services.mcp.passage import Passage
from keep_actors.services.mcp.session import Reachable, ToolReply, ToolSession

T = TypeVar("T")

_FIRST_WAIT_MS: Final = 500
_WAIT_MS_MAX: Final = 60_000
_LEAVING_S: Final = 10.0


class ToolServer:
    """One server. `open` and `close` belong to the host; calls may come at any time between."""

    def __init__(
        self,
        reachable: Reachable,
        granted: Mapping[str, GrantedTool],
        *,
        marks_sent: bool,
        timeout_s: float,
        look_every_s: float,
    ) -> None:
        self._reachable = reachable
        self._granted = granted
        self._marks_sent = marks_sent
        self._timeout_s = timeout_s
        self._look_every_s = look_every_s
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._leaving: anyio.Event
        self._tasks: anyio.abc.TaskGroup
        self._connecting: anyio.Lock
        self._looking: anyio.Lock
        self._session: ToolSession | None = None
        self._failures = 0
        self._not_before = 0.0
        self._refused: Mapping[str, str] = {}

    async def open(self) -> None:
        """Start the thread. No server is connected yet."""
        quieten()
        portal = await run_sync(lambda: self._stack.enter_context(start_blocking_portal("asyncio", name="keep-mcp")))
        await run_sync(lambda: portal.start_task(self._run))
        self._portal = portal

    async def close(self) -> None:
        """Leave the server, and end the thread. Bounded, also for a server that does not end."""
        portal, self._portal = self._portal, None
        if portal is None:
            return
        with anyio.CancelScope(shield=True):
            await run_sync(lambda: portal.call(self._leave))
            await run_sync(self._stack.close)

    async def call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], passage: Passage, timeout_s: float
    ) -> ToolReply:
        """Call a tool that is as it was granted. Raises `CallFailed`, or a `ConnectorError`: nothing was sent."""
        return await self._there(lambda: self._call(name, arguments, meta, passage, timeout_s))

    async def tools(self) -> list[GrantedTool]:
        """All tools that the server has now. Raises `ConnectorError`."""
        return await self._there(self._listed)

    async def look(self) -> Mapping[str, str]:
        """Connect, and return the granted tools that are refused, with the reasons. Raises `ConnectorError`."""
        return await self._there(self._look)

    async def _there(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await it in the thread."""
        if self._portal is None:
            raise ConnectorBug("the connector is not open")
        call_soon, waiter = wake_up_caller(), Waiter()

        def tell(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is gone, and with it the caller
                call_soon(waiter.wake)

        future: Future[T] = self._portal.start_task_soon(function)
        future.add_done_callback(tell)
        try:
            while not future.done():
                await waiter.wait()
        finally:
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise CallFailed(ToolProblem.CLOSED, "the connector is closed") from None

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        self._leaving = anyio.Event()
        self._connecting = anyio.Lock()
        self._looking = anyio.Lock()
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await self._leaving.wait()

    async def _leave(self) -> None:
        self._leaving.set()
        if self._session is not None:
            self._session.watch.end("the connector is closed")
            with anyio.move_on_after(_LEAVING_S):
                await self._session.over.wait()
        self._tasks.cancel_scope.cancel()

    async def _call(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], passage: Passage, timeout_s: float
    ) -> ToolReply:
        session = await self._looked_at()
        if why := self._refused.get(name):
            raise PreconditionFailed(
                f"the tool {shown(name)} is refused: {why}. Look at the difference and accept it: keep mcp-tools"
            )
        try:
            return await session.call(name, arguments, meta, passage, timeout_s)
        except CallFailed as error:
            if error.problem is ToolProblem.LATE:
                session.watch.has_news = True  # asked for its tools before the next call, it shows if it answers at all
            raise

    async def _listed(self) -> list[GrantedTool]:
        found = await self._list_of(await self._connected())
        if problem := problem_with_names(each.name for each in found):
            raise PreconditionFailed(f"the tools of the server cannot be used: {problem}")
        return found

    async def _look(self) -> Mapping[str, str]:
        await self._looked_at()
        return self._refused

    async def _looked_at(self) -> ToolSession:
        """A session whose tools were compared not long ago. Raises `ConnectorError`: nothing was sent."""
        session = await self._connected()
        async with self._looking:  # a call does not pass while another one looks
            now = anyio.current_time()
            is_old = session.looked_at is None or now - session.looked_at > self._look_every_s
            if is_old or session.watch.has_news:
                session.looked_at, session.watch.has_news = None, False
                self._take(await self._list_of(session))
                session.looked_at = now
        return session

    async def _list_of(self, session: ToolSession) -> list[GrantedTool]:
        try:
            return await session.tools()
        except CallFailed as error:
            if error.problem is ToolProblem.LATE and session.is_idle:
                session.watch.end("the server does not answer")  # the next call gets another one
            raise _not_listed(error) from error

    def _take(self, listed: Iterable[GrantedTool]) -> None:
        refused = refusals(self._granted, listed)
        for name in refused.keys() - self._refused.keys():
            logger.warning("the tool %s is refused from now on: %s", shown(name), refused[name])
        self._refused = refused

    async def _connected(self) -> ToolSession:
        async with self._connecting:
            session = self._session
            if session is not None and session.is_alive:
                return session
            if session is not None:  # it is being left, and the program it runs with it
                await session.over.wait()
            wait_ms = round((self._not_before - anyio.current_time()) * 1000)
            if wait_ms > 0:
                raise Transient("the server could not be reached, and is left alone for a while", wait_ms)
            if self._leaving.is_set():
                raise Transient("the connector is closed")
            self._session = session = ToolSession(
                self._reachable, marks_sent=self._marks_sent, timeout_s=self._timeout_s
            )
            self._tasks.start_soon(session.run)
            await session.ready.wait()
            if session.is_alive:
                self._failures = 0
                return session
            self._failures += 1
            self._not_before = anyio.current_time() + doubled_ms(_FIRST_WAIT_MS, _WAIT_MS_MAX, self._failures) / 1000
            watch = session.watch
            raise connecting_outcome(session.error, watch.failure, watch.status, self._reachable.last_words)


def _not_listed(error: CallFailed) -> ConnectorError:
    """No tool was called: not even the list is known."""
    if error.problem is None or error.problem in (ToolProblem.CLOSED, ToolProblem.LATE, ToolProblem.SESSION_GONE):
        return Transient(f"the tools of the server could not be listed: {error}")
    return read_outcome(error)


def quieten() -> None:
    """Keep the loggers of the packages silent: they write whole addresses, arguments and answers."""
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL)


logger = logging.getLogger(__name__)
_LOUD: Final = ("client", "mcp.client", "mcp.shared", "httpx2", "httpcore2")
