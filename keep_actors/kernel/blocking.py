"""Threads for clients that block. A caller that is cancelled leaves at once; the thread ends by its own time limits."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
from anyio.to_thread import run_sync

A = TypeVarTuple("A")
R = TypeVar("R")


class Blocking:
    """So many calls at once, each in a thread. A call that was left behind keeps its place until it ends."""

    def __init__(self, at_once: int) -> None:
        self._places = anyio.CapacityLimiter(at_once)

    async def run(self, function: Callable[[*A], R], *arguments: *A) -> R:
        """Call the function and return its result. It must end by itself: nothing can end a thread."""
        return await run_sync(function, *arguments, abandon_on_cancel=True, limiter=self._places)
