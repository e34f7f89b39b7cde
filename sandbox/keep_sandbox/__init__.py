"""Run untrusted JavaScript. Knows QuickJS; knows no SQL and no workflows.

Runs one handler of one script at a time, relays its requests to the caller, and ends with one of a closed set of
outcomes. For scripts that are not trusted, `keep_actors.sandbox_pool` runs this in jailed processes.
Names are imported when they are first used: a command that only wants a character table loads no engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keep_sandbox.declaration import Code, Consumer, Declaration, Inspection, Problem, Schedule, Scheduled
    from keep_sandbox.invocation import Capabilities, Invocation, MethodKind
    from keep_sandbox.jail import JailUnavailable
    from keep_sandbox.json_text import DecoderUnsuitable
    from keep_sandbox.limits import DEFAULT_LIMITS, TRUSTED_LIMITS, Limits
    from keep_sandbox.outcomes import (
        CallLimit,
        CpuLimit,
        Deadlock,
        EngineCrash,
        InvalidValue,
        IssuedMutation,
        JailViolation,
        Kind,
        MemoryLimit,
        Outcome,
        Place,
        ProtocolViolation,
        Refused,
        Request,
        ScriptError,
        SizeLimit,
        StackLimit,
        Terminal,
        Value,
        WallLimit,
        WorkerLost,
    )
    from keep_sandbox.wasm import EngineUnsuitable

    Mutation = IssuedMutation

__all__ = [
    "DEFAULT_LIMITS",
    "TRUSTED_LIMITS",
    "CallLimit",
    "Capabilities",
    "Code",
    "Consumer",
    "CpuLimit",
    "Deadlock",
    "Declaration",
    "DecoderUnsuitable",
    "EngineCrash",
    "EngineUnsuitable",
    "Inspection",
    "InvalidValue",
    "Invocation",
    "IssuedMutation",
    "JailUnavailable",
    "JailViolation",
    "Kind",
    "Limits",
    "MemoryLimit",
    "MethodKind",
    "Mutation",
    "Outcome",
    "Place",
    "Problem",
    "ProtocolViolation",
    "Refused",
    "Request",
    "Schedule",
    "Scheduled",
    "ScriptError",
    "SizeLimit",
    "StackLimit",
    "Terminal",
    "Value",
    "WallLimit",
    "WorkerLost",
]

_HOME = {
    "CallLimit": "keep_sandbox.outcomes",
    "Capabilities": "keep_sandbox.invocation",
    "Code": "keep_sandbox.declaration",
    "Consumer": "keep_sandbox.declaration",
    "CpuLimit": "keep_sandbox.outcomes",
    "DEFAULT_LIMITS": "keep_sandbox.limits",
    "Deadlock": "keep_sandbox.outcomes",
    "Declaration": "keep_sandbox.declaration",
    "DecoderUnsuitable": "keep_sandbox.json_text",
    "EngineCrash": "keep_sandbox.outcomes",
    "EngineUnsuitable": "keep_sandbox.wasm",
    "Inspection": "keep_sandbox.declaration",
    "InvalidValue": "keep_sandbox.outcomes",
    "Invocation": "keep_sandbox.invocation",
    "IssuedMutation": "keep_sandbox.outcomes",
    "JailUnavailable": "keep_sandbox.jail",
    "JailViolation": "keep_sandbox.outcomes",
    "Kind": "keep_sandbox.outcomes",
    "Limits": "keep_sandbox.limits",
    "MemoryLimit": "keep_sandbox.outcomes",
    "MethodKind": "keep_sandbox.invocation",
    "Mutation": "keep_sandbox.outcomes",
    "Outcome": "keep_sandbox.outcomes",
    "Place": "keep_sandbox.outcomes",
    "Problem": "keep_sandbox.declaration",
    "ProtocolViolation": "keep_sandbox.outcomes",
    "Refused": "keep_sandbox.outcomes",
    "Request": "keep_sandbox.outcomes",
    "Schedule": "keep_sandbox.declaration",
    "Scheduled": "keep_sandbox.declaration",
    "ScriptError": "keep_sandbox.outcomes",
    "SizeLimit": "keep_sandbox.outcomes",
    "StackLimit": "keep_sandbox.outcomes",
    "TRUSTED_LIMITS": "keep_sandbox.limits",
    "Terminal": "keep_sandbox.outcomes",
    "Value": "keep_sandbox.outcomes",
    "WallLimit": "keep_sandbox.outcomes",
    "WorkerLost": "keep_sandbox.outcomes",
}
_EARLIER = {"Mutation": "IssuedMutation"}
"""Earlier names of public classes."""
assert set(_HOME) == set(__all__), "every public name has its home"


if not TYPE_CHECKING:  # a type checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), _EARLIER.get(name, name))
        return value
