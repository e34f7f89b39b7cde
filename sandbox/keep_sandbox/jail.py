"""The jail of a worker, entered before it runs a script. There is no way out.

On Linux the worker has low priority, one descriptor, limited resources, no root user, no new privileges and only a few
system calls, and dies with its parent. A worker in the mode `wasm` has only the limits that its system offers.
"""

import ctypes
import importlib
import math
import os
import signal
import sys
from types import ModuleType
from typing import Final, Literal, TypeAlias

from keep_sandbox import seccomp
from keep_sandbox.limits import GUEST_BYTES, Limits


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_resource: Final = _imported("resource")  # Windows has none

Mode: TypeAlias = Literal["jailed", "wasm"]

_NOBODY: Final = 65534
_NICE: Final = 5
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


class JailUnavailable(Exception):
    """This machine cannot jail workers."""


def check_available(mode: Mode) -> None:
    """Raise `JailUnavailable` if the mode is `jailed` and this machine cannot jail workers."""
    if mode == "jailed" and not (seccomp.is_supported() and _resource is not None and hasattr(os, "fork")):
        raise JailUnavailable(
            'jailed workers need Linux on x86_64 or aarch64. Elsewhere choose sandbox="wasm" (`--sandbox wasm`): the '
            "same engine and limits in worker processes, with WebAssembly as the only wall."
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


def limit_resources(limits: Limits, *, invocations: int, calls: int) -> None:
    """Lower the priority and set the limits of this process, as far as the system has them.

    `invocations`: in its life. `calls`: at a time.
    """
    if hasattr(os, "nice"):
        os.nice(_NICE)
    if _resource is None:
        return
    # Each call has a timer of its own; this is the limit of the worker's whole life.
    cpu_s = math.ceil(invocations * max(limits.cpu_hard_ms, limits.inspect_cpu_ms) / 1000) + 1
    wanted = [
        (_resource.RLIMIT_CORE, 0),
        (_resource.RLIMIT_FSIZE, 0),
        (_resource.RLIMIT_CPU, cpu_s),
        (_resource.RLIMIT_NOFILE, 0),
    ]
    if sys.platform == "linux":
        # Not RLIMIT_AS: each instance of the engine reserves 4 GB of addresses, and uses little of it.
        data_bytes = limits.data_bytes + calls * GUEST_BYTES
        wanted += [(_resource.RLIMIT_DATA, data_bytes), (_resource.RLIMIT_NPROC, 0)]
    for kind, most in wanted:
        _, hard = _resource.getrlimit(kind)
        value = most if hard == _resource.RLIM_INFINITY else min(most, hard)
        _resource.setrlimit(kind, (value, value))


def enter(parent: int) -> None:
    """Enter the jail. This process dies with the process `parent`."""
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


def _descriptors_max() -> int:
    assert _resource is not None, "checked before a worker is forked"
    soft, _ = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == _resource.RLIM_INFINITY else max(int(soft), 1024)


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
