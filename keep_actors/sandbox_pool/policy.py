"""Settings and statistics of a pool."""

import msgspec


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of workers, and the time one is kept."""

    spares: int = 2
    """Ready workers, for workflows that have none."""
    concurrent_max: int = 64
    """Concurrent invocations. Others wait their turn."""
    kept_max: int = 128
    """Workers that wait for the next invocation of their workflow."""
    invocations_max: int = 200
    """Invocations that a worker serves in its life. 1: each invocation has a process of its own."""
    idle_ms: int = 30_000
    """The time a worker waits for the next invocation of its workflow."""
    settle_ms: int = 250
    """The time an invocation waits for a worker that is still cleaning up after the last one."""
    restarts_max: int = 5
    restarts_within_ms: int = 10_000
    """A zygote that dies more than `restarts_max` times within this time is not started again."""


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of workers now, and totals since the start."""

    spares: int
    kept: int
    busy: int
    spawned: int
    zygote_restarts: int
    zygote_pid: int | None
    worker_pids: list[int]
