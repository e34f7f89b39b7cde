"""Run handlers of untrusted scripts in a supervised pool of jailed worker processes; trusted ones in a thread.

Open a `SandboxPool`, `invoke` a handler, and drive the `Call`: `next`, then `answer` or `refuse`, until the outcome is
terminal. Runs on asyncio and trio; a script never blocks the event loop.
"""

from keep_actors.sandbox_pool.call import Call
from keep_actors.sandbox_pool.policy import PoolPolicy, PoolStats
from keep_actors.sandbox_pool.pool import SandboxPool
from keep_actors.sandbox_pool.spawner import SandboxUnavailable

__all__ = ["Call", "PoolPolicy", "PoolStats", "SandboxPool", "SandboxUnavailable"]
