"""Default limits of an invocation in a runtime."""

from typing import Final

from msgspec.structs import replace

from keep_sandbox.limits import DEFAULT_LIMITS

RUN_LIMITS: Final = replace(DEFAULT_LIMITS, host_calls=2_000)
"""More calls than by default: a script may publish a thousand events one by one, with a call for each."""
