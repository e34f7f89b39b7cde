"""Images of a guest's memory: a copy of all that is not zero, and the way back to it.

Restoring an image is the only way into a guest, and the last step of every invocation. An instance that is idle has
the memory of its image, byte for byte.
"""

import ctypes
import hashlib
import mmap
from typing import Final

from keep_sandbox import wasm
from keep_sandbox.wasm import Instance


class Image:
    """The memory of an instance at one moment. Immutable."""

    def __init__(self, instance: Instance, top: int) -> None:
        """Copy the memory from the end of the stack to `top`, and the last page, where the allocator keeps its end.

        The rest counts as zero: the stack, which is empty between two calls, and memory above `top`, which was never
        allocated.
        """
        first = instance.stack_top
        self.first: Final = first
        self.top: Final = min(-(-top // mmap.PAGESIZE) * mmap.PAGESIZE, instance.size - mmap.PAGESIZE)
        self.size: Final = instance.size
        self._body: Final = ctypes.string_at(instance.address + first, self.top - first)
        self._end: Final = ctypes.string_at(instance.address + self.size - mmap.PAGESIZE, mmap.PAGESIZE)

    @property
    def bytes_kept(self) -> int:
        """The memory that this image takes."""
        return len(self._body) + len(self._end)

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

    def clear_rest(self, instance: Instance) -> None:
        """Make everything zero that is not in the image. An instance that was just copied has the rest."""
        wasm.clear(instance.address, self.first)
        wasm.clear(instance.address + self.top, self.size - mmap.PAGESIZE - self.top)
        instance.reset_stack()

    def restore(self, instance: Instance, *, is_new: bool = False) -> None:
        """Make the memory of the instance this image, whatever was in it, and reset its stack pointer."""
        at = instance.address
        if not is_new:
            self.clear_rest(instance)
        ctypes.memmove(at + self.first, self._body, len(self._body))
        ctypes.memmove(at + self.size - mmap.PAGESIZE, self._end, mmap.PAGESIZE)
