"""Settings and statistics of a pool."""

import os
from typing import Literal, TypeAlias

import msgspec

Sharing: TypeAlias = Literal["owner", "all", "none"]


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of workers, the calls that share one, and the time one is kept."""

    sharing: Sharing = "owner"
    """The workflows that may share a worker: those of one owner, all, or none (one worker for each script)."""
    workers: int | None = None
    """Workers that one group of workflows has at most. None: as many as there are cores for this process."""
    spares: int = 2
    """Ready workers, for groups that need another."""
    concurrent_max: int = 64
    """Concurrent invocations. Others wait their turn."""
    calls_per_worker_max: int = 32
    """Concurrent invocations of one worker, of which one computes. Others wait their turn."""
    kept_max: int = 128
    """Workers that wait for the next invocation of their group."""
    invocations_max: int = 10_000
    """Invocations that a worker serves in its life. 1: each invocation has a process of its own."""
    idle_ms: int = 30_000
    """The time a worker waits for the next invocation of its group."""
    scripts_bytes_max: int = 16 * 1024 * 1024
    """Scripts that a worker holds, so that they need not be sent again. The one that ran least recently goes first."""
    restarts_max: int = 5
    restarts_within_ms: int = 10_000
    """A zygote that dies more than `restarts_max` times within this time is not started again."""

    def __post_init__(self) -> None:
        if self.sharing not in ("owner", "all", "none"):
            raise ValueError(f'sharing is "owner", "all" or "none", not {self.sharing!r}')
        for name in ("workers", "concurrent_max", "calls_per_worker_max", "invocations_max"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")

    @property
    def workers_max(self) -> int:
        """Workers of one group. With `sharing="none"` one is enough: a workflow has one run at a time."""
        if self.sharing == "none":
            return 1
        return self.workers if self.workers is not None else usable_cores()


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of workers now, and totals since the start."""

    spares: int
    kept: int
    """Workers of a group that have no call."""
    busy: int
    """Workers with calls, waiting or computing."""
    calls: int
    """Calls on workers, waiting or computing."""
    spawned: int
    zygote_restarts: int
    zygote_pid: int | None
    worker_pids: list[int]


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
