"""The steps of a plan: each says how one call of a fake goes.

A mutation has two moments that matter: whether the effect happens, and whether the answer arrives. Each step is one
combination; those with `lose` in their name are the ones that a runtime must not guess about.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import anyio

from keep_actors.connectors import (
    Applied,
    AuthRequired,
    MutationCall,
    NotApplied,
    PreconditionFailed,
    ReadCall,
    Retry,
    Transient,
    Uncertain,
)
from keep_storage.ids import Millis


class Attempt(Protocol):
    """One call, as a step sees it."""

    @property
    def call(self) -> ReadCall | MutationCall:
        """The call as the host describes it: for a mutation its idempotency key, and when it was sent."""
        ...

    def send(self) -> None:
        """Have the request leave: a mutation that marks what it sends is unknown from here on. `do` begins with it."""
        ...

    def do(self) -> Any:
        """Do the work of the method: the effect, if it is a mutation. Returns its result."""
        ...

    def do_later(self, after_ms: Millis, *, within_ms: Millis | None = None) -> None:
        """The same, after so long but within that time of the call's beginning, whatever becomes of the caller."""
        ...


Step: TypeAlias = Callable[[Attempt], Awaitable[Any]]
"""Decides how one call goes."""


async def ok(attempt: Attempt) -> Any:
    """It happens, and the answer arrives."""
    return attempt.do()


def raises(error: Exception) -> Step:
    """Raise this; there is no effect."""

    async def step(_: Attempt) -> Any:
        raise error

    return step


async def fail(_: Attempt) -> Any:
    """Fail without an effect, and say so: it will not happen as things are."""
    raise PreconditionFailed("planned: it cannot be done")


async def transient(_: Attempt) -> Any:
    """Fail without an effect, and say so: it may work later."""
    raise Transient("planned: not now")


async def auth(_: Attempt) -> Any:
    """Fail without an effect: a person has to sign in."""
    raise AuthRequired("planned: sign in again")


async def lose_the_answer(attempt: Attempt) -> Any:
    """It happens, and the answer is lost."""
    attempt.do()
    raise Uncertain("planned: the connection broke")


async def lose_the_request(_: Attempt) -> Any:
    """It does not happen, and the answer is lost."""
    raise Uncertain("planned: the connection broke")


def late_commit(after_ms: Millis) -> Step:
    """The connection breaks, and it happens after so long."""

    async def step(attempt: Attempt) -> Any:
        attempt.do_later(after_ms)
        raise Uncertain("planned: the connection broke")

    return step


def notes(text: str, then: Step = ok) -> Step:
    """Keep a note, as of an id that the service has given, and take the next step."""

    async def step(attempt: Attempt) -> Any:
        assert isinstance(attempt.call, MutationCall), "only a mutation keeps notes"
        await attempt.call.note(text)
        return await then(attempt)

    return step


class Hang:
    """Waits until it is released, and then succeeds, or takes the step that was given."""

    def __init__(self, then: Step = ok) -> None:
        self.reached = anyio.Event()
        """Set when the call hangs."""
        self._released = anyio.Event()
        self._then = then

    async def __call__(self, attempt: Attempt) -> Any:
        self.reached.set()
        await self._released.wait()
        return await self._then(attempt)

    def release(self) -> None:
        """Let the call go on. A call that comes later does not wait."""
        self._released.set()


def says(verdict: Applied | NotApplied | Retry) -> Step:
    """For `reconcile`: this is the answer, whatever is true."""

    async def step(_: Attempt) -> Any:
        return verdict

    return step


async def cannot_tell(_: Attempt) -> Any:
    """For `reconcile`: ask again later."""
    return Retry("planned: not yet")
