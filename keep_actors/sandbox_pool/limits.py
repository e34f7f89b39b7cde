"""Default limits of an invocation in a runtime."""

from typing import Final

from msgspec.structs import replace

from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox.limits import DEFAULT_LIMITS, TRUSTED_LIMITS, Limits

_HOST_CALLS: Final = 2_000
"""A script may publish a thousand events one by one, with a call for each."""


def limits_for(mode: PoolMode) -> Limits:
    """The limits of the sandbox, with more calls, for the events that a run may publish."""
    return replace(TRUSTED_LIMITS if mode == "thread" else DEFAULT_LIMITS, host_calls=_HOST_CALLS)
