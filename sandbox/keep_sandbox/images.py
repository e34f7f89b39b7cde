"""Images of a guest's memory: that of the prelude, which is copied whole, and those of scripts, as differences to it.

Restoring the prelude's image is the last step of every invocation: an instance that is idle has that memory, byte for
byte. Writing the difference of a script over it is the only way into a guest.
"""

import ctypes
import hashlib
import mmap
from collections.abc import Iterator
from typing import Final

from keep_sandbox import wasm
from keep_sandbox.wasm import Instance

_PIECE_BYTES: Final = 512
"""The size of the pieces that are compared. Smaller ones take less memory, and longer to find and to write."""
_PART_BYTES: Final = 168
"""The memory that a part takes beside its data: a tuple, its two numbers, the head of the data."""


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

    def body_up_to(self, top: int) -> bytes:
        """The memory from the end of the stack to this address."""
        return self._body.ljust(top - self.first, b"\0")

    @property
    def end(self) -> bytes:
        """The last page."""
        return self._end


class ScriptImage:
    """The memory of an instance in which a script is loaded: the parts that are not as in the prelude's image."""

    def __init__(self, prelude: Image, instance: Instance, top: int) -> None:
        """Copy the parts that differ, up to `top` and in the last page. The rest is as in the prelude's image."""
        top, last_page = max(_top(instance, top), prelude.top), instance.size - mmap.PAGESIZE
        body = ctypes.string_at(instance.address + prelude.first, top - prelude.first)
        end = ctypes.string_at(instance.address + last_page, mmap.PAGESIZE)
        self._parts: Final = [
            (at + first, at + last, now[first:last])
            for at, before, now in ((prelude.first, prelude.body_up_to(top), body), (last_page, prelude.end, end))
            for first, last in _different(before, now)
        ]
        self.bytes_kept: Final = sum(len(data) + _PART_BYTES for _, _, data in self._parts)
        """The memory that it takes."""

    def write(self, instance: Instance) -> None:
        """Write it over the memory of an instance that has the prelude's image."""
        memory = instance.memory
        for first, last, data in self._parts:
            memory[first:last] = data


def _top(instance: Instance, top: int) -> int:
    """The end of the page that this address is in, but never within the last page."""
    return min(-(-top // mmap.PAGESIZE) * mmap.PAGESIZE, instance.size - mmap.PAGESIZE)


def _different(before: bytes, now: bytes) -> Iterator[tuple[int, int]]:
    """The parts in which two texts of whole pages differ."""
    is_same = before.startswith  # compares without a copy of its own bytes
    first = last = -1
    for page in range(0, len(now), mmap.PAGESIZE):
        if is_same(now[page : page + mmap.PAGESIZE], page):
            continue
        for piece in range(page, page + mmap.PAGESIZE, _PIECE_BYTES):
            if is_same(now[piece : piece + _PIECE_BYTES], piece):
                continue
            if piece != last:
                if last >= 0:
                    yield first, last
                first = piece
            last = piece + _PIECE_BYTES
    if last >= 0:
        yield first, last
