"""Where a connector's own code is carried out: the only place where any exception of it is caught.

A cancellation from outside always goes on. One that the connector swallowed is not taken for an answer either, and one
that nobody asked for (a client that cancelled its own work, and let that out, alone or in a group with other errors) is
an error like any other.
"""

import math
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

T = TypeVar("T")

_MESSAGE_CHARS_MAX: Final = 1000


class ForeignAttempt:
    """What a block of foreign code raised, if it did."""

    error: Exception | None = None


@contextmanager
def attempt() -> Iterator[ForeignAttempt]:
    """Keeps what the block raises."""
    tried = ForeignAttempt()
    try:
        yield tried
    except Exception as error:
        tried.error = error


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The code came to its end."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """The code ended by itself, with this."""

    error: Exception


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The host cut it off. What the code raised on its way out says nothing."""


Ending: TypeAlias = Returned[T] | Raised | TimedOut


async def carry_out(work: Callable[[], Awaitable[T]], timeout_ms: int) -> Ending[T]:
    """Run it, for so long. A value counts even when it is late; an error does not."""
    scope = anyio.move_on_after(timeout_ms / 1000)
    try:
        with attempt() as tried, scope:
            return Returned(await work())
    except anyio.get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise
        return Raised(RuntimeError("the call was cancelled by the connector's own code"))
    except BaseExceptionGroup as group:
        # Not an `ExceptionGroup`, so it has more than errors in it: an interrupt goes on, and so does our cancellation.
        ours = anyio.current_effective_deadline() == -math.inf
        if ours or group.split((Exception, anyio.get_cancelled_exc_class()))[1] is not None:
            raise
        if scope.cancel_called:
            return TimedOut()
        return Raised(RuntimeError(f"the call ended with a group of errors and cancellations: {group.message}"))
    # Code that turns every exception into one of ours would make a promise out of the host's own cancellation.
    await anyio.lowlevel.checkpoint_if_cancelled()
    if scope.cancel_called or tried.error is None:
        return TimedOut()
    return Raised(tried.error)


def described(error: BaseException) -> str:
    """Its class and its words, bounded."""
    return cut("".join(traceback.format_exception_only(error)).strip())


def cut(text: str) -> str:
    """A service may answer with a page where a word was expected."""
    return text if len(text) <= _MESSAGE_CHARS_MAX else f"{text[: _MESSAGE_CHARS_MAX - 1]}…"
