"""The oracle at the shop: it looks at every call there, and what it finds ends the story."""

from collections.abc import Callable
from typing import Protocol

from keep_actors.connectors import MutationCall
from tests.simulation.oracle import Oracle


class Witness(Protocol):
    """What the story does about a call."""

    @property
    def oracle(self) -> Oracle: ...

    def look_at_the_clock(self) -> None: ...

    def end_if_wrong(self) -> None: ...

    def set_clock_now(self) -> None: ...


class AtTheShop:
    """The watcher of the shop of a story."""

    def __init__(self, story: Witness) -> None:
        self._story = story

    def arrives(self, call: MutationCall) -> None:
        self._have(lambda: self._story.oracle.arrives(call))

    def notes(self, call: MutationCall, text: str, *, is_durable: bool) -> None:
        self._have(lambda: self._story.oracle.notes(call, text, is_durable=is_durable))

    def looks(self, call: MutationCall) -> None:
        self._have(lambda: self._story.oracle.looks(call))

    def lost_sight(self) -> None:
        self._story.set_clock_now()

    def _have(self, look: Callable[[], None]) -> None:
        """Look. An error of the oracle would be taken for the shop's own failure."""
        self._story.look_at_the_clock()
        checked = False
        try:
            look()
            checked = True
        finally:
            if not checked:
                self._story.oracle.wrong("the oracle failed where a call arrived")
            self._story.end_if_wrong()
