"""Images of a guest's memory: that of the prelude, which is copied whole, and those of scripts, as differences to it.

Restoring the prelude's image is the last step of every invocation: an instance that is idle has that memory, byte for
byte. Writing the difference of a script over it is the only way into a guest.
"""

import ctypes
import hashlib
import mmap
import struct
from collections.abc import Iterator
from typing import Final

from keep_sandbox import wasm
from keep_sandbox.wasm import Instance

_PIECES: Final = struct.Struct("256s")
"""The pieces of a difference. Smaller ones take less memory, and longer to find and to write."""
_PART_BYTES: Final = 256
"""What a part takes beside its data: a tuple, a slice and its two numbers, the head of the data."""


class Image:
    """The memory of an instance at one moment. Immutable."""

    def __init__(self, instance: Instance, top: int) -> None:
        """Copy the memory from the end of the stack to `top`, and the last page, where the allocator keeps its end.

        The rest counts as zero: the stack, which is empty between two calls, and memory above `top`, which was never
        allocated.
        """
        first = instance.stack_top
        self.first: Final = first
        self.top: Final = _top(instance, top)
        self.size: Final = instance.size
        self._body: Final = ctypes.string_at(instance.address + first, self.top - first)
        self._end: Final = ctypes.string_at(instance.address + self.size - mmap.PAGESIZE, mmap.PAGESIZE)

    @property
    def sha256(self) -> str:
        """The hash of the whole memory that it stands for."""
        digest = hashlib.sha256()
        for part in (bytes(self.first), self._body, bytes(self.size - mmap.PAGESIZE - self.top), self._end):
            digest.update(part)
        return digest.hexdigest()

    def is_in(self, instance: Instance) -> bool:
        """Return True if the memory of the instance is this image, byte for byte. Reads all of it."""
        at = instance.address
        return (
            ctypes.string_at(at, self.first) == bytes(self.first)
            and ctypes.string_at(at + self.first, self.top - self.first) == self._body
            and ctypes.string_at(at + self.top, self.size - mmap.PAGESIZE - self.top)
            == bytes(self.size - mmap.PAGESIZE - self.top)
            and ctypes.string_at(at + self.size - mmap.PAGESIZE, mmap.PAGESIZE) == self._end
        )

    def restore(self, instance: Instance, *, is_new: bool = False) -> None:
        """Make the memory of the instance this image, whatever was in it, and reset its stack pointer."""
        at = instance.address
        if not is_new:
            wasm.clear(at, self.first)
            wasm.clear(at + self.top, self.size - mmap.PAGESIZE - self.top)
            instance.reset_stack()
        ctypes.memmove(at + self.first, self._body, len(self._body))
        ctypes.memmove(at + self.size - mmap.PAGESIZE, self._end, mmap.PAGESIZE)

    def page(self, at: int) -> bytes:
        """The page at this address, which is behind the stack."""
        if at < self.top:
            return self._body[at - self.first : at - self.first + mmap.PAGESIZE]
        return self._end if at == self.size - mmap.PAGESIZE else bytes(mmap.PAGESIZE)


class Difference:
    """The memory of an instance in which a script is loaded: the parts that are not as in the prelude's image."""

    def __init__(self, image: Image, instance: Instance, top: int) -> None:
        """Copy what is different up to `top`, and in the last page. The rest is as in the image."""
        self._parts: Final = [
            (slice(first, last), bytes(instance.memory[first:last]))
            for first, last in _joined(_different(image, instance, max(_top(instance, top), image.top)))
        ]
        self.bytes_kept: Final = sum(len(data) + _PART_BYTES for _, data in self._parts)
        """The memory that it takes."""

    def write(self, instance: Instance) -> None:
        """Write it over the memory of an instance that has the image."""
        memory = instance.memory
        for place, data in self._parts:
            memory[place] = data


def _top(instance: Instance, top: int) -> int:
    """The end of the page that this address is in, but never within the last page."""
    return min(-(-top // mmap.PAGESIZE) * mmap.PAGESIZE, instance.size - mmap.PAGESIZE)


def _different(image: Image, instance: Instance, top: int) -> Iterator[int]:
    """The addresses of the pieces that are not as in the image."""
    for at in (*range(image.first, top, mmap.PAGESIZE), instance.size - mmap.PAGESIZE):
        before, now = image.page(at), ctypes.string_at(instance.address + at, mmap.PAGESIZE)
        if before != now:
            pairs = zip(_PIECES.iter_unpack(before), _PIECES.iter_unpack(now), strict=True)
            yield from (at + place * _PIECES.size for place, (one, other) in enumerate(pairs) if one != other)


def _joined(pieces: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Pieces side by side as one."""
    first = last = 0
    for piece in pieces:
        if piece != last:
            if last:
                yield first, last
            first = piece
        last = piece + _PIECES.size
    if last:
        yield first, last
