"""The pulse of the event loop: whether it was slow, and whether it stands still.

A call of a connector that blocks the event loop holds up the proxy as well, and would wait for its answer for ever. A
thread watches, and ends the connections of such a call.
"""

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio

_BEAT_S: Final = 0.02
_SLOW_S: Final = 0.1
_LOOK_S: Final = 0.1
_LOOKS_MAX: Final = 30
"""After so many looks without a beat it stands still. Looks are counted, not seconds: a machine that gives this process
no time gives its threads none either."""

Cure = Callable[[], None]


class Pulse:
    """Opened once for a certification."""

    def __init__(self) -> None:
        self._beats = 0
        self._slow: deque[float] = deque(maxlen=1)
        self._cures: set[Cure] = set()

    @classmethod
    @asynccontextmanager
    async def watched(cls) -> AsyncIterator["Pulse"]:
        """Beat, and have a thread watch."""
        pulse, ended = cls(), threading.Event()
        watcher = threading.Thread(target=pulse._watch, args=(ended,), name="keep-certify-pulse", daemon=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pulse._beat)
            watcher.start()
            try:
                yield pulse
            finally:
                ended.set()
                tasks.cancel_scope.cancel()
        watcher.join()

    def was_slow(self, since: float) -> bool:
        """True if this machine had no time for the event loop once, after a point on the clock of the loop."""
        return any(when >= since for when in self._slow)

    @contextmanager
    def curing(self, cure: Cure) -> Iterator[None]:
        """Have this called when the event loop stands still: in the thread that watches, and more than once."""
        self._cures.add(cure)
        try:
            yield
        finally:
            self._cures.discard(cure)

    async def _beat(self) -> None:
        while True:
            began = time.monotonic()
            await anyio.sleep(_BEAT_S)
            if time.monotonic() - began > _SLOW_S:
                self._slow.append(anyio.current_time())
            self._beats += 1

    def _watch(self, ended: threading.Event) -> None:
        seen = looks = 0
        while not ended.wait(_LOOK_S):
            looks = looks + 1 if self._beats == seen else 0
            seen = self._beats
            if looks and looks % _LOOKS_MAX == 0:
                for cure in tuple(self._cures):
                    cure()
