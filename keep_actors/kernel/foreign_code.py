"""Run code that is not ours, such as a connector's: the only place that catches any exception of it.

A cancellation from outside always continues. A swallowed cancellation is not taken for an answer. A cancellation of the
code's own making (a client that cancels its own work, alone or in a group of errors) is an error like any other.
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
    """The error of a block of foreign code, if it raised one."""

    error: Exception | None = None


@contextmanager
def attempt() -> Iterator[ForeignAttempt]:
    """Catch the error of the block and keep it."""
    tried = ForeignAttempt()
    try:
        yield tried
    except Exception as error:
        tried.error = error


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The code finished."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """The code ended by itself, with this error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The host cut it off. An error that the code raised then means nothing."""


Ending: TypeAlias = Returned[T] | Raised | TimedOut


async def carry_out(work: Callable[[], Awaitable[T]], timeout_ms: int) -> Ending[T]:
    """Run it, for at most this long. A late value counts; a late error does not."""
    scope = anyio.move_on_after(timeout_ms / 1000)
    try:
        with attempt() as tried, scope:
            return Returned(await work())
    except anyio.get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise
        return Raised(RuntimeError("the call was cancelled by the connector's own code"))
    except BaseExceptionGroup as group:
        # Not an `ExceptionGroup`, so it has more than errors in it: an interrupt and our cancellation go on.
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
    """Return the class and the words of an error, bounded."""
    return cut(spelled_out(error))


def spelled_out(error: BaseException) -> str:
    """Return the class and the words of an error, however long."""
    return "".join(traceback.format_exception_only(error)).strip()


def cut(text: str) -> str:
    """Bound a text: a service may answer with a page where a word was expected."""
    return text if len(text) <= _MESSAGE_CHARS_MAX else f"{text[: _MESSAGE_CHARS_MAX - 1]}…"
