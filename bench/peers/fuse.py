"""A fuse: after a given number of effects the harness is told, and no further effect happens.

A named pipe holds one byte for each effect that may happen. A call draws one before its effect, which costs the same in
every system. The call that draws the last byte tells the harness after its effect and is never answered; later calls
find the pipe empty and wait. So exactly that many effects happen before the kill. Imports only the standard library.
"""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ONE: Final = b"."
_LAST: Final = b"!"
_MOST: Final = 60_000
"""A pipe holds 64 KiB."""


class Fuse:
    """Both ends: drivers draw, the harness lays it and waits. Without the pipe, effects are not limited."""

    def __init__(self, folder: Path) -> None:
        self._bytes = folder / "fuse"
        self._bell = folder / "bell"

    def draw(self) -> bool:
        """Take the right to one effect; True if it is the last one. Wait if none is left."""
        try:
            pipe = os.open(self._bytes, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            drawn = os.read(pipe, 1)
        finally:
            os.close(pipe)
        assert drawn, "the harness holds the other end until the process is killed"
        return drawn == _LAST

    def ring(self) -> None:
        """Tell the harness that the last effect has happened, and wait to be killed."""
        bell = os.open(self._bell, os.O_WRONLY)
        os.write(bell, _LAST)
        self.draw()

    @contextmanager
    def laid(self, effects: int) -> Iterator[int]:
        """Allow so many effects inside the block; yield what can be read when the last one has happened."""
        assert 0 < effects <= _MOST, "the bytes fit into the pipe"
        os.mkfifo(self._bytes)
        os.mkfifo(self._bell)
        pipe, bell = (os.open(path, os.O_RDWR) for path in (self._bytes, self._bell))
        try:
            os.write(pipe, _ONE * (effects - 1) + _LAST)
            yield bell
        finally:
            os.close(pipe)
            os.close(bell)
            self._bytes.unlink()
            self._bell.unlink()


def rings(bell: int, seconds: float) -> bool:
    """Wait for the last effect; False if it does not happen in this time."""
    return bool(select.select([bell], [], [], seconds)[0])
