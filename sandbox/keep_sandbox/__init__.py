"""Run untrusted JavaScript. Knows QuickJS; knows no SQL and no workflows.

Runs one handler of one script at a time, relays its requests to the caller, and ends with one of a closed set of
outcomes. For scripts that are not trusted, `keep_actors.sandbox_pool` runs this in jailed processes.
"""

from keep_sandbox.declaration import Code, Consumer, Declaration, Inspection, Problem, Schedule, Scheduled
from keep_sandbox.engine import EngineUnsuitable
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

Mutation = IssuedMutation
"""Earlier name of `IssuedMutation`; the storage has another `Mutation`."""

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
