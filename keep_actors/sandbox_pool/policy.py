"""How a pool keeps its workers, and what it tells about them."""

import msgspec


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many workers there are, and how long one is kept."""

    spares: int = 2
    """Workers that wait, ready, for a workflow that has none."""
    concurrent_max: int = 64
    """Invocations at a time. More wait their turn."""
    kept_max: int = 128
    """Workers that wait for the next invocation of their workflow."""
    invocations_max: int = 200
    """Invocations that a worker serves in its life. 1: every invocation gets a process of its own."""
    idle_ms: int = 30_000
    """How long a worker waits for the next invocation of its workflow."""
    settle_ms: int = 250
    """How long an invocation waits for a worker that is still clearing up the last one."""
    restarts_max: int = 5
    restarts_within_ms: int = 10_000
    """A zygote that dies more often than this within that time is not started again."""


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """What there is now, and what there was."""

    spares: int
    kept: int
    busy: int
    spawned: int
    zygote_restarts: int
    zygote_pid: int | None
    worker_pids: list[int]
