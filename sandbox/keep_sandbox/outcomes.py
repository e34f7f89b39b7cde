"""How an invocation can go on or end: a closed union, so that whoever drives it can match all of it.

`Request` is the only one that is not terminal. Nothing here comes from an exception text that the host parses:
a worker's words are either a typed frame or the way its process ended.
"""

import enum
import signal
from typing import Literal, TypeAlias

import msgspec


class Kind(enum.StrEnum):
    """What a request asks the host for."""

    READ = "read"
    MUTATION = "mutation"
    PEEK = "peek"
    GET_BY_IDS = "get_by_ids"
    PUBLISH = "publish"
    ITEM_OPEN = "item_open"
    ITEM_CLOSE = "item_close"


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the author's script. Both count from 1; a column counts UTF-16 units."""

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
    """JSON text, checked: it parses, within the limits of size and depth."""


class Value(_Outcome, frozen=True, kw_only=True):
    """The handler returned. `value` is JSON text; `undefined` has become `null`."""

    value: str
    is_given: bool = True
    """False when it returned nothing, or `undefined`: then `value` is `null` too, and means nothing."""


class IssuedMutation(_Outcome, frozen=True, kw_only=True):
    """The handler issued its mutation. The script is gone: nothing after this point of it can have an effect."""

    id: int
    name: str
    params: str


class ScriptError(_Outcome, frozen=True, kw_only=True):
    """The script threw, or could not be loaded."""

    phase: Literal["load", "run"]
    name: str
    message: str
    stack: str = ""
    """Only the author's own lines, as `at name (script.js:line:column)`."""
    place: Place | None = None


class InvalidValue(_Outcome, frozen=True, kw_only=True):
    """A value that was to cross cannot be JSON: a function, a cycle, a BigInt, NaN, an instance of a class."""

    path: str
    """`data.items[3].when`; empty for the value itself."""
    message: str
    place: Place | None = None


class CpuLimit(_Outcome, frozen=True, kw_only=True):
    """The script computed for too long. `hard` when the kernel had to end it, and then there is no place."""

    hard: bool = False
    place: Place | None = None


class WallLimit(_Outcome, frozen=True, kw_only=True):
    """The guest had the word for too long."""


class MemoryLimit(_Outcome, frozen=True, kw_only=True):
    """The script used too much memory."""

    place: Place | None = None


class StackLimit(_Outcome, frozen=True, kw_only=True):
    """The script called too deeply."""

    place: Place | None = None


class CallLimit(_Outcome, frozen=True, kw_only=True):
    """The script asked the host for too many things."""

    limit: int


class SizeLimit(_Outcome, frozen=True, kw_only=True):
    """A value that was to cross, or the script itself, is too large."""

    what: Literal["value", "script"]
    limit: int
    path: str = ""
    message: str
    place: Place | None = None


class Deadlock(_Outcome, frozen=True, kw_only=True):
    """The handler waits for something that can never happen: nothing is pending and it has not settled."""


class Refused(_Outcome, frozen=True, kw_only=True):
    """The host refused a request. The script never learned of it."""

    reason: str


class EngineCrash(_Outcome, frozen=True, kw_only=True):
    """The worker died in the engine. Somebody should look at the script, and at the engine's version."""

    signal: int
    """The signal, or minus the exit code when there was none."""


class JailViolation(_Outcome, frozen=True, kw_only=True):
    """The worker tried what the jail forbids: the engine was taken over, or the jail is too tight. Alert loudly."""


class ProtocolViolation(_Outcome, frozen=True, kw_only=True):
    """The worker sent what no worker of ours sends. It was killed; treat the script as hostile."""

    message: str


class WorkerLost(_Outcome, frozen=True, kw_only=True):
    """The worker was ended from outside (an operator, the kernel's memory killer). Not the script's fault."""


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
"""What a worker may say about the end. The rest the host sees for itself, and does not take a worker's word for."""

EXIT_MEMORY = 81
"""The exit code of a worker whose own memory ran out (not the script's heap: the address space)."""

_CPU_SIGNALS = {signal.SIGPROF, signal.SIGXCPU}
_CRASH_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}


def outcome_of_exit(returncode: int | None, *, wall: bool) -> Terminal:
    """What the end of a worker process says about its invocation.

    `returncode` is as in `subprocess` (negative: a signal), None when nobody saw it. `wall` says that the host killed
    it by the clock; a signal of the worker's own that came first still counts.
    """
    if returncode is not None and returncode < 0:
        if -returncode in _CPU_SIGNALS:
            return CpuLimit(hard=True)
        if -returncode == signal.SIGSYS:
            return JailViolation()
        if -returncode in _CRASH_SIGNALS:
            return EngineCrash(signal=-returncode)
    if wall:
        return WallLimit()
    if returncode is None or returncode == -signal.SIGKILL or returncode == -signal.SIGTERM:
        return WorkerLost()
    if returncode == EXIT_MEMORY:
        return MemoryLimit()
    return EngineCrash(signal=-returncode)
