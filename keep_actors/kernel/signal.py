"""Something has happened: everyone who waits is told, and nobody has to be remembered."""

import anyio


class Signal:
    """`fire` wakes all who wait at that moment. To miss nothing, take `next` before looking, and wait for it after."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    @property
    def next(self) -> anyio.Event:
        """Set when it fires the next time."""
        if self._event is None:
            self._event = anyio.Event()
        return self._event

    def fire(self) -> None:
        """Wake who waits. Costs nothing when nobody does."""
        if self._event is not None:
            self._event.set()
            self._event = None
