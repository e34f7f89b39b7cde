"""Runs handlers of untrusted scripts: a supervised pool of jailed worker processes, or of none when trusted.

Open a `SandboxPool`, `invoke` a handler, and drive the `Call`: `next`, then `answer` or `refuse`, until
the outcome is terminal. Needs AnyIO alone and runs on asyncio and trio; the loop is never blocked by a script.
"""

from keep_actors.sandbox_pool.call import Call
from keep_actors.sandbox_pool.policy import PoolPolicy, PoolStats
from keep_actors.sandbox_pool.pool import SandboxPool
from keep_actors.sandbox_pool.zygote import SandboxUnavailable

__all__ = ["Call", "PoolPolicy", "PoolStats", "SandboxPool", "SandboxUnavailable"]
