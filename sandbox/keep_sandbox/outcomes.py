"""Outcomes of an invocation: a closed union that its driver can match completely.

All but `Request` are terminal. The host never parses exception texts: an outcome comes from a typed frame, or from the
way the worker process ended.
"""

import enum
import signal
import sys
from typing import Literal, TypeAlias

import msgspec


class Kind(enum.StrEnum):
    """The kind of a request to the host."""

    READ = "read"
    MUTATION = "mutation"
    PEEK = "peek"
    GET_BY_IDS = "get_by_ids"
    PUBLISH = "publish"
    ITEM_OPEN = "item_open"
    ITEM_CLOSE = "item_close"


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the author's script, counted from 1; a column counts UTF-16 units."""

    line: int
    column: int


class _Outcome(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    pass


class Request(_Outcome, frozen=True, kw_only=True):
    """The script asks the host for something and waits. Answer it or refuse it."""

    id: int
    kind: Kind
    name: str
    """`gmail.search`, or `peek`, `getByIds`, `publish`, `withItem`."""
    params: str
    """JSON text, checked: valid, and within the limits of size and depth."""


class Value(_Outcome, frozen=True, kw_only=True):
    """The handler returned. `value` is JSON text."""

    value: str
    is_given: bool = True
    """False if it returned `undefined`, or nothing; then `value` is `null`."""


class IssuedMutation(_Outcome, frozen=True, kw_only=True):
    """The handler issued its mutation, which ended the script: no code after it has any effect."""

    id: int
    name: str
    params: str


class ScriptError(_Outcome, frozen=True, kw_only=True):
    """The script threw, or could not be loaded."""

    phase: Literal["load", "run"]
    name: str
    message: str
    stack: str = ""
    """The author's lines only, as `at name (script.js:line:column)`."""
    place: Place | None = None


class InvalidValue(_Outcome, frozen=True, kw_only=True):
    """A value for the host is not JSON: a function, a cycle, a BigInt, NaN, an instance of a class."""

    path: str
    """`data.items[3].when`; empty for the value itself."""
    message: str
    place: Place | None = None


class CpuLimit(_Outcome, frozen=True, kw_only=True):
    """The script used too much CPU time. If the kernel ended it, `hard` is True and there is no place."""

    hard: bool = False
    place: Place | None = None


class WallLimit(_Outcome, frozen=True, kw_only=True):
    """The script ran for too long, not counting the time it waited for the host."""


class MemoryLimit(_Outcome, frozen=True, kw_only=True):
    """The script used too much memory."""

    place: Place | None = None


class StackLimit(_Outcome, frozen=True, kw_only=True):
    """The script nested calls too deeply."""

    place: Place | None = None


class CallLimit(_Outcome, frozen=True, kw_only=True):
    """The script made too many requests to the host."""

    limit: int


class SizeLimit(_Outcome, frozen=True, kw_only=True):
    """A value for the host, or the script itself, is too large."""

    what: Literal["value", "script"]
    limit: int
    path: str = ""
    message: str
    place: Place | None = None


class Deadlock(_Outcome, frozen=True, kw_only=True):
    """The handler waits forever: no request is pending and it has not returned."""


class Refused(_Outcome, frozen=True, kw_only=True):
    """The host refused a request and ended the script, which was not told."""

    reason: str


class EngineCrash(_Outcome, frozen=True, kw_only=True):
    """The worker died in the engine. Examine the script, and the engine's version."""

    signal: int
    """The signal, or minus the exit code if there was no signal."""


class JailViolation(_Outcome, frozen=True, kw_only=True):
    """The worker made a forbidden system call: the engine was taken over, or the jail is too tight. Raise an alarm."""


class ProtocolViolation(_Outcome, frozen=True, kw_only=True):
    """The worker sent what an honest worker never sends. It was killed; treat the script as hostile."""

    message: str


class WorkerLost(_Outcome, frozen=True, kw_only=True):
    """The worker was killed from outside (an operator, the kernel's memory killer). Not the script's fault."""


Terminal: TypeAlias = (
    Value
    | IssuedMutation
    | ScriptError
    | InvalidValue
    | CpuLimit
    | WallLimit
    | MemoryLimit
    | StackLimit
    | CallLimit
    | SizeLimit
    | Deadlock
    | Refused
    | EngineCrash
    | JailViolation
    | ProtocolViolation
    | WorkerLost
)

Outcome: TypeAlias = Request | Terminal

InvocationEnd: TypeAlias = (
    Value | ScriptError | InvalidValue | CpuLimit | MemoryLimit | StackLimit | CallLimit | SizeLimit | Deadlock
)
"""The ends that a worker may report. The host observes all others itself."""

EXIT_MEMORY = 81
"""The exit code of a worker whose memory ran out (the script's heap has a limit of its own)."""
EXIT_FAILED = 82
EXIT_NO_JAIL = 83
EXIT_TRAP = 84
"""The exit code of a worker whose engine did what it never does."""


def _signals(*names: str) -> frozenset[int]:
    """The numbers of these signals, as far as this system has them."""
    return frozenset(int(getattr(signal, name)) for name in names if hasattr(signal, name))


_CPU_SIGNALS = _signals("SIGPROF", "SIGXCPU")
_JAIL_SIGNALS = _signals("SIGSYS")
_CRASH_SIGNALS = _signals("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP")
_OUTSIDE_SIGNALS = _signals("SIGKILL", "SIGTERM")
_WINDOWS_TERMINATED = 1
"""The exit code of a process that another one ended, on Windows. A worker of ours never exits with it."""


def outcome_of_exit(returncode: int | None, *, wall: bool) -> Terminal:
    """The outcome of an invocation that was computing when its worker process ended.

    `returncode` is as in `subprocess` (negative: a signal), None if unknown. `wall`: the host killed the worker because
    its time was up; a signal of its own that came first still counts.
    """
    if returncode is not None and returncode < 0:
        if -returncode in _CPU_SIGNALS:
            return CpuLimit(hard=True)
        if -returncode in _JAIL_SIGNALS:
            return JailViolation()
        if -returncode in _CRASH_SIGNALS:
            return EngineCrash(signal=-returncode)
    if wall:
        return WallLimit()
    if returncode is None or -returncode in _OUTSIDE_SIGNALS:
        return WorkerLost()
    if sys.platform == "win32" and returncode == _WINDOWS_TERMINATED:
        return WorkerLost()
    if returncode == EXIT_MEMORY:
        return MemoryLimit()
    return EngineCrash(signal=-returncode)
