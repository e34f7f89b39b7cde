"""Take from an interpreter on Linux what Python does not have on Windows, before anything else is imported.

With the folder of this file in PYTHONPATH the interpreter, and those that it starts, are poor. The standard library and
the libraries that choose by `sys.platform` are loaded first, since that stays what it is. Locks, socket pairs, exit
codes and `stat` are as on Windows, made by other means. Paths, access rights and the console are those of Linux: this
shows what is missing there, not everything that differs.
"""

import asyncio.unix_events
import errno
import fcntl
import getpass as getpass
import importlib
import importlib.abc
import os
import pathlib
import shutil as shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile as tempfile
import types
from contextlib import suppress
from functools import partialmethod
from typing import Any, ClassVar, NoReturn

MISSING_MODULES = "crypt fcntl grp nis posix pty pwd resource spwd syslog termios tty"
MISSING_IN_OS = """
    O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC
    O_SYNC
    WNOHANG chown chroot eventfd fchdir fchmod fchown fdatasync fork forkpty getegid geteuid getgid getgroups getloadavg
    getpgid getpriority getresuid getsid getuid killpg lchown memfd_create mkfifo mknod nice openpty pidfd_open pipe2
    posix_fallocate posix_spawn pread preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_setaffinity
    sched_yield sendfile setegid seteuid setgid setgroups setpgid setpriority setsid setuid statvfs sync sysconf
    tcgetpgrp ttyname uname wait wait3 wait4 waitid writev
"""
MISSING_IN_SIGNAL = """
    ITIMER_PROF ITIMER_REAL ITIMER_VIRTUAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPOLL SIGPROF
    SIGPWR SIGQUIT SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU
    SIGXFSZ alarm getitimer pause pidfd_send_signal pthread_kill pthread_sigmask setitimer siginterrupt sigpending
    sigtimedwait sigwait sigwaitinfo
"""
MISSING_IN_SOCKET = "AF_UNIX SCM_RIGHTS SO_PEERCRED recv_fds send_fds"
CHOOSE_BY_PLATFORM = ("anyio._backends._asyncio", "click._termui_impl", "platformdirs", "trio", "wasmtime")


def take_away() -> None:
    """Make this interpreter poor."""
    for name in (*CHOOSE_BY_PLATFORM, *os.environ.get("KEEP_LOADED_FIRST", "").split()):
        with suppress(ImportError):  # not everything is installed everywhere
            importlib.import_module(name)
    _keep_for_the_standard_library()
    socket.socketpair = _socketpair
    pathlib.Path.stat = _Stat.of(pathlib.Path.stat)  # type: ignore[method-assign]
    sys.modules["msvcrt"] = Msvcrt("msvcrt")
    for name in MISSING_MODULES.split():
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing())
    for module, names in ((os, MISSING_IN_OS), (signal, MISSING_IN_SIGNAL), (socket, MISSING_IN_SOCKET)):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    signal.CTRL_C_EVENT = 0  # type: ignore[attr-defined]  # only Windows has it
    os.kill = _kill


class _Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name in MISSING_MODULES.split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _keep_for_the_standard_library() -> None:
    """`subprocess` and `asyncio` of Linux need what is taken away; to others they do what those of Windows do."""
    kept = types.ModuleType("signal")
    kept.__dict__.update(signal.__dict__)
    system = types.ModuleType("os")
    system.__dict__.update(os.__dict__)
    for library in (subprocess, asyncio.unix_events):
        library.signal = kept  # type: ignore[attr-defined]
        library.os = system  # type: ignore[attr-defined]
    exit_code = os.waitstatus_to_exitcode

    def as_on_windows(status: int) -> int:
        """A process that was killed has the exit code 1: nothing there ends by a signal."""
        return max(exit_code(status), 1) if os.WIFSIGNALED(status) else exit_code(status)

    system.waitstatus_to_exitcode = as_on_windows  # type: ignore[attr-defined]
    handle_status: Any = subprocess.Popen._handle_exitstatus  # type: ignore[attr-defined]
    subprocess.Popen._handle_exitstatus = partialmethod(  # type: ignore[attr-defined]
        handle_status, _waitstatus_to_exitcode=as_on_windows
    )
    asyncio.unix_events.waitstatus_to_exitcode = as_on_windows  # type: ignore[attr-defined]

    def no_signals(*_: object) -> NoReturn:
        raise NotImplementedError

    loop: Any = asyncio.unix_events._UnixSelectorEventLoop
    loop.add_signal_handler = no_signals


def _socketpair(*_: object, **__: object) -> tuple[socket.socket, socket.socket]:
    """Over the loopback interface, as Python does it on Windows."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        return one, other


def _kill(pid: int, number: int) -> NoReturn:
    """On Windows this ends the process, or sends a Ctrl-C to all of a console: nothing to be done by accident."""
    raise AssertionError(f"os.kill({pid}, {number}) does something else on Windows")


class _Stat:
    """The result of `stat`, without what Windows does not say."""

    def __init__(self, found: os.stat_result) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        if name in ("st_blocks", "st_blksize", "st_rdev"):
            raise AttributeError(name)
        return 0 if name in ("st_uid", "st_gid") else getattr(self._found, name)

    def __getitem__(self, index: int) -> Any:
        return self._found[index]

    @classmethod
    def of(cls, stat: Any) -> Any:
        return lambda path, **options: cls(stat(path, **options))


class Msvcrt(types.ModuleType):
    """Byte locks of an open file, which the kernel of this system keeps: they end with the process."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2
    held: ClassVar[dict[int, int]] = {}

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert at >= os.fstat(descriptor).st_size, "on Windows, what is locked cannot be read by others"
        if mode == self.LK_UNLCK:
            if descriptor not in self.held:
                raise PermissionError(errno.EACCES, "Permission denied")
            os.close(self.held.pop(descriptor))
            return
        assert mode == self.LK_NBLCK, "nothing here waits for a lock"
        # Windows locks also what was opened to be read; so the same file is opened once more.
        mine = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        try:
            fcntl.fcntl(mine, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, at, count, 0))
        except OSError:
            os.close(mine)
            raise PermissionError(errno.EACCES, "Permission denied") from None
        self.held[descriptor] = mine


if __name__ == "sitecustomize":
    take_away()
