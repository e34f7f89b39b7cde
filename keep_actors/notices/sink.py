"""Sinks, which receive notices: each has a name that its deliveries are remembered by, a time limit and a backoff."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from keep_actors.api.notice import Notice
from keep_actors.policy import Backoff
from keep_storage.ids import Millis

NoticeFunction: TypeAlias = Callable[[Notice], Awaitable[None]]

PATIENCE: Final = Backoff(first_ms=5_000, cap_ms=3_600_000, attempts_max=36, jitter=0.2)
"""A little more than a day: ever later for an hour and a half, then every hour."""
TIMEOUT_MS: Final = 10_000


class GiveUp(Exception):
    """Raised by a sink that will never take this notice: it is not tried again."""


@runtime_checkable
class Sink(Protocol):
    """Receives notices."""

    @property
    def name(self) -> str:
        """The same over restarts: under another name it is another sink, and receives every open notice."""
        ...

    @property
    def timeout_ms(self) -> Millis:
        """The time limit of one attempt."""
        ...

    @property
    def backoff(self) -> Backoff:
        """The wait after a failure, and the number of failures after which a delivery is given up."""
        ...

    async def deliver(self, notice: Notice) -> None:
        """Return once the notice is delivered. Any exception is a failure, and `GiveUp` is the last one."""
        ...


class Hook:
    """A sink that is a function: `async def page(notice: Notice) -> None`."""

    def __init__(
        self, function: NoticeFunction, *, name: str = "", timeout_ms: Millis = TIMEOUT_MS, backoff: Backoff = PATIENCE
    ) -> None:
        self.name = checked_name(name or str(getattr(function, "__name__", "")), "Hook(function, name='pager')")
        self.timeout_ms = checked_timeout(timeout_ms)
        self.backoff = backoff
        self._function = function

    def __repr__(self) -> str:
        return f"Hook({self.name!r})"

    async def deliver(self, notice: Notice) -> None:
        await self._function(notice)


Sinks: TypeAlias = Sink | NoticeFunction | Iterable[Sink | NoticeFunction]
"""One or several."""


def chosen(wanted: Sinks) -> tuple[Sink, ...]:
    """The sinks of a runtime. Raises `TypeError` if one is no sink, and `ValueError` for two of one name."""
    several: Iterable[Any] = wanted if isinstance(wanted, list | tuple | set | frozenset) else (wanted,)
    sinks = tuple(_sink(each) for each in several)
    names = [sink.name for sink in sinks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two sinks of notices are called {twice[0]!r}; give each a name of its own: name='...'")
    return sinks


def _sink(each: object) -> Sink:
    if isinstance(each, Sink):
        return each
    if inspect.iscoroutinefunction(each):
        return Hook(each)
    raise TypeError(f"a sink of notices is an async function, a Hook or a Webhook, not {each!r}")


def checked_name(name: str, how: str) -> str:
    """A name that is the same after a restart."""
    if not name.strip() or name.startswith("<"):
        raise ValueError(f"a sink of notices needs a name that stays the same over restarts: {how}")
    return name


def checked_timeout(timeout_ms: Millis) -> Millis:
    if timeout_ms <= 0:
        raise ValueError("timeout_ms must be > 0: it is the time limit of one whole attempt")
    return timeout_ms
