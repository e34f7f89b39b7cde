"""A broadcast: `fire` wakes all current waiters."""

import anyio


class Signal:
    """A broadcast without a list of waiters. To miss no signal, take `next`, look, then wait for it."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    @property
    def next(self) -> anyio.Event:
        """The event that the next `fire` sets."""
        if self._event is None:
            self._event = anyio.Event()
        return self._event

    def fire(self) -> None:
        """Wake all current waiters. Costs nothing without any."""
        if self._event is not None:
            self._event.set()
            self._event = None
