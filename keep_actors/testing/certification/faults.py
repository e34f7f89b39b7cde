"""The faults of a network path, as values: an act on the bytes of one direction, from a moment on."""

from enum import StrEnum
from typing import Final

import msgspec

DELAY_MS: Final = 300


class Way(StrEnum):
    """The direction of bytes."""

    REQUESTS = "requests"
    """From the connector to the service."""
    ANSWERS = "answers"
    """From the service to the connector."""


class Act(StrEnum):
    """The treatment of bytes from the moment on."""

    CUT = "cut"
    """They are lost, and the connection is closed on both sides."""
    RESET = "reset"
    """The same, with a reset instead of an orderly end."""
    SWALLOW = "swallow"
    """They are lost, and the connection stays open."""
    DELAY = "delay"
    """They come later."""
    HOLD = "hold"
    """They wait for `release`, and then come, even if the connector has gone in the meantime."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """An act on the bytes of one direction. The moment is when `pattern` passes in `seen_in`, on each connection.

    Where both are one direction the act begins with the pattern, so that the other side never has all of it; else with
    the next bytes of the other direction. A pattern is found when it comes in pieces too: pieces that came
    before its last one have passed.
    """

    act: Act
    on: Way = Way.REQUESTS
    pattern: bytes = b""
    """Empty: the next bytes."""
    seen_in: Way = Way.REQUESTS
    passing: int = 0
    """So many bytes of the pattern pass still: a cut in the middle."""
    half: bool = False
    """Half of the next bytes of the other direction pass still."""
    delay_ms: int = DELAY_MS


class PatternFinder:
    """Finds a pattern in a stream of chunks."""

    __slots__ = ("_pattern", "_tail")

    def __init__(self, pattern: bytes) -> None:
        self._pattern = pattern
        self._tail = b""

    def find(self, chunk: bytes) -> int | None:
        """The place in this chunk where the pattern begins, negative if that was earlier. None: it is not there yet."""
        seen = self._tail + chunk
        found = seen.find(self._pattern)
        if found >= 0:
            place = found - len(self._tail)
            self._tail = b""
            return place
        keep = max(0, len(self._pattern) - 1)
        self._tail = seen[-keep:] if keep else b""
        return None
