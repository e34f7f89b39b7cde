"""Rename a file without replacing another, in one step: a call of the system that Python does not have.

A link and the removal of the old name would do the same in two steps. A process that is killed between them cannot tell
later if another program has taken the file away meanwhile, and would do all of it again.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from typing import Final

from keep_actors.services.files.folder import OpenFolder

_NAMES: Final = (("renameat2", 1), ("renameatx_np", 4))
"""The function of Linux and that of macOS, each with its flag for "never replace"."""
_UNKNOWN_FLAG: Final = (errno.EINVAL, errno.ENOSYS)


def rename_new(old: OpenFolder, name: str, new: OpenFolder, new_name: str) -> None:
    """Rename a file. Raises `FileExistsError`, and `OSError` with `ENOTSUP` where the file system cannot do that."""
    if _RENAME is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    code = _RENAME(old.descriptor, os.fsencode(name), new.descriptor, os.fsencode(new_name))
    if code in _UNKNOWN_FLAG:
        code = errno.ENOTSUP
    if code:
        raise OSError(code, os.strerror(code))


def _of_this_system() -> Callable[[int, bytes, int, bytes], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    for name, flag in _NAMES:
        if (function := getattr(library, name, None)) is not None:
            return _called(function, flag)
    return None


def _called(function: "ctypes._NamedFuncPointer", flag: int) -> Callable[[int, bytes, int, bytes], int]:
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)

    def rename(old: int, name: bytes, new: int, new_name: bytes) -> int:
        return ctypes.get_errno() if function(old, name, new, new_name, flag) else 0

    return rename


_RENAME: Final = _of_this_system() if os.name == "posix" else None
