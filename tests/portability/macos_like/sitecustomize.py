"""Take from an interpreter on Linux what Python lacks on macOS: locks of open files, `/proc`, the peer of a socket.

Used as `windows_like` is. `sys.platform` stays what it is, so that what the code does by it is not shown here.
"""

import asyncio.unix_events as unix_events
import errno
import fcntl
import importlib
import os
import pathlib
import signal
import socket
import subprocess as subprocess
import tempfile as tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MISSING_IN_FCNTL = "F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW"
MISSING_IN_OS = """
    O_DIRECT O_NOATIME O_PATH O_RSYNC copy_file_range eventfd fdatasync getrandom getresgid getresuid memfd_create
    pidfd_open pipe2 posix_fallocate sched_getaffinity sched_setaffinity setresgid setresuid splice
"""
MISSING_IN_SIGNAL = "SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT pidfd_send_signal sigtimedwait sigwaitinfo"
MISSING_IN_SOCKET = "SO_PEERCRED"
CHOOSE_BY_PLATFORM = ("anyio._backends._asyncio", "trio", "wasmtime")


def take_away() -> None:
    """Make this interpreter poor."""
    for name in (*CHOOSE_BY_PLATFORM, *os.environ.get("KEEP_LOADED_FIRST", "").split()):
        with suppress(ImportError):
            importlib.import_module(name)
    missing = (
        (fcntl, MISSING_IN_FCNTL),
        (os, MISSING_IN_OS),
        (signal, MISSING_IN_SIGNAL),
        (socket, MISSING_IN_SOCKET),
    )
    for module, names in missing:
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    paths: Any = pathlib.Path
    for name in ("stat", "open"):
        setattr(paths, name, _without_proc(getattr(paths, name)))
    assert unix_events is not None, "loaded before anything was taken away"


def _without_proc(method: Callable[..., Any]) -> Callable[..., Any]:
    def look(path: pathlib.Path, *words: Any, **options: Any) -> Any:
        if path.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return method(path, *words, **options)

    return look


if __name__ == "sitecustomize":
    take_away()
