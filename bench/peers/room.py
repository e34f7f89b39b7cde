"""A room for each driver: a network that has only the loopback device, and processes that die together.

A room is a set of Linux namespaces (network, processes, System V memory), made by `unshare` for root or for a user who
may have namespaces. Where that is not possible, drivers run without one, and the report says why.
"""

import functools
import shutil
import subprocess
from typing import Final, NamedTuple

_NAMESPACES: Final = ("--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")
_UNSHARE: Final = ("setpriv", "--pdeathsig", "KILL", "unshare")
"""It dies with the harness, and the room with it: a harness that is killed leaves no server behind."""
_AS_ROOT: Final = (*_UNSHARE, *_NAMESPACES)
_AS_USER: Final = (*_UNSHARE, "--user", "--map-current-user", "--keep-caps", *_NAMESPACES)
# The shell stays as the first process: a driver that is process 1 would be the parent of every orphan.
_ENTER: Final = ("sh", "-c", 'PATH="$PATH:/usr/sbin:/sbin"; ip link set lo up && "$@"; exit $?', "sh")
_TRY_S: Final = 10


class Room(NamedTuple):
    """The command in front of a driver's own; empty, with a reason, if there is no room."""

    command: tuple[str, ...]
    missing: str = ""

    def words(self) -> str:
        return f"the machine's: {self.missing}" if self.missing else "only loopback, in a namespace for each driver"


@functools.cache
def room() -> Room:
    """The room that this machine allows."""
    for program in ("setpriv", "unshare"):
        if shutil.which(program) is None:
            return Room((), f"there is no `{program}`")
    missing = ""
    for unshare in (_AS_ROOT, _AS_USER):
        command = (*unshare, "--", *_ENTER)
        try:
            tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=_TRY_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            missing = str(error)
            continue
        if tried.returncode == 0:
            return Room(command)
        missing = tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else f"ended with {tried.returncode}"
    return Room((), missing)
