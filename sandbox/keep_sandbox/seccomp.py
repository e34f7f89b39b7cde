"""The system calls that a worker may make: a filter in the kernel, without a library.

Linux on x86_64 and aarch64. Any other call kills the whole process with SIGSYS, and so do executable memory, a foreign
architecture, and a signal to another process.
"""

import ctypes
import platform
import struct
from typing import Final, NamedTuple


class _Machine(NamedTuple):
    audit_arch: int
    calls: dict[str, int]


# Only what a running worker needs: its socket, memory, clocks, its timer, its own exit.
_X86_64: Final = _Machine(
    0xC000003E,
    {
        "read": 0,
        "write": 1,
        "mmap": 9,
        "mprotect": 10,
        "munmap": 11,
        "brk": 12,
        "rt_sigaction": 13,
        "rt_sigprocmask": 14,
        "rt_sigreturn": 15,
        "sched_yield": 24,
        "mremap": 25,
        "madvise": 28,
        "setitimer": 38,
        "getpid": 39,
        "exit": 60,
        "gettimeofday": 96,
        "gettid": 186,
        "futex": 202,
        "restart_syscall": 219,
        "clock_gettime": 228,
        "exit_group": 231,
        "tgkill": 234,
    },
)
_AARCH64: Final = _Machine(
    0xC00000B7,
    {
        "read": 63,
        "write": 64,
        "exit": 93,
        "exit_group": 94,
        "futex": 98,
        "setitimer": 103,
        "clock_gettime": 113,
        "sched_yield": 124,
        "restart_syscall": 128,
        "tgkill": 131,
        "rt_sigaction": 134,
        "rt_sigprocmask": 135,
        "rt_sigreturn": 139,
        "gettimeofday": 169,
        "getpid": 172,
        "gettid": 178,
        "brk": 214,
        "munmap": 215,
        "mremap": 216,
        "mmap": 222,
        "mprotect": 226,
        "madvise": 233,
    },
)
_MACHINES: Final = {"x86_64": _X86_64, "aarch64": _AARCH64}

_PROT_EXEC: Final = 4
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_KILL: Final = 0x80000000
_ALLOW: Final = 0x7FFF0000
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_NR_AT: Final = 0
_ARCH_AT: Final = 4
_FIRST_ARGUMENT_AT: Final = 16
_THIRD_ARGUMENT_AT: Final = 32
_X32_BIT: Final = 0x40000000


def is_supported() -> bool:
    """Return True if there is a filter for this machine."""
    return platform.system() == "Linux" and platform.machine() in _MACHINES


def program(machine: str, pid: int) -> bytes:
    """The filter as BPF instructions, for a process with this id."""
    arch, calls = _MACHINES[machine]
    lines = [
        _line(_LOAD, _ARCH_AT),
        _line(_EQUAL, arch, then=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NR_AT),
        # x86_64 has a second numbering of system calls (x32).
        _line(_AT_LEAST, _X32_BIT, otherwise=1),
        _line(_RETURN, _KILL),
    ]
    for name in ("mmap", "mprotect"):
        lines += [
            _line(_EQUAL, calls[name], otherwise=4),
            _line(_LOAD, _THIRD_ARGUMENT_AT),
            _line(_ANY_BIT, _PROT_EXEC, otherwise=1),
            _line(_RETURN, _KILL),
            _line(_RETURN, _ALLOW),
        ]
    lines += [
        # Allow `abort`, which signals the process itself; a signal to another process is not allowed.
        _line(_EQUAL, calls["tgkill"], otherwise=4),
        _line(_LOAD, _FIRST_ARGUMENT_AT),
        _line(_EQUAL, pid, then=1),
        _line(_RETURN, _KILL),
        _line(_RETURN, _ALLOW),
    ]
    for name, number in calls.items():
        if name not in ("mmap", "mprotect", "tgkill"):
            lines += [_line(_EQUAL, number, otherwise=1), _line(_RETURN, _ALLOW)]
    lines.append(_line(_RETURN, _KILL))
    return b"".join(lines)


def install(libc: ctypes.CDLL, pid: int) -> None:
    """Apply the filter to this process, irrevocably. `NO_NEW_PRIVS` must be set."""
    code = program(platform.machine(), pid)
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog { unsigned short len; struct sock_filter *filter; }
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer)))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, fprog, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the seccomp filter was not accepted")


def _line(code: int, k: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; `then` and `otherwise` are the numbers of instructions to skip."""
    return struct.pack("HBBI", code, then, otherwise, k)
