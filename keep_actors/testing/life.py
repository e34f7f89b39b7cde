"""One process, and its end: after `end` nothing happens any more that would have happened in it.

Everything of it runs on the event loop, blocking work too, so a test decides what happens between what.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

A = TypeVarTuple("A")
R = TypeVar("R")


class Died(BaseException):
    """The process is gone. No code of the runtime can catch this, as no code can catch a kill."""


class Life:
    """Lives until it ends. What runs in it runs in `scope`."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.is_over = False
        self._sleeping: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """Die now: active work is never finished."""
        self.is_over = True
        self.scope.cancel()
        for each in list(self._sleeping):
            each.cancel()

    async def sleep(self, seconds: float) -> None:
        """Take so long, also for a cancelled caller. A dead process does not wait."""
        with anyio.CancelScope(shield=True) as scope:
            self._sleeping.add(scope)
            try:
                if not self.is_over:
                    await anyio.sleep(seconds)
            finally:
                self._sleeping.discard(scope)

    def go_on(self) -> None:
        """At every door to the outside. Raises `Died`."""
        if self.is_over:
            raise Died


class Here:
    """Blocking work is done on the spot. `turns` says how many others may run before it, `takes_s` how long it takes.

    Like a thread, it finishes what it has begun for a caller that is cancelled; for a dead process it does nothing.
    """

    def __init__(
        self, life: Life, turns: Callable[[], int] = lambda: 1, takes_s: Callable[[], float] = lambda: 0
    ) -> None:
        self._life = life
        self._turns = turns
        self._takes_s = takes_s

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function and return what it returns."""
        for _ in range(self._turns()):
            await cancel_shielded_checkpoint()
        if (takes_s := self._takes_s()) > 0:
            await self._life.sleep(takes_s)
        self._life.go_on()
        return function(*arguments)

    async def __call__(self, function: Callable[[], R], /) -> R:
        """The same, as the sandbox wants it."""
        return await self.run(function)
