"""The interface of whatever starts workers: a zygote that forks and jails them, or a launcher of single processes."""

import os
import sys
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from keep_actors.sandbox_pool.worker import Worker

EXIT_REPORT_TIMEOUT_S: Final = 2
"""The time that the exit code of a worker is waited for once its socket is closed."""
END_TIMEOUT_S: Final = 5

OnDone: TypeAlias = Callable[[Worker], None]
"""Called with a worker when one of its calls is done."""

_PASSED_ON: Final = (
    # Needed to start a Python that is not installed in the usual place.
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    # The places of caches of this user.
    "HOME",
    "XDG_CACHE_HOME",
    "LOCALAPPDATA",
    "USERPROFILE",
    # Without it no socket can be made on Windows.
    "SYSTEMROOT",
)


class SandboxUnavailable(Exception):
    """Workers cannot be started: the zygote does not start, or dies again and again."""


class Spawner(Protocol):
    """Starts workers, kills them and learns how they ended."""

    is_up: bool

    @property
    def pid(self) -> int | None:
        """The process id of a zygote that is up."""
        ...

    @property
    def workers(self) -> list[Worker]:
        """The workers that have not ended."""
        ...

    async def run(self) -> str:
        """Run until it ends, and return how."""
        ...

    async def spawn(self) -> Worker | None:
        """Start a worker, which is not ready yet. Returns None if that is not possible any more."""
        ...

    def kill(self, worker: Worker) -> None:
        """Kill a worker."""
        ...

    async def wait_for_exit(self, worker: Worker) -> None:
        """Wait for the exit code of a worker that has closed its socket, for a moment."""
        ...

    async def close(self) -> None:
        """End everything that was started, and wait for it."""
        ...


def child_environment() -> dict[str, str]:
    """The environment of processes that run scripts: nothing of ours but the places to find things."""
    return {
        # Import from the same places as this process.
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
        # A second arena would need a system call that the jail forbids.
        "MALLOC_ARENA_MAX": "1",
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    }
