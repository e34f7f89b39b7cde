"""The jail of a worker, entered before it runs a script. There is no way out.

On Linux the worker has low priority, one descriptor, limited resources, no root user, no new privileges and only a few
system calls, and dies with its parent. The mode `weak` has only the limits of POSIX, and is for development elsewhere.
"""

import ctypes
import math
import os
import resource
import signal
import sys
from typing import Final, Literal, TypeAlias

from keep_sandbox import seccomp
from keep_sandbox.limits import Limits

Mode: TypeAlias = Literal["jailed", "weak"]

_NOBODY: Final = 65534
_NICE: Final = 5
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


class JailUnavailable(Exception):
    """This machine cannot jail workers."""


def check_available(mode: Mode) -> None:
    """Raise `JailUnavailable` if the mode is `jailed` and this machine cannot jail workers."""
    if mode == "jailed" and not seccomp.is_supported():
        raise JailUnavailable(
            "jailed workers need Linux on x86_64 or aarch64. For development elsewhere there is the mode `weak`, "
            "which only enforces limits; never use it for a script that is not trusted."
        )


def close_all_but(descriptor: int) -> int:
    """Close all descriptors but this one, which becomes 3; 0 to 2 become /dev/null."""
    kept = os.dup(descriptor) if descriptor == 3 else descriptor
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    os.dup2(kept, 3)
    os.closerange(4, _descriptors_max())
    return 3


def enter(mode: Mode, limits: Limits, *, parent: int, invocations: int) -> None:
    """Enter the jail. This process dies with the process `parent`."""
    os.nice(_NICE)
    _limit_resources(limits, invocations)
    if mode == "jailed":
        _enter_linux(parent)


def _enter_linux(parent: int) -> None:
    assert sys.platform == "linux", "checked before a worker is forked"
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    # After the change of user, which would clear it. The parent may have died before: check.
    _prctl(libc, _PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    _prctl(libc, _PR_SET_DUMPABLE, 0)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(libc, os.getpid())


def _limit_resources(limits: Limits, invocations: int) -> None:
    # Each invocation has a timer of its own; this is the limit of the worker's whole life.
    cpu_s = math.ceil(invocations * max(limits.cpu_hard_ms, limits.inspect_cpu_ms) / 1000) + 1
    wanted = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, 0),
    ]
    if sys.platform == "linux":
        wanted += [(resource.RLIMIT_DATA, limits.address_space_bytes), (resource.RLIMIT_NPROC, 0)]
    for kind, most in wanted:
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def _descriptors_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(soft, 1024)


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
